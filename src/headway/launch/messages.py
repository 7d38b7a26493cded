"""What the supervisor is told (events) and what it wants done (actions)."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any, Literal

from headway.host.vitals import Vitals
from headway.spec.cluster import Task

CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)


# --- events --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TaskStarted:
    task: Task
    attempt: int
    pid: int | None


@dataclass(frozen=True)
class TaskSaid:
    """One event that a task wrote."""

    task: Task
    said: dict[str, Any]


@dataclass(frozen=True)
class TaskExited:
    task: Task
    attempt: int
    code: int
    """Negative: ended by that signal."""
    out_of_memory: bool = False
    """The kernel killed it, because its node had no more."""

    @property
    def how(self) -> str:
        if self.out_of_memory:
            return "killed: its node has no more memory"
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(-self.code).name}"
        except ValueError:  # a real-time signal
            return f"signal {-self.code}"

    @property
    def is_from_outside(self) -> bool:
        """Whether somebody killed it, which says nothing of the program; a crash, or having no memory, does."""
        return self.code < 0 and -self.code not in CRASHES and not self.out_of_memory

    @property
    def is_own_deed(self) -> bool:
        """Whether the process ended itself; else it was killed, or crashed."""
        return self.code >= 0 or self.code == -signal.SIGABRT


@dataclass(frozen=True)
class Heartbeat:
    task: Task
    age: float
    """Seconds since the agent last saw the task's heartbeat."""
    vitals: Vitals | None = None
    """What the kernel says of its processes."""


@dataclass(frozen=True)
class AgentLost:
    """The agent, and with it every task of its node, is gone."""

    reason: str
    tasks: tuple[Task, ...] | None = None
    """Those of the node; None: every task of the run."""


@dataclass(frozen=True)
class NewNodes:
    """After Regroup: nodes and ports are there again."""


@dataclass(frozen=True)
class StopAsked:
    reason: str
    at_once: bool = False


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Event = TaskStarted | TaskSaid | TaskExited | Heartbeat | AgentLost | NewNodes | StopAsked | Tick


# --- actions -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StartTask:
    task: Task
    attempt: int
    own_steps: int
    """Steps that earlier attempts of this task made."""
    trained_seconds: float
    """Seconds that the run has trained already."""


@dataclass(frozen=True)
class SignalTask:
    task: Task
    number: int


@dataclass(frozen=True)
class TellTask:
    task: Task
    message: dict[str, Any]


@dataclass(frozen=True)
class Note:
    """Something for the record, and for the user to see."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Regroup:
    """No task is left: get new nodes where they are lost, and new ports, after a delay; then say NewNodes."""

    delay: float


@dataclass(frozen=True)
class End:
    state: Literal["finished", "stopped", "failed"]
    reason: str


Action = StartTask | SignalTask | TellTask | Note | Regroup | End
