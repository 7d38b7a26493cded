"""The graph of one training step, and of several in one call.

    pull ---> loss ---> gradients ---> push (apply) ---> count (global step + 1)
     |         ^                                            |
     |       batch <- input                                 v
     '---- global step at the pull ------------------> staleness = updates counted in between

What the record wants comes back as two vectors, one from the task and one from the server that counts: a number
that first had to travel from one to the other would cost a message in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from headway.engines.tensorflow.problem import Problem
from headway.workloads.base import ForwardPass

v1 = tf.compat.v1
NO_LIMIT = 2**62


class StepTensors(NamedTuple):
    loss: Any  # float32
    input_seconds: Any  # float64
    before: Any  # int64: the global step just before this update was counted
    pulled: Any  # int64: the global step when the variables were read


# apply(gradients and variables) -> the operation that pushes them
Apply = Callable[[list[tuple[Any, Any]]], Any]


def one_step(problem: Problem, iterator: Any, optimizer: Any, apply: Apply, global_step: Any) -> StepTensors:
    pulled = global_step.read_value()
    asked = tf.timestamp()
    with v1.control_dependencies([asked]):
        features, labels = iterator.get_next()
    with v1.control_dependencies([features, labels]):
        got = tf.timestamp()
    # The clock is read before anything computes: else, with one thread, it would wait for the whole step.
    with v1.control_dependencies([got]):
        features, labels = tf.identity(features), tf.identity(labels)
    run = ForwardPass(training=True)
    outputs = problem.build(features, run)
    loss = tf.reduce_mean(problem.losses(outputs, labels))
    gradients = optimizer.compute_gradients(loss, v1.trainable_variables())
    pushed = apply([(gradient, variable) for gradient, variable in gradients if gradient is not None])
    with v1.control_dependencies([pushed, pulled, *run.updates]), tf.device(global_step.device):
        # An atomic fetch-and-add. assign_add would read the value back apart from adding, and two tasks could
        # then see the same step.
        before = tf.raw_ops.ResourceCountUpTo(resource=global_step.handle, limit=NO_LIMIT, T=tf.int64)
    return StepTensors(loss, got - asked, before, pulled)


def single_call(step: StepTensors) -> tuple[Any, Any]:
    """float64 [loss, input seconds] and int64 [global step after, staleness]."""
    seen = tf.stack([tf.cast(step.loss, tf.float64), step.input_seconds])
    with tf.device(step.before.device):
        return seen, tf.stack([step.before + 1, step.before - step.pulled])


def several_in_one_call(build_step: Callable[[], StepTensors], num_steps: int) -> tuple[Any, Any]:
    """The same for `num_steps` steps in a loop inside the graph: [mean loss, input seconds] and [global step after,
    staleness of each]. The variables must exist already; an iteration begins when the last one is counted."""

    def body(index: Any, loss: Any, input_seconds: Any, after: Any, staleness: Any) -> tuple[Any, ...]:
        del after
        step = build_step()
        with v1.control_dependencies([step.before]):
            return (
                index + 1,
                loss + tf.cast(step.loss, tf.float64),
                input_seconds + step.input_seconds,
                step.before + 1,
                staleness.write(index, step.before - step.pulled),
            )

    zero = tf.constant(0.0, tf.float64)
    _, loss, input_seconds, after, staleness = v1.while_loop(
        lambda index, *_: index < num_steps,
        body,
        (tf.constant(0), zero, zero, tf.constant(0, tf.int64), tf.TensorArray(tf.int64, size=num_steps)),
        parallel_iterations=1,
        back_prop=False,
    )
    return tf.stack([loss / num_steps, input_seconds]), tf.concat([[after], staleness.stack()], axis=0)
