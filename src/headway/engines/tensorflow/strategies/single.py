"""`single`: one process trains; variables live in it. The reference that the other strategies are held against."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import step
from headway.engines.tensorflow.step import StepTensors
from headway.engines.tensorflow.strategies.graph import GraphTrainer
from headway.engines.tensorflow.towers import device_names
from headway.engines.tensorflow.wire import Wire

# What TensorFlow's single-threaded executor refuses: loops and conditions, and calls that may contain them.
CONTROL_FLOW = {"Switch", "Merge", "Enter", "Exit", "If", "While", "Case", "PartitionedCall"}


class Single(GraphTrainer):
    counts_staleness = False  # nobody else pushes

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        # With several devices that one thread would wait at the first for what it has yet to compute on the second.
        has_one_device = device_names(self.job, assignment.task) == ["CPU:0"]
        self._has_one_thread = self.config.inter_op_parallelism_threads == 1 and has_one_device
        self.waits = not self._has_one_thread

    def state_devices(self) -> list[str]:
        return [self.device]

    def open_session(self, graph: Any) -> Any:
        config = tf.compat.v1.ConfigProto()
        config.CopyFrom(self.config)
        if self._has_one_thread and not _has_control_flow(graph):
            # One thread runs the operations in any case; this executor has no queue of them: a small step is a tenth
            # shorter.
            config.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
        return tf.compat.v1.Session(graph=graph, config=config)

    def one_step(self, iterator: Any) -> StepTensors:
        batch = step.next_batch(iterator)
        wire = Wire(self.state, self.device, "float32")
        computed = step.compute(self.problem, self.optimizer, batch, wire.pull(), self.towers)
        gradients = step.clipped(self.optimizer, computed.gradients)
        now = self.state.global_step.read_value()
        pushed = step.update(self.optimizer, self.state, wire.push(gradients), computed.averages, now)
        before = step.count(self.state, pushed)
        counted = tf.stack([before + 1, tf.zeros_like(before), tf.ones_like(before)])
        return StepTensors(computed.loss, computed.penalty, batch.seconds, counted)


def _has_control_flow(graph: Any) -> bool:
    return any(
        operation.type.removeprefix("Stateless").removeprefix("Stateful") in CONTROL_FLOW
        for operation in graph.get_operations()
    )
