"""`python -m headway.engines.tensorflow.describe`: every model's size and work, as JSON, for `headway models`."""

from __future__ import annotations

import json
import math
from typing import Any

from headway import workloads
from headway.workloads.base import ForwardPass


def describe(name: str, **settings: Any) -> dict[str, Any]:
    """A model with these settings, built for its typical data."""
    import tensorflow as tf

    model = workloads.model(name)
    data = model.TYPICAL
    with tf.Graph().as_default() as graph:
        features = tf.compat.v1.placeholder(tf.float32, [1, *data.shape])
        model.build(
            features, model.Settings.model_validate({"name": name, **settings}), data, ForwardPass(training=True)
        )
        parameters = sum(variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables())
    return {
        "name": name,
        "parameters": parameters,
        "bytes": 4 * parameters,
        "flops": flops(graph),
        "shape": list(data.shape),
        "classes": data.classes,
        "summary": (model.__doc__ or "").strip().splitlines()[0],
    }


def flops(graph: Any) -> int:
    """Floating-point operations of all convolutions and matrix products in a graph (a multiplication and an addition
    are two). All the rest, such as normalisation, pooling and ReLU, is a percent or two of a network's work.

    Of a model that is built for one example: what its answer takes. A training step takes about three times as much for
    each example: backwards there is a product for the weights and one for the layer before.
    """
    return sum(_flops(operation) for operation in graph.get_operations())


def _flops(operation: Any) -> int:
    """2 x the numbers that come out x the products that each is the sum of."""
    match operation.type:
        case "Conv2D":
            *summed, _ = operation.inputs[1].shape.as_list()  # [height, width, channels in, channels out]
        case "MatMul":
            summed = [operation.inputs[0].shape[0 if operation.get_attr("transpose_a") else 1]]
        case "BatchMatMulV2" | "BatchMatMulV3":
            summed = [operation.inputs[0].shape[-2 if operation.get_attr("adj_x") else -1]]
        case _:
            return 0
    return int(2 * operation.outputs[0].shape.num_elements() * math.prod(summed))


if __name__ == "__main__":
    print(json.dumps([describe(name) for name in workloads.model_names()], indent=1))
