"""`single`: one process trains; variables live in it. The reference that the other strategies are held against."""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from headway.engines.tensorflow.strategies.graph import GraphTrainer


class Single(GraphTrainer):
    counts_staleness = False  # nobody else pushes

    def scope(self) -> Any:
        return contextlib.nullcontext()

    def state_device(self) -> str:
        return "/device:CPU:0"

    def open_session(self, graph: Any) -> Any:
        return tf.compat.v1.Session(graph=graph, config=self.config)

    def device_name(self, variable: Any) -> str:
        del variable
        return str(self.assignment.task)
