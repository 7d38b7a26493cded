"""The graph of one training step, and of several in one call.

    pull ---> loss ---> gradients ---> push ---> reply: the global step after the update
     |         ^                         |
     |       batch <- input              v
     '------------------------->  staleness = updates counted between pull and push

A task with several devices splits its batch over them, and joins what they compute before it is pushed (`compute`).

Every tensor that crosses from the task to a server or back is a message in every step, and for a small model messages
are all that counts. So the step counter, the staleness and the learning rate stay on the server that needs them, and
what the record wants comes back as two small tensors, one from the task and one from the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from headway.engines.tensorflow.optimizers import Optimizer
from headway.engines.tensorflow.problem import Problem
from headway.engines.tensorflow.state import Piece, State
from headway.engines.tensorflow.towers import Tower
from headway.workloads.base import Average, ForwardPass

v1 = tf.compat.v1
NO_LIMIT = 2**62
COUNTED = 3  # numbers in StepTensors.counted


class StepTensors(NamedTuple):
    loss: Any
    """float32: the data's, without weight decay."""
    penalty: Any | None
    """float32: what weight decay adds to it."""
    input_seconds: Any
    """float64: wait at the iterator."""
    counted: Any
    """int64 [global step after the update, updates between pull and push, gradients that entered an update: 1 or 0]"""


class Computed(NamedTuple):
    """What a task computes in one step, before anything is pushed."""

    loss: Any
    penalty: Any | None
    gradients: dict[str, Any]
    """By the variable's name, of the whole variable."""
    averages: list[Average]


class Batch(NamedTuple):
    features: Any
    labels: Any
    seconds: Any
    """float64: how long the iterator let us wait."""


def next_batch(iterator: Any) -> Batch:
    asked = tf.timestamp()
    with tf.control_dependencies([asked]):
        features, labels = iterator.get_next()
    with tf.control_dependencies([features, labels]):
        got = tf.timestamp()
    # The clock is read before anything computes: else, with one thread, it would wait for the whole step.
    with tf.control_dependencies([got]):
        return Batch(tf.identity(features), tf.identity(labels), got - asked)


def compute(
    problem: Problem,
    optimizer: Optimizer,
    batch: Batch,
    values: dict[str, Any],
    towers: Sequence[Tower],
    weight: float = 1.0,
) -> Computed:
    """Loss and gradients of the model whose variables have these values: each tower computes those of its part of the
    batch, and here they are joined, weighted by examples.

    `weight` scales what is handed on (gradients and averages), not what is reported: a synchronous task's share of the
    joined batch. It costs nothing, for it goes into the loss.
    """
    if len(towers) == 1:
        with tf.device(towers[0].device):
            return _in_tower(problem, optimizer, batch.features, batch.labels, values, weight)
    sizes = [tower.examples for tower in towers]
    shares = [size / sum(sizes) for size in sizes]
    said = []
    parts = zip(towers, shares, tf.split(batch.features, sizes), tf.split(batch.labels, sizes), strict=True)
    for tower, share, features, labels in parts:
        with tf.device(tower.device):
            # Its own copies: it must compute the gradients of these, not of what all towers share.
            own = {
                name: tf.identity(value) if isinstance(value, tf.Tensor) else value for name, value in values.items()
            }
            said.append(_in_tower(problem, optimizer, features, labels, own, weight * share))
    loss = tf.add_n([share * each.loss for share, each in zip(shares, said, strict=True)])
    gradients = {name: _sum([each.gradients[name] for each in said]) for name in said[0].gradients}
    averages = [
        same[0]._replace(value=_sum([each.value for each in same]))
        for same in zip(*(each.averages for each in said), strict=True)
    ]
    return Computed(loss, said[0].penalty, gradients, averages)


def _sum(tensors: list[Any]) -> Any | None:
    """None where the loss does not depend on the variable, in no tower."""
    known = [tensor for tensor in tensors if tensor is not None]
    return tf.add_n(known) if known else None


def _in_tower(
    problem: Problem, optimizer: Optimizer, features: Any, labels: Any, values: dict[str, Any], weight: float
) -> Computed:
    settings = problem.settings
    run = ForwardPass(
        training=True, variables=dict(values), data_format=settings.data_format, precision=settings.precision
    )
    outputs = problem.build(features, run)
    loss = tf.reduce_mean(problem.losses(outputs, labels))
    names = [name for name, value in values.items() if isinstance(value, tf.Tensor)]
    penalty = optimizer.penalty([values[name] for name in names])
    total = loss if penalty is None else loss + penalty
    # In float16 most gradients would be too small to be told from zero; a power of two makes them larger for a while,
    # and costs no digit.
    scale = settings.loss_scale if settings.precision == "float16" else 1.0
    factor = weight * scale
    gradients = tf.gradients(total if factor == 1.0 else factor * total, [values[name] for name in names])
    if scale != 1.0:
        gradients = [None if each is None else each / scale for each in gradients]
    averages = run.averages if weight == 1.0 else [each._replace(value=weight * each.value) for each in run.averages]
    return Computed(loss, penalty, dict(zip(names, gradients, strict=True)), averages)


def clipped(optimizer: Optimizer, gradients: dict[str, Any]) -> dict[str, Any]:
    """Those of variables that the loss depends on, all of one update, bounded as asked."""
    known = {name: gradient for name, gradient in gradients.items() if gradient is not None}
    return dict(zip(known, optimizer.clipped(list(known.values())), strict=True))


def update(
    optimizer: Optimizer, state: State, gradients: list[tuple[Piece, Any]], averages: list[Average], step: Any
) -> list[Any]:
    """Operations that bring every variable forward by one update, each where it lives; `step` is the global step
    before it."""
    with tf.device(state.global_step.device):
        rate = optimizer.rate(step)
    counters = {}
    for name, counter in state.counters.items():
        with tf.device(counter.device):
            counters[name] = tf.raw_ops.ReadVariableOp(resource=counter.handle, dtype=tf.float32)
    operations = apply(optimizer, state, gradients, averages, rate, counters)
    with tf.control_dependencies(operations):
        return operations + optimizer.count(state.counters)


def apply(
    optimizer: Optimizer,
    state: State,
    gradients: list[tuple[Piece, Any]],
    averages: list[Average],
    rate: Any,
    counters: dict[str, Any],
) -> list[Any]:
    """The same for some of the variables, and without the counters: `counters` holds their values."""
    operations = []
    for piece, gradient in gradients:
        with tf.device(piece.variable.device):
            operations.append(optimizer.apply(gradient, piece.variable, piece.slots, rate, counters))
    for average in averages:
        (piece,) = state.pieces[average.variable]
        moving = piece.variable
        with tf.device(moving.device):
            # assign_sub of a difference, not assign: asynchronous tasks then add up instead of overwriting each other.
            difference = tf.raw_ops.ReadVariableOp(resource=moving.handle, dtype=tf.float32) - average.value
            operations.append(moving.assign_sub((1 - average.momentum) * difference, read_value=False))
    return operations


def count(state: State, pushed: list[Any]) -> Any:
    """The global step before, which is one more afterwards. An atomic fetch-and-add: assign_add would read the value
    back apart from adding, and two tasks could then see the same step."""
    with tf.device(state.global_step.device), tf.control_dependencies(pushed):
        return tf.raw_ops.ResourceCountUpTo(resource=state.global_step.handle, limit=NO_LIMIT, T=tf.int64)


def single_call(step: StepTensors) -> tuple[Any, Any]:
    """float64 [loss, penalty, input seconds] and `counted` as a matrix of one row."""
    with tf.device(step.counted.device):
        counted = step.counted[tf.newaxis]
    return _seen(step), counted


def _seen(step: StepTensors) -> Any:
    penalty = tf.constant(0.0) if step.penalty is None else step.penalty
    return tf.stack([tf.cast(step.loss, tf.float64), tf.cast(penalty, tf.float64), step.input_seconds])


def several_in_one_call(build_step: Callable[[], StepTensors], num_steps: int) -> tuple[Any, Any]:
    """The same for `num_steps` steps in a loop inside the graph: [mean loss, mean penalty, input seconds] and a row of
    `counted` for each. The variables must exist already; an iteration begins when the last one is counted."""

    def body(index: Any, seen: Any, counted: Any) -> tuple[Any, ...]:
        step = build_step()
        counted = counted.write(index, step.counted)
        with tf.control_dependencies([counted.flow]):
            return index + 1, seen + _seen(step), counted

    _, seen, counted = v1.while_loop(
        lambda index, *_: index < num_steps,
        body,
        (
            tf.constant(0),
            tf.zeros([3], tf.float64),
            tf.TensorArray(tf.int64, size=num_steps, element_shape=[COUNTED]),
        ),
        parallel_iterations=1,
        back_prop=False,
    )
    return seen / [num_steps, num_steps, 1], counted.stack()
