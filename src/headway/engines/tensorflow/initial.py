"""Initial values, the same for every strategy, task count and placement.

TensorFlow derives an operation's seed from its position in the graph, so graphs of different strategies would
start from different values. Here the model is built once in a plain local graph of its own, and its values are
written to wherever the strategy keeps its variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from headway.engines.tensorflow.problem import Problem
from headway.workloads.base import ForwardPass
from headway.workloads.layers import check_made_by_layers

v1 = tf.compat.v1
Values = dict[str, np.ndarray[Any, Any]]


def name_of(variable: Any) -> str:
    return str(variable.op.name)


def initial_values(problem: Problem, seed: int, config: Any) -> Values:
    """The model's variables by name, before any training."""
    with tf.Graph().as_default():
        v1.set_random_seed(seed)
        run = ForwardPass(training=False)
        problem.build(v1.placeholder(tf.float32, [None, *problem.data.shape]), run)
        variables = {name_of(variable): variable for variable in v1.global_variables()}
        check_made_by_layers(run, variables)
        with v1.Session(config=config) as session:
            session.run([variable.initializer for variable in variables.values()])
            values: Values = session.run(variables)
    return values


def assign(session: Any, variables: list[Any], values: Values) -> None:
    """Initialise `variables`: to `values` where their name is in it, else by their own initialiser.

    A value is fed in place of the initialiser's, so no extra operations are needed in the graph.
    """
    feeds = {
        variable.initializer.inputs[1]: values[name_of(variable)]
        for variable in variables
        if name_of(variable) in values
    }
    session.run([variable.initializer for variable in variables], feed_dict=feeds)
