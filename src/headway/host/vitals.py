"""Whether a task's processes can run, and whether they do: what the kernel says of a task that makes no progress.

A heartbeat proves only that one thread of one process lives. The program beside it may be stopped (state T), may wait
for a disk or a network file system that does not answer (state D), or may wait for something without using a CPU. A
process that has no CPU because others use them, or because its quota is used up, is runnable (state R): not idle.

Durations grow with what was seen, not with the clock: a look that comes late, because the machine or the agent was
suspended, adds at most two intervals.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.host.files import content
from headway.host.readings import TICKS

EVERY = 1.0  # seconds between looks
WINDOW = 5.0  # seconds after which a task without CPU time is called idle
IDLE_CPUS = 0.02  # less than this is no work: heartbeats, and libraries that wake up now and then
RUNNABLE = 0.25  # share of looks: one that wants a CPU this often is not idle, though it may get none
PROC = "/proc"


@dataclass(frozen=True)
class Vitals:
    """Of all processes of a task, now. A user's program is looked at without our process beside it, except for its
    state."""

    stopped_for: float = 0.0
    """Seconds for which one of its processes has been stopped (T), or held by a debugger (t)."""
    by_debugger: bool = False
    stopped: str = ""
    """The name of that process."""
    whole: bool = False
    """Every process of it that could work is stopped, or the one that beats is."""
    disk_for: float = 0.0
    """Seconds for which one thread has been waiting in the kernel (D), while nothing else of it computed."""
    idle_for: float = 0.0
    """Seconds without using a CPU, and without waiting for one."""


class _Process(NamedTuple):
    name: str
    state: str
    ticks: int  # of CPU time, its own and that of children that have ended


class Checkup:
    """Looks at one task again and again."""

    def __init__(self, root: int, proc: str = PROC) -> None:
        self._root, self._proc = root, proc
        self._looked: float | None = None
        self._ticks: dict[int, int] = {}
        self._cpu = 0  # ticks, of all processes seen so far
        self._stopped: dict[int, float] = {}
        self._on_disk: dict[str, float] = {}
        self._history: deque[tuple[float, int, bool]] = deque()  # when, ticks, was runnable
        self._quiet_since: float | None = None

    def look(self, pids: Sequence[int], now: float) -> Vitals:
        """`pids`: the task's processes, its first one first."""
        passed = 0.0 if self._looked is None else now - self._looked
        if passed > 2 * EVERY:  # nobody looked: what was quiet before may not have been since
            self._history.clear()
            self._quiet_since = None
            passed = 2 * EVERY
        self._looked = now
        found = {pid: process for pid in pids if (process := _process(f"{self._proc}/{pid}/stat")) is not None}
        work = {pid: process for pid, process in found.items() if pid != self._root} or found
        grown = {pid: max(0, process.ticks - self._ticks.get(pid, 0)) for pid, process in found.items()}
        self._ticks = {pid: process.ticks for pid, process in found.items()}
        used = sum(grown[pid] for pid in work)
        self._cpu += used
        self._stopped = {
            pid: self._stopped[pid] + passed if pid in self._stopped and not grown[pid] else 0.0
            for pid, process in found.items()
            if process.state in "Tt"
        }
        threads = self._threads(work) if used <= IDLE_CPUS * TICKS * passed else {}
        self._on_disk = {
            thread: self._on_disk.get(thread, -passed) + passed for thread, state in threads.items() if state == "D"
        }
        is_runnable = "R" in threads.values()
        pid, is_whole = self._which_is_stopped(work)
        return Vitals(
            stopped_for=round(self._stopped[pid], 2) if pid is not None else 0.0,
            by_debugger=pid is not None and found[pid].state == "t",
            stopped=found[pid].name if pid is not None else "",
            whole=is_whole,
            disk_for=round(max(self._on_disk.values(), default=0.0), 2),
            idle_for=round(self._idle(now, is_runnable), 2),
        )

    def _which_is_stopped(self, work: Mapping[int, _Process]) -> tuple[int | None, bool]:
        """The process that is spoken of, and whether the whole task stands with it: the one that beats; where all that
        could work are stopped, the last of them; else the one that was first."""
        if self._root in self._stopped:
            return self._root, True
        is_whole = bool(self._stopped) and all(pid in self._stopped for pid in work)
        choose = min if is_whole else max
        return choose(self._stopped, key=lambda pid: self._stopped[pid], default=None), is_whole

    def _idle(self, now: float, is_runnable: bool) -> float:
        history = self._history
        history.append((now, self._cpu, is_runnable))
        while len(history) > 1 and now - history[1][0] >= WINDOW:
            history.popleft()
        began, cpu, _ = history[0]
        is_busy = (self._cpu - cpu) / TICKS > IDLE_CPUS * (now - began)
        wanted = sum(runnable for _, _, runnable in history) / len(history)
        if now - began < WINDOW or is_busy or wanted > RUNNABLE:
            self._quiet_since = None
            return 0.0
        if self._quiet_since is None:
            self._quiet_since = began
        return now - self._quiet_since

    def _threads(self, processes: Mapping[int, _Process]) -> dict[str, str]:
        """State of each thread: the first one of a process often only waits for the others. Looked at only where no
        process has used a CPU, because a task may have hundreds."""
        found = {}
        for pid in processes:
            folder = f"{self._proc}/{pid}/task"
            try:
                names = os.listdir(folder)  # noqa: PTH208 (many times a second)
            except OSError:
                continue  # it has ended
            for name in names:
                if (thread := _process(f"{folder}/{name}/stat")) is not None:
                    found[name] = thread.state
        return found


def families(roots: Sequence[int], proc: str = PROC) -> dict[int, list[int]]:
    """Each root with all its descendants, itself first: one walk over all processes for all of them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc):  # noqa: PTH208
        if name.isdigit():
            try:
                parent = int(content(f"{proc}/{name}/stat").rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    found = {}
    for root in roots:
        family = [root]
        for pid in family:  # it grows while it is walked
            family += children.get(pid, [])
        found[root] = family
    return found


def _process(path: str) -> _Process | None:
    """None where it has ended, also where nobody has taken note of that yet."""
    try:
        before, _, after = content(path).rpartition(b")")  # the name may have blanks and brackets in it
    except OSError:
        return None
    fields = after.split()
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    name = before.partition(b"(")[2].decode(errors="replace")
    return _Process(name, fields[0].decode("ascii"), sum(int(ticks) for ticks in fields[11:15]))
