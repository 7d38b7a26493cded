"""The updater: a thread of ps/0 that makes the updates of `ps-sync`.

It lives in a server, not in the chief: when the chief dies, updates of the others can go on (backup tasks), and when
the servers die, nothing of the updater is left either. Its session spans the servers alone.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from statistics import median
from typing import Any, NamedTuple

import tensorflow as tf

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import ports, server
from headway.engines.tensorflow.barrier import (
    Action,
    Admit,
    Answer,
    Barrier,
    Discard,
    Drain,
    Forget,
    Message,
    Reply,
    Update,
)
from headway.engines.tensorflow.exchange import MESSAGE, REPLY, Exchange, taken
from headway.engines.tensorflow.merge import Merge
from headway.engines.tensorflow.optimizers import Optimizer
from headway.engines.tensorflow.placement import place
from headway.engines.tensorflow.problem import Problem
from headway.engines.tensorflow.state import State, declared
from headway.engines.tensorflow.strategies.graph import GONE, in_one_line, surely
from headway.engines.tensorflow.strategies.ps_sync import expected_examples
from headway.engines.tensorflow.strategies.servers import devices
from headway.errors import HeadwayError
from headway.spec.cluster import Task

v1 = tf.compat.v1
POLL_SECONDS = 0.2
BLOCKED_SECONDS = 5.0  # an update that waits longer than this, and than BLOCKED_UPDATES of them take, is blocked
BLOCKED_UPDATES = 3
GRACE_SECONDS = 10.0  # for the launcher to end this server when another one is gone


class Moves(NamedTuple):
    """What can be done with a task's gradients, on each used server."""

    admit: list[Any]
    discard: list[Any]
    put_last: list[Any]
    size: list[Any]

    @classmethod
    def of(cls, exchange: Exchange, queues: list[Any]) -> Moves:
        def discard(place_: int) -> Any:
            return tf.group(*taken(queues[place_]))

        return cls(
            exchange.on_each(lambda place_: exchange.admitted[place_].enqueue(taken(queues[place_]))),
            exchange.on_each(discard),
            exchange.on_each(lambda place_: queues[place_].enqueue(taken(queues[place_]))),
            exchange.on_each(lambda place_: queues[place_].size()),
        )


class Updater:
    def __init__(self, assignment: Assignment, target: str) -> None:
        v1.disable_control_flow_v2()
        self._assignment = assignment
        self._job = assignment.job
        self._tasks = self._job.cluster.training_tasks()
        self._target = target
        sizes = [self._job.batch_size_of(task) for task in self._tasks]
        last_step = self._job.training.stop.steps
        self._barrier = Barrier(sizes, self._job.strategy.aggregate or len(sizes), last_step=last_step)
        self._expected_examples = expected_examples(self._job)
        self._arrived_at: dict[int, float] = {}
        """When the gradients that the next update has so far came, by task, in the order in which they came."""
        self._intervals: deque[float] = deque(maxlen=101)
        self._updated_at: float | None = None
        self._is_blocked = False
        self._blocked_said = -BLOCKED_SECONDS
        self._optimizer = Optimizer(self._job.training.optimizer)

    def run(self) -> None:
        """Until the servers are ended. Raises when that cannot go on."""
        self._build()
        self._connect()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        hear = self._session.make_callable(self._hear)
        try:
            while True:
                kind, task, number = surely(hear).tolist()
                self._do_all(self._barrier.hear(Message(kind), task, number))
        except GONE as error:
            # Another server is gone; the launcher ends them all.
            print(f"updater: {in_one_line(error)}", flush=True)
            time.sleep(GRACE_SECONDS)
            raise

    def _build(self) -> None:
        variables = declared(Problem(self._job))
        servers = devices(self._assignment)
        parts = place(variables, len(servers), self._job.strategy.placement)
        self._graph = tf.Graph()
        with self._graph.as_default(), tf.device(servers[0]):
            self._state = State(variables, parts, self._optimizer, servers)
            self._ready = self._state.ready()
            self._exchange = exchange = Exchange(self._state, servers, len(self._tasks))
            self._hear = exchange.arrivals.dequeue()
            self._message = v1.placeholder(tf.int64, [MESSAGE])
            self._say = exchange.arrivals.enqueue(self._message)
            self._reply = v1.placeholder(tf.int64, [REPLY])
            self._replies = [each.enqueue(self._reply) for each in exchange.replies]
            self._moves = [Moves.of(exchange, queues) for queues in exchange.gradients]
            self._forget = exchange.on_each(lambda place_: tf.group(*taken(exchange.admitted[place_])))

    def _connect(self) -> None:
        """Wait for the other servers and for the chief to fill the variables."""
        addresses = self._assignment.addresses["ps"]
        while not all(ports.answers(address) for address in addresses):
            self._assignment.control.wait(POLL_SECONDS)
        config = server.config(self._assignment)
        config.device_filters.append("/job:ps")
        targets = [self._target, *(f"grpc://{address}" for address in addresses[1:])]
        self._sessions = [v1.Session(target, graph=self._graph, config=config) for target in targets]
        self._session = self._sessions[0]
        while not surely(self._session.run, self._ready):
            time.sleep(POLL_SECONDS)
        counts = [self._state.global_step, self._state.generation]
        step_now, generation = surely(self._session.run, counts)
        self._barrier.begin(int(step_now))
        self._generation = int(generation)
        has_backups = self._barrier.aggregate < len(self._tasks)
        self._merge = Merge(self._state, self._exchange, self._optimizer, self._sessions, has_backups)

    def _do_all(self, actions: list[Action]) -> None:
        for number, action in enumerate(actions):
            if isinstance(action, Update):
                replies = {other for other in actions[number:] if isinstance(other, Reply)}
                due = {Reply(task, Answer.ACCEPTED, self._barrier.step) for task in action.tasks}
                # Nearly always: else a task of this update has died meanwhile, or is told something else, too.
                is_told = not self._merge.has_backups and replies == due
                self._make_update(action, is_told)
                if is_told:
                    return
            else:
                self._do(action)

    def _do(self, action: Drain | Admit | Discard | Forget | Reply) -> None:
        match action:
            case Admit(task):
                self._arrived_at[task] = time.monotonic()
                if self._merge.has_backups:
                    self._on_each(self._moves[task].admit)
            case Discard(task):
                self._throw_away(task, [1] * len(self._exchange.used))
            case Drain(task):
                sizes = self._on_each(self._moves[task].size)
                self._throw_away(task, [size - self._is_kept(task) for size in sizes])
            case Forget(tasks):
                self._arrived_at, self._is_blocked = {}, False
                for task in tasks:
                    self._on_each(self._forget if self._merge.has_backups else self._moves[task].discard)
            case Reply(task, answer, step_now, echo):
                surely(self._session.run, self._replies[task], {self._reply: [step_now, answer, echo]})

    def _is_kept(self, task: int) -> bool:
        """Whether the first gradient in the task's own queues is for the next update."""
        return not self._merge.has_backups and task in self._arrived_at

    def _throw_away(self, task: int, counts: list[int]) -> None:
        """So many of the task's gradients on each used server, but not one that was admitted."""
        moves = self._moves[task]
        for number, put_last, discard, count in zip(
            self._exchange.used, moves.put_last, moves.discard, counts, strict=True
        ):
            run = self._sessions[number].run
            if count and self._is_kept(task):
                surely(run, put_last)
            for _ in range(count):
                surely(run, discard)

    def _on_each(self, operations: list[Any]) -> list[Any]:
        """One on each used server, each in a call of its own: what is refused has done nothing, and is made again."""
        return [
            surely(self._sessions[number].run, operation)
            for number, operation in zip(self._exchange.used, operations, strict=True)
        ]

    def _make_update(self, update: Update, is_told: bool) -> None:
        factor = self._expected_examples / update.examples
        counted = self._merge.update(update.tasks, factor, self._barrier.step - 1, is_told)
        if counted != self._barrier.step:
            raise HeadwayError(
                f"step {counted} was counted where {self._barrier.step} is due: another updater is at work"
            )
        now, arrivals = time.monotonic(), list(self._arrived_at.values())
        if self._updated_at is not None:
            self._intervals.append(now - self._updated_at)
        waited, self._updated_at, self._arrived_at = now - arrivals[0], now, {}
        self._assignment.event(
            "update",
            later=True,
            step=self._barrier.step,
            generation=self._generation,
            tasks=self._names(update.tasks),
            examples=update.examples,
            dropped=self._names(update.dropped),
            spread=arrivals[-1] - arrivals[0],
        )
        if self._is_blocked:
            self._is_blocked = False
            self._assignment.event("unblocked", step=self._barrier.step, seconds=waited)

    def _names(self, tasks: tuple[int, ...]) -> list[str]:
        return [str(self._tasks[task]) for task in tasks]

    # --- beside the updates ----------------------------------------------------------------------------------
    def _watch(self) -> None:
        """Say who keeps everybody waiting, and hand on what the launcher says."""
        while True:
            try:
                self._take(self._assignment.control.others.get(timeout=POLL_SECONDS))
            except queue.Empty:
                self._look()
            except tf.errors.OpError:
                return  # the updater itself gets the same error

    def _take(self, message: dict[str, Any]) -> None:
        say = {"leave": Message.LEFT, "close": Message.CLOSED}.get(str(message.get("do")))
        if say is None:
            return
        task = self._tasks.index(Task.parse(message["task"])) if say == Message.LEFT else 0
        surely(self._session.run, self._say, {self._message: [say, task, 0]})

    def _look(self) -> None:
        arrived, missing = list(self._arrived_at.values()), self._barrier.missing
        now = time.monotonic()
        if not arrived or not self._barrier.admitted or now - self._blocked_said < BLOCKED_SECONDS:
            return
        waited = now - arrived[0]
        usual = median(self._intervals) if self._intervals else 0.0
        if waited > max(BLOCKED_SECONDS, BLOCKED_UPDATES * usual):
            # Again and again: others may arrive meanwhile, or the launcher could not tell who is to blame.
            self._is_blocked, self._blocked_said = True, now
            self._assignment.event(
                "blocked", step=self._barrier.step, missing=self._names(tuple(missing)), seconds=waited
            )
