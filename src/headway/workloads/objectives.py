"""What models are trained for, one number per example, so that means over any set of examples are exact."""

from __future__ import annotations

from typing import Any

from headway.workloads.base import DataInfo


def cross_entropy(logits: Any, labels: Any) -> Any:
    import tensorflow as tf

    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def squared_error(outputs: Any, labels: Any) -> Any:
    import tensorflow as tf

    return tf.math.squared_difference(outputs, labels)


def one_each(losses: Any) -> Any:
    """The losses, if there is one for each example; ValueError where a shape says otherwise. A number too many (an
    answer of [batch, 1] beside labels of [batch]) would quietly be a matrix of losses."""
    if losses.shape.rank not in (1, None):
        raise ValueError(
            f"the model's loss must be one number for each example, a tensor of shape [batch]; it has the shape "
            f"{losses.shape.as_list()}"
        )
    return losses


def is_largest(logits: Any, labels: Any) -> Any:
    """1.0 where the label's logit is the largest."""
    import tensorflow as tf

    return tf.cast(tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels), tf.float32)


def needs_classes(model: str, data: DataInfo) -> int:
    """The number of classes; ValueError where labels are numbers."""
    if data.classes is None:
        raise ValueError(f"model {model} needs classes; the data set's labels are numbers (a model for those: linear)")
    return data.classes


def needs_images(model: str, data: DataInfo, smallest: int) -> None:
    """ValueError unless examples are images, both sides of at least `smallest` pixels."""
    if len(data.shape) != 3 or min(data.shape[:2]) < smallest:
        raise ValueError(
            f"model {model} needs images of at least {smallest}x{smallest} pixels, [height, width, channels]; "
            f"the data set has examples of shape {list(data.shape)}"
        )
