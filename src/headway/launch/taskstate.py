"""What the supervisor knows of each task, and what a resumed run knows of its past."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from headway.spec.cluster import Task

Phase = Literal["waiting", "starting", "ready", "training", "done", "ended", "given up"]
RUNNING: tuple[Phase, ...] = ("starting", "ready", "training", "done")


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
    progress_at: float = 0.0
    busy: str | None = None
    """What the task does that is no step: evaluating, saving, exporting."""
    stalled: bool = False
    own_steps: int = 0
    step: int = 0
    loss: float | None = None
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=101))
    failure: str | None = None
    """Why it failed last, in its own words or ours."""
    port_taken: bool = False
    killed_for: str | None = None
    killed_at: float = 0.0
    is_bystander: bool = False
    """Killed for another's failure, which counts as that one's restart."""

    @property
    def is_running(self) -> bool:
        return self.phase in RUNNING


@dataclass(frozen=True)
class History:
    """What earlier launches of a run have left, for a resumed one."""

    attempts: dict[Task, int] = field(default_factory=dict)
    own_steps: dict[Task, int] = field(default_factory=dict)
    step: int = 0
    trained_seconds: float = 0.0
