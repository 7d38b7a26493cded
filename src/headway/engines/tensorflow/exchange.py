"""The queues on the servers through which synchronous training tasks and the updater meet.

    task t:  gradients ──> gradients of t, on each server ──> [admitted, with backup tasks] ──> sum, apply, count
             "arrived" ──> arrivals, on ps/0 ──> updater ──────────────────────────────────────┘
             reply     <── replies of t, on ps/0 <──────────────────────────────────────────────┘

Tensors pass through a queue by reference: nothing is copied on the way. The task and the updater are different
processes with sessions of their own; a queue on a server is known by its name, as a variable is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from headway.engines.tensorflow.placement import Declared
from headway.engines.tensorflow.state import Piece, State, new_variable

MESSAGE = 3  # numbers in a message: kind, task, and one more (see barrier.py)
REPLY = 3  # numbers in a reply: the global step, the answer, the echo


class Exchange:
    def __init__(self, state: State, devices: Sequence[str], num_tasks: int) -> None:
        self.devices = list(devices)
        self.pieces: list[list[Piece]] = [[] for _ in devices]
        """The parts of trained variables on each server, in the order in which their gradients are queued."""
        self.averages: list[list[Declared]] = [[] for _ in devices]
        """The moving averages on each server; what a task's batch says of them is queued behind the gradients."""
        for piece in state.trained:
            self.pieces[piece.part.server].append(piece)
        for name, (piece, *_) in state.pieces.items():
            if state.declared[name].momentum is not None:
                self.averages[piece.part.server].append(state.declared[name])
        self.used = [server for server in range(len(devices)) if self.pieces[server] or self.averages[server]]
        """Servers that have any of them."""
        with tf.device(devices[0]):
            self.arrivals = _queue("arrivals", [tf.int64], [[MESSAGE]])
            self.replies = [_queue(f"replies_{task}", [tf.int64], [[REPLY]]) for task in range(num_tasks)]
            self.known = [new_variable(f"known_{task}", [], tf.int64, 0) for task in range(num_tasks)]
            """The global step that each task was last told."""
        self.gradients = [
            [self._queue_on(server, f"gradients_{task}") for server in self.used] for task in range(num_tasks)
        ]
        """Of each task, on each used server."""
        self.admitted = [self._queue_on(server, "admitted") for server in self.used]
        self.sums = [self._queue_on(server, "sums") for server in self.used]
        """What was admitted, added up: there while a norm of all servers' sums is computed."""

    def on_each(self, build: Callable[[int], Any]) -> list[Any]:
        """An operation on each used server, built for the place of its queues in the lists above."""
        built = []
        for place, server in enumerate(self.used):
            with tf.device(self.devices[server]):
                built.append(build(place))
        return built

    def _queue_on(self, server: int, name: str) -> Any:
        pieces, averages = self.pieces[server], self.averages[server]
        shapes = [piece.variable.shape for piece in pieces] + [list(each.shape) for each in averages]
        with tf.device(self.devices[server]):
            return _queue(f"{name}_on_{server}", [tf.float32] * len(shapes), shapes)


def _queue(name: str, dtypes: list[Any], shapes: list[Any]) -> Any:
    # Unbounded: nobody ever waits to put something in. A task has one gradient in it at a time.
    return tf.queue.FIFOQueue(-1, dtypes, shapes, shared_name=name, name=name)


def taken(queue: Any) -> list[Any]:
    """One element's tensors; a queue of one component gives a tensor instead of a list."""
    element = queue.dequeue()
    return list(element) if isinstance(element, (list, tuple)) else [element]
