"""Training images, varied at random (settings in workloads/augment.py).

All of a batch at once, and images as they are stored. Random numbers come with the examples: nothing here draws any.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from headway.workloads.augment import MOVES, PIECE, PIECE_PIXELS, Augment, ClutterAugment


def vary(augment: Augment, images: Any, numbers: Any, every: Any | None = None) -> Any:
    """`images` [batch, height, width, channels], each changed as its row of `numbers` says. Pieces of clutter are cut
    out of `every`, all training images."""
    if augment.num_moves:
        images = _moved(augment, images, numbers)
    if isinstance(augment, ClutterAugment) and augment.clutter:
        images = _cluttered(augment.clutter, images, numbers[:, MOVES:], every)
    return images


def _moved(augment: Augment, images: Any, numbers: Any) -> Any:
    """Flip, shift and rotation are one transform: for each pixel of the result, where in the image it comes from."""
    height, width = images.shape[1], images.shape[2]
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    flip = tf.where(numbers[:, 0] < 0.5, -1.0, 1.0) if augment.flip else tf.ones_like(numbers[:, 0])
    down, right = (tf.floor(numbers[:, place] * (2 * augment.shift + 1)) - augment.shift for place in (1, 2))
    angle = (2 * numbers[:, 3] - 1) * math.radians(augment.rotate)
    cosine, sine = tf.cos(angle), tf.sin(angle)
    from_x, from_y = middle_x + right, middle_y + down  # what comes to lie here was in the middle
    transform = tf.stack(
        [
            flip * cosine,
            flip * sine,
            middle_x - flip * (cosine * from_x + sine * from_y),
            -sine,
            cosine,
            middle_y - (cosine * from_y - sine * from_x),
            tf.zeros_like(sine),
            tf.zeros_like(sine),
        ],
        axis=1,
    )
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transform,
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR" if augment.rotate else "NEAREST",  # whole pixels need nothing in between
        fill_mode="CONSTANT",
    )


def _cluttered(num_pieces: int, images: Any, numbers: Any, every: Any) -> Any:
    height, width = images.shape[1], images.shape[2]
    num_images = tf.shape(images)[0]
    random = tf.reshape(numbers[:, : PIECE * num_pieces], [-1, num_pieces, PIECE])
    room = tf.constant([height - PIECE_PIXELS + 1, width - PIECE_PIXELS + 1], tf.float32)
    source = tf.cast(random[..., 0] * tf.cast(tf.shape(every)[0], tf.float32), tf.int32)
    origin = tf.cast(random[..., 1:3] * room, tf.int32)
    target = tf.cast(random[..., 3:5] * room, tf.int32)
    own = tf.tile(tf.range(num_images)[:, tf.newaxis], [1, num_pieces])
    pieces = tf.gather_nd(every, _pixels(source, origin))
    # The brighter of both, as if both were written on one sheet.
    return tf.tensor_scatter_nd_max(images, _pixels(own, target), pieces)


def _pixels(image: Any, corner: Any) -> Any:
    """[batch, pieces, PIECE_PIXELS, PIECE_PIXELS, 3]: image, y and x of all pixels of each piece."""
    inside = tf.range(PIECE_PIXELS)
    y = corner[..., 0, tf.newaxis, tf.newaxis] + inside[:, tf.newaxis]
    x = corner[..., 1, tf.newaxis, tf.newaxis] + inside[tf.newaxis, :]
    return tf.stack(
        [tf.broadcast_to(each, tf.shape(y + x)) for each in (image[..., tf.newaxis, tf.newaxis], y, x)], axis=-1
    )
