"""E4's autoencoders: a narrow code from which the input can be made again; plain, denoising or variational.

    features -> (noise) -> encode1 ... -> code -> ... decode1 -> reconstruction        hidden layers: softplus

The loss is half the squared distance from the input without noise: but for a constant, the negative logarithm of its
likelihood when each feature has a normal error of deviation 1. So the variational kind's divergence, in nats, has its
proper weight beside it.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from headway.workloads import base, layers
from headway.workloads.base import DataInfo, ForwardPass

SIZES = {"small": [200], "large": [400, 200]}  # E4: the large one has a second hidden layer


class Settings(base.Settings):
    name: Literal["autoencoder"] = "autoencoder"
    kind: Literal["plain", "gaussian", "masking", "variational"] = "plain"
    """gaussian and masking: the input is to be restored from a noisy one. variational: the code is a distribution."""
    hidden: (
        Literal["small", "large"]
        | Annotated[list[Annotated[int, Field(ge=1, le=100_000)]], Field(min_length=1, max_length=100)]
    ) = "small"
    """Units of the hidden layers, from the input to the code; small is [200], large is [400, 200]."""
    noise: float = Field(default=0.1, ge=0, lt=1)
    """gaussian: standard deviation of what is added to each feature in training; masking: share of features that are
    zeroed in training, the others scaled up."""


TYPICAL = DataInfo((28, 28, 1), 10, 60_000, 10_000)


class Reconstruction(NamedTuple):
    image: Any
    target: Any
    """(batch, features): the input without noise."""
    divergence: Any
    """Of each example's code from N(0, 1), in nats; 0.0 unless variational."""


def check(settings: Settings, data: DataInfo) -> None:
    """Everything can be learnt."""


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Reconstruction:
    import tensorflow as tf

    clean = x = layers.flatten(run, features)
    if settings.kind == "gaussian":
        x = layers.noise(run, x, settings.noise)
    elif settings.kind == "masking":
        x = layers.dropout(run, x, settings.noise)
    *hidden, code = SIZES[settings.hidden] if isinstance(settings.hidden, str) else settings.hidden
    for number, units in enumerate(hidden, 1):
        x = layers.softplus(layers.dense(run, f"encode{number}", x, units))
    divergence: Any = 0.0
    if settings.kind == "variational":
        # A distribution is float32 also where layers are not: its divergence is a sum of small differences.
        mean, log_variance = (
            tf.cast(layers.dense(run, name, x, code), tf.float32) for name in ("mean", "log_variance")
        )
        divergence = 0.5 * tf.reduce_sum(tf.square(mean) + tf.exp(log_variance) - 1 - log_variance, axis=1)
        x = layers.noise(run, mean, tf.exp(0.5 * log_variance))  # a sample; in evaluation the mean
    else:
        x = layers.softplus(layers.dense(run, "code", x, code))
    for number, units in reversed(list(enumerate(hidden, 1))):
        x = layers.softplus(layers.dense(run, f"decode{number}", x, units))
    x = layers.dense(run, "reconstruction", x, math.prod(data.shape))
    return Reconstruction(tf.reshape(x, [-1, *data.shape]), clean, divergence)


def loss(outputs: Reconstruction, labels: Any) -> Any:  # noqa: ARG001
    import tensorflow as tf

    difference = tf.reshape(outputs.image, tf.shape(outputs.target)) - outputs.target
    return 0.5 * tf.reduce_sum(tf.square(difference), axis=1) + outputs.divergence


correct = None  # a picture is near or far, not right or wrong
