"""Evaluation on the whole test set, in a local graph of its own: training goes on undisturbed elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from headway.engines.tensorflow.initial import Values, assign
from headway.engines.tensorflow.problem import Problem
from headway.engines.tensorflow.stream import Report
from headway.workloads.base import Arrays, ForwardPass
from headway.workloads.records import Records

v1 = tf.compat.v1
BATCH_SIZE = 1000
BATCH_NUMBERS = 2_000_000  # features of a batch, at most: a photograph takes a hundred times its own memory


@dataclass(frozen=True)
class Result:
    accuracy: float | None
    loss: float
    num_examples: int
    seconds: float


class Evaluation:
    def __init__(self, problem: Problem, config: Any, report: Report = lambda _: None) -> None:
        self._batch_size = max(1, min(BATCH_SIZE, BATCH_NUMBERS // math.prod(problem.data.shape)))
        self._explained: Callable[[Exception], Exception] = lambda error: error
        source = problem.load("test")
        with tf.Graph().as_default() as graph:
            features, labels = (
                self._from_files(problem, source, config, report)
                if isinstance(source, Records)
                else self._from_memory(problem, source)
            )
            outputs = problem.build(features, ForwardPass(training=False))
            correct = problem.correct(outputs, labels)
            self._has_accuracy = correct is not None
            loss = tf.reduce_sum(tf.cast(problem.losses(outputs, labels), tf.float64))
            right = tf.reduce_sum(tf.cast(correct, tf.float64)) if self._has_accuracy else loss
            self._sums = [loss, right, tf.shape(labels)[0]]
            self._variables = v1.global_variables()
            for variable in self._variables:
                variable.initializer  # noqa: B018 -- made with the variable, so the graph can be closed
            graph.finalize()
        self._session = v1.Session(graph=graph, config=config)

    def _from_memory(self, problem: Problem, arrays: Arrays) -> tuple[Any, Any]:
        feeds = [v1.placeholder(array.dtype, [None, *array.shape[1:]]) for array in arrays]

        def parts() -> Iterator[Any]:
            for first in range(0, len(arrays[0]), self._batch_size):
                part = slice(first, first + self._batch_size)
                yield {feed: array[part] for feed, array in zip(feeds, arrays, strict=True)}

        self._parts = parts
        return problem.scaled(feeds[0]), feeds[1]

    def _from_files(self, problem: Problem, records: Records, config: Any, report: Report) -> tuple[Any, Any]:
        stream = problem.stream(records, config, report)
        iterator = v1.data.make_initializable_iterator(stream.in_order(self._batch_size, problem.scaled))
        start = iterator.initializer

        def parts() -> Iterator[Any]:
            self._session.run(start)
            while True:  # until the iterator says that there is no more
                yield {}

        self._parts, self._explained = parts, stream.explained
        features, labels = iterator.get_next()
        return tf.ensure_shape(features, [None, *problem.data.shape]), labels

    def evaluate(self, values: Values, cancelled: Callable[[], bool] = lambda: False) -> Result | None:
        """Loss and accuracy, exactly over all examples; None when cancelled on the way."""
        began = time.perf_counter()
        assign(self._session, self._variables, values)
        loss = correct = 0.0
        num_examples = 0
        for feeds in self._parts():
            if cancelled():
                return None
            try:
                sums = self._session.run(self._sums, feeds)
            except tf.errors.OutOfRangeError:
                break
            except tf.errors.OpError as error:
                raise self._explained(error) from error
            loss += float(sums[0])
            correct += float(sums[1])
            num_examples += int(sums[2])
        return Result(
            accuracy=correct / num_examples if self._has_accuracy else None,
            loss=loss / num_examples,
            num_examples=num_examples,
            seconds=time.perf_counter() - began,
        )
