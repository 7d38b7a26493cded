"""Evaluation on the whole test set, in a local graph of its own: training goes on undisturbed elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from headway.engines.tensorflow.initial import Values, assign
from headway.engines.tensorflow.problem import Problem
from headway.workloads.base import ForwardPass

v1 = tf.compat.v1
BATCH_SIZE = 1000


@dataclass(frozen=True)
class Result:
    accuracy: float | None
    loss: float
    num_examples: int
    seconds: float


class Evaluation:
    def __init__(self, problem: Problem, config: Any) -> None:
        self._features, self._labels = problem.load("test")
        with tf.Graph().as_default() as graph:
            self._feeds = (
                v1.placeholder(self._features.dtype, [None, *self._features.shape[1:]]),
                v1.placeholder(self._labels.dtype, [None, *self._labels.shape[1:]]),
            )
            outputs = problem.build(problem.scaled(self._feeds[0]), ForwardPass(training=False))
            correct = problem.correct(outputs, self._feeds[1])
            self._has_accuracy = correct is not None
            loss = tf.reduce_sum(tf.cast(problem.losses(outputs, self._feeds[1]), tf.float64))
            self._sums = [loss, tf.reduce_sum(tf.cast(correct, tf.float64)) if self._has_accuracy else loss]
            self._variables = v1.global_variables()
            for variable in self._variables:
                variable.initializer  # noqa: B018 -- made with the variable, so the graph can be closed
            graph.finalize()
        self._session = v1.Session(graph=graph, config=config)

    def evaluate(self, values: Values, cancelled: Callable[[], bool] = lambda: False) -> Result | None:
        """Loss and accuracy, exactly over all examples; None when cancelled on the way."""
        began = time.perf_counter()
        assign(self._session, self._variables, values)
        loss = correct = 0.0
        num_examples = len(self._features)
        for first in range(0, num_examples, BATCH_SIZE):
            if cancelled():
                return None
            part = slice(first, first + BATCH_SIZE)
            sums = self._session.run(
                self._sums, {self._feeds[0]: self._features[part], self._feeds[1]: self._labels[part]}
            )
            loss += float(sums[0])
            correct += float(sums[1])
        return Result(
            accuracy=correct / num_examples if self._has_accuracy else None,
            loss=loss / num_examples,
            num_examples=num_examples,
            seconds=time.perf_counter() - began,
        )
