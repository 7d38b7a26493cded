"""The SavedModel: what others serve.

Its signature `serving_default` takes `features` as the data set stores them (raw bytes, for images; the scaling is
inside the model), any number of examples, and gives `outputs` (logits, a number, an
autoencoder's image) and, where those are logits, `classes`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway.engines.tensorflow.initial import Values, assign
from headway.engines.tensorflow.problem import Problem
from headway.workloads.base import ForwardPass

v1 = tf.compat.v1


def export(problem: Problem, values: Values, path: Path, config: Any) -> None:
    """Write the model with these variables to `path`, replacing what is there."""
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        features = v1.placeholder(problem.data.dtype, [None, *problem.data.shape], name="features")
        outputs = problem.answer(problem.build(problem.scaled(features), ForwardPass(training=False)))
        results = {"outputs": tf.identity(outputs, "outputs")}
        if problem.classifies:
            results["classes"] = tf.argmax(outputs, axis=-1, output_type=tf.int32, name="classes")
        assign(session, v1.global_variables(), values)
        v1.saved_model.simple_save(session, str(temporary), {"features": features}, results)
    shutil.rmtree(path, ignore_errors=True)
    temporary.rename(path)
