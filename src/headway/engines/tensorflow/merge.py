"""Merge: one update of `ps-sync`, made by each server for what lives on it.

    admitted gradients --> sum --> [squares --> the norm of all -->] clip --> apply --> count
    on each server                 [  where clip.norm is asked for ]

Each server does its part in a call of its own, all of them at once, and nothing passes between servers: what they must
know of each other (the step, the optimizer's counters, the norm) passes through here. So a call that a server refuses
(graph.was_refused) is simply made again. In one call over all servers some would have made their part already.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from headway.engines.tensorflow import step
from headway.engines.tensorflow.exchange import Exchange, taken
from headway.engines.tensorflow.optimizers import Optimizer
from headway.engines.tensorflow.state import Piece, State
from headway.engines.tensorflow.strategies.graph import surely
from headway.workloads.base import Average

v1 = tf.compat.v1
Call = Callable[..., list[Any]]


class Merge:
    def __init__(self, state: State, exchange: Exchange, optimizer: Optimizer, session: Any) -> None:
        self._state = state
        self._exchange = exchange
        self._optimizer = optimizer
        self._session = session
        self._largest_norm = optimizer.settings.clip.norm if optimizer.settings.clip else None
        self._calls: dict[tuple[int, bool], tuple[list[Call], list[Call]]] = {}
        self._threads = ThreadPoolExecutor(len(exchange.devices), "merge")
        self._counters = surely(session.run, list(state.counters.values()))

    def update(self, count: int, factor: float, step_now: int) -> int:
        """Apply `count` admitted gradients; returns the global step after that. Tasks have weighted their gradients
        already, so that their sum is the mean; where an update has not the expected number of examples, `factor`
        corrects it."""
        kind = (count, factor != 1.0)
        if kind not in self._calls:
            self._calls[kind] = self._build(*kind)
        add_up, apply = self._calls[kind]
        if self._largest_norm is not None:
            norm = math.sqrt(sum(sum(squares) for squares in self._on_every_server(add_up, factor)))
            factor = self._largest_norm / max(norm, self._largest_norm)
        answers = self._on_every_server(apply, factor, step_now, *self._counters)
        counted, *counters = [number for answer in answers for number in answer]
        self._counters = counters
        return int(counted)

    def _on_every_server(self, calls: list[Call], *arguments: Any) -> list[list[Any]]:
        others = [self._threads.submit(surely, call, *arguments) for call in calls[1:]]
        return [surely(calls[0], *arguments), *(each.result() for each in others)]

    def _build(self, count: int, is_scaled: bool) -> tuple[list[Call], list[Call]]:
        """What each server does: calls of (factor) that add up and give squares, where the norm is wanted; and calls of
        (factor, step, counters) that update, which give the new step on the first server and the new counters on the
        last."""
        servers = range(len(self._exchange.devices))
        adding_up: list[Call] = []
        with self._session.graph.as_default():
            if self._largest_norm is not None:
                adding_up = [self._adding_up(server, count, is_scaled) for server in servers]
            return adding_up, [self._applying(server, count, is_scaled) for server in servers]

    def _adding_up(self, server: int, count: int, is_scaled: bool) -> Call:
        with tf.device(self._exchange.devices[server]):
            factor = v1.placeholder(tf.float32, [])
            gradients, averages = self._sums(server, count, factor if is_scaled else None)
            sums = [*(gradient for _, gradient in gradients), *(average.value for average in averages)]
            kept = self._exchange.sums[self._exchange.used.index(server)].enqueue(sums) if sums else tf.no_op()
            return self._call([tf.reduce_sum(tf.square(gradient)) for _, gradient in gradients], [kept], [factor])

    def _applying(self, server: int, count: int, is_scaled: bool) -> Call:
        state, optimizer = self._state, self._optimizer
        with tf.device(self._exchange.devices[server]):
            factor, step_now = v1.placeholder(tf.float32, []), v1.placeholder(tf.int64, [])
            counters = {name: v1.placeholder(tf.float32, []) for name in state.counters}
            if self._largest_norm is not None:
                gradients, averages = self._kept(server, factor)
            else:
                gradients, averages = self._sums(server, count, factor if is_scaled else None)
                clipped = optimizer.clipped([gradient for _, gradient in gradients])
                gradients = [(piece, each) for (piece, _), each in zip(gradients, clipped, strict=True)]
            done = step.apply(optimizer, state, gradients, averages, optimizer.rate(step_now), counters)
            answer = [step.count(state, done) + 1] if server == 0 else []
            if server == len(self._exchange.devices) - 1:
                with tf.control_dependencies(done):
                    done += optimizer.count(state.counters)
                with tf.control_dependencies(done):
                    answer += [counter.read_value() for counter in state.counters.values()]
            return self._call(answer, done, [factor, step_now, *counters.values()])

    def _call(self, answer: list[Any], done: list[Any], arguments: list[Any]) -> Call:
        call: Call = self._session.make_callable([*answer, tf.group(*done)], arguments)
        return lambda *given: call(*given)[:-1]

    def _sums(self, server: int, count: int, factor: Any | None) -> tuple[list[tuple[Piece, Any]], list[Average]]:
        """What `count` tasks say of this server's variables and moving averages, added up."""
        exchange = self._exchange
        if server not in exchange.used:
            return [], []
        elements = [taken(exchange.admitted[exchange.used.index(server)]) for _ in range(count)]
        whole = [[tf.cast(part, tf.float32) for part in parts] for parts in zip(*elements, strict=True)]
        sums = [parts[0] if count == 1 else tf.add_n(parts) for parts in whole]
        return self._assigned(server, sums if factor is None else [sum_ * factor for sum_ in sums])

    def _kept(self, server: int, clip: Any) -> tuple[list[tuple[Piece, Any]], list[Average]]:
        """The same, which were added up before; the gradients are clipped now."""
        if server not in self._exchange.used:
            return [], []
        gradients, averages = self._assigned(server, taken(self._exchange.sums[self._exchange.used.index(server)]))
        return [(piece, gradient * clip) for piece, gradient in gradients], averages

    def _assigned(self, server: int, tensors: list[Any]) -> tuple[list[tuple[Piece, Any]], list[Average]]:
        pieces, moving = self._exchange.pieces[server], self._exchange.averages[server]
        averages = [
            Average(each.name, tensor, each.momentum or 0.0)
            for each, tensor in zip(moving, tensors[len(pieces) :], strict=True)
        ]
        return list(zip(pieces, tensors, strict=False)), averages
