"""A driver for tests of the supervisor: keeps the clock, plays the tasks, and remembers what was asked for."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from headway.launch.messages import (
    Action,
    Event,
    Heartbeat,
    Note,
    SignalTask,
    StartTask,
    TaskExited,
    TaskSaid,
    TaskStarted,
    Tick,
)
from headway.launch.supervisor import Supervisor
from headway.launch.taskstate import History
from headway.spec import Task
from headway.spec.load import parse_job
from headway.spec.resolve import resolve

CHIEF, WORKER, WORKER1, PS0, PS1 = Task("chief", 0), Task("worker", 0), Task("worker", 1), Task("ps", 0), Task("ps", 1)
EVALUATOR = Task("evaluator", 0)
KILL = signal.SIGKILL


class World:
    """Plays the driver: keeps the clock and what has been asked for."""

    def __init__(self, history: History | None = None, **changes: Any) -> None:
        settings = {
            "workload": {"model": "softmax", "dataset": "synthetic", "stop": {"steps": 100}},
            "strategy": "ps-async",
            "cluster": {"chief": 1, "worker": 1, "ps": 2},
            **changes,
        }
        self.supervisor = Supervisor(resolve(parse_job(settings), 2).job, history or History())
        self.now = 100.0
        self.actions: list[Action] = []
        self.notes: list[Note] = []
        self.step = 0

    def tell(self, event: Event) -> list[Action]:
        new = self.supervisor.handle(event, self.now)
        self.actions += new
        self.notes += [action for action in new if isinstance(action, Note)]
        return [action for action in new if not isinstance(action, Note)]

    def say(self, task: Task, kind: str, **fields: Any) -> list[Action]:
        if kind == "step":
            fields.setdefault("own_step", self.supervisor.tasks[task].own_steps + fields["num_steps"])
        return self.tell(TaskSaid(task, {"kind": kind, **fields}))

    def wait(self, seconds: float, alive: Sequence[Task] = ()) -> list[Action]:
        """Time passes in small ticks; the tasks in `alive` give their heartbeat."""
        new: list[Action] = []
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for task in alive:
                new += self.tell(Heartbeat(task, 0.0))
            new += self.tell(Tick())
        return new

    def note(self, kind: str) -> dict[str, Any]:
        found = [note.fields for note in self.notes if note.kind == kind]
        assert found, f"no note {kind!r} among {[note.kind for note in self.notes]}"
        return found[-1]

    def has_note(self, kind: str) -> bool:
        return any(note.kind == kind for note in self.notes)

    def phase(self, task: Task) -> str:
        return self.supervisor.tasks[task].phase

    def exit(self, task: Task, code: int = -KILL) -> list[Action]:
        return self.tell(TaskExited(task, self.supervisor.tasks[task].attempt, code))

    def restarts(self, *tasks: Task) -> list[int]:
        return [self.supervisor.tasks[task].restarts for task in tasks]

    def up(self, *tasks: Task) -> None:
        """These tasks are started and say that they are ready; training tasks join."""
        for task in tasks:
            self.tell(TaskStarted(task, self.supervisor.tasks[task].attempt, 1))
            self.say(task, "ready", pid=1, port=None)
        for task in tasks:
            if task.role in ("chief", "worker"):
                self.say(task, "joined", step=self.step, generation=self.supervisor.generation)

    def train_together(self, tasks: Sequence[Task], steps: int = 1, seconds: float = 0.1, generation: int = 1) -> None:
        """Synchronous steps: all rows of one update carry the same global step."""
        for _ in range(steps):
            self.step += 1
            for task in tasks:
                self.say(task, "step", step=self.step, num_steps=1, seconds=seconds, loss=1.0, generation=generation)

    def train(self, task: Task, steps: int = 1, seconds: float = 0.1, generation: int = 1) -> None:
        for _ in range(steps):
            self.step += 1
            self.say(task, "step", step=self.step, num_steps=1, seconds=seconds, loss=1.0, generation=generation)


def running(**changes: Any) -> World:
    world = World(**changes)
    assert starts(world.tell(Tick())) == set(world.supervisor.tasks)
    world.up(*world.supervisor.tasks)
    world.say(world.supervisor.job.cluster.chief_task(), "initialized", how="fresh", step=0, generation=1)
    training = world.supervisor.job.cluster.training_tasks()
    if world.supervisor.job.strategy.is_synchronous:
        world.train_together(training, steps=5)
    else:
        for task in training:
            world.train(task, steps=5)
    return world


def kills(actions: Sequence[Action]) -> set[Task]:
    return {action.task for action in actions if isinstance(action, SignalTask) and action.number == KILL}


def starts(actions: Sequence[Action]) -> set[Task]:
    return {action.task for action in actions if isinstance(action, StartTask)}


def closing(**changes: Any) -> World:
    """With servers: the worker has ended, and the chief finalizes."""
    world = running(**changes)
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=50)
    world.say(WORKER, "done", reason="stopped", step=100, own_steps=50)
    world.exit(WORKER, 0)
    return world


# --- allreduce ---------------------------------------------------------------------------------------------------
RING = [CHIEF, WORKER, WORKER1]
GONE = "UnavailableError: failed to connect to all addresses"


def ring(**changes: Any) -> World:
    return running(**{"strategy": "allreduce", "cluster": {"chief": 1, "worker": 2}, **changes})


def cut_off(world: World, *tasks: Task) -> list[Action]:
    return [action for task in tasks for action in world.say(task, "disconnected", error=GONE)]


def ring_again(world: World, step: int = 0, generation: int = 2) -> None:
    """All members were started again, and train from the checkpoint on."""
    world.step = step
    for task in RING:
        world.say(task, "ready")
    how = "restored" if step else "fresh"
    world.say(CHIEF, "initialized", how=how, step=step, generation=generation)
    for task in RING:
        world.say(task, "joined", step=step, generation=generation)
