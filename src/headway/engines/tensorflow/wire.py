"""How variables and gradients travel between a task and the servers.

A message costs far more than a few kilobytes in it: small tensors from one device to another travel as one.

Tasks that share a slow link march in step: all pull at once, each at its share of the rate, so all have their values at
the same moment, compute at the same time, and push at once. One direction of the link is idle while the other is full,
and nothing draws them apart again: whoever came later also ends later. With a `Turn` a server gives its link to one
task after the other, in each direction: the first has its values early, computes, and pushes while the second pulls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import tensorflow as tf

from headway.engines.tensorflow.state import Piece, State

TOGETHER_BYTES = 64 * 1024  # tensors of fewer travel together


class Turn:
    """A task's turn in one direction of one step, at each server: a lock that is there, and that the step gives back.
    That of a task which dies is given back when the server finds out. Without a direction: everybody goes at will."""

    def __init__(self, device: str, direction: Literal["pull", "push"] | None) -> None:
        """`device`: the task's."""
        self.ended: list[Any] = []
        """Operations of the servers: the step must not end without them."""
        self._device = device
        self._direction = direction
        self._locks: dict[str, Any] = {}

    def at(self, server: str, wanted: Any = None) -> list[Any]:
        """What must have happened before anything travels. The turn is asked for when `wanted` is known."""
        if self._direction is None:
            return []
        if server not in self._locks:
            mutex = f"{self._direction}_in_turn"
            with tf.device(server), tf.control_dependencies([] if wanted is None else [wanted]):
                self._locks[server] = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name=mutex))
        return [self._locks[server]]

    def give_back(self, server: str, arrived: list[Any]) -> None:
        if server not in self._locks:
            return
        with tf.device(arrived[0].device), tf.control_dependencies(arrived):
            all_of_it = tf.no_op()  # one message instead of one from each
        with tf.device(server), tf.control_dependencies([all_of_it]):
            self.ended.append(tf.raw_ops.ConsumeMutexLock(mutex_lock=self._locks[server]))


class Wire:
    def __init__(self, state: State, device: str, transfer: str) -> None:
        """`device`: the task's."""
        self._state = state
        self._device = device
        self._dtype = tf.as_dtype(transfer)

    def pull(self, turn: Turn | None = None) -> dict[str, Any]:
        """Each trained variable's value, here. What is not trained is not pulled: training only adds to it."""
        turn = turn or self._at_will()
        got: dict[int, Any] = {}
        for server, pieces in _by_server(self._state.trained).items():
            with tf.device(server), tf.control_dependencies(turn.at(server)):
                values = [tf.raw_ops.ReadVariableOp(resource=p.variable.handle, dtype=tf.float32) for p in pieces]
            here = self._carried(values, server, self._device)
            turn.give_back(server, here)
            got.update({id(piece): value for piece, value in zip(pieces, here, strict=True)})
        with tf.device(self._device):
            return {
                name: _joined([got[id(piece)] for piece in pieces])
                if self._state.declared[name].trainable
                else pieces[0].variable
                for name, pieces in self._state.pieces.items()
            }

    def push(self, gradients: dict[str, Any], turn: Turn | None = None) -> list[tuple[Piece, Any]]:
        """Each part's gradient, on the part's server."""
        turn = turn or self._at_will()
        parts: dict[int, Any] = {}
        pushed = []
        with tf.device(self._device):
            for name, gradient in gradients.items():
                if gradient is None:
                    continue
                pieces = self._state.pieces[name]
                sizes = [piece.part.end - piece.part.begin for piece in pieces]
                split = [gradient] if len(pieces) == 1 else tf.split(gradient, sizes)
                parts.update({id(piece): part for piece, part in zip(pieces, split, strict=True)})
                pushed += pieces
        there: dict[int, Any] = {}
        for server, pieces in _by_server(pushed).items():
            here = self._allowed([parts[id(piece)] for piece in pieces], server, turn)
            carried = self._carried(here, self._device, server)
            turn.give_back(server, carried)
            there.update({id(piece): part for piece, part in zip(pieces, carried, strict=True)})
        return [(piece, there[id(piece)]) for piece in pushed]

    def _allowed(self, tensors: list[Any], server: str, turn: Turn) -> list[Any]:
        """The same, when it is our turn. It is asked for when the largest is known: the others take less time to
        compute than that one to travel."""
        locks = turn.at(server, max(tensors, key=self._bytes))
        if not locks:
            return tensors
        with tf.device(self._device), tf.control_dependencies(locks):
            allowed = tf.no_op()  # one message instead of one for each
        with tf.device(self._device), tf.control_dependencies([allowed]):
            return [tf.identity(each) for each in tensors]

    def _at_will(self) -> Turn:
        return Turn(self._device, None)

    def _bytes(self, tensor: Any) -> int:
        return int(tensor.shape.num_elements() * self._dtype.size)

    def _carried(self, tensors: list[Any], sender: str, receiver: str) -> list[Any]:
        if sender == receiver:
            return tensors
        with tf.device(sender):
            sent = [tf.cast(each, self._dtype) for each in tensors]  # nothing, where it is of that type
        small = [i for i, each in enumerate(sent) if self._bytes(each) < TOGETHER_BYTES]
        if len(small) > 1:
            with tf.device(sender):
                together = tf.concat([tf.reshape(sent[i], [-1]) for i in small], axis=0)
            with tf.device(receiver):
                parts = tf.split(together, [sent[i].shape.num_elements() for i in small])
                for i, part in zip(small, parts, strict=True):
                    sent[i] = tf.reshape(part, tensors[i].shape)
        with tf.device(receiver):
            return [tf.cast(tf.identity(each), tf.float32) for each in sent]


def _by_server(pieces: Iterable[Piece]) -> dict[str, list[Piece]]:
    found: dict[str, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.variable.device, []).append(piece)
    return found


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)
