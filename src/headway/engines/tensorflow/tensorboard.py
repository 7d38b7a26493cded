"""Files for TensorBoard: scalars at most about once a second, and the graph with the devices it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


class Board:
    def __init__(self, folder: Path) -> None:
        with tf.Graph().as_default():  # the writer refuses eager mode
            self._writer = v1.summary.FileWriter(str(folder), flush_secs=2)

    def graph(self, graph: Any) -> None:
        self._writer.add_graph(graph)
        self._writer.flush()

    def scalars(self, step: int, **values: float) -> None:
        with tf.Graph().as_default():
            self._writer.add_summary(
                v1.Summary(value=[v1.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]),
                step,
            )
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
