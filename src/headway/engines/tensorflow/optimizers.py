"""Optimizers, learning-rate schedules and clipping: TensorFlow's own update kernels, called directly.

Direct, because the same few lines must work in a v1 graph whose variables are (in parts) on servers, and in a
tf.function whose variables are here; and because slots keep the names that v1's optimizers gave them, so checkpoints
look alike whatever wrote them. Everything here takes place where the variable is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from headway.spec import workload

raw = tf.raw_ops
# Two tasks may push to one variable at the same moment; without the lock one of the two updates could be lost.
LOCKED = True
ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-8
RMSPROP_DECAY, RMSPROP_EPSILON = 0.9, 1e-10
ADAGRAD_START = 0.1

SLOTS: dict[str, dict[str, float]] = {
    "sgd": {},
    "momentum": {"Momentum": 0.0},
    "adagrad": {"Adagrad": ADAGRAD_START},
    "adam": {"Adam": 0.0, "Adam_1": 0.0},
    "rmsprop": {"RMSProp": 1.0, "RMSProp_1": 0.0},
}


class Optimizer:
    def __init__(self, settings: workload.Optimizer) -> None:
        self.settings = settings
        self.slots = SLOTS[settings.name]
        """Variables beside each trained one, of its shape: name and initial value."""
        self.counters = {"beta1_power": ADAM_BETA1, "beta2_power": ADAM_BETA2} if settings.name == "adam" else {}
        """Numbers that all variables share: name and initial value."""

    def rate(self, step: Any) -> Any:
        """The learning rate of the update that follows global step `step`; a plain number where it never changes."""
        settings, schedule = self.settings, self.settings.schedule
        if schedule.kind == "constant" and not schedule.warmup:
            return settings.learning_rate
        step = tf.cast(step, tf.float32)
        rate = settings.learning_rate * _share_of_rate(schedule, step)
        if schedule.warmup:
            rate *= tf.minimum((step + 1) / schedule.warmup, 1.0)
        return rate

    def apply(self, gradient: Any, variable: Any, slots: dict[str, Any], rate: Any, counters: dict[str, Any]) -> Any:
        """The operation that updates one variable. `counters` holds their values before this update."""
        settings = self.settings
        common = {"var": variable.handle, "use_locking": LOCKED}
        match settings.name:
            case "sgd":
                return raw.ResourceApplyGradientDescent(alpha=rate, delta=gradient, **common)
            case "momentum":
                return raw.ResourceApplyMomentum(
                    accum=slots["Momentum"].handle, lr=rate, grad=gradient, momentum=settings.momentum, **common
                )
            case "adagrad":
                return raw.ResourceApplyAdagrad(accum=slots["Adagrad"].handle, lr=rate, grad=gradient, **common)
            case "adam":
                return raw.ResourceApplyAdam(
                    m=slots["Adam"].handle,
                    v=slots["Adam_1"].handle,
                    beta1_power=counters["beta1_power"],
                    beta2_power=counters["beta2_power"],
                    lr=rate,
                    beta1=ADAM_BETA1,
                    beta2=ADAM_BETA2,
                    epsilon=ADAM_EPSILON,
                    grad=gradient,
                    **common,
                )
            case "rmsprop":
                return raw.ResourceApplyRMSProp(
                    ms=slots["RMSProp"].handle,
                    mom=slots["RMSProp_1"].handle,
                    lr=rate,
                    rho=RMSPROP_DECAY,
                    momentum=settings.momentum,
                    epsilon=RMSPROP_EPSILON,
                    grad=gradient,
                    **common,
                )

    def count(self, counters: dict[str, Any]) -> list[Any]:
        """Operations that bring the counters to the next update, to run after every `apply`."""
        factors = {"beta1_power": ADAM_BETA1, "beta2_power": ADAM_BETA2}
        operations = []
        for name, counter in counters.items():
            with tf.device(counter.device):
                # The bare read: TensorFlow's own would be on no device in particular.
                before = raw.ReadVariableOp(resource=counter.handle, dtype=tf.float32)
                operations.append(counter.assign(before * factors[name], read_value=False))
        return operations

    def clipped(self, gradients: Sequence[Any]) -> list[Any]:
        """All gradients of one update, bounded as asked; each stays on its device."""
        clip = self.settings.clip
        if clip is None:
            return list(gradients)
        if clip.value is not None:
            return [_beside(gradient, lambda g: tf.clip_by_value(g, -clip.value, clip.value)) for gradient in gradients]
        squares = [_beside(gradient, lambda g: tf.reduce_sum(tf.square(g))) for gradient in gradients]
        norm = tf.sqrt(tf.add_n(squares))
        factor = clip.norm / tf.maximum(norm, clip.norm)
        return [_beside(gradient, lambda g: g * factor) for gradient in gradients]

    def penalty(self, weights: Sequence[Any]) -> Any | None:
        """What weight decay adds to the loss; of variables with rows and columns only (no biases)."""
        decay = self.settings.weight_decay
        decayed = [tf.nn.l2_loss(each) for each in weights if each.shape.rank >= 2]
        return decay * tf.add_n(decayed) if decay and decayed else None


def _share_of_rate(schedule: workload.Schedule, step: Any) -> Any:
    match schedule.kind:
        case "piecewise":
            passed = tf.reduce_sum(tf.cast(step >= tf.constant(schedule.at, tf.float32), tf.float32))
            return tf.pow(schedule.factor, passed)
        case "exponential":
            return tf.pow(schedule.factor, step / float(schedule.steps or 1))
        case "cosine" | "linear":
            done = tf.minimum(step / float(schedule.steps or 1), 1.0)
            left = 1 - done if schedule.kind == "linear" else 0.5 * (1 + tf.cos(math.pi * done))
            return schedule.end + (1 - schedule.end) * left
        case _:
            return tf.constant(1.0)


def _beside(tensor: Any, function: Any) -> Any:
    """`function(tensor)`, computed where the tensor is."""
    with tf.device(tensor.device):
        return function(tensor)
