"""What every model promises, in a v1 graph and eagerly, and what is special about each."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from modelling import IMAGES, NUMBERS, PHOTO_MODELS, examples, graph, mean_loss, num_parameters, session
from pydantic import ValidationError

from headway import workloads
from headway.workloads import layers
from headway.workloads.base import DataInfo, ForwardPass, Model
from headway.workloads.models import linear, mnist_cnn, resnet, softmax


@dataclass(frozen=True)
class Case:
    """A model with settings that make it quick or special, and rates at which it learns from 32 examples."""

    name: str
    settings: dict[str, Any]
    adam: float = 0.001
    sgd: float = 0.01

    @property
    def model(self) -> Model:
        return workloads.model(self.name)

    @property
    def data(self) -> DataInfo:
        return NUMBERS if self.name == "linear" else IMAGES


CASES = {
    "linear": Case("linear", {}, adam=0.2),
    "softmax": Case("softmax", {"init": "normal"}, adam=0.05),
    "mnist_cnn": Case("mnist_cnn", {"batch_norm": True}),
    "autoencoder": Case("autoencoder", {}, adam=0.003, sgd=0.001),
    "autoencoder-gaussian": Case("autoencoder", {"kind": "gaussian"}, adam=0.003, sgd=0.001),
    "autoencoder-masking": Case("autoencoder", {"kind": "masking", "hidden": [100]}, adam=0.003, sgd=0.001),
    "autoencoder-variational": Case("autoencoder", {"kind": "variational", "hidden": "large"}, adam=0.003, sgd=0.001),
    "spatial_transformer": Case("spatial_transformer", {}),
    "spatial_transformer-large": Case("spatial_transformer", {"size": "large"}),
    "resnet": Case("resnet", {"depth": 8}, adam=0.01),
}


@pytest.fixture(params=workloads.model_names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


# Every model


def test_there_is_a_case_for_every_model() -> None:
    assert {case.name for case in CASES.values()} | set(PHOTO_MODELS) == set(workloads.model_names())


def test_default_settings_are_valid_and_carry_the_name(name: str) -> None:
    model = workloads.model(name)
    settings = model.Settings.model_validate({"name": name})
    assert settings.name == name
    assert model.Settings.model_validate(settings.model_dump(mode="json")) == settings
    undocumented = {field for field, info in model.Settings.model_fields.items() if not info.description}
    assert undocumented <= {"name"}
    with pytest.raises(ValidationError, match="extra_forbidden"):
        model.Settings.model_validate({"no_such_setting": 1})


def test_it_can_learn_its_typical_data(name: str) -> None:
    model = workloads.model(name)
    model.check(model.Settings.model_validate({}), model.TYPICAL)


def test_model_files_are_imported_without_tensorflow() -> None:
    code = "import sys; from headway import workloads\n"
    code += "for name in workloads.model_names(): workloads.model(name).Settings()\n"
    code += "sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_losses_are_one_per_example_and_correct_is_0_or_1(case: Case) -> None:
    model, data = case.model, case.data
    with graph() as v1:
        features, labels = (v1.constant(array) for array in examples(data, 7))
        settings = model.Settings.model_validate(case.settings)
        outputs = model.build(features, settings, data, ForwardPass(training=False))
        losses = model.loss(outputs, labels)
        with session(v1) as opened:
            values = opened.run(losses)
            assert values.shape == (7,)
            assert values.dtype == np.float32
            if model.correct is not None:
                correct = opened.run(model.correct(outputs, labels))
                assert correct.shape == (7,)
                assert set(correct.tolist()) <= {0.0, 1.0}


def test_every_trainable_variable_has_a_gradient(case: Case) -> None:
    with graph() as v1:
        loss = mean_loss(v1, case.model, case.data, examples(case.data), ForwardPass(training=True), **case.settings)
        variables = v1.trainable_variables()
        gradients = v1.gradients(loss, variables)
        assert None not in gradients
        with session(v1) as opened:
            for variable, gradient in zip(variables, opened.run(gradients), strict=True):
                assert np.abs(gradient).max() > 0, variable.name


def test_it_overfits_32_examples(case: Case) -> None:
    with graph() as v1:
        loss = mean_loss(v1, case.model, case.data, examples(case.data), ForwardPass(training=True), **case.settings)
        step = v1.train.AdamOptimizer(case.adam).minimize(loss)
        with session(v1) as opened:
            first = opened.run(loss)
            for _ in range(40):
                opened.run(step)
            assert opened.run(loss) < 0.1 * first


def test_the_same_seed_gives_the_same_losses_and_another_seed_others(case: Case) -> None:
    def losses(seed: int) -> list[float]:
        with graph(seed) as v1:
            run = ForwardPass(training=True)
            loss = mean_loss(v1, case.model, case.data, examples(case.data), run, **case.settings)
            step = v1.train.GradientDescentOptimizer(case.sgd).minimize(loss)
            with session(v1) as opened:
                return [float(opened.run([loss, step])[0]) for _ in range(3)]

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


def test_a_second_building_for_evaluation_shares_the_variables(case: Case) -> None:
    def build(run: ForwardPass) -> None:
        mean_loss(v1, case.model, case.data, examples(case.data), run, **case.settings)

    with graph() as v1:
        first = ForwardPass(training=True)
        build(first)
        variables = v1.global_variables()
        build(ForwardPass(training=False))
        build(ForwardPass(training=False, variables=first.variables))
        assert v1.global_variables() == variables
        assert {f"{name}:0" for name in first.variables} == {variable.name for variable in variables}


def test_it_trains_in_a_tf_function_from_the_same_start(case: Case) -> None:
    """The second user of the same model function: a tf.function."""
    import tensorflow as tf

    model, data = case.model, case.data
    arrays = examples(data)
    settings = model.Settings.model_validate(case.settings)
    with graph() as v1:
        in_graph = ForwardPass(training=False)
        model.build(v1.constant(arrays[0]), settings, data, in_graph)
        with session(v1) as opened:
            expected = opened.run(in_graph.variables)

    tf.random.set_seed(1)
    first = ForwardPass(training=True)
    model.build(tf.constant(arrays[0][:1]), settings, data, first)
    start = {key: variable.numpy() for key, variable in first.variables.items()}
    assert start.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(start[key], value)
    trainable = [variable for variable in first.variables.values() if variable.trainable]

    @tf.function  # type: ignore[untyped-decorator]
    def step(features: Any, labels: Any) -> Any:
        run = ForwardPass(training=True, variables=first.variables)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model.loss(model.build(features, settings, data, run), labels))
        for variable, gradient in zip(trainable, tape.gradient(loss, trainable), strict=True):
            variable.assign_sub(case.sgd * gradient)
        for average, value, momentum in run.averages:
            first.variables[average].assign_sub((1 - momentum) * (first.variables[average] - value))
        return loss

    losses = [float(step(*map(tf.constant, arrays))) for _ in range(10)]
    assert losses[-1] < losses[0]
    for key, variable in first.variables.items():
        assert not np.array_equal(variable.numpy(), start[key]), f"{key} did not change"


# What is special about each


def test_parameter_counts_are_those_of_the_evaluations() -> None:
    assert num_parameters("linear") == 2
    assert num_parameters("softmax") == 7_850
    assert num_parameters("mnist_cnn") == 3_274_634
    # He 2015: 0.27, 0.46, 0.66 and 0.85 million
    counts = [num_parameters("resnet", depth=depth) for depth in (20, 32, 44, 56)]
    assert counts == [269_722, 464_154, 658_586, 853_018]
    # the smallest by hand: 3x3 filters with scale and offset of each, and the last layer
    layers = [(3, 16), (16, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]
    expected = sum(9 * before * after + 2 * after for before, after in layers) + 64 * 10 + 10
    assert num_parameters("resnet", depth=8) == expected


def test_a_residual_network_has_6n_plus_2_layers() -> None:
    for depth in (2, 18, 43, 9):
        with pytest.raises(ValidationError, match=r"6n \+ 2 layers"):
            resnet.Settings(depth=depth)


def test_where_nothing_is_right_or_wrong_there_is_no_accuracy() -> None:
    without = {name for name in workloads.model_names() if workloads.model(name).correct is None}
    assert without == {"autoencoder", "linear"}


def test_data_that_a_model_cannot_learn_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="model linear needs labels that are numbers; the data set has 10"):
        linear.check(linear.Settings(), IMAGES)
    with pytest.raises(ValueError, match="model softmax needs classes; the data set's labels are numbers"):
        softmax.check(softmax.Settings(), NUMBERS)
    with pytest.raises(ValueError, match="model mnist_cnn needs classes"):
        mnist_cnn.check(mnist_cnn.Settings(), NUMBERS)
    for shape in ((784,), (3, 28, 1)):
        with pytest.raises(ValueError, match=r"model mnist_cnn needs images .* shape \["):
            mnist_cnn.check(mnist_cnn.Settings(), DataInfo(shape, 10, 100, 10))


def test_softmax_starts_at_zero_or_from_the_normal_distribution() -> None:
    for init, deviation in (("zeros", 0.0), ("normal", 1.0)):
        with graph() as v1:
            run = ForwardPass(training=True)
            mean_loss(v1, workloads.model("softmax"), IMAGES, examples(IMAGES), run, init=init)
            with session(v1) as opened:
                values = opened.run(run.variables)
        assert values["softmax/weights"].std() == pytest.approx(deviation, rel=0.05)
        assert (values["softmax/bias"] != 0).all() == (init == "normal")


# Layers


def test_initial_weights_are_glorot_uniform_and_differ_between_variables() -> None:
    with graph() as v1:
        run = ForwardPass(training=True)
        mean_loss(v1, workloads.model("mnist_cnn"), IMAGES, examples(IMAGES), run)
        with session(v1) as opened:
            values = opened.run(run.variables)
    for layer, limit in (("conv2", np.sqrt(6 / (25 * (32 + 64)))), ("dense", np.sqrt(6 / (3136 + 1024)))):
        weights = values[f"{layer}/weights"]
        assert np.abs(weights).max() == pytest.approx(limit, rel=0.001)
        assert weights.std() == pytest.approx(limit / np.sqrt(3), rel=0.01)
    assert values["conv1/weights"].flat[0] != values["conv2/weights"].flat[0]
    assert not values["dense/bias"].any()


def test_two_layers_of_one_name_are_refused() -> None:
    with graph() as v1:
        run = ForwardPass(training=True)
        layers.dense(run, "same", v1.constant([[1.0]]), 1)
        with pytest.raises(ValueError, match="two layers are called 'same'"):
            layers.dense(run, "same", v1.constant([[1.0]]), 1)


def test_dropout_masks_differ_between_steps_and_seeds_and_rest_in_evaluation() -> None:
    def masks(seed: int) -> np.ndarray[Any, Any]:
        with graph(seed) as v1:
            dropped = layers.dropout(ForwardPass(training=True), v1.ones([1000]), 0.4)
            kept = layers.dropout(ForwardPass(training=False), v1.ones([1000]), 0.4)
            with session(v1) as opened:
                assert (opened.run(kept) == 1).all()
                return np.stack([opened.run(dropped) for _ in range(4)])

    first, second = masks(1), masks(2)
    assert (first == 0).mean() == pytest.approx(0.4, abs=0.04)
    assert first.max() == pytest.approx(1 / 0.6)
    together = np.concatenate([first, second])
    assert len(np.unique(together, axis=0)) == len(together), "a mask came twice"


def test_mnist_cnn_drops_out_in_training_only() -> None:
    features, _ = examples(IMAGES, 4)
    with graph() as v1:
        training, evaluation = (
            mnist_cnn.build(v1.constant(features), mnist_cnn.Settings(), IMAGES, ForwardPass(training=training))
            for training in (True, False)
        )
        with session(v1) as opened:
            assert not np.array_equal(opened.run(training), opened.run(training))
            np.testing.assert_array_equal(opened.run(evaluation), opened.run(evaluation))


@pytest.mark.parametrize("shape", [(16, 3), (8, 4, 4, 3)], ids=["vectors", "images"])
def test_batch_norm_updates_its_moving_averages_and_evaluates_with_them(shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    batches = generator.normal(2, 3, (5, *shape)).astype(np.float32)
    momentum, epsilon = 0.9, 1.001e-5
    axes = tuple(range(len(shape) - 1))
    mean, variance = np.zeros(3), np.ones(3)
    with graph() as v1:
        x = v1.placeholder(v1.float32, [None, *shape[1:]])
        run = ForwardPass(training=True)
        trained = layers.batch_norm(run, "norm", x, momentum)
        evaluated = layers.batch_norm(ForwardPass(training=False), "norm", x, momentum)
        assert [variable.name for variable in v1.trainable_variables()] == ["norm/scale:0", "norm/offset:0"]
        assert not v1.get_collection(v1.GraphKeys.UPDATE_OPS), "updates are never hidden"
        assert [average.variable for average in run.averages] == ["norm/moving_mean", "norm/moving_variance"]
        updates = [
            run.variables[average.variable].assign_sub(
                (1 - average.momentum) * (run.variables[average.variable] - average.value)
            )
            for average in run.averages
        ]
        with session(v1) as opened:
            for batch in batches:
                normal, _ = opened.run([trained, updates], {x: batch})
                batch_mean, batch_variance = batch.mean(axes), batch.var(axes)
                expected = (batch - batch_mean) / np.sqrt(batch_variance + epsilon)
                np.testing.assert_allclose(normal, expected, atol=1e-4)
                mean = momentum * mean + (1 - momentum) * batch_mean
                variance = momentum * variance + (1 - momentum) * batch.var(axes, ddof=1)
            moving = opened.run(run.variables)
            np.testing.assert_allclose(moving["norm/moving_mean"], mean, rtol=1e-4)
            np.testing.assert_allclose(moving["norm/moving_variance"], variance, rtol=1e-4)
            expected = (batches[0] - mean) / np.sqrt(variance + epsilon)
            np.testing.assert_allclose(opened.run(evaluated, {x: batches[0]}), expected, atol=1e-4)


def test_a_model_computes_with_what_an_engine_has_pulled() -> None:
    """The engine owns the variables; the model makes none of its own, and averages are named, not applied."""
    with graph() as v1:
        first = ForwardPass(training=True)
        x = v1.ones([4, 3])
        layers.batch_norm(first, "norm", layers.dense(first, "dense", x, 2))
        made = len(v1.global_variables())
        given = {name: v1.zeros(variable.shape) for name, variable in first.variables.items()}
        second = ForwardPass(training=True, variables=given)
        outputs = layers.batch_norm(second, "norm", layers.dense(second, "dense", x, 2))
        assert len(v1.global_variables()) == made == 6
        assert [average.variable for average in second.averages] == ["norm/moving_mean", "norm/moving_variance"]
        with session(v1) as opened:
            assert not opened.run(outputs).any()
