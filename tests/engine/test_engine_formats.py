"""The same model with 16 bits, and with images that lie otherwise in memory: the same variables, and what is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from inprocess import CNN, cluster, job_of, workload

from headway import workloads
from headway.engines.tensorflow import hardware
from headway.errors import SiteError
from headway.workloads import layers
from headway.workloads.base import DataFormat, DataInfo, ForwardPass, Precision
from headway.workloads.models import autoencoder

pytestmark = pytest.mark.system
SMALL = DataInfo(shape=(28, 28, 3), classes=4, num_train=100, num_test=10)
# The smallest of each: settings, and the sides of its images. No dropout: its masks would differ.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "softmax": ({"init": "normal"}, 28),
    "mnist_cnn": ({"batch_norm": True, "dropout": 0.0}, 28),
    "autoencoder": ({"hidden": [20]}, 28),
    "spatial_transformer": ({"size": "large"}, 28),
    "resnet": ({"depth": 8}, 32),
    "alexnet": ({"width": 0.05, "dropout": 0.0}, 63),
    "vgg16": ({"width": 0.05, "dropout": 0.0}, 32),
    "resnet50": ({"width": 0.05}, 32),
    "inception_v3": ({"width": 0.05, "dropout": 0.0}, 75),
}


# XLA takes a minute for the gradients of each; and so small they normalise few numbers again and again, which blows
# rounding up: two gradients in 16 and 32 bits have little in common.
DEEP = {"resnet50", "inception_v3"}


class Built:
    """A model whose loss and gradients can be had in any format and precision, with the same variables."""

    def __init__(self, name: str) -> None:
        settings, side = CASES[name]
        self.model = workloads.model(name)
        self.data = DataInfo(shape=(side, side, 3), classes=4, num_train=100, num_test=10)
        self.settings = self.model.Settings.model_validate(settings)
        random = np.random.default_rng(1)
        self.features = tf.constant(random.normal(size=[8, side, side, 3]), tf.float32)
        self.labels = tf.constant(random.integers(4, size=[8]), tf.int32)
        tf.random.set_seed(1)
        first = ForwardPass(training=True)
        self.model.build(self.features[:2], self.settings, self.data, first)
        self.variables = first.variables

    def __call__(
        self,
        data_format: DataFormat = "NHWC",
        precision: Precision = "float32",
        compiled: bool = False,
        backwards: bool = True,
    ) -> Any:
        """Loss, gradients by name, and batch statistics."""

        def compute(features: Any, labels: Any) -> Any:
            values = {name: tf.convert_to_tensor(value) for name, value in self.variables.items()}
            run = ForwardPass(True, variables=dict(values), data_format=data_format, precision=precision)
            trainable = [name for name, value in self.variables.items() if value.trainable and backwards]
            with tf.GradientTape() as tape:
                tape.watch([values[name] for name in trainable])
                outputs = self.model.build(layers.as_formatted(run, features), self.settings, self.data, run)
                outputs = tf.nest.map_structure(lambda each: tf.cast(each, tf.float32), outputs)
                loss = tf.reduce_mean(self.model.loss(outputs, labels))
            gradients = tape.gradient(loss, [values[name] for name in trainable])
            return loss, dict(zip(trainable, gradients, strict=True)), [each.value for each in run.averages]

        return tf.function(compute, jit_compile=compiled)(self.features, self.labels)


@pytest.mark.parametrize("name", CASES)
def test_images_may_lie_either_way(name: str) -> None:
    """TensorFlow's own kernels for NCHW are for GPUs; XLA has some for CPUs."""
    built = Built(name)
    backwards = name not in DEEP
    loss, gradients, averages = built(compiled=True, backwards=backwards)
    other_loss, other_gradients, other_averages = built("NCHW", compiled=True, backwards=backwards)
    np.testing.assert_allclose(other_loss, loss, rtol=1e-4)
    # Some gradients are zero but for rounding: those of a bias that is normalised away.
    largest = max((float(tf.reduce_max(tf.abs(gradient))) for gradient in gradients.values()), default=0.0)
    for key, gradient in gradients.items():
        size = max(float(tf.reduce_max(tf.abs(gradient))), 1e-2 * largest)
        np.testing.assert_allclose(other_gradients[key], gradient, atol=2e-3 * size, err_msg=key)
    for one, other in zip(averages, other_averages, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", sorted(CASES.keys() - DEEP))
def test_sixteen_bits_are_near_thirty_two(name: str, precision: Precision) -> None:
    built = Built(name)
    loss, gradients, _ = built()
    near_loss, near_gradients, _ = built(precision=precision)
    assert near_loss.dtype == tf.float32
    np.testing.assert_allclose(near_loss, loss, rtol=0.1)
    joined, near = (np.concatenate([np.ravel(each[key]) for key in gradients]) for each in (gradients, near_gradients))
    assert all(gradient.dtype == tf.float32 for gradient in near_gradients.values())
    assert np.isfinite(near).all()
    assert not np.array_equal(joined, near)
    assert joined @ near / np.linalg.norm(joined) / np.linalg.norm(near) > 0.9


@pytest.mark.parametrize("strategy", ["single", "ps-async", "ps-sync"])
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_trained_variables_are_near_those_of_float32(tmp_path: Path, precision: str, strategy: str) -> None:
    found = []
    for asked in ("float32", precision):
        settings = workload(model=CNN, optimizer={"name": "sgd", "learning_rate": 0.05}, precision=asked)
        job = job_of(0 if strategy == "single" else 1, 1, strategy=strategy, workload=settings)
        with cluster(tmp_path, job) as run:
            start = run.values()
            run.steps(6)
            found.append({name: value - start[name] for name, value in run.values().items() if "/" in name})
    for name, moved in found[0].items():
        assert found[1][name].dtype == np.float32
        assert np.linalg.norm(found[1][name] - moved) < 0.1 * np.linalg.norm(moved) + 1e-6, name


def test_a_large_loss_scale_saves_small_gradients() -> None:
    """What float16 cannot say without it."""
    tiny = 1e-9
    x = tf.ones([4, 3])
    weights = tf.ones([3, 2])

    def gradient(scale: float) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            run = ForwardPass(True, variables={"a/weights": weights, "a/bias": tf.zeros([2])}, precision="float16")
            outputs = tf.cast(layers.dense(run, "a", x, 2), tf.float32)
            loss = scale * tiny * tf.reduce_sum(outputs)
        return tape.gradient(loss, weights) / scale

    assert np.all(gradient(1.0).numpy() == 0)
    np.testing.assert_allclose(gradient(1024.0), 4 * tiny, rtol=0.1)


def test_nchw_without_gpus_is_refused_and_says_why() -> None:
    job = job_of(0, 1, strategy="single", workload=workload(model=CNN, data_format="NCHW"))
    with pytest.raises(SiteError, match="NCHW needs a GPU"):
        hardware.check(job, ["CPU:0"])
    assert hardware.check(job, ["GPU:0"])


def test_what_a_cpu_has_arithmetic_for_is_read_from_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    facts = tmp_path / "cpuinfo"
    monkeypatch.setattr(hardware, "CPU_FACTS", facts)
    for line, precision, native in (
        ("flags\t\t: fpu avx512f avx512_bf16", "bfloat16", True),
        ("flags\t\t: fpu avx512f avx512_bf16", "float16", False),
        ("flags\t\t: fpu avx2", "bfloat16", False),
        ("Features\t: fp asimd asimdhp bf16", "float16", True),
        ("flags\t\t: fpu avx2", "float32", True),
    ):
        facts.write_text(f"processor\t: 0\n{line}\nprocessor\t: 1\n")
        job = job_of(0, 1, strategy="single", workload=workload(model=CNN, precision=precision))
        assert hardware.check(job, ["CPU:0"]) is native


def test_an_autoencoder_restores_its_input_in_either_format() -> None:
    """Its target is the input: both must lie alike."""
    settings = autoencoder.Settings(hidden=[5])
    image = tf.reshape(tf.range(24, dtype=tf.float32), [1, 2, 4, 3])
    data = DataInfo((2, 4, 3), None, 1, 1)
    run = ForwardPass(training=False, data_format="NCHW")
    outputs = autoencoder.build(layers.as_formatted(run, image), settings, data, run)
    np.testing.assert_array_equal(outputs.target, tf.reshape(image, [1, -1]))
    assert outputs.image.shape == (1, 2, 4, 3)
