"""Optimizers, schedules, clipping and weight decay, against TensorFlow's own and against formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from headway.engines.tensorflow import step
from headway.engines.tensorflow.optimizers import Optimizer
from headway.engines.tensorflow.placement import Declared, How, place
from headway.engines.tensorflow.state import State
from headway.engines.tensorflow.wire import Wire
from headway.spec import workload

v1 = tf.compat.v1
VARIABLES = [Declared("layer/weights", (5, 3)), Declared("layer/bias", (3,)), Declared("scale", ())]
STEPS = 5
CPU = "/device:CPU:0"


def optimizer(name: str = "sgd", **settings: Any) -> Optimizer:
    return Optimizer(workload.Optimizer.model_validate({"name": name, "learning_rate": 0.1, **settings}))


def numbers(seed: int) -> dict[str, Any]:
    """Of each variable's shape: its initial value, or a gradient."""
    chance = np.random.default_rng(seed)
    return {each.name: chance.standard_normal(each.shape).astype(np.float32) for each in VARIABLES}


def reference(name: str, momentum: float) -> Any:
    train = v1.train
    return {
        "sgd": lambda: train.GradientDescentOptimizer(0.1),
        "momentum": lambda: train.MomentumOptimizer(0.1, momentum),
        "adagrad": lambda: train.AdagradOptimizer(0.1),
        "adam": lambda: train.AdamOptimizer(0.1),
        "rmsprop": lambda: train.RMSPropOptimizer(0.1, momentum=momentum),
    }[name]()


def after_reference_steps(name: str, momentum: float) -> dict[str, Any]:
    """Every variable by name, slots and counters included, after some updates by TensorFlow's own optimizer."""
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [
            v1.get_variable(each.name, initializer=numbers(0)[each.name], use_resource=True) for each in VARIABLES
        ]
        gradients = [v1.placeholder(tf.float32, each.shape) for each in VARIABLES]
        apply = reference(name, momentum).apply_gradients(zip(gradients, variables, strict=True))
        session.run(v1.global_variables_initializer())
        for number in range(1, STEPS + 1):
            session.run(apply, dict(zip(gradients, numbers(number).values(), strict=True)))
        found: dict[str, Any] = session.run({each.op.name: each for each in v1.global_variables()})
    return found


def after_our_steps(ours: Optimizer, how: How = "partitioned", num_servers: int = 1) -> dict[str, Any]:
    """The same by ours, with variables in parts where there are several servers (all of them here)."""
    with tf.Graph().as_default(), v1.Session() as session:
        state = State(VARIABLES, place(VARIABLES, num_servers, how), ours, [CPU] * num_servers)
        gradients = {each.name: v1.placeholder(tf.float32, each.shape) for each in VARIABLES}
        pairs = Wire(state, CPU, "float32").push(gradients)
        now = v1.placeholder(tf.int64, [])
        apply = step.update(ours, state, pairs, [], now)
        session.run(v1.global_variables_initializer())
        state.assign(lambda variable, value: variable.load(value, session), numbers(0))
        for number in range(1, STEPS + 1):
            feeds = {gradients[name]: value for name, value in numbers(number).items()}
            session.run(apply, {**feeds, now: number - 1})
        return state.join(session.run(state.variables))


@pytest.mark.parametrize("num_servers", [1, 3])
@pytest.mark.parametrize(
    ("name", "momentum"),
    [
        ("sgd", 0.9),
        ("momentum", 0.9),
        ("momentum", 0.0),
        ("adagrad", 0.9),
        ("adam", 0.9),
        ("rmsprop", 0.9),
        ("rmsprop", 0),
    ],
)
def test_every_optimizer_does_exactly_what_tensorflows_own_does(
    name: str, momentum: float, num_servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.engines.tensorflow.placement.SMALLEST_PART", 1)
    expected = after_reference_steps(name, momentum)
    found = after_our_steps(optimizer(name, momentum=momentum), num_servers=num_servers)
    assert found.keys() == expected.keys() | {"global_step"}, "slots and counters have TensorFlow's names"
    for variable, value in expected.items():
        np.testing.assert_allclose(found[variable], value, rtol=1e-6, atol=1e-7, err_msg=variable)
    assert not np.allclose(found["layer/weights"], numbers(0)["layer/weights"])


def test_the_same_in_a_tf_function_with_variables_that_are_here() -> None:
    """As allreduce uses it."""
    ours = optimizer("adam", schedule={"kind": "linear", "steps": 10})
    state = State(VARIABLES, place(VARIABLES, 1, "greedy"), ours, [CPU])
    state.assign(lambda variable, value: variable.assign(value), numbers(0))

    def apply(now: Any, *gradients: Any) -> None:
        step.update(ours, state, list(zip(state.trained, gradients, strict=True)), [], now)

    update = tf.function(apply)

    for number in range(1, STEPS + 1):
        update(tf.constant(number - 1, tf.int64), *numbers(number).values())
    expected = after_our_steps(ours)
    for variable, value in state.join([each.numpy() for each in state.variables]).items():
        np.testing.assert_allclose(value, expected[variable], rtol=1e-6, err_msg=variable)


# --- schedules --------------------------------------------------------------------------------------------------------
def warm(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / steps)


SCHEDULES: dict[str, tuple[dict[str, Any], Any]] = {
    "constant": ({}, lambda _: 1.0),
    "warmup": ({"warmup": 4}, lambda k: warm(k, 4)),
    "piecewise": (
        {"kind": "piecewise", "at": [3, 7], "factor": 0.5},
        lambda k: 1.0 if k < 3 else 0.5 if k < 7 else 0.25,
    ),
    "exponential": ({"kind": "exponential", "steps": 5, "factor": 0.3}, lambda k: 0.3 ** (k / 5)),
    "cosine": (
        {"kind": "cosine", "steps": 8, "end": 0.1},
        lambda k: 0.1 + 0.9 * (1 + math.cos(math.pi * min(k, 8) / 8)) / 2,
    ),
    "linear": ({"kind": "linear", "steps": 8, "end": 0.2}, lambda k: 0.2 + 0.8 * (1 - min(k, 8) / 8)),
    "to zero": ({"kind": "linear", "steps": 6}, lambda k: 1 - min(k, 6) / 6),
    "warm cosine": (
        {"kind": "cosine", "steps": 10, "warmup": 5},
        lambda k: warm(k, 5) * (1 + math.cos(math.pi * min(k, 10) / 10)) / 2,
    ),
    "warm piecewise": (
        {"kind": "piecewise", "at": [2], "factor": 3.0, "warmup": 6},
        lambda k: warm(k, 6) * (1.0 if k < 2 else 3.0),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_learning_rate_of_every_step(name: str) -> None:
    settings, share = SCHEDULES[name]
    ours = optimizer(schedule=settings)
    found = [float(ours.rate(tf.constant(number, tf.int64))) for number in range(14)]
    np.testing.assert_allclose(found, [0.1 * share(number) for number in range(14)], rtol=1e-5, atol=1e-8)


# --- clipping and weight decay ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("norm", [0.5, 3.0, 1000.0])
def test_clipping_to_a_norm_is_tensorflows(norm: float) -> None:
    gradients = list(numbers(1).values())
    expected, before = tf.clip_by_global_norm(gradients, norm)
    found = optimizer(clip={"norm": norm}).clipped([tf.constant(each) for each in gradients])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    after = float(tf.linalg.global_norm(found))
    assert after == pytest.approx(min(norm, float(before)), rel=1e-5)


def test_gradients_of_zero_survive_clipping() -> None:
    found = optimizer(clip={"norm": 1.0}).clipped([tf.zeros([2, 2]), tf.zeros([2])])
    assert all(np.array_equal(each, np.zeros_like(each)) for each in found)


def test_clipping_to_a_value_cuts_each_number() -> None:
    gradients = list(numbers(1).values())
    found = optimizer(clip={"value": 0.7}).clipped([tf.constant(each) for each in gradients])
    for one, other in zip(found, gradients, strict=True):
        np.testing.assert_array_equal(one, np.clip(other, -0.7, 0.7, dtype=np.float32))
    assert np.max(np.abs(found[0])) == np.float32(0.7)


def test_nothing_is_clipped_unless_asked() -> None:
    gradients = [tf.constant(each) for each in numbers(1).values()]
    assert all(one is other for one, other in zip(optimizer().clipped(gradients), gradients, strict=True))


def test_the_penalty_is_half_the_decay_times_the_squares_of_all_weights_but_no_biases() -> None:
    weights = {name: tf.constant(value) for name, value in numbers(2).items()}
    expected = 0.03 / 2 * np.sum(np.square(numbers(2)["layer/weights"], dtype=np.float64))
    penalty = optimizer(weight_decay=0.03).penalty(list(weights.values()))
    assert penalty is not None
    assert float(penalty) == pytest.approx(expected, rel=1e-6)
    assert optimizer().penalty(list(weights.values())) is None
    assert optimizer(weight_decay=0.03).penalty([weights["layer/bias"], weights["scale"]]) is None
    with tf.GradientTape() as tape:
        tape.watch(weights)
        total = optimizer(weight_decay=0.03).penalty(list(weights.values()))
    slopes = tape.gradient(total, weights, unconnected_gradients="zero")
    np.testing.assert_allclose(slopes["layer/weights"], 0.03 * numbers(2)["layer/weights"], rtol=1e-6)
    assert not np.any(slopes["layer/bias"])
