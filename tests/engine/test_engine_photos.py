"""The networks for photographs: narrow ones on the smallest images learn, and those that Keras has too are the same.

Building one takes seconds, so each is built once for all that is asked of its training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from modelling import PHOTO_MODELS, examples, graph, mean_loss, session

from headway import workloads
from headway.engines.tensorflow.describe import describe
from headway.workloads.base import DataInfo, ForwardPass

pytestmark = pytest.mark.system  # a minute and more
SMALLEST = {"alexnet": 63, "inception_resnet_v1": 75, "inception_v3": 75, "resnet50": 32, "vgg16": 32}
NORMALISED = ["inception_resnet_v1", "inception_v3", "resnet50"]


def photos(name: str) -> DataInfo:
    return DataInfo((SMALLEST[name], SMALLEST[name], 3), 10, 100, 10)


@dataclass(frozen=True)
class Training:
    name: str
    session: Any
    run: ForwardPass
    variables: list[Any]
    gradients: list[Any]
    loss: Any
    step: Any


@pytest.fixture(scope="module", params=PHOTO_MODELS)
def training(request: pytest.FixtureRequest) -> Iterator[Training]:
    name, data = request.param, photos(request.param)
    settings = {"width": 0.125} | ({} if name == "resnet50" else {"dropout": 0.0})
    run = ForwardPass(training=True)
    with graph() as v1:
        loss = mean_loss(v1, workloads.model(name), data, examples(data), run, **settings)
        variables = v1.trainable_variables()
        gradients = v1.gradients(loss, variables)
        step = v1.train.AdamOptimizer(0.001).apply_gradients(zip(gradients, variables, strict=True))
        opened = session(v1)
    # Outside of the graph, which would else be the default one for tests that have nothing to do with it.
    yield Training(name, opened, run, variables, gradients, loss, step)
    opened.close()


def test_every_trainable_variable_has_a_gradient(training: Training) -> None:
    assert None not in training.gradients
    for variable, gradient in zip(training.variables, training.session.run(training.gradients), strict=True):
        assert np.abs(gradient).max() > 0, variable.name


def test_every_moving_average_is_brought_forward(training: Training) -> None:
    averages = [average.variable for average in training.run.averages]
    trained = {variable.op.name for variable in training.variables}
    assert sorted(averages) == sorted(training.run.variables.keys() - trained)
    assert bool(averages) == (training.name in NORMALISED)


def test_it_overfits_32_examples(training: Training) -> None:
    first = training.session.run(training.loss)
    for _ in range(40):
        training.session.run(training.step)
    assert training.session.run(training.loss) < 0.1 * first


@pytest.mark.parametrize("name", PHOTO_MODELS)
def test_smaller_images_are_refused_and_the_smallest_are_not(name: str) -> None:
    model = workloads.model(name)
    settings = model.Settings.model_validate({})
    model.check(settings, photos(name))
    side = SMALLEST[name]
    with pytest.raises(ValueError, match=f"model {name} needs images of at least {side}x{side} pixels"):
        model.check(settings, DataInfo((side, side - 1, 3), 10, 100, 10))


# --- sizes and work -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "settings", "parameters", "giga_products"),
    [
        ("resnet50", {"version": "v1"}, 25_557_032, 3.86),
        ("resnet50", {"width": 0.5}, None, None),
        ("vgg16", {"width": 0.5}, None, None),
        ("resnet", {"depth": 20}, 269_722, 0.04055),
        ("resnet", {"depth": 56}, 853_018, 0.12549),
    ],
)
def test_settings_change_size_and_work(
    name: str, settings: dict[str, Any], parameters: int | None, giga_products: float | None
) -> None:
    found = describe(name, **settings)
    if parameters is None or giga_products is None:  # half as wide: about a quarter of everything
        usual = describe(name)
        assert found["parameters"] == pytest.approx(usual["parameters"] / 4, rel=0.1)
        assert found["flops"] == pytest.approx(usual["flops"] / 4, rel=0.1)
    else:
        assert found["parameters"] == parameters
        assert found["flops"] / 2 == pytest.approx(1e9 * giga_products, rel=0.02)


# --- equal to Keras -------------------------------------------------------------------------------------------------
def randomised(model: Any) -> Any:
    """Every weight drawn anew: as Keras leaves them, biases, means and variances would not matter."""
    chance = np.random.default_rng(0)
    for variable in model.weights:
        shape = tuple(variable.shape)
        if variable.name == "kernel":
            value = chance.normal(0, np.sqrt(2 / np.prod(shape[:-1])), shape)
        elif variable.name in ("gamma", "moving_variance"):
            value = chance.uniform(0.5, 1.5, shape)
        else:
            value = chance.normal(0, 0.1, shape)
        variable.assign(value)
    return model


def ours(name: str, settings: Any, data: DataInfo, model: Any) -> dict[str, Any]:
    """Keras's weights by our names. Both make their layers in the same order, which Keras's names tell."""
    with tf.Graph().as_default():
        run = ForwardPass(training=False)
        features = tf.compat.v1.placeholder(tf.float32, [None, *data.shape])
        workloads.model(name).build(features, settings, data, run)
        names = list(run.variables)

    def ordered(kind: str) -> list[dict[str, Any]]:
        layers = [layer for layer in model.layers if type(layer).__name__ == kind]
        layers.sort(key=lambda layer: [int(number) for number in re.findall(r"\d+", layer.name)])
        return [{weight.name: weight.numpy() for weight in layer.weights} for layer in layers]

    weighted = [one for one in names if one.endswith("/weights")]
    norms = [one.removesuffix("/offset") for one in names if one.endswith("/offset")]
    found: dict[str, Any] = {}
    biases = []
    predictions, *dense = ordered("Dense")  # the last layer has no number in its name
    for weights, layer in zip(weighted, [*ordered("Conv2D"), *dense, predictions], strict=True):
        bias = weights.replace("/weights", "/bias")
        found[weights] = layer["kernel"]
        if bias in names:
            found[bias] = layer["bias"]
        else:
            biases.append(layer.get("bias", 0.0))
    for norm, layer, bias in zip(norms, ordered("BatchNormalization"), biases, strict=True):
        found[f"{norm}/offset"] = layer["beta"]
        found[f"{norm}/moving_variance"] = layer["moving_variance"]
        # A bias before a normalisation only shifts the mean that is taken away: we have none.
        found[f"{norm}/moving_mean"] = layer["moving_mean"] - bias
        if f"{norm}/scale" in names:
            found[f"{norm}/scale"] = layer["gamma"]
    assert found.keys() == set(names)
    return found


@pytest.mark.filterwarnings("ignore")  # of Keras
@pytest.mark.parametrize(
    ("name", "keras_name", "settings"),
    [("inception_v3", "InceptionV3", {}), ("resnet50", "ResNet50", {"version": "v1"}), ("vgg16", "VGG16", {})],
)
def test_with_the_same_weights_it_answers_as_keras_does(name: str, keras_name: str, settings: dict[str, Any]) -> None:
    import keras

    data = photos(name)
    reference = randomised(
        getattr(keras.applications, keras_name)(
            weights=None, input_shape=data.shape, classes=10, classifier_activation=None
        )
    )
    features = np.random.default_rng(1).random((3, *data.shape), np.float32)
    expected = reference(features, training=False).numpy()
    model = workloads.model(name)
    chosen = model.Settings.model_validate(settings)
    run = ForwardPass(training=False, variables=ours(name, chosen, data, reference))
    found = model.build(tf.constant(features), chosen, data, run).numpy()
    assert np.std(expected, axis=0).min() > 1e-3 * np.abs(expected).max(), "the answer depends on the image"
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
