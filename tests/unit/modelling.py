"""What tests of models share: small data, a graph of TensorFlow 1 and its session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway import workloads
from headway.workloads.base import Arrays, DataInfo, ForwardPass, Model
from headway.workloads.datasets import synthetic

IMAGES = DataInfo(shape=(28, 28, 1), classes=10, num_train=100, num_test=10)
NUMBERS = DataInfo(shape=(1,), classes=None, num_train=100, num_test=10)
# Too large for what is cheap with the others: tests/engine/test_engine_photos.py
PHOTO_MODELS = ["alexnet", "inception_resnet_v1", "inception_v3", "resnet50", "vgg16"]


def examples(data: DataInfo, num_examples: int = 32) -> Arrays:
    settings = synthetic.Settings(shape=list(data.shape), classes=data.classes, size=num_examples, noise=0.1)
    return synthetic.load(settings, Path(), "train")


@contextmanager
def graph(seed: int = 1) -> Iterator[Any]:
    """TensorFlow 1's API, in a graph of its own."""
    import tensorflow as tf

    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(seed)
        yield tf.compat.v1


def session(v1: Any) -> Any:
    opened = v1.Session(config=v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1))
    opened.run(v1.global_variables_initializer())
    return opened


def mean_loss(v1: Any, model: Model, data: DataInfo, arrays: Arrays, run: ForwardPass, **settings: Any) -> Any:
    features, labels = (v1.constant(array) for array in arrays)
    outputs = model.build(features, model.Settings.model_validate(settings), data, run)
    return v1.reduce_mean(model.loss(outputs, labels))


def num_parameters(name: str, **settings: Any) -> int:
    """Of a model for its typical data."""
    model = workloads.model(name)
    with graph() as v1:
        features = v1.placeholder(v1.float32, [None, *model.TYPICAL.shape])
        model.build(features, model.Settings.model_validate(settings), model.TYPICAL, ForwardPass(training=True))
        return sum(variable.shape.num_elements() for variable in v1.trainable_variables())
