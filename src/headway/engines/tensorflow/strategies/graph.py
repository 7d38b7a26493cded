"""GraphTrainer: what strategies that train in a v1 graph have in common.

A strategy says where variables live, how a session is opened and what a step is. This class says how
training begins, which is what makes faults harmless:

Besides the model's variables, the optimizer's and the global step there is one more, `generation`. It is written
last, after all others have been initialised or restored. The state is ready if and only if every variable and the
generation are initialised. A chief that finds it ready adopts it: nothing is rolled back. A chief that does not
restores ALL variables from the newest complete checkpoint (or makes them afresh), and then writes a generation that
no earlier state of this run had. Other tasks wait until the state is ready; they never push before.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import checkpoint, input, server, step
from headway.engines.tensorflow.barrier import Answer
from headway.engines.tensorflow.initial import initial_values
from headway.engines.tensorflow.optimizers import Optimizer
from headway.engines.tensorflow.placement import place
from headway.engines.tensorflow.problem import Problem
from headway.engines.tensorflow.state import State, declared
from headway.engines.tensorflow.step import StepTensors
from headway.engines.tensorflow.towers import Tower, towers
from headway.engines.tensorflow.trainer import Disconnected, Snapshot, Started, StepResult, Stopped
from headway.errors import FormatError, HeadwayError

v1 = tf.compat.v1
POLL_SECONDS = 0.2
REFUSALS = 10  # of one call in a row, after which it is no chance any more
# What a step raises when a server died, was restarted, or has lost its variables.
GONE = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnavailableError,
)


class GraphTrainer:
    # --- what a strategy fills in ----------------------------------------------------------------------------
    counts_staleness = True

    def state_devices(self) -> list[str]:
        """Where variables live: one device for each server. The first also has the global step."""
        raise NotImplementedError

    def open_session(self, graph: Any) -> Any | None:
        """A session, or None while the servers do not answer yet."""
        raise NotImplementedError

    def one_step(self, iterator: Any) -> StepTensors:
        """The graph of one step. It takes no number from outside: a call that is fed is slower by 0.2 ms."""
        raise NotImplementedError

    def extend(self, state: State) -> None:
        """What a strategy needs in the graph besides variables and steps."""

    awaited = "the parameter servers"
    """Whom a session needs, in words."""

    waits = True
    """Whether a step waits for others, or for a thread: meanwhile the next batches can be made."""

    can_repeat_step = True
    """Whether a step that a server has refused may be made again at once, after `joined`."""

    def joined(self, step: int) -> int:
        """Called when the variables are ready and before the first step; returns the global step to begin with."""
        return step

    def first_batch(self, own_steps: int, step: int) -> int:
        """Where in its input a task begins: behind its own steps, for they have used the batches before."""
        del step
        return own_steps

    # --- what they have in common ----------------------------------------------------------------------------
    def __init__(self, assignment: Assignment) -> None:
        v1.disable_control_flow_v2()  # loops in a graph that spans processes need the dataflow kind
        self.assignment = assignment
        self.job = assignment.job
        self.batch_size = self.job.batch_size_of(assignment.task)
        self.config = server.config(assignment)
        self.device = "/device:CPU:0"  # where this task has its batches, its values and its joined gradients
        self.towers: list[Tower] = []  # where it computes
        self.problem = Problem(self.job)
        self.optimizer = Optimizer(self.job.training.optimizer)
        self._train = input.TrainingInput(self.problem, assignment, self.config)
        self._declared = declared(self.problem)
        self._graph: Any = None
        self._session: Any = None
        self._fetch: Any = None
        self._generation = 0
        self._step = 0

    def start(self, own_steps: int) -> Started:
        self.close()
        self._build(own_steps)
        limit = self.job.limits.start
        deadline = time.monotonic() + limit
        waits_for = self.awaited
        while True:
            if self.assignment.control.stop_reason is not None:
                raise Stopped
            if time.monotonic() > deadline:
                raise HeadwayError(f"{self.assignment.task} waited {limit:g} s for {waits_for} (limits.start)")
            try:
                if self._session is None:
                    self._session = self.open_session(self._graph)
                if self._session is not None:
                    started = self._within(deadline, self._begin)
                    if started is not None:
                        return started
                    waits_for = "the chief to initialise the variables"
            except GONE as error:
                print(f"not ready yet: {in_one_line(error)}", flush=True)
                self.close()
            self.assignment.control.wait(POLL_SECONDS)

    def _begin(self) -> Started | None:
        """Make sure of the variables and start the input; None while another task has yet to do it."""
        is_chief, run = self.assignment.is_chief, self._session.run
        how, name = None, None
        if run(self._ready):
            how = "adopted"
            now, generation = run([self.state.global_step, self.state.generation])
        elif is_chief:
            # Others push from the moment that the generation is there: the step is the one that was written.
            how, name, now, generation = self._make_variables()
        else:
            return None
        self._generation = int(generation)
        now = self._join(int(now))
        per_call = self.job.training.steps_per_call
        self._calls = {1: self._session.make_callable(self._one_step)}
        if per_call > 1:
            self._calls[per_call] = self._session.make_callable(self._several_steps)
        self._fetch = self._session.make_callable(self.state.variables)
        return Started(how if is_chief else None, now, self._generation, name)  # type: ignore[arg-type]

    def _join(self, now: int) -> int:
        """The others know of this task, and its input is where it must be."""
        self._step = now = self.joined(now)
        feeds = {**self._train.feeds, self._first_batch: self.first_batch(self._own_steps, now)}
        surely(self._session.run, self._input_initializer, feeds)
        return now

    def _make_variables(self) -> tuple[str, str | None, int, int]:
        checkpoint.repair(self.assignment.folder.checkpoints)
        newest = checkpoint.latest(self.assignment.folder.checkpoints)
        generation = 1 + max(
            self._generation, checkpoint.last_generation(self.assignment.folder.events(self.assignment.task), newest)
        )
        if newest is None:
            values = initial_values(self.problem, self.job.seed, self.config)
        else:
            values = checkpoint.load(newest)
            if missing := sorted(self.state.names - values.keys()):
                raise FormatError(f"checkpoint {newest.name} is of another job: it has no {', '.join(missing[:3])}")
        # A value is fed in place of the initialiser's, so no extra operations are needed in the graph.
        feeds: dict[Any, Any] = {}
        self.state.assign(lambda variable, value: feeds.update({variable.initializer.inputs[1]: value}), values)
        self._session.run([variable.initializer for variable in self.state.variables], feeds)
        written = self.state.generation.initializer
        self._session.run(written, {written.inputs[1]: generation})
        if newest is None:
            return "fresh", None, 0, generation
        return "restored", newest.name, int(values["global_step"]), generation

    def step(self, num_steps: int) -> StepResult:
        try:
            try:
                seen, counted = self._calls[num_steps]()
            except tf.errors.AbortedError as error:
                # Of several steps in one call some may have been made.
                if not was_refused(error) or num_steps > 1 or not self.can_repeat_step:
                    raise
                self.assignment.event("refused", step=self._step, error=in_one_line(error))
                self._join(self._step)
                seen, counted = self._calls[num_steps]()
        except GONE as error:
            raise Disconnected(in_one_line(error)) from error
        except tf.errors.OpError as error:
            raise self._train.explained(error) from error
        loss, penalty, input_seconds = seen.tolist()
        rows = counted.tolist()
        last = rows[-1][0]
        rows = [row for row in rows if row[2] != Answer.CLOSED]
        if not rows:
            raise Stopped(last)
        self._step = last
        self._own_steps += len(rows)
        return StepResult(
            step=rows[-1][0],
            num_steps=len(rows),
            loss=loss,
            penalty=penalty if self.job.training.optimizer.weight_decay else None,
            staleness=[row[1] for row in rows] if self.counts_staleness else None,
            accepted=sum(row[2] for row in rows),
            input_seconds=input_seconds,
        )

    def snapshot(self) -> Snapshot:
        if self._session is None or self._fetch is None:
            raise Disconnected("not connected")
        try:
            values = self.state.join(surely(self._fetch))
        except GONE as error:
            raise Disconnected(in_one_line(error)) from error
        return Snapshot(int(values["global_step"]), self._generation, values)

    def placement(self) -> list[dict[str, Any]]:
        return self.state.placement(self.place_of)

    def place_of(self, variable: Any) -> str:
        """`ps/0`, or the task itself."""
        device = tf.DeviceSpec.from_string(variable.device)
        return f"{device.job}/{device.task}" if device.job else str(self.assignment.task)

    def leave(self, reason: str) -> None:
        """The others do not wait for this task."""

    def graph(self) -> Any:
        return self._graph

    def close(self) -> None:
        session, self._session, self._fetch = self._session, None, None
        if session is not None:
            # Closing tells every server, and blocks when one is gone.
            threading.Thread(target=_close_quietly, args=(session,), daemon=True).start()

    def _build(self, own_steps: int) -> None:
        """The whole graph, anew for each start: its seed and the place in the input depend on `own_steps`."""
        per_call, assignment = self.job.training.steps_per_call, self.assignment
        self._own_steps = own_steps
        self.towers = towers(self.job, assignment.task, self.device)
        devices = self.state_devices()
        parts = place(self._declared, len(devices), self.job.strategy.placement)
        self._graph = tf.Graph()
        with self._graph.as_default():
            v1.set_random_seed(assignment.seed(own_steps))
            self.state = State(self._declared, parts, self.optimizer, devices)
            self._ready = self.state.ready()
            self.extend(self.state)
            with tf.device(self.device):
                iterator = self._input()
                self._one_step = step.single_call(self.one_step(iterator))
                if per_call > 1:
                    self._several_steps = step.several_in_one_call(lambda: self.one_step(iterator), per_call)
            self._graph.finalize()

    def _input(self) -> Any:
        self._first_batch = v1.placeholder(tf.int64, [], name="first_batch")
        iterator = v1.data.make_initializable_iterator(self._train.batches(self._first_batch, ahead=self.waits))
        self._input_initializer = iterator.initializer
        return iterator

    def _within(self, deadline: float, call: Callable[[], Started | None]) -> Started | None:
        """Run `call` in a thread: inside TensorFlow, a wait for a server that just died has no limit."""
        outcome: list[Any] = []

        def work() -> None:
            try:
                outcome.append(call())
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while thread.is_alive() and time.monotonic() < deadline:
            if self.assignment.control.stop_reason is not None:
                raise Stopped
            thread.join(POLL_SECONDS)
        if not outcome:
            return None
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        result: Started | None = outcome[0]
        return result


def was_refused(error: Any) -> bool:
    """Whether a server took a request for one that it had seen before, and did nothing.

    TensorFlow numbers requests at random, each in a new thread with a generator of 2**32 possible seeds; of its last
    100,000 requests a server refuses a number that comes again. So about every 40,000th request is refused for nothing:
    of a large model one in hours, of a tiny one that makes hundreds of steps a second one in minutes.
    """
    return isinstance(error, tf.errors.AbortedError) and "request was received twice" in error.message


def surely(call: Callable[..., Any], *arguments: Any) -> Any:
    """`call`, again where a server has refused it: for what one server does alone, or what only reads."""
    for _ in range(REFUSALS):
        try:
            return call(*arguments)
        except tf.errors.AbortedError as error:
            if not was_refused(error):
                raise
    return call(*arguments)


def in_one_line(error: Any) -> str:
    """TensorFlow's error; its message begins with an empty line or with where it came from."""
    return f"{type(error).__name__}: {' '.join(error.message.split())[:300]}"


def _close_quietly(session: Any) -> None:
    with contextlib.suppress(Exception):
        session.close()
