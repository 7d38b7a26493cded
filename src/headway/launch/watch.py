"""The watch: looks at the clock for the supervisor. Who takes too long to start, to give a sign of life, to make a
step, to end? Pure, like the supervisor: it keeps no time of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from headway.launch.messages import Note
from headway.launch.taskstate import TaskState
from headway.spec.cluster import Task
from headway.spec.job import Job

STALL_FLOOR = 10.0  # seconds: no task is called stalled sooner
STALL_STEPS = 10  # ... nor sooner than this many of its median steps
SILENCE = 5.0  # seconds without a heartbeat after which the user is told, whatever limits.heartbeat is
SILENCE_FLOOR = 2.0  # ... and no sooner than this: heartbeats come twice a second, and are looked at as often


@dataclass(frozen=True)
class Sentence:
    """This task is to be killed, which is a failure like any other."""

    state: TaskState
    reason: str


class Watch:
    def __init__(self, job: Job, tasks: Mapping[Task, TaskState]) -> None:
        self._missing: list[Task] = []  # ps-sync: whom the present update waits for, if it waits long
        self._named: set[Task] = set()  # of these, who was named: it is said again and again
        self._limits = job.limits
        self._is_synchronous = job.strategy.is_synchronous
        self._may_be_silent = job.program is not None  # a program may tell nobody of its steps
        self._tasks = tasks
        self._training = [tasks[task] for task in job.cluster.training_tasks()]
        self._servers = [state for task, state in tasks.items() if task.role == "ps"]
        self._silence = min(SILENCE, max(SILENCE_FLOOR, job.limits.heartbeat / 2))

    def blocked(self, said: dict[str, Any], now: float) -> Iterator[Note]:
        """ps-sync: an update waits long for some tasks. These are named; the others are not to blame. Nor are these
        where a server has fallen silent: what they sent waits there."""
        if any(now - server.alive_at > SILENCE_FLOOR for server in self._servers):
            return
        self._missing = [state.task for state in self._training if str(state.task) in said["missing"]]
        waiting = [str(state.task) for state in self._training if state.phase == "training"]
        waiting = [name for name in waiting if name not in said["missing"]]
        for state in (self._tasks[task] for task in self._missing if task not in self._named):
            if not state.busy:  # else it has said itself what keeps it
                self._named.add(state.task)
                state.stalled = state.phase == "training"
                seconds = round(said["seconds"], 1)
                yield Note("blocked", {"task": str(state.task), "seconds": seconds, "waiting": waiting})

    def unblocked(self) -> None:
        self._missing = []
        self._named.clear()

    def look(self, now: float) -> Iterator[Note | Sentence]:
        """What is to be said and done; each is done before the next task is looked at."""
        limits = self._limits
        for state in self._tasks.values():
            if not state.is_running or state.killed_for:
                continue
            in_phase, silence = now - state.since, now - state.alive_at
            if state.phase != "starting":
                yield from self._listen(state, silence)
            if state.end_by is not None and now >= state.end_by:
                yield Sentence(state, "it did not end in time")
            elif state.phase == "starting":
                if in_phase > limits.start:
                    yield Sentence(state, f"it was not ready within {limits.start:g} s (limits.start)")
            elif silence > limits.heartbeat:
                yield Note("unresponsive", {"task": str(state.task), "seconds": round(silence, 1)})
                yield Sentence(state, f"no heartbeat for {limits.heartbeat:g} s (limits.heartbeat)")
            elif state.phase == "ready" and state.task.role in ("chief", "worker"):
                # The engine has the same limit once, with a better message; this is for one that hangs.
                if in_phase > 2 * limits.start:
                    yield Sentence(state, f"it did not begin to train within {2 * limits.start:g} s (2 limits.start)")
            elif state.phase == "training":
                yield from self._watch_progress(state, now)

    def _listen(self, state: TaskState, silence: float) -> Iterator[Note]:
        if state.silent != (silence > self._silence):
            state.silent = not state.silent
            seconds = {"seconds": round(silence, 1)} if state.silent else {}
            yield Note("silent" if state.silent else "going_on", {"task": str(state.task), **seconds})

    def _watch_progress(self, state: TaskState, now: float) -> Iterator[Note | Sentence]:
        if self._waits_for_others(state):
            state.progress_at = now
            return
        still = now - state.progress_at
        step = median(state.step_seconds) if state.step_seconds else 0.0
        if not state.step_seconds and self._may_be_silent:
            return
        if still > max(self._limits.stall, STALL_STEPS * step):
            yield Sentence(state, f"no step for {still:.0f} s (limits.stall)")
        elif (
            len(state.step_seconds) >= 3
            and still > max(STALL_FLOOR, STALL_STEPS * step)
            and not state.stalled
            and not state.busy
        ):
            state.stalled = True
            yield Note("stalled", {"task": str(state.task), "seconds": round(still, 1), "median_step": step})

    def _waits_for_others(self, state: TaskState) -> bool:
        """Whether it makes no step because of others, who have limits of their own."""
        if any(server.phase != "ready" for server in self._servers):
            return True
        if not self._is_synchronous:
            return False
        if self._missing and state.task not in self._missing:
            return True
        others = [other for other in self._training if other is not state]
        if not self._servers and any(other.killed_for or other.broke_at is not None for other in others):
            return True  # the ring is broken
        return any(
            other.phase in ("waiting", "starting", "ready") or (other.is_running and other.busy) for other in others
        )
