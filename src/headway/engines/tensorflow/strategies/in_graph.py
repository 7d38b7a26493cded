"""`ps-sync` with `replication: in_graph`: one client, the chief, has one graph with a tower on every training task.

    client: batches of every task --> tower of task t, on its device --> gradients --> the servers, as in ps_sync.py
                                         ^ pulled values                                  |
    task t: its server computes; it  <-- row: step, loss, seconds  <----- the answer -----'
            writes down what it did

So each global step takes exactly one gradient of every task, and the servers cannot tell who sent it: barrier, updater
and what happens after faults are those of between-graph replication. What is different:

- The client reads every task's examples (the same ones) and sends them to its tower. Input may be made by Python
  functions, which only the process that has the graph can call.
- The other training tasks only run their servers. They are told of their steps through a queue on their own device, so
  the record and the supervisor know each of them as in every other strategy.
- A step needs all of them. When one is gone, the client's step breaks off, and it waits for its successor.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

import tensorflow as tf

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import ports, server, step
from headway.engines.tensorflow.barrier import Answer, Message
from headway.engines.tensorflow.hardware import tell_ready
from headway.engines.tensorflow.placement import place
from headway.engines.tensorflow.state import State
from headway.engines.tensorflow.step import StepTensors
from headway.engines.tensorflow.strategies.graph import GONE, POLL_SECONDS, in_one_line, surely
from headway.engines.tensorflow.strategies.ps_sync import PsSync
from headway.engines.tensorflow.towers import towers
from headway.engines.tensorflow.trainer import Disconnected, Snapshot, Started
from headway.spec.cluster import Task

v1 = tf.compat.v1
# What a task is told of itself, as float64: it JOINED at step, generation; or it STEPPED to step, accepted, loss ...
JOINED, STEPPED = 0.0, 1.0
TOLD = 7


def device_of(task: Task) -> str:
    return f"/job:{task.role}/task:{task.index}/device:CPU:0"


def told_steps(task: Task) -> Any:
    """The queue on a task's own device. The client puts its steps in, the task takes them out."""
    with tf.device(device_of(task)):
        return tf.queue.FIFOQueue(-1, tf.float64, [[TOLD]], shared_name="told_steps", name="told_steps")


class InGraph(PsSync):
    """The client's Trainer."""

    awaited = "the parameter servers and the other training tasks"

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self._tasks = self.job.cluster.training_tasks()
        self._servers_config = v1.ConfigProto()
        self._servers_config.CopyFrom(self.config)  # which filters out all other training tasks
        self.config.device_filters.extend(f"/job:{role}" for role in {task.role for task in self._tasks})

    @property
    def spoken_for(self) -> list[int]:
        return list(range(len(self._tasks)))

    def open_session(self, graph: Any) -> Any | None:
        addresses = [self.assignment.addresses[task.role][task.index] for task in self._tasks]
        if not all(ports.answers(address) for address in addresses):
            return None
        return super().open_session(graph)

    def extend(self, state: State) -> None:
        super().extend(state)
        self._told = {task: told_steps(task) for task in self._tasks if task != self.assignment.task}
        self._reach = [told.size() for told in self._told.values()]
        self._joined_at = v1.placeholder(tf.float64, [2], "joined_at")
        self._tell_joined = []
        for task, told in self._told.items():
            with tf.device(device_of(task)):
                message = tf.pad(self._joined_at, [[1, TOLD - 3]], constant_values=JOINED)
                self._tell_joined.append(told.enqueue(message))

    def _begin(self) -> Started | None:
        # First, while nothing is done yet: a port may answer before TensorFlow tries again to connect to it.
        surely(self._session.run, self._reach)
        started = super()._begin()
        if started is not None:
            for tell in self._tell_joined:
                surely(self._session.run, tell, {self._joined_at: [started.step, started.generation]})
        return started

    def _input(self) -> list[Any]:
        """An iterator for each task, all of them here."""
        self._first_batch = v1.placeholder(tf.int64, [], name="first_batch")
        iterators = [
            v1.data.make_initializable_iterator(self._train.batches(self._first_batch, task=task))
            for task in self._tasks
        ]
        self._input_initializer = tf.group(*(iterator.initializer for iterator in iterators))
        return iterators

    def one_step(self, iterator: list[Any]) -> StepTensors:
        own: list[StepTensors] = []
        told = []
        for number, (task, batches) in enumerate(zip(self._tasks, iterator, strict=True)):
            batch = step.next_batch(batches)
            device = device_of(task)
            with tf.device(device):
                began = tf.timestamp()
                made = self.gradients_of(number, device, batch, towers(self.job, task, device))
                if task == self.assignment.task:
                    own.append(made)
                else:
                    told.append(self._tell_of(task, made, began))
        with tf.control_dependencies(told):
            return own[0]._replace(loss=tf.identity(own[0].loss))

    def _tell_of(self, task: Task, made: StepTensors, began: Any) -> Any:
        counted = tf.cast(tf.identity(made.counted), tf.float64)
        with tf.control_dependencies([counted]):
            seconds = tf.timestamp() - began
        penalty = tf.zeros([], tf.float64) if made.penalty is None else tf.cast(made.penalty, tf.float64)
        loss, input_seconds = tf.cast(made.loss, tf.float64), tf.cast(made.input_seconds, tf.float64)
        return self._told[task].enqueue(
            tf.stack([STEPPED, counted[0], counted[2], loss, penalty, input_seconds, seconds])
        )

    def snapshot(self) -> Snapshot:
        """Also while a task is gone, and with it the session: the servers have everything."""
        if self._session is not None or not self._generation:
            return super().snapshot()
        with tf.Graph().as_default() as graph:
            devices = self.state_devices()
            parts = place(self._declared, len(devices), self.job.strategy.placement)
            state = State(self._declared, parts, self.optimizer, devices)
            wanted = [state.generation, *state.variables]
        if not all(ports.answers(address) for address in self.assignment.addresses["ps"]):
            raise Disconnected("the parameter servers are gone")
        try:
            with v1.Session(self._server.target, graph=graph, config=self._servers_config) as session:
                generation, *values = surely(session.run, wanted)
        except GONE as error:
            raise Disconnected(in_one_line(error)) from error
        if generation != self._generation:
            raise Disconnected("the parameter servers were started anew")
        joined = state.join(values)
        return Snapshot(int(joined["global_step"]), self._generation, joined)

    def leave(self, reason: str) -> None:
        """Whatever the reason: no task makes a step without the client."""
        del reason
        self.tell_in_time(Message.CLOSED)


def serve(assignment: Assignment) -> None:
    """The life of a training task that is not the client. It ends when the launcher says so: it does when the client
    is done."""
    held = server.start(assignment)
    tell_ready(assignment)
    told = _listen(assignment, held.target)
    diary = Diary(assignment)
    while not assignment.control.hurry:
        try:
            heard = told.get(timeout=POLL_SECONDS)
        except queue.Empty:
            if assignment.control.stop_reason is not None:
                break
            continue
        if isinstance(heard, BaseException):
            raise heard
        diary.write(heard)
    reason = f"stopped: {assignment.control.stop_reason}"
    assignment.event("done", reason=reason, step=diary.step, own_steps=diary.own_steps)


class Diary:
    """Writes the task's steps into the record, as the loop does where a task makes them itself."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._batch_size = assignment.job.batch_size_of(assignment.task)
        self._has_penalty = bool(assignment.job.training.optimizer.weight_decay)
        self._generation = 0
        self.step = 0
        self.own_steps = self._joined_with = assignment.own_steps_before

    def write(self, told: list[float]) -> None:
        kind, step_now, number, loss, penalty, input_seconds, seconds = told
        if kind == JOINED:
            self.step, self._generation, self._joined_with = int(step_now), int(number), self.own_steps
            self._assignment.event("joined", step=self.step, generation=self._generation)
        elif number != Answer.CLOSED:
            is_warmup = self._assignment.is_warmup(self.own_steps - self._joined_with)
            self.step, self.own_steps = int(step_now), self.own_steps + 1
            self._assignment.event(
                "step",
                later=True,
                step=self.step,
                own_step=self.own_steps,
                num_steps=1,
                seconds=seconds,
                input_seconds=input_seconds,
                loss=loss,
                penalty=penalty if self._has_penalty else None,
                accepted=int(number),
                staleness=None,
                examples=self._batch_size,
                warmup=is_warmup,
                generation=self._generation,
            )


def _listen(assignment: Assignment, target: str) -> queue.SimpleQueue[list[float] | BaseException]:
    """What the client tells this task; a thread waits for it, which ends with the process."""
    heard: queue.SimpleQueue[list[float] | BaseException] = queue.SimpleQueue()
    config = server.config(assignment)
    config.device_filters.append(f"/job:{assignment.task.role}/task:{assignment.task.index}")
    with tf.Graph().as_default() as graph:
        following = told_steps(assignment.task).dequeue()
    session = v1.Session(target, graph=graph, config=config)

    def listen() -> None:
        try:
            while True:
                heard.put(surely(session.run, following).tolist())
        except BaseException as error:
            heard.put(error)

    threading.Thread(target=listen, name="listen", daemon=True).start()
    return heard
