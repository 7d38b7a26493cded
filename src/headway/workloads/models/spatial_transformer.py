"""E4's spatial transformer network (Jaderberg 2015): it learns where to look, then classifies what it sees there.

    features -> localisation network -> six numbers: an affine map, at first about the identity
        |                                   |
        '-----> bilinear sampler <--- grid of points           -> convolutions -> dense 1,024 -> logits

`transformer: false` leaves the classifier alone, to see what the transformer is good for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass

FILTERS = {"small": (16, 16), "large": (16, 32, 64)}
IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


class Settings(base.Settings):
    name: Literal["spatial_transformer"] = "spatial_transformer"
    size: Literal["small", "large"] = "small"
    """small: two convolutions of stride 2. large: three of stride 1, each followed by a down-sampling layer. (E4 does
    not say how many filters: here 16 and 16, or 16, 32 and 64.)"""
    transformer: bool = True
    """Whether there is a transformer before the classifier."""


TYPICAL = DataInfo((28, 28, 1), 10, 60_000, 10_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    objectives.needs_classes("spatial_transformer", data)
    objectives.needs_images("spatial_transformer", data, smallest=8)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    x = features
    if settings.transformer:
        images = layers.channels_last(run, features)
        x = layers.as_formatted(run, sample(images, *grid(localise(features, run), *data.shape[:2])))
    is_large = settings.size == "large"
    for number, filters in enumerate(FILTERS[settings.size], 1):
        x = layers.relu(layers.conv2d(run, f"conv{number}", x, filters, size=3, stride=1 if is_large else 2))
        if is_large:
            x = layers.max_pool(run, x, padding="SAME")
    x = layers.relu(layers.dense(run, "dense", layers.flatten(run, x), units=1024))
    return layers.dense(run, "logits", x, units=objectives.needs_classes("spatial_transformer", data))


def localise(features: Any, run: ForwardPass) -> Any:
    """Images -> (batch, 6): the affine map of each."""
    import tensorflow as tf

    def identity(shape: Sequence[int], seed: layers.Seed) -> Any:  # noqa: ARG001
        return tf.constant(IDENTITY)

    def tiny(shape: Sequence[int], seed: layers.Seed) -> Any:
        # Not zero: through zeros no gradient would reach the layer before.
        return 0.001 * layers.standard_normal(shape, seed)

    x = tf.tanh(layers.dense(run, "localise1", layers.flatten(run, features), units=20))
    # Places are float32 also where layers are not: with 8 bits a point would be off by a pixel.
    return tf.cast(layers.dense(run, "localise2", x, units=6, weights=tiny, bias=identity), tf.float32)


def grid(maps: Any, height: int, width: int) -> tuple[Any, Any]:
    """Where each pixel of the new image lies in the old one: x and y, (batch, height * width). In both images -1 is the
    centre of the first column or row, and 1 that of the last."""
    import tensorflow as tf

    ones = tf.ones([height, width], maps.dtype)
    across = ones * tf.linspace(tf.constant(-1, maps.dtype), 1, width)
    down = ones * tf.linspace(tf.constant(-1, maps.dtype), 1, height)[:, tf.newaxis]
    points = tf.reshape(tf.stack([across, down, ones]), [3, height * width])
    x, y = tf.unstack(tf.matmul(tf.reshape(maps, [-1, 2, 3]), points), axis=1)
    return x, y


def sample(images: Any, x: Any, y: Any) -> Any:
    """Images at these points: the four pixels around each, weighed by nearness. The result has the images' shape.

    Around an image there is a frame of zeros: it fades out within a pixel, and points far outside have no gradient.
    """
    import tensorflow as tf

    _, height, width, channels = images.shape
    x = tf.clip_by_value((x + 1) * (0.5 * (width - 1)) + 1, 0, width + 1)  # in pixels of the framed image
    y = tf.clip_by_value((y + 1) * (0.5 * (height - 1)) + 1, 0, height + 1)
    left, top = tf.minimum(tf.floor(x), width), tf.minimum(tf.floor(y), height)
    right_share, lower_share = (x - left)[..., tf.newaxis], (y - top)[..., tf.newaxis]
    framed = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]])
    pixels = tf.reshape(framed, [-1, (height + 2) * (width + 2), channels])
    first = tf.cast(top * (width + 2) + left, tf.int32)

    def row(upper_left: Any) -> Any:
        at_left = tf.gather(pixels, upper_left, batch_dims=1)
        at_right = tf.gather(pixels, upper_left + 1, batch_dims=1)
        return (1 - right_share) * at_left + right_share * at_right

    seen = (1 - lower_share) * row(first) + lower_share * row(first + width + 2)
    return tf.reshape(seen, [-1, height, width, channels])


loss = objectives.cross_entropy
correct = objectives.is_largest
