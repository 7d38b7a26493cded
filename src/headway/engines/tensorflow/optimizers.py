"""Optimizers by name. They run where the variables are: on the parameter servers, if there are any."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from headway.spec import job

v1 = tf.compat.v1


def optimizer(settings: job.Optimizer) -> Any:
    """A v1 optimizer.

    `use_locking`: two tasks may push to one variable at the same moment; without the lock one of the two updates
    could be lost.
    """
    rate, locked = settings.learning_rate, {"use_locking": True}
    match settings.name:
        case "sgd":
            return v1.train.GradientDescentOptimizer(rate, **locked)
        case "momentum":
            return v1.train.MomentumOptimizer(rate, settings.momentum, **locked)
        case "adagrad":
            return v1.train.AdagradOptimizer(rate, **locked)
        case "adam":
            return v1.train.AdamOptimizer(rate, **locked)
        case "rmsprop":
            return v1.train.RMSPropOptimizer(rate, momentum=settings.momentum, **locked)
