"""The layers models are made of: plain TensorFlow operations on variables from `get_variable`.

    x = layers.relu(layers.conv2d(run, "conv1", x, filters=32, size=5))

The same function builds a v1 graph and runs eagerly or in a tf.function, with variables of its own or with what an
engine has pulled from its servers (`ForwardPass.variables`). Keras layers cannot do that: in a v1 graph their dropout
mask never changes and their batch statistics never update.

Initial values depend on the seed (`tf.compat.v1.set_random_seed`) and the variable's name alone, not on what else is
in the graph: every strategy starts from the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from headway.workloads.base import Average, ForwardPass

Tensor = Any
Seed = tuple[int, int]
Initializer = Callable[[Sequence[int], Seed], Tensor]
"""(shape, seed) -> initial value."""


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
        product = tf.matmul(x, variable(run, "weights", shape, weights or glorot_uniform(shape)))
        return tf.nn.bias_add(product, variable(run, "bias", [units], bias or zeros))


def conv2d(
    run: ForwardPass,
    name: str,
    x: Tensor,
    filters: int,
    *,
    size: int,
    stride: int = 1,
    padding: str = "SAME",
    use_bias: bool = True,
) -> Tensor:
    """`filters` square filters over (batch, height, width, channels)."""
    import tensorflow as tf

    with layer(run, name):
        shape = [size, size, int(x.shape[-1]), filters]
        weights = variable(run, "weights", shape, glorot_uniform(shape))
        x = tf.nn.conv2d(x, tf.convert_to_tensor(weights), strides=stride, padding=padding)
        return tf.nn.bias_add(x, variable(run, "bias", [filters], zeros)) if use_bias else x


def batch_norm(run: ForwardPass, name: str, x: Tensor, momentum: float = 0.99, epsilon: float = 1.001e-5) -> Tensor:
    """Each channel with mean 0 and variance 1, then scaled and shifted by learned numbers.

    Training uses the batch's own statistics and adds them to `run.averages`; otherwise the moving averages are used.
    The moving variance is the unbiased one (divided by n - 1), as elsewhere.
    """
    import tensorflow as tf

    channels = int(x.shape[-1])
    with layer(run, name):
        scale = tf.convert_to_tensor(variable(run, "scale", [channels], ones))
        offset = tf.convert_to_tensor(variable(run, "offset", [channels], zeros))
        mean = variable(run, "moving_mean", [channels], zeros, trainable=False)
        variance = variable(run, "moving_variance", [channels], ones, trainable=False)
        # The fused kernel, much faster than separate operations, knows only images.
        images = x if len(x.shape) == 4 else tf.reshape(x, [-1, 1, 1, channels])
        if run.training:
            normal, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(
                images, scale, offset, epsilon=epsilon, is_training=True
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
            )
        return normal if len(x.shape) == 4 else tf.reshape(normal, tf.shape(x))


def dropout(run: ForwardPass, x: Tensor, rate: float) -> Tensor:
    """In training, zeroes a share `rate` of x, another one in each step, and scales the rest up."""
    import tensorflow as tf

    # A stateful random operation without a seed of its own: the graph's (each task has another) decides.
    return tf.nn.dropout(x, rate) if run.training and rate > 0 else x


def max_pool(x: Tensor, size: int = 2, stride: int = 2, padding: str = "VALID") -> Tensor:
    import tensorflow as tf

    return tf.nn.max_pool2d(x, size, stride, padding)


def relu(x: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.nn.relu(x)


def flatten(x: Tensor) -> Tensor:
    """(batch, any shape) -> (batch, features)."""
    import tensorflow as tf

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
