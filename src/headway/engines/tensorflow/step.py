"""The graph of one training step, and of several in one call.

    pull ---> loss ---> gradients ---> push (apply) ---> count (global step + 1)
     |         ^                                            |
     |       batch <- input                                 v
     '---- global step at the pull ------------------> staleness = updates counted in between

Every tensor that crosses from the task to a server or back is a message in every step, and for a small model messages
are all that counts. So the step counter, the staleness and the learning rate stay on the server that needs them, and
what the record wants comes back as two small tensors, one from the task and one from the server.
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
    counted: Any  # int64 [global step after this update, updates between its pull and its push]


# apply(gradients and variables) -> the operation that pushes them
Apply = Callable[[list[tuple[Any, Any]]], Any]


def one_step(problem: Problem, iterator: Any, optimizer: Any, apply: Apply, global_step: Any) -> StepTensors:
    with tf.device(global_step.device):
        pulled = tf.raw_ops.ReadVariableOp(resource=global_step.handle, dtype=tf.int64)
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
    with tf.device(global_step.device):  # of what is not tied to a variable: the learning rate
        pushed = apply([(gradient, variable) for gradient, variable in gradients if gradient is not None])
        with v1.control_dependencies([pushed, pulled, *run.updates]):
            # An atomic fetch-and-add. assign_add would read the value back apart from adding, and two tasks could
            # then see the same step.
            before = tf.raw_ops.ResourceCountUpTo(resource=global_step.handle, limit=NO_LIMIT, T=tf.int64)
        counted = tf.stack([before + 1, before - pulled])
    return StepTensors(loss, got - asked, counted)


def single_call(step: StepTensors) -> tuple[Any, Any]:
    """float64 [loss, input seconds] and `counted` as a matrix of one row."""
    with tf.device(step.counted.device):
        counted = step.counted[tf.newaxis]
    return tf.stack([tf.cast(step.loss, tf.float64), step.input_seconds]), counted


def several_in_one_call(build_step: Callable[[], StepTensors], num_steps: int) -> tuple[Any, Any]:
    """The same for `num_steps` steps in a loop inside the graph: [mean loss, input seconds] and a row of `counted` for
    each. The variables must exist already; an iteration begins when the last one is counted."""

    def body(index: Any, loss: Any, input_seconds: Any, counted: Any) -> tuple[Any, ...]:
        step = build_step()
        counted = counted.write(index, step.counted)
        with v1.control_dependencies([counted.flow]):
            return (
                index + 1,
                loss + tf.cast(step.loss, tf.float64),
                input_seconds + step.input_seconds,
                counted,
            )

    zero = tf.constant(0.0, tf.float64)
    _, loss, input_seconds, counted = v1.while_loop(
        lambda index, *_: index < num_steps,
        body,
        (tf.constant(0), zero, zero, tf.TensorArray(tf.int64, size=num_steps, element_shape=[2])),
        parallel_iterations=1,
        back_prop=False,
    )
    return tf.stack([loss / num_steps, input_seconds]), counted.stack()
