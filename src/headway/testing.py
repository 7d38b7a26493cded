"""For tests of models of one's own: what `headway init model` writes uses it.

>>> from headway.testing import count_parameters, train_on_few
>>> losses = train_on_few("my_model:build", DataInfo((8, 8, 1), 10, 100, 10), hidden=32)
>>> assert losses[-1] < 0.1 * losses[0]

A model is named as in a job and is found in the folder that the tests are called in, or wherever Python finds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headway import workloads
from headway.workloads import layers, own
from headway.workloads.base import DataInfo, ForwardPass, Model
from headway.workloads.datasets import synthetic
from headway.workloads.objectives import one_each

FEW = 32


def count_parameters(model: str, data: DataInfo | None = None, **settings: Any) -> int:
    """Numbers that training changes, in a model with these settings for this data (default: the model's TYPICAL)."""
    import tensorflow as tf

    found, data = _found(model, data)
    with tf.Graph().as_default():
        features = tf.compat.v1.placeholder(tf.float32, [None, *data.shape])
        run = ForwardPass(training=True)
        found.build(features, _settings(found, model, settings), data, run)
        return sum(variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables())


def train_on_few(
    model: str,
    data: DataInfo | None = None,
    *,
    steps: int = 60,
    learning_rate: float = 0.001,
    seed: int = 1,
    **settings: Any,
) -> list[float]:
    """The mean loss before each of `steps` steps (Adam), always on the same 32 made-up examples of this data's shape
    and classes (default: the model's TYPICAL). A model that works learns them by heart.

    On the way it is checked what training relies on: the model's own `check` accepts the data, there is one loss for
    each example, every variable comes from Headway's layers and gets a gradient, and the model that is built for
    evaluation has the same variables. AssertionError or ValueError says what is wrong.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    found, data = _found(model, data)
    chosen = _settings(found, model, settings)
    found.check(chosen, data)
    with tf.Graph().as_default():
        v1.set_random_seed(seed)
        features, labels = (tf.constant(array) for array in _examples(data))
        run = ForwardPass(training=True)
        losses = one_each(found.loss(found.build(features, chosen, data, run), labels))
        layers.check_made_by_layers(run, [variable.op.name for variable in v1.global_variables()])
        variables, made = v1.trainable_variables(), len(v1.global_variables())
        gradients = v1.gradients(tf.reduce_mean(losses), variables)
        untrained = [one.op.name for one, gradient in zip(variables, gradients, strict=True) if gradient is None]
        assert not untrained, f"the loss does not depend on {', '.join(untrained)}"
        found.build(features, chosen, data, ForwardPass(training=False, variables=run.variables))
        assert len(v1.global_variables()) == made, "built for evaluation, the model has other variables"
        step = v1.train.AdamOptimizer(learning_rate).apply_gradients(zip(gradients, variables, strict=True))
        mean = tf.reduce_mean(losses)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return [float(session.run([mean, step])[0]) for _ in range(steps)]


def _found(name: str, data: DataInfo | None) -> tuple[Model, DataInfo]:
    if own.is_own(name):
        own.look_in(Path.cwd())
    data = data or workloads.model(name).TYPICAL
    if data is None:
        raise ValueError(f"{name} has no TYPICAL data: give `data`, a headway.workloads.base.DataInfo")
    return workloads.model(name, data), data


def _settings(model: Model, name: str, settings: dict[str, Any]) -> Any:
    return model.Settings.model_validate({"name": name, **settings})


def _examples(data: DataInfo) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    made = synthetic.Settings(shape=list(data.shape), classes=data.classes, size=FEW, noise=0.1)
    return synthetic.load(made, Path(), "train")
