"""Merge: one update of `ps-sync`, made by each server for what lives on it.

    gradients --> sum --> [squares --> the norm of all -->] clip --> apply    all servers at once
                          [  where clip.norm is asked for ]            |
                                                     count the step, tell the tasks    the first server

Each server does its part in a call of its own, and nothing passes between servers: what they must know of each other
(the step, the optimizer's counters, the norm) passes through here. So a call that a server refuses (graph.was_refused)
is simply made again. In one call over all servers some would have made their part already.

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
Call = Callable[..., list[Any]]
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
    add_up: list[Call]
    """On each server: (factor) -> squares of the gradients' sums, which are kept. Only where the norm is wanted."""
    apply: list[Call]
    """On each server: (factor, step, counters) -> the new counters, on the last one."""
    finish: Call
    """On the first server: () -> the new step. With one server a part of `apply`, which then returns it first."""


class Merge:
    def __init__(self, state: State, exchange: Exchange, optimizer: Optimizer, session: Any, has_backups: bool) -> None:
        self.has_backups = has_backups
        self._state = state
        self._exchange = exchange
        self._optimizer = optimizer
        self._session = session
        self._largest_norm = optimizer.settings.clip.norm if optimizer.settings.clip else None
        self._calls: dict[Kind, Calls] = {}
        self._threads = ThreadPoolExecutor(len(exchange.devices), "merge")
        self._counters: list[float] = surely(session.run, list(state.counters.values()))

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
            norm = math.sqrt(sum(sum(squares) for squares in self._on_every_server(calls.add_up, factor)))
            factor = self._largest_norm / max(norm, self._largest_norm)
        answers = self._on_every_server(calls.apply, factor, step_now, *self._counters)
        numbers = [number for answer in answers for number in answer]
        counted, *self._counters = numbers if len(answers) == 1 else [*surely(calls.finish), *numbers]
        return int(counted)

    def _on_every_server(self, calls: list[Call], *arguments: Any) -> list[list[Any]]:
        others = [self._threads.submit(surely, call, *arguments) for call in calls[1:]]
        return [surely(calls[0], *arguments), *(each.result() for each in others)]

    def _build(self, kind: Kind) -> Calls:
        servers = range(len(self._exchange.devices))
        with self._session.graph.as_default():
            add_up = [] if self._largest_norm is None else [self._adding_up(server, kind) for server in servers]
            apply = [self._applying(server, kind) for server in servers]
            with tf.device(self._exchange.devices[0]):
                return Calls(add_up, apply, self._call([self._counted([], kind)], [], {}))

    def _adding_up(self, server: int, kind: Kind) -> Call:
        with tf.device(self._exchange.devices[server]):
            factor = v1.placeholder(tf.float32, [])
            gradients, averages = self._sums(server, kind, factor)
            sums = [*(gradient for _, gradient in gradients), *(average.value for average in averages)]
            kept = self._exchange.sums[self._exchange.used.index(server)].enqueue(sums) if sums else tf.no_op()
            squares = [tf.reduce_sum(tf.square(gradient)) for _, gradient in gradients]
            return self._call(squares, [kept], {0: factor} if kind.is_scaled else {})

    def _applying(self, server: int, kind: Kind) -> Call:
        state, optimizer = self._state, self._optimizer
        with tf.device(self._exchange.devices[server]):
            factor, step_now = v1.placeholder(tf.float32, []), v1.placeholder(tf.int64, [])
            counters = {name: v1.placeholder(tf.float32, []) for name in state.counters}
            if self._largest_norm is not None:
                gradients, averages = self._kept(server, factor)
            else:
                gradients, averages = self._sums(server, kind, factor)
                clipped = optimizer.clipped([gradient for _, gradient in gradients])
                gradients = [(piece, each) for (piece, _), each in zip(gradients, clipped, strict=True)]
            rate = optimizer.rate(step_now)
            done = step.apply(optimizer, state, gradients, averages, rate, counters)
            answer = []
            if server == len(self._exchange.devices) - 1:
                with tf.control_dependencies(done):
                    done += optimizer.count(state.counters)
                with tf.control_dependencies(done):
                    answer += [counter.read_value() for counter in state.counters.values()]
            if len(self._exchange.devices) == 1:
                answer.insert(0, self._counted(done, kind))
            # A call without arguments is faster by 0.2 ms: only what is needed is fed.
            needed: dict[int, Any] = dict(enumerate(counters.values(), start=2))
            if kind.is_scaled or self._largest_norm is not None:
                needed[0] = factor
            if tf.is_tensor(rate):
                needed[1] = step_now
            return self._call(answer, done, needed)

    def _counted(self, done: list[Any], kind: Kind) -> Any:
        counted = step.count(self._state, done) + 1
        reply = tf.stack([counted, int(Answer.ACCEPTED), 0])
        told = [self._exchange.replies[task].enqueue(reply) for task in kind.tasks] if kind.is_told else []
        with tf.control_dependencies(told):
            return tf.identity(counted)

    def _call(self, answer: list[Any], done: list[Any], needed: dict[int, Any]) -> Call:
        """A callable of all arguments that feeds the needed ones, by their place."""
        places = sorted(needed)
        call: Call = self._session.make_callable([*answer, tf.group(*done)], [needed[place] for place in places])
        return lambda *given: call(*(given[place] for place in places))[:-1]

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
