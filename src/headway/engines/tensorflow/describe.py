"""`python -m headway.engines.tensorflow.describe`: every model's parameters, as JSON, for `headway models`."""

from __future__ import annotations

import json
from typing import Any

from headway import workloads
from headway.workloads.base import DataInfo, ForwardPass

# What a model is described for: the first of these that it can learn.
TYPICAL_DATA = (DataInfo((28, 28, 1), 10, 60_000, 10_000), DataInfo((1,), None, 10_000, 1_000))


def describe(name: str) -> dict[str, Any]:
    import tensorflow as tf

    model = workloads.model(name)
    settings = model.Settings.model_validate({"name": name})
    data = next(data for data in TYPICAL_DATA if _can_learn(model, settings, data))
    with tf.Graph().as_default():
        features = tf.compat.v1.placeholder(tf.float32, [1, *data.shape])
        model.build(features, settings, data, ForwardPass(training=True))
        sizes = [variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables()]
    return {
        "name": name,
        "parameters": sum(sizes),
        "bytes": 4 * sum(sizes),
        "shape": list(data.shape),
        "classes": data.classes,
        "summary": (model.__doc__ or "").strip().splitlines()[0],
    }


def _can_learn(model: workloads.Model, settings: Any, data: DataInfo) -> bool:
    try:
        model.check(settings, data)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    print(json.dumps([describe(name) for name in workloads.model_names()], indent=1))
