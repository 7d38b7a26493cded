"""What the supervisor knows of each task, and what a resumed run knows of its past."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from headway.host.vitals import Vitals
from headway.launch.messages import TaskExited
from headway.spec.cluster import Task

Phase = Literal["waiting", "starting", "ready", "training", "done", "ended", "given up"]
Frozen = Literal["stopped", "silent"]
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
    vitals: Vitals | None = None
    """What the kernel says of its processes; None: nothing yet."""
    frozen: Frozen | None = None
    """One of its processes is stopped, or its heartbeat is overdue; and the user was told."""
    progress_at: float = 0.0
    busy: str | None = None
    """What the task does that is no step."""
    stalled: bool = False
    """It makes no progress though it is alive, and the user was told."""
    own_steps: int = 0
    """Steps that it made itself, in all its attempts, undone ones included."""
    step: int = 0
    loss: float | None = None
    step_examples: float | None = None
    """Examples in one of its own steps, as its last ones say."""
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=101))
    """Of each step that is measured: the warm-up is left out."""
    report_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=101))
    """Between news of steps, warm-up included: a program may tell of every hundredth step only."""
    reports: int = 0
    """How often this attempt told of steps."""
    stride: int = 1
    """Steps between its last two reports."""
    stepped_at: float | None = None
    """When this attempt last told of a step."""
    usual_before: float = 0.0
    """Seconds between reports of the attempt before."""
    failure: str | None = None
    """Why it failed last, in its own words or ours."""
    error: str | None = None
    """The kind of its failure, in its own words."""
    exit: TaskExited | None = None
    """How its last attempt ended out of order by its own fault; None: it was killed from outside, or by us."""
    began_at: float = 0.0
    lived: float = 0.0
    """Seconds that its last attempt lasted."""
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

    @property
    def usual_report(self) -> float:
        """Seconds between news of steps, as it is used to; 0.0: not known."""
        return median(self.report_seconds) if self.report_seconds else self.usual_before

    @property
    def trouble(self) -> Literal["stopped", "silent", "stalled"] | None:
        """In a word, for whoever looks."""
        return (self.frozen or ("stalled" if self.stalled else None)) if self.is_running else None

    def beat(self, age: float, vitals: Vitals | None, now: float) -> None:
        self.alive_at = max(self.alive_at, now - age)
        self.vitals = vitals or self.vitals

    def why_frozen(self, now: float) -> str:
        if self.frozen == "stopped" and self.vitals is not None:
            return f"{self.vitals.stopped} was stopped for {self.vitals.stopped_for:.0f} s"
        return f"no heartbeat for {now - self.alive_at:.0f} s" if self.frozen else ""

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
        self.alive_at = self.progress_at = self.began_at = now
        self.vitals = self.frozen = self.stepped_at = None
        self.stalled = self.port_taken = self.is_hopeless = self.is_bystander = False
        self.busy = self.failure = self.error = self.exit = self.end_by = self.killed_for = None
        self.usual_before, self.reports = self.usual_report, 0
        self.step_seconds.clear()
        self.report_seconds.clear()
        self.forget_break()

    def hear(self, said: dict[str, Any], now: float) -> None:
        """What its words tell of the task itself."""
        self.progress_at = self.alive_at = now
        if said["kind"] not in ASIDES:
            self.busy = said["kind"] if said["kind"] in BUSY else None
        if said["kind"] == "step":
            self.own_steps = said["own_step"]
            self.step = said["step"]
            # A program's loss may be known from another source than its steps.
            self.loss = said.get("loss") if said.get("loss") is not None or "source" not in said else self.loss
            if said["seconds"] and said.get("examples") is not None:
                self.step_examples = said["examples"] / said["num_steps"]
            self.reports += 1
            self.stepped_at = now
            self.stride = said["num_steps"]
            if said["seconds"] > 0:  # a program's first report does not know when it began
                self.report_seconds.append(said["seconds"])
            if not said.get("warmup"):
                self.step_seconds.append(said["seconds"] / said["num_steps"])
        elif said["kind"] == "told":
            self.loss = said["loss"]
        elif said["kind"] == "failed":
            self.error = str(said.get("error"))
            self.failure = f"{self.error}: {said.get('message')}"
            self.port_taken = bool(said.get("port_taken"))
            self.is_hopeless = bool(said.get("hopeless"))

    def left(self, exited: TaskExited, reason: str, now: float) -> None:
        """Its process has ended, and not in order."""
        self.failure = reason
        self.exit = None if exited.is_from_outside or self.killed_for else exited
        self.lived = now - self.began_at

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
