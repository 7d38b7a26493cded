"""What the supervisor knows of each task, and what a resumed run knows of its past."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from headway.spec.cluster import Task

Phase = Literal["waiting", "starting", "ready", "training", "done", "ended", "given up"]
RUNNING: tuple[Phase, ...] = ("starting", "ready", "training", "done")
BUSY = ("evaluating", "saving", "exporting")
ASIDES = ("bad_record",)  # said by a thread of its own, whatever the task is busy with


@dataclass
class TaskState:
    """What the supervisor knows of one task."""

    task: Task
    phase: Phase = "waiting"
    attempt: int = -1
    pid: int | None = None
    start_at: float | None = 0.0
    """When a waiting task is due; None: not before something else happens."""
    since: float = 0.0
    """When the phase began."""
    restarts: int = 0
    alive_at: float = 0.0
    silent: bool = False
    """Its heartbeat is overdue, and the user was told."""
    progress_at: float = 0.0
    busy: str | None = None
    """What the task does that is no step."""
    stalled: bool = False
    own_steps: int = 0
    """Steps that it made itself, in all its attempts, undone ones included."""
    step: int = 0
    loss: float | None = None
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=101))
    failure: str | None = None
    """Why it failed last, in its own words or ours."""
    port_taken: bool = False
    is_hopeless: bool = False
    """It failed for a reason that would be there again: what it was asked for cannot be had on this machine, or of this
    data."""
    end_by: float | None = None
    """When it must have ended: it was told to, or said that it is done."""
    killed_for: str | None = None
    killed_at: float = 0.0
    is_bystander: bool = False
    """Killed for another's failure, which counts as that one's restart."""
    # In a ring only (see groups.py):
    broke_at: float | None = None
    """When it first showed that the ring is broken: it was cut off, or it fell."""
    cut_off: str | None = None
    """The error with which its collective broke (`disconnected`): the process can only be started again."""
    fell: Literal["killed", "ended itself"] | None = None
    """How it ended out of order; whose fault that was is not known yet."""

    @property
    def is_running(self) -> bool:
        return self.phase in RUNNING

    def enter(self, phase: Phase, now: float) -> None:
        self.phase, self.since = phase, now

    def wait_to_start(self, due: float | None, now: float) -> None:
        self.enter("waiting", now)
        self.start_at = due

    def begin(self, now: float) -> None:
        """A new attempt: nothing of the last one holds, except what is counted over all of them."""
        self.enter("starting", now)
        self.attempt += 1
        self.start_at = None
        self.alive_at = self.progress_at = now
        self.silent = self.stalled = self.port_taken = self.is_hopeless = self.is_bystander = False
        self.busy = self.failure = self.end_by = self.killed_for = None
        self.step_seconds.clear()
        self.forget_break()

    def hear(self, said: dict[str, Any], now: float) -> None:
        """What its words tell of the task itself."""
        self.progress_at = self.alive_at = now
        if said["kind"] not in ASIDES:
            self.busy = said["kind"] if said["kind"] in BUSY else None
        if said["kind"] == "step":
            self.own_steps = said["own_step"]
            self.step, self.loss = said["step"], said.get("loss")
            if not said.get("warmup"):
                self.step_seconds.append(said["seconds"] / said["num_steps"])
        elif said["kind"] == "failed":
            self.failure = f"{said.get('error')}: {said.get('message')}"
            self.port_taken = bool(said.get("port_taken"))
            self.is_hopeless = bool(said.get("hopeless"))

    def show_break(self, now: float) -> None:
        self.broke_at = now if self.broke_at is None else self.broke_at

    def forget_break(self) -> None:
        self.broke_at = self.cut_off = self.fell = None


@dataclass(frozen=True)
class History:
    """What earlier launches of a run have left, for a resumed one."""

    attempts: dict[Task, int] = field(default_factory=dict)
    own_steps: dict[Task, int] = field(default_factory=dict)
    step: int = 0
    trained_seconds: float = 0.0
