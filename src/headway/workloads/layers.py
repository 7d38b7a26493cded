"""The layers models are made of: plain TensorFlow operations on variables from `get_variable`.

    x = layers.relu(layers.conv2d(run, "conv1", x, filters=32, size=5))

The same function builds a v1 graph and runs eagerly or in a tf.function, with variables of its own or with what an
engine has pulled from its servers (`ForwardPass.variables`). Keras layers cannot do that: in a v1 graph their dropout
mask never changes and their batch statistics never update.

Initial values depend on the seed (`tf.compat.v1.set_random_seed`) and the variable's name alone, not on what else is
in the graph: every strategy starts from the same weights.

Images are [batch, height, width, channels], or [batch, channels, height, width] where `run.data_format` is NCHW. Dense
layers and convolutions compute in `run.precision`, and so does what follows them; variables are float32 always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from headway.workloads.base import Average, ForwardPass

Tensor = Any
Seed = tuple[int, int]
Size = int | tuple[int, int]
"""Of a filter: both sides, or height and width."""
Initializer = Callable[[Sequence[int], Seed], Tensor]
"""(shape, seed) -> initial value."""
MOMENTUM = 0.99  # of moving averages: what a step leaves of them
EPSILON = 1.001e-5  # what batch normalisation adds to each variance: the least that the fused kernel takes


@contextmanager
def layer(run: ForwardPass, name: str) -> Iterator[None]:
    """The scope of one layer's variables; layers may be nested."""
    import tensorflow as tf

    with tf.compat.v1.variable_scope(name, reuse=tf.compat.v1.AUTO_REUSE) as scope:
        if scope.name in run.layers:
            raise ValueError(f"two layers are called {scope.name!r}: they would share their weights; rename one")
        run.layers.add(scope.name)
        yield


def variable(
    run: ForwardPass, name: str, shape: Sequence[int], initializer: Initializer, trainable: bool = True
) -> Any:
    """The variable of that name in the current layer: an existing one, else a new one."""
    import tensorflow as tf

    full_name = f"{tf.compat.v1.get_variable_scope().name}/{name}"

    def initial(shape: Sequence[int], dtype: Any = None, partition_info: Any = None) -> Tensor:  # noqa: ARG001
        return initializer(shape, tf.compat.v1.get_seed(crc32(full_name.encode())))

    if full_name not in run.variables:
        run.variables[full_name] = tf.compat.v1.get_variable(
            name, list(shape), tf.float32, initial, trainable=trainable, use_resource=True
        )
    return run.variables[full_name]


def check_made_by_layers(run: ForwardPass, names: Iterable[str]) -> None:
    """ValueError if a model has variables, by `names`, that it did not get from `variable`: nobody would train them."""
    if stray := sorted(set(names) - run.variables.keys()):
        raise ValueError(
            f"the model makes variables that would not be trained: {', '.join(stray)}. Make them with "
            "headway.workloads.layers (dense, conv2d ..., or layers.variable inside of layers.layer)"
        )


def dense(
    run: ForwardPass,
    name: str,
    x: Tensor,
    units: int,
    *,
    weights: Initializer | None = None,
    bias: Initializer | None = None,
) -> Tensor:
    """x W + b on (batch, features). Without initializers: Glorot uniform weights and a zero bias."""
    import tensorflow as tf

    with layer(run, name):
        shape = [int(x.shape[-1]), units]
        product = tf.matmul(
            _cast(run, x), _cast(run, variable(run, "weights", shape, weights or glorot_uniform(shape)))
        )
        return tf.nn.bias_add(product, _cast(run, variable(run, "bias", [units], bias or zeros)))


def conv2d(
    run: ForwardPass,
    name: str,
    x: Tensor,
    filters: int,
    *,
    size: Size,
    stride: int = 1,
    padding: str = "SAME",
    use_bias: bool = True,
    weights: Callable[[Sequence[int]], Initializer] | None = None,
) -> Tensor:
    """`filters` filters over images. Without an initializer: Glorot uniform weights."""
    import tensorflow as tf

    with layer(run, name):
        height, width = (size, size) if isinstance(size, int) else size
        shape = [height, width, channels(run, x), filters]
        kernel = _cast(run, variable(run, "weights", shape, (weights or glorot_uniform)(shape)))
        x = tf.nn.conv2d(_cast(run, x), kernel, strides=stride, padding=padding, data_format=run.data_format)
        if not use_bias:
            return x
        return tf.nn.bias_add(x, _cast(run, variable(run, "bias", [filters], zeros)), data_format=run.data_format)


def conv_norm(
    run: ForwardPass,
    name: str,
    x: Tensor,
    filters: int,
    *,
    size: Size,
    stride: int = 1,
    padding: str = "SAME",
    use_scale: bool = True,
    epsilon: float = EPSILON,
    momentum: float = MOMENTUM,
) -> Tensor:
    """A convolution and its batch normalisation, which would take any bias away again: there is none."""
    with layer(run, name):
        x = conv2d(
            run, "conv", x, filters, size=size, stride=stride, padding=padding, use_bias=False, weights=he_normal
        )
        return batch_norm(run, "norm", x, momentum, epsilon, use_scale)


def batch_norm(
    run: ForwardPass, name: str, x: Tensor, momentum: float = MOMENTUM, epsilon: float = EPSILON, use_scale: bool = True
) -> Tensor:
    """Each channel with mean 0 and variance 1, then scaled (unless the next layer can do that) and shifted by learned
    numbers.

    Training uses the batch's own statistics and adds them to `run.averages`; otherwise the moving averages are used.
    The moving variance is the unbiased one (divided by n - 1), as elsewhere.
    """
    import tensorflow as tf

    is_image = len(x.shape) == 4
    count = channels(run, x)
    with layer(run, name):
        scale = tf.convert_to_tensor(variable(run, "scale", [count], ones)) if use_scale else tf.ones([count])
        offset = tf.convert_to_tensor(variable(run, "offset", [count], zeros))
        mean = variable(run, "moving_mean", [count], zeros, trainable=False)
        variance = variable(run, "moving_variance", [count], ones, trainable=False)
        # The fused kernel, much faster than separate operations, knows only images.
        images = x if is_image else tf.reshape(x, [-1, 1, 1, count])
        data_format = run.data_format if is_image else "NHWC"
        if run.training:
            normal, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(
                images, scale, offset, epsilon=epsilon, is_training=True, data_format=data_format
            )
            scope = tf.compat.v1.get_variable_scope().name
            run.averages.append(Average(f"{scope}/moving_mean", batch_mean, momentum))
            run.averages.append(Average(f"{scope}/moving_variance", batch_variance, momentum))
        else:
            normal, _, _ = tf.compat.v1.nn.fused_batch_norm(
                images,
                scale,
                offset,
                tf.convert_to_tensor(mean),
                tf.convert_to_tensor(variance),
                epsilon=epsilon,
                is_training=False,
                data_format=data_format,
            )
        return normal if is_image else tf.reshape(normal, tf.shape(x))


def dropout(run: ForwardPass, x: Tensor, rate: float) -> Tensor:
    """In training, zeroes a share `rate` of x, another one in each step, and scales the rest up."""
    import tensorflow as tf

    # A stateful random operation without a seed of its own: the graph's (each task has another) decides.
    return tf.nn.dropout(x, rate) if run.training and rate > 0 else x


def noise(run: ForwardPass, x: Tensor, deviation: Any) -> Tensor:
    """In training, adds normal noise, new in each step. `deviation`: a number, or one for each of x's."""
    import tensorflow as tf

    # As in dropout: each task's own seed decides.
    return x + deviation * tf.random.normal(tf.shape(x), dtype=x.dtype) if run.training else x


def local_response_norm(run: ForwardPass, x: Tensor) -> Tensor:
    """AlexNet's: each number is damped by those of the two channels on either side at the same place."""
    import tensorflow as tf

    images = tf.cast(channels_last(run, x), tf.float32)  # TensorFlow's operation knows no other form
    normal = tf.nn.local_response_normalization(images, depth_radius=2, bias=2.0, alpha=1e-4, beta=0.75)
    return as_formatted(run, tf.cast(normal, x.dtype))


def max_pool(run: ForwardPass, x: Tensor, size: int = 2, stride: int = 2, padding: str = "VALID") -> Tensor:
    import tensorflow as tf

    return tf.nn.max_pool2d(x, size, stride, padding, data_format=run.data_format)


def average_pool(run: ForwardPass, x: Tensor, size: int, stride: int, padding: str = "VALID") -> Tensor:
    """What lies outside the image does not count."""
    import tensorflow as tf

    return tf.nn.avg_pool2d(x, size, stride, padding, data_format=run.data_format)


def global_average(run: ForwardPass, x: Tensor) -> Tensor:
    """Images -> (batch, channels)."""
    import tensorflow as tf

    return tf.reduce_mean(x, axis=[1, 2] if run.data_format == "NHWC" else [2, 3])


def pad(run: ForwardPass, x: Tensor, pixels: int) -> Tensor:
    """A frame of zeros around each image. (SAME padding puts more on the right where the sum is odd.)"""
    import tensorflow as tf

    frame, none = [pixels, pixels], [0, 0]
    return tf.pad(x, [none, frame, frame, none] if run.data_format == "NHWC" else [none, none, frame, frame])


def joined(run: ForwardPass, images: Sequence[Tensor]) -> Tensor:
    """Images of one size, with the channels of all of them."""
    import tensorflow as tf

    return tf.concat(images, axis=_channel_axis(run))


def channels(run: ForwardPass, x: Tensor) -> int:
    """Of images; of anything else, the size of the last dimension."""
    return int(x.shape[_channel_axis(run) if len(x.shape) == 4 else -1])


def channels_last(run: ForwardPass, x: Tensor) -> Tensor:
    """Images as [batch, height, width, channels], whatever the data format."""
    import tensorflow as tf

    return x if run.data_format == "NHWC" else tf.transpose(x, [0, 2, 3, 1])


def as_formatted(run: ForwardPass, x: Tensor) -> Tensor:
    """[batch, height, width, channels] -> images in the data format of this pass."""
    import tensorflow as tf

    return x if run.data_format == "NHWC" else tf.transpose(x, [0, 3, 1, 2])


def _channel_axis(run: ForwardPass) -> int:
    return -1 if run.data_format == "NHWC" else 1


def _cast(run: ForwardPass, x: Any) -> Tensor:
    """A tensor or a variable's value, in the precision of this pass."""
    import tensorflow as tf

    return tf.cast(tf.convert_to_tensor(x), run.precision)


def relu(x: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.nn.relu(x)


def softplus(x: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.nn.softplus(x)


def flatten(run: ForwardPass, x: Tensor) -> Tensor:
    """(batch, any shape) -> (batch, features); of images in one order, whatever the data format."""
    import tensorflow as tf

    x = channels_last(run, x) if len(x.shape) == 4 else x
    return tf.reshape(x, [-1, math.prod(x.shape[1:])])


def zeros(shape: Sequence[int], seed: Seed) -> Tensor:  # noqa: ARG001
    import tensorflow as tf

    return tf.zeros(shape)


def ones(shape: Sequence[int], seed: Seed) -> Tensor:  # noqa: ARG001
    import tensorflow as tf

    return tf.ones(shape)


def standard_normal(shape: Sequence[int], seed: Seed) -> Tensor:
    import tensorflow as tf

    return tf.random.stateless_normal(shape, seed)


def glorot_uniform(full_shape: Sequence[int]) -> Initializer:
    """Uniform, with the limit that suits the whole variable, however it is partitioned."""
    import tensorflow as tf

    *receptive_field, num_in, num_out = full_shape
    limit = math.sqrt(6 / (math.prod(receptive_field) * (num_in + num_out)))
    return lambda shape, seed: tf.random.stateless_uniform(shape, seed, -limit, limit)


def he_normal(full_shape: Sequence[int]) -> Initializer:
    """Normal, so that numbers keep their size through many layers with ReLU, which halves them."""
    import tensorflow as tf

    deviation = math.sqrt(2 / math.prod(full_shape[:-1]))
    return lambda shape, seed: tf.random.stateless_normal(shape, seed, stddev=deviation)


def widened(count: int, width: float) -> int:
    """How many filters or units a layer has in a network that is `width` times as wide as usual."""
    return max(1, round(width * count))
