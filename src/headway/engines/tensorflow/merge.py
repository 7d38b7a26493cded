"""Merge: one update of `ps-sync`, made by each server for what lives on it.

    gradients --> sum --> [squares --> the norm of all -->] clip --> apply    all servers at once
                          [  where clip.norm is asked for ]            |
                                                     count the step, tell the tasks    the first server

Each server does its part in a call of its own, and nothing passes between servers: what they must know of each other
(the step, the optimizer's counters, the norm) passes through here. So a call that a server refuses (graph.was_refused)
has done nothing, and is simply made again. In one call over all servers some would have made their part already. Each
server has a session of its own for that: what is fed or fetched passes through the session's master, another server
otherwise.

Where every task is in every update, gradients are taken from the tasks' own queues, and the tasks are told in the call
that counts: no other way has fewer calls. With backup tasks, the updater moves gradients to the `admitted` queue and
tells the tasks: for as many sets of tasks as there may be, there would be as many graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import tensorflow as tf

from headway.engines.tensorflow import step
from headway.engines.tensorflow.barrier import Answer
from headway.engines.tensorflow.exchange import Exchange, taken
from headway.engines.tensorflow.optimizers import Optimizer
from headway.engines.tensorflow.state import Piece, State
from headway.engines.tensorflow.strategies.graph import surely
from headway.workloads.base import Average

v1 = tf.compat.v1
Numbers = dict[str, Any]
Call = Callable[[Numbers], list[Any]]
Sums = tuple[list[tuple[Piece, Any]], list[Average]]


class Kind(NamedTuple):
    """Updates of one kind share a graph."""

    tasks: tuple[int, ...]
    """Whose gradients are taken from their own queues."""
    admitted: int
    """How many are taken from the `admitted` queue."""
    is_scaled: bool
    is_told: bool


class Calls(NamedTuple):
    """What each server does. A call takes numbers by name: `factor`, `step`, and the optimizer's counters."""

    add_up: list[Call]
    """The squares of the gradients' sums, which are kept. Only where the norm of all of them is wanted."""
    apply: list[Call]
    """The new counters, from the last server."""
    finish: Call | None
    """The new step, from the first server. With a single one this is a part of `apply`, which then gives it first."""


class Merge:
    def __init__(
        self, state: State, exchange: Exchange, optimizer: Optimizer, sessions: list[Any], has_backups: bool
    ) -> None:
        """`sessions`: one with each server, all of the same graph."""
        self.has_backups = has_backups
        self._state = state
        self._exchange = exchange
        self._optimizer = optimizer
        self._sessions = sessions
        self._largest_norm = optimizer.settings.clip.norm if optimizer.settings.clip else None
        self._calls: dict[Kind, Calls] = {}
        self._threads = ThreadPoolExecutor(len(sessions), "merge")
        self._counters: Numbers = dict(
            zip(state.counters, surely(sessions[-1].run, list(state.counters.values())), strict=True)
        )

    def update(self, tasks: tuple[int, ...], factor: float, step_now: int, is_told: bool) -> int:
        """Apply the gradients of these tasks; returns the global step after that. Tasks have weighted their gradients
        already, so that their sum is the mean; where an update has not the expected number of examples, `factor`
        corrects it. `is_told`: every one of the tasks hears that its gradient was accepted."""
        own = () if self.has_backups else tuple(sorted(tasks))
        kind = Kind(own, len(tasks) if self.has_backups else 0, factor != 1.0, is_told)
        if kind not in self._calls:
            self._calls[kind] = self._build(kind)
        calls = self._calls[kind]
        if self._largest_norm is not None:
            squares = self._on_every_server(calls.add_up, {"factor": factor})
            factor = self._largest_norm / max(math.sqrt(sum(squares)), self._largest_norm)
        numbers = self._on_every_server(calls.apply, {"factor": factor, "step": step_now, **self._counters})
        if calls.finish is not None:
            numbers = [*surely(calls.finish, {}), *numbers]
        counted, *counters = numbers
        self._counters = dict(zip(self._counters, counters, strict=True))
        return int(counted)

    def _on_every_server(self, calls: list[Call], numbers: Numbers) -> list[Any]:
        """All of their answers, in order."""
        others = [self._threads.submit(surely, call, numbers) for call in calls[1:]]
        return [*surely(calls[0], numbers), *(number for each in others for number in each.result())]

    def _build(self, kind: Kind) -> Calls:
        servers = range(len(self._sessions))
        with self._sessions[0].graph.as_default():
            add_up = [] if self._largest_norm is None else [self._adding_up(server, kind) for server in servers]
            apply = [self._applying(server, kind) for server in servers]
            finish = None
            if len(servers) > 1:
                with tf.device(self._exchange.devices[0]):
                    finish = self._call(0, [self._counted([], kind)], [], {})
            return Calls(add_up, apply, finish)

    def _adding_up(self, server: int, kind: Kind) -> Call:
        with tf.device(self._exchange.devices[server]):
            factor = v1.placeholder(tf.float32, [])
            gradients, averages = self._sums(server, kind, factor)
            sums = [*(gradient for _, gradient in gradients), *(average.value for average in averages)]
            kept = self._exchange.sums[self._exchange.used.index(server)].enqueue(sums) if sums else tf.no_op()
            squares = [tf.reduce_sum(tf.square(gradient)) for _, gradient in gradients]
            return self._call(server, squares, [kept], {"factor": factor} if kind.is_scaled else {})

    def _applying(self, server: int, kind: Kind) -> Call:
        state, optimizer, is_alone = self._state, self._optimizer, len(self._sessions) == 1
        with tf.device(self._exchange.devices[server]):
            # Only what is not on this server is fed, and only if it is needed: a fed call is slower by 0.2 ms.
            factor = v1.placeholder(tf.float32, [])
            step_now = state.global_step.read_value() if is_alone else v1.placeholder(tf.int64, [])
            counters = {
                name: counter.read_value() if is_alone else v1.placeholder(tf.float32, [])
                for name, counter in state.counters.items()
            }
            if self._largest_norm is not None:
                gradients, averages = self._kept(server, factor)
            else:
                gradients, averages = self._sums(server, kind, factor)
                clipped = optimizer.clipped([gradient for _, gradient in gradients])
                gradients = [(piece, each) for (piece, _), each in zip(gradients, clipped, strict=True)]
            rate = optimizer.rate(step_now)
            done = step.apply(optimizer, state, gradients, averages, rate, counters)
            answer = []
            if server == len(self._sessions) - 1:
                with tf.control_dependencies([*done, *counters.values()]):
                    done += optimizer.count(state.counters)
                with tf.control_dependencies(done):
                    answer += [counter.read_value() for counter in state.counters.values()]
            if is_alone:
                answer.insert(0, self._counted([*done, step_now], kind))
            needed: Numbers = {"factor": factor} if kind.is_scaled or self._largest_norm is not None else {}
            if not is_alone:
                needed |= counters | ({"step": step_now} if tf.is_tensor(rate) else {})
            return self._call(server, answer, done, needed)

    def _counted(self, done: list[Any], kind: Kind) -> Any:
        counted = step.count(self._state, done) + 1
        reply = tf.stack([counted, int(Answer.ACCEPTED), 0])
        told = [self._exchange.replies[task].enqueue(reply) for task in kind.tasks] if kind.is_told else []
        with tf.control_dependencies(told):
            return tf.identity(counted)

    def _call(self, server: int, answer: list[Any], done: list[Any], needed: Numbers) -> Call:
        fetches = [*answer, tf.group(*done)]
        # None, not an empty list: that would take the way of a fed call.
        call = self._sessions[server].make_callable(fetches, list(needed.values()) or None)
        return lambda numbers: list(call(*(numbers[name] for name in needed))[:-1])

    def _sums(self, server: int, kind: Kind, factor: Any) -> Sums:
        """What the tasks say of this server's variables and moving averages, added up."""
        if server not in self._exchange.used:
            return [], []
        place = self._exchange.used.index(server)
        queues = [self._exchange.gradients[task][place] for task in kind.tasks]
        elements = [taken(queue) for queue in queues + [self._exchange.admitted[place]] * kind.admitted]
        sums = [parts[0] if len(parts) == 1 else tf.add_n(parts) for parts in zip(*elements, strict=True)]
        return self._assigned(server, [each * factor for each in sums] if kind.is_scaled else sums)

    def _kept(self, server: int, clip: Any) -> Sums:
        """The same, which were added up before; the gradients are clipped now."""
        if server not in self._exchange.used:
            return [], []
        gradients, averages = self._assigned(server, taken(self._exchange.sums[self._exchange.used.index(server)]))
        return [(piece, gradient * clip) for piece, gradient in gradients], averages

    def _assigned(self, server: int, tensors: list[Any]) -> Sums:
        pieces, moving = self._exchange.pieces[server], self._exchange.averages[server]
        averages = [
            Average(each.name, tensor, each.momentum or 0.0)
            for each, tensor in zip(moving, tensors[len(pieces) :], strict=True)
        ]
        return list(zip(pieces, tensors, strict=False)), averages
