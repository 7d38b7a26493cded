"""Can a run be believed? Pure but for `judged` and `evidence`, which read the run, and `Machine`, which reads /proc.

A run is marked, with what was seen, where
- loaded: others used this machine's CPUs while it was measured, or a hypervisor gave them away (steal);
- throttled: the CPUs were held back, by heat or by a quota on all of us;
- unsteady: the step time changed while it was measured, or was still changing when the warm-up had to end;
- restarted: a task died and was started again;
- inconsistent: its figures contradict each other (metrics/consistency.py);
- short: it reached its limit before it had made its steps.
"""

from __future__ import annotations

import math
import os
import resource
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from headway import clock
from headway.bench.figures import figure_in, why_missing
from headway.host.control_groups import held_back
from headway.metrics.consistency import of_run
from headway.plural import counted
from headway.record.folder import LAUNCHER
from headway.record.run import Run
from headway.record.seal import result

# Of this machine's cores, used by others. On two quiet cores 46 runs saw -0.14 to 0.04 of them (a run's own use is
# sampled), beside other work 22 saw 0.07 to 0.6.
LOADED = 0.08
EMULATION = 0.07  # further ones where hosts are emulated: what the kernel does for their network is nobody's
STOLEN = 0.03  # of this machine's cores, given to other virtual machines
THROTTLED = 0.02  # of the time, in which a quota on all of us held us back
DRIFT = 0.1  # by which the step time may change from the first third of the measured steps to the last
SURE = 3.3  # standard deviations of the rank sum: by chance once in a thousand runs
FEWEST_STEPS = 12  # fewer say nothing of a drift
EVERY = 0.5  # seconds between looks at the machine
EMULATOR = "headway.sites.emulated"  # what processes that emulate hosts are started as


@dataclass(frozen=True)
class Load:
    """What this machine did while a run was measured; None: not known."""

    cores: int
    busy: float | None = None
    """CPUs' worth of work, by whomever."""
    stolen: float | None = None
    """CPUs' worth of time that a hypervisor gave to others."""
    throttled: float | None = None
    """Share of time in which a quota on all of us held some of us back."""
    hot: int = 0
    """How often a core was slowed down for its heat."""
    conductor: float = 0.0
    """CPUs used by the launcher itself."""
    emulation: float = 0.0
    """CPUs used by what emulates hosts: its queues delay every packet."""


@dataclass(frozen=True)
class Evidence:
    """What a verdict is made of."""

    step_seconds: Mapping[str, Sequence[float]]
    """Of each training task, without warm-up, in the order of time: one for each call, which may make several steps."""
    made: Mapping[str, int]
    """Measured steps of each training task."""
    ours: float | None
    """CPUs used by the tasks (or by the emulated hosts)."""
    restarts: int = 0
    was_steady: bool = True
    """Whether the step time was steady when the warm-up ended."""
    asked_steps: int | None = None
    load: Load | None = None
    is_emulated: bool = False
    """Several hosts on this machine."""
    contradictions: Sequence[str] = ()


def marks(seen: Evidence) -> dict[str, str]:
    """Mark -> what was seen, in words."""
    found: dict[str, str] = {}
    if seen.load is not None and (text := _loaded(seen.load, seen.ours, seen.is_emulated)):
        found["loaded"] = text
    if seen.load is not None and (text := _throttled(seen.load)):
        found["throttled"] = text
    if text := unsteady(seen.step_seconds):
        found["unsteady"] = text
    elif not seen.was_steady:
        found["unsteady"] = "the step time was still changing when the warm-up had taken all the steps that it may"
    if seen.restarts:
        found["restarted"] = f"tasks were started again, {seen.restarts} times"
    if seen.contradictions:
        found["inconsistent"] = "; ".join(seen.contradictions)
    fewest = min(seen.made.values(), default=0)
    if seen.asked_steps is not None and fewest < seen.asked_steps:
        found["short"] = f"only {fewest} of {counted(seen.asked_steps, 'step')} measured"
    return found


def _loaded(load: Load, ours: float | None, is_emulated: bool) -> str | None:
    if load.stolen is not None and load.stolen > STOLEN * load.cores:
        return f"the hypervisor gave {load.stolen:.2f} of {counted(load.cores, 'CPU')} to others"
    if load.busy is None or ours is None:
        return None
    others = load.busy - ours - load.conductor - load.emulation
    if others > (LOADED + EMULATION * is_emulated) * load.cores:
        return f"others used {others:.2f} of {counted(load.cores, 'CPU')}"
    return None


def _throttled(load: Load) -> str | None:
    if load.hot:
        return f"cores were slowed down for their heat, {load.hot} times"
    if load.throttled is not None and load.throttled > THROTTLED:
        return f"a quota held this machine's processes back for {load.throttled:.0%} of the time"
    return None


def unsteady(step_seconds: Mapping[str, Sequence[float]]) -> str | None:
    """Whether some task's step time drifts: its first third of steps and its last differ by more than a tenth, and by
    more than chance does (Wilcoxon's rank sum)."""
    for task, seconds in step_seconds.items():
        if len(seconds) < FEWEST_STEPS:
            continue
        third = len(seconds) // 3
        first, last = np.asarray(seconds[:third]), np.asarray(seconds[-third:])
        before, after = float(np.median(first)), float(np.median(last))
        if before > 0 and abs(after / before - 1) > DRIFT and abs(rank_sum(first, last)) > SURE:
            how = "slower" if after > before else "faster"
            return f"{task}: steps became {abs(after / before - 1):.0%} {how} while it was measured"
    return None


def rank_sum(first: np.ndarray[Any, Any], last: np.ndarray[Any, Any]) -> float:
    """In standard deviations: how much larger `last` is than by chance. Equal values share their ranks."""
    if not len(first) or not len(last):
        return 0.0
    from scipy.stats import ranksums  # half a second: only where a drift was seen

    return float(ranksums(last, first).statistic)


# --- reading --------------------------------------------------------------------------------------------------------
def judged(run: Run, figure: str, machine: Machine) -> dict[str, Any]:
    """What the run came to, and whether it can be believed: fields of its event `ended` (docs/sweeps.md)."""
    figures = result(run)
    value, measured = figure_in(run, figures, figure), window(run)
    if value is None:
        nothing = f"it gave no {figure}: nothing was measured"
        return {"state": "failed", "reason": why_missing(figures, figure) if measured else nothing}
    if not math.isfinite(value):  # such a number has no interval, and none beside others
        return {"state": "failed", "reason": f"its {figure} is {value}: no number. Has the training diverged?"}
    load = None
    if measured is not None:  # else it told of no steps, or of so few that all are warm-up
        time.sleep(max(0.0, min(EVERY, measured[1] + EVERY - clock.now())))  # for a look behind its end
        load = machine.between(*measured)
    seen = evidence(run, figures, load)
    why = marks(seen)
    used = {**asdict(load), "ours": seen.ours} if load else None
    return {"value": value, "marks": list(why), "why": why, "load": used}


def window(run: Run) -> tuple[float, float] | None:
    """From when every task has left its warm-up to the last step; None where nothing was measured."""
    steps = run.table("steps")
    measured = ~np.asarray(steps["warmup"], dtype=bool)
    if not measured.any():
        return None
    tasks, begins = np.asarray(steps["task"])[measured], (steps["t"] - steps["seconds"])[measured]
    first = max(float(begins[tasks == task].min()) for task in set(tasks.tolist()))
    return first, float(np.asarray(steps["t"]).max())


def evidence(run: Run, figures: Mapping[str, Any], load: Load | None) -> Evidence:
    steps = run.table("steps")
    measured = ~np.asarray(steps["warmup"], dtype=bool)
    tasks, each = np.asarray(steps["task"]), np.asarray(steps["seconds"] / steps["num_steps"])
    order = np.argsort(np.asarray(steps["t"]), kind="stable")
    seconds = {
        str(task): [float(each[row]) for row in order if measured[row] and tasks[row] == task]
        for task in sorted(set(tasks.tolist()))
    }
    made = {task: int(np.asarray(steps["num_steps"])[measured & (tasks == task)].sum()) for task in seconds}
    used = figures["task_usage"] if figures["site"] == "local" else figures["nodes"]
    cpus = [one["cpus"] for one in used if one.get("cpus") is not None]
    told = [event for event in run.folder.reader.lines(run.folder.events(LAUNCHER)) if event["kind"] == "measuring"]
    return Evidence(
        seconds,
        made,
        sum(cpus) if cpus else None,
        int(figures["restarts"]),
        bool(told[-1].get("is_steady", True)) if told else True,
        run.job["measure"].get("steps") if "command" not in run.job["workload"] else None,
        load,
        is_emulated=figures["site"] == "emulated",
        contradictions=[wrong.text for wrong in of_run(figures)],
    )


# --- this machine ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Look:
    t: float
    busy: float | None
    stolen: float | None
    throttled: dict[Path, float]
    """Group around us -> seconds in which its quota held us back."""
    hot: int
    own: float
    emulation: float


@dataclass
class Machine:
    """Looks at this machine while runs are made. Use as a context manager."""

    proc: Path = Path("/proc")
    groups: Path = Path("/sys/fs/cgroup")
    cpus: Path = Path("/sys/devices/system/cpu")
    looks: list[_Look] = field(default_factory=list)

    def __enter__(self) -> Machine:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="machine", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        self.look()
        while not self._end.wait(EVERY):
            self.look()

    def look(self) -> None:
        busy, stolen = self._scheduler()
        used = resource.getrusage(resource.RUSAGE_SELF)
        own = used.ru_utime + used.ru_stime
        held = held_back(self.groups, self.proc)
        self.looks.append(_Look(clock.now(), busy, stolen, held, self._hot(), own, _emulation()))

    def forget(self) -> None:
        """What was seen before the next run."""
        del self.looks[:-1]

    def between(self, first: float, last: float) -> Load | None:
        """Means from the last look before `first` to the first one after `last`; None where there were no two."""
        looks = list(self.looks)
        before = [look for look in looks if look.t <= first] or looks[:1]
        after = [look for look in looks if look.t >= last] or looks[-1:]
        if not before or not after or (seconds := after[0].t - before[-1].t) <= 0:
            return None
        begin, end = before[-1], after[0]

        def rate(old: float | None, new: float | None) -> float | None:
            return None if old is None or new is None else (new - old) / seconds

        held = [
            (end.throttled[group] - was) / seconds for group, was in begin.throttled.items() if group in end.throttled
        ]
        return Load(
            cores=len(os.sched_getaffinity(0)),
            busy=rate(begin.busy, end.busy),
            stolen=rate(begin.stolen, end.stolen),
            throttled=max(held, default=None),
            hot=max(0, end.hot - begin.hot),
            conductor=rate(begin.own, end.own) or 0.0,
            emulation=max(0.0, rate(begin.emulation, end.emulation) or 0.0),
        )

    def _scheduler(self) -> tuple[float | None, float | None]:
        """CPU seconds of work, and of what a hypervisor gave away, of the cores that we may use: what is done on others
        does not take ours."""
        try:
            lines = [line.split() for line in (self.proc / "stat").read_text().splitlines()]
        except OSError:
            return None, None
        counters = {line[0]: [int(each) for each in line[1:9]] for line in lines if line and line[0].startswith("cpu")}
        ours = [counters.get(f"cpu{core}", []) for core in os.sched_getaffinity(0)]
        if any(len(each) < 8 for each in ours):  # a container may show others than it has
            ours = [counters.get("cpu", [])]
        if any(len(each) < 8 for each in ours):
            return None, None
        ticks = os.sysconf("SC_CLK_TCK")
        user, nice, system, _idle, _wait, irq, softirq, steal = (sum(each) for each in zip(*ours, strict=True))
        return (user + nice + system + irq + softirq) / ticks, steal / ticks

    def _hot(self) -> int:
        total = 0
        for path in self.cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"):
            try:
                total += int(path.read_text())
            except (OSError, ValueError):
                continue
        return total


def _emulation() -> float:
    """CPU seconds of the processes that are our emulated hosts' network (sites/emulated)."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if any(EMULATOR in word for word in process.cmdline()[:4]):
                total += sum(process.cpu_times()[:2])
        except psutil.Error:  # it has just ended
            continue
    return total
