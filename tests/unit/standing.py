"""A driver for tests of standstills: tasks that behave in some manner, and what the agent would report of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from supervising import CHIEF, World

from headway.host.vitals import WINDOW, Vitals
from headway.launch.messages import Action, Heartbeat, Tick
from headway.spec import Task

Manner = Literal[
    "trains",  # makes a step every half second
    "computes",  # uses its CPU, and tells of no step
    "waits",  # uses no CPU
    "disk",  # waits in the kernel
    "stopped",  # as by SIGSTOP: no heartbeat either
    "stopped program",  # ... but the process beside it goes on
    "half stopped",  # one of a program's processes
    "debugged",
    "hung",  # no heartbeat, no CPU
    "starved",  # no heartbeat, though it wants a CPU
]
BEATS = ("trains", "computes", "waits", "disk", "stopped program", "half stopped")
NAMING = ("stopped", "silent", "stalled", "blocked", "unresponsive")
TICK = 0.5

TRAINING = {"limits": {"stall": 60}}
PROGRAM = {"workload": {"command": "python train.py"}, **TRAINING}
SETUPS: dict[str, dict[str, Any]] = {
    "single": {**TRAINING, "strategy": "single", "cluster": {"chief": 1}},
    "ps-async": {**TRAINING, "strategy": "ps-async", "cluster": {"chief": 1, "worker": 1, "ps": 2}},
    "ps-sync": {**TRAINING, "strategy": "ps-sync", "cluster": {"chief": 1, "worker": 1, "ps": 2}},
    "allreduce": {**TRAINING, "strategy": "allreduce", "cluster": {"chief": 1, "worker": 2}},
    "a program": {**PROGRAM, "strategy": "single", "cluster": {"chief": 1}},
    "programs in a ring": {**PROGRAM, "strategy": "allreduce", "cluster": {"chief": 1, "worker": 2}},
    "two programs": {**PROGRAM, "strategy": "allreduce", "cluster": {"chief": 1, "worker": 1}},
    "programs with servers": {**PROGRAM, "cluster": {"chief": 1, "worker": 1, "ps": 1}},
}


class Lived(World):
    """Remembers since when each task has done what it does."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(**changes)
        self.manners: dict[Task, tuple[Manner, int, float]] = {}

    def since(self, task: Task, manner: Manner) -> float:
        attempt = self.supervisor.tasks[task].attempt
        if self.manners.get(task, ())[:2] != (manner, attempt):
            self.manners[task] = (manner, attempt, self.now - TICK)
        return self.manners[task][2]


def victim_of(world: World) -> Task:
    return world.supervisor.job.cluster.training_tasks()[-1]


def vitals(manner: Manner, seconds: float) -> Vitals:
    idle = seconds if seconds >= WINDOW else 0.0
    match manner:
        case "stopped" | "stopped program":
            return Vitals(stopped_for=seconds, stopped="python", whole=True, idle_for=idle)
        case "half stopped":
            return Vitals(stopped_for=seconds, stopped="python")
        case "debugged":
            return Vitals(stopped_for=seconds, stopped="python", whole=True, by_debugger=True, idle_for=idle)
        case "waits" | "hung":
            return Vitals(idle_for=idle)
        case "disk":
            return Vitals(idle_for=idle, disk_for=seconds)
        case "trains" | "computes" | "starved":
            return Vitals()


def behave(world: Lived, seconds: float, manners: Mapping[Task, Manner], others: Manner | None = None) -> list[Action]:
    """Time passes. Tasks that are not named behave as `others`; None: servers serve, training tasks train."""
    done: list[Action] = []
    end = world.now + seconds
    while world.now < end:
        world.now += TICK
        has_stepped = False
        for task, state in world.supervisor.tasks.items():
            default: Manner = others or ("trains" if task.role in ("chief", "worker") else "computes")
            manner = manners.get(task, default)
            if not state.is_running or state.killed_for:
                continue
            lasts = world.now - world.since(task, manner)
            done += world.tell(Heartbeat(task, 0.0 if manner in BEATS else lasts, vitals(manner, lasts)))
            if manner == "trains" and state.phase == "training":
                if not has_stepped or not world.supervisor.job.strategy.is_synchronous:
                    world.step += 1
                has_stepped = True
                world.say(task, "step", step=world.step, num_steps=1, seconds=TICK, loss=1.0, generation=1)
        done += world.tell(Tick())
    return done


def begun(setup: str, **changes: Any) -> Lived:
    """Everything was started, and nothing has said a word."""
    world = Lived(**{**SETUPS[setup], **changes})
    world.tell(Tick())
    return world


def under_way(setup: str, **changes: Any) -> Lived:
    world = begun(setup, **changes)
    world.up(*world.supervisor.tasks)
    if not world.supervisor.job.program:
        world.say(CHIEF, "initialized", how="fresh", step=0, generation=1)
    assert behave(world, 10, {}) == []
    assert named(world) == set()
    return world


def named(world: World) -> set[str]:
    return {note.fields["task"] for note in world.notes if note.kind in NAMING}


def stand(world: Lived, seconds: float, manner: Manner) -> list[Action]:
    """The last training task does that, and whoever waits for it in this strategy waits."""
    job, victim = world.supervisor.job, victim_of(world)
    waiting: Manner = "waits" if job.strategy.is_synchronous else "trains"
    manners: dict[Task, Manner] = dict.fromkeys(job.cluster.training_tasks(), waiting)
    return behave(world, seconds, {**manners, victim: manner})


def heard(world: Lived, task: Task, age: float = 0.0, **seen: Any) -> list[Action]:
    return world.tell(Heartbeat(task, age, Vitals(**seen)))
