"""The watch: looks at the clock for the supervisor. Who takes too long to start, to give a sign of life, to make a
step, to end? Pure, like the supervisor: it keeps no time of its own.

What it goes by, the surest first; each is named in a note before anybody is killed:

    stopped   a process of the task is stopped (state T), whatever its heartbeat says    limits.heartbeat
    silent    no heartbeat; of a task that starts, only where it uses no CPU either      limits.heartbeat, limits.start
    blocked   ps-sync: an update waits for it                                            limits.stall
    stalled   no step for long, and it waits for no other task                           limits.stall

A process that a debugger holds (state t) is named, and not killed for that. In a synchronous strategy all tasks stand
still when one does: `_behind` says which of them the others wait for, as far as there is evidence for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headway.host.vitals import WINDOW
from headway.launch.messages import Note
from headway.launch.taskstate import Frozen, TaskState
from headway.spec.cluster import Task
from headway.spec.job import Job

STALL_FLOOR = 10.0  # seconds: no task is called stalled sooner
NAMED_STEPS = 3  # ... nor sooner than this many times what lies between two reports of it
STALL_STEPS = 10  # ... nor is it killed sooner than this many times
BUSY_FLOOR = 60.0  # seconds: a user's program that computes may evaluate, or save: it is not called stalled sooner
KNOWN = 3  # reports after which it is known how long a task's steps take
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
        self._is_ring = job.strategy.kind == "allreduce"
        self._is_program = job.program is not None  # which may tell nobody of its steps
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
            yield from self._listen(state, silence)
            if state.end_by is not None and now >= state.end_by:
                yield Sentence(state, "it did not end in time")
            elif self._is_stopped(state, silence, now):
                yield from self._name(state, "stopped", silence)
                yield Sentence(state, f"it was stopped for {limits.heartbeat:g} s (state T; limits.heartbeat)")
            elif state.phase == "starting":
                if in_phase > limits.start:
                    yield Sentence(state, f"it was not ready within {limits.start:g} s (limits.start)")
            elif silence > limits.heartbeat and not (state.vitals and state.vitals.by_debugger):
                yield Note("unresponsive", {"task": str(state.task), "seconds": round(silence, 1)})
                yield Sentence(state, f"no heartbeat for {limits.heartbeat:g} s (limits.heartbeat)")
            elif state.phase == "ready" and state.task.role in ("chief", "worker"):
                yield from self._watch_joining(state, in_phase)
            elif state.phase == "ready":
                yield from _watch_disk(state, limits.stall)
            elif state.phase == "training":
                yield from self._watch_progress(state, now)

    # --- signs of life -----------------------------------------------------------------------------------------------
    def _listen(self, state: TaskState, silence: float) -> Iterator[Note]:
        yield from self._name(state, self._frozen(state, silence), silence)

    def _name(self, state: TaskState, found: Frozen | None, silence: float) -> Iterator[Note]:
        if found != state.frozen:
            state.frozen = found
            yield Note(found or "going_on", {"task": str(state.task), **_about(state, silence)})

    def _frozen(self, state: TaskState, silence: float) -> Frozen | None:
        vitals = state.vitals
        if vitals is not None and vitals.stopped_for > 0:  # then it cannot beat: the cause is named, not the silence
            return "stopped" if vitals.stopped_for >= self._silence else state.frozen
        # The first heartbeat comes when Python has started, which takes long on a busy machine, and none comes while an
        # import is in one long call: only who does nothing meanwhile is silent.
        is_due = state.phase != "starting" or _is_idle(state)
        return "silent" if silence > self._silence and is_due else None

    def _is_stopped(self, state: TaskState, silence: float, now: float) -> bool:
        """Whether it has been stopped for so long that it will not go on. Where only a part of it is (one of several
        processes of a program), the rest must have come to a standstill: no step for long; where it tells of none,
        or of too few to know what is long, no CPU time."""
        vitals, limit = state.vitals, self._limits.heartbeat
        if vitals is None or vitals.by_debugger or not vitals.stopped_for:
            return False
        if (state.frozen == "stopped" or vitals.whole) and state.phase != "starting" and silence > limit:
            return True  # its last heartbeat came before it was seen to be stopped: up to two looks earlier
        if vitals.stopped_for < limit:
            return False
        if vitals.whole:
            return True
        if state.reports < KNOWN and vitals.idle_for < limit:
            return False
        return not state.reports or now - state.progress_at > max(limit, STALL_STEPS * state.usual_report)

    # --- progress ----------------------------------------------------------------------------------------------------
    def _watch_joining(self, state: TaskState, in_phase: float) -> Iterator[Note | Sentence]:
        # The engine has the same limit once, with a better message; this is for one that hangs.
        if in_phase > 2 * self._limits.start:
            yield Sentence(state, f"it did not begin to train within {2 * self._limits.start:g} s (2 limits.start)")
        elif (
            in_phase > STALL_FLOOR
            and state.vitals is not None
            and state.vitals.idle_for > STALL_FLOOR
            and not state.stalled
            and not state.frozen
            and all(server.phase == "ready" and not server.trouble for server in self._servers)
            and any(other.phase == "training" and other.reports for other in self._training)
        ):
            state.stalled = True
            yield Note("stalled", {"task": str(state.task), "seconds": round(in_phase, 1), **_evidence(state)})

    def _watch_progress(self, state: TaskState, now: float) -> Iterator[Note | Sentence]:
        if state.frozen:
            return
        if self._is_program and (not state.own_steps or (state.reports < 2 and _computes(state))):
            return  # it may tell nobody of its steps; and nothing tells how long its first ones take
        state.progress_at = max(state.progress_at, self._last_common_step(state))
        still, usual = now - state.progress_at, state.usual_report
        behind = self._behind() if self._is_synchronous and still > STALL_FLOOR else [state]
        if state not in behind or self._waits_for_others(state):
            state.progress_at = now
        elif still > max(self._limits.stall, STALL_STEPS * usual):
            yield Sentence(state, f"no step for {still:.0f} s (limits.stall)")
        elif not state.stalled and not state.busy and self._is_long(state, still, behind):
            state.stalled = True
            about = {"seconds": round(still, 1), "median_step": usual, **_evidence(state)}
            if len(behind) > 1:
                about["among"] = [str(other.task) for other in behind]
            yield Note("stalled", {"task": str(state.task), **about})

    def _last_common_step(self, state: TaskState) -> float:
        """When all made a step, of a program whose tasks make each step together: it is this one's too, also where it
        no longer tells of its steps."""
        if not (self._is_program and self._is_synchronous) or (_is_idle(state) and not self._is_ring):
            return 0.0
        return max((other.stepped_at for other in self._training if other.stepped_at is not None), default=0.0)

    def _is_long(self, state: TaskState, still: float, behind: list[TaskState]) -> bool:
        """Whether so many seconds without a step are worth a word."""
        usual = state.usual_report
        if self._is_program and any(
            _computes(other) for other in behind
        ):  # it may evaluate, and the others wait for it
            return state.reports >= KNOWN and still > max(BUSY_FLOOR, STALL_STEPS * usual)
        # A first step may be compiled, or wait for a first batch to be read: only who does nothing stands still.
        is_known = _is_idle(state) or state.reports >= KNOWN
        return is_known and still > max(STALL_FLOOR, NAMED_STEPS * usual)

    def _behind(self) -> list[TaskState]:
        """Of tasks that wait for each other in every step, those that the others wait for; all where nothing tells."""
        group = [state for state in self._training if state.phase == "training"]
        told = [state for state in group if state.reports]
        furthest = max((state.step for state in told), default=0)
        computing = [state for state in group if _computes(state)]
        idle = [state for state in group if _is_idle(state)]
        signs = [
            [state for state in group if _waits_for_disk(state)],
            [state for state in told if furthest - state.step >= state.stride] if len(told) == len(group) else [],
        ]
        if len(computing) + len(idle) == len(group):
            if not self._is_program:  # ours wait without using a CPU
                signs.append(computing)
            elif len(group) > 2:  # some libraries wait in a loop, others do not: the one that differs
                signs += [one for one in (computing, idle) if len(one) == 1]
        return next((found for found in signs if found and len(found) < len(group)), group)

    def _waits_for_others(self, state: TaskState) -> bool:
        """Whether it makes no step because of others, who have limits of their own."""
        if any(server.phase != "ready" or server.trouble or _waits_for_disk(server) for server in self._servers):
            return True
        if not self._is_synchronous:
            return False
        if self._missing and state.task not in self._missing:
            return True
        others = [other for other in self._training if other is not state]
        if not self._servers and any(other.killed_for or other.broke_at is not None for other in others):
            return True  # the ring is broken
        return any(
            other.phase in ("waiting", "starting", "ready") or (other.is_running and (other.busy or other.frozen))
            for other in others
        )


def _about(state: TaskState, silence: float) -> dict[str, Any]:
    """Of a task that is frozen."""
    if state.frozen == "silent":
        return {"seconds": round(silence, 1)}
    if state.frozen is None or state.vitals is None:
        return {}
    vitals = state.vitals
    return {"seconds": round(vitals.stopped_for, 1), "process": vitals.stopped, "by_debugger": vitals.by_debugger}


def _watch_disk(state: TaskState, limit: float) -> Iterator[Note | Sentence]:
    """Of a task that makes no steps this is all that shows that it hangs."""
    if state.vitals is not None and state.vitals.disk_for > limit:
        yield Sentence(state, f"it has waited for a disk for {limit:g} s (state D; limits.stall)")
        return
    hangs = state.vitals is not None and state.vitals.disk_for > STALL_FLOOR
    if state.stalled != hangs:
        state.stalled = hangs
        about = {"seconds": round(state.vitals.disk_for, 1), **_evidence(state)} if hangs and state.vitals else {}
        yield Note("stalled" if hangs else "going_on", {"task": str(state.task), **about})


def _waits_for_disk(state: TaskState) -> bool:
    return state.vitals is not None and state.vitals.disk_for >= WINDOW


def _is_idle(state: TaskState) -> bool:
    return state.vitals is not None and state.vitals.idle_for >= WINDOW


def _computes(state: TaskState) -> bool:
    return state.vitals is not None and not _is_idle(state)


def _evidence(state: TaskState) -> dict[str, Any]:
    """What is known of a task that makes no step."""
    if _waits_for_disk(state):
        return {"doing": "disk"}
    return {} if state.vitals is None else {"doing": "nothing" if _is_idle(state) else "computing"}
