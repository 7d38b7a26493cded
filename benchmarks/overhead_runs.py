"""One training, measured: as bare scripts or through `headway run`. Everything started here is ended here."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from overhead_cases import BATCH, Length, Setup, bare_environment, bare_processes, headway_jobs
from overhead_figures import Progress, progress_of, rate_of, window_of

from headway.record.folder import RunFolder
from headway.record.reader import read_events
from headway.sites.isolation import probe
from headway.workloads import cache_folder

POLL_SECONDS = 0.2
MEMORY_SECONDS = 0.5
PR_SET_PDEATHSIG, CLONE_NEWNET, CLONE_NEWUSER = 1, 0x40000000, 0x10000000
_libc = ctypes.CDLL(None, use_errno=True)


class RunFailed(Exception):
    """A training did not come to its end; the message says what it printed last."""


class PrivateNetwork:
    """A network namespace for the bare processes, like the one Headway gives its tasks: TensorFlow's ports have no
    authentication and must not be reachable from outside. Its loopback device is then the same, too."""

    def __init__(self) -> None:
        ways = [way for way, problem in probe().items() if problem is None and way.private_network]
        if not ways:
            raise RunFailed("no private network namespace can be made here (`headway doctor` says more)")
        way = min(ways, key=lambda way: way.private_processes)  # only the network, if that can be had alone
        code = "import sys; from headway.agent.__main__ import bring_loopback_up as up; up(); print(flush=True)"
        self._holder = subprocess.Popen(
            [*way.command, sys.executable, "-c", f"{code}; sys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            raise RunFailed("the private network namespace could not be set up")
        inside = [process.pid for process in psutil.Process(self._holder.pid).children(recursive=True)]
        pid = inside[-1] if inside else self._holder.pid
        kinds = {"user": CLONE_NEWUSER} if "--user" in way.command else {}
        self._namespaces = [
            (os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC), flag)
            for kind, flag in {**kinds, "net": CLONE_NEWNET}.items()
        ]

    def enter(self) -> None:
        """Between fork and exec of a process that is to live inside."""
        for descriptor, flag in self._namespaces:
            if _libc.setns(descriptor, flag) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def close(self) -> None:
        for descriptor, _ in self._namespaces:
            os.close(descriptor)
        self._holder.kill()
        self._holder.wait()


class Machine:
    """Who used the processors while something was measured."""

    def __init__(self) -> None:
        self._began, self._before, self._ours_before = time.monotonic(), self._used(), self._ours()

    @staticmethod
    def _used() -> tuple[float, float]:
        """CPU seconds of all processes, and those that the host took away from this virtual machine."""
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        ticks = [int(number) / os.sysconf("SC_CLK_TCK") for number in fields]
        return ticks[0] + ticks[1] + ticks[2], ticks[7]

    @staticmethod
    def _ours() -> float:
        """CPU seconds of this process and of all that it started and that have ended, with their descendants."""
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in usage)

    def others(self) -> float:
        """Cores that neither we nor what we started used since this object was made. What we started has ended."""
        seconds = time.monotonic() - self._began
        used, stolen = (after - before for after, before in zip(self._used(), self._before, strict=True))
        return max(0.0, (used + stolen - (self._ours() - self._ours_before)) / seconds)


@dataclass
class Laboratory:
    """What every measurement needs."""

    cores: Sequence[int]
    folder: Path
    """For logs and run folders; empty again after each measurement that succeeds."""
    limit: float
    """Seconds that one training may take."""
    others_allowed: float
    """Cores that others may use before a measurement counts as disturbed."""
    network: PrivateNetwork | None = None
    running: list[subprocess.Popen[Any]] = field(default_factory=list)

    def close(self) -> None:
        self.end_all()
        if self.network:
            self.network.close()

    def end_all(self) -> None:
        """Kill what we started, with all that came from it."""
        for process in self.running:
            family = []
            with suppress(psutil.NoSuchProcess):
                family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for member in family:  # a launcher's agent and tasks
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait()
        self.running.clear()

    def start(
        self,
        argv: Sequence[str],
        log: Path,
        core: int | None = None,
        network: PrivateNetwork | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Any:
        def in_child() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if core is not None:
                os.sched_setaffinity(0, {core})
            if network:
                network.enter()

        with log.open("wb") as output, log.with_suffix(".err").open("wb") as errors:
            process = subprocess.Popen(
                argv,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,  # a Ctrl-C is ours alone: we end what we started
                preexec_fn=in_child,  # noqa: PLW1509 - safe: this process has one thread
            )
        self.running.append(process)
        return process

    def measure(self, variant: str, setup: Setup, length: Length) -> dict[str, Any]:
        """One training. RunFailed says why there is no result; in any case nothing of it is left running."""
        is_bare = variant != "headway"
        if is_bare and setup.strategy != "single" and self.network is None:
            self.network = PrivateNetwork()  # before any clock runs: it is no part of the first sample
        machine = Machine()
        place = self.folder / variant
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            figures = self._bare(variant, setup, length, place) if is_bare else self._headway(setup, length, place)
        finally:
            self.end_all()
        others = machine.others()
        shutil.rmtree(place)
        return {
            "variant": variant,
            "setup": setup.name,
            "model": setup.model,
            "training_tasks": setup.training_tasks,
            "t": time.time(),
            **figures,
            "others": others,
            "loaded": others > self.others_allowed,
        }

    def sgemm(self) -> dict[str, Any]:
        """The rate of the first core in a large matrix product, and whether others took part of it."""
        machine = Machine()
        rate = sgemm(self.cores[0])
        others = machine.others()
        return {"sgemm_gflops": rate, "sgemm_others": others, "sgemm_loaded": others > self.others_allowed}

    # --- bare ------------------------------------------------------------------------------------------------
    def _bare(self, variant: str, setup: Setup, length: Length, place: Path) -> dict[str, Any]:
        processes = bare_processes(setup, length, self.cores, cache_folder().absolute() / "mnist", variant)
        environment = bare_environment(variant, os.environ)
        network = self.network if setup.strategy != "single" else None
        began = time.time()
        started = []
        for number, process in enumerate(processes):
            log = place / f"{number}.log"
            started.append((process, log, self.start(process.argv, log, process.core, network, environment)))
        self._wait([(running, log) for process, log, running in started if process.trains])
        # The servers wait for ever and are ended when this returns; the kernel has kept their peaks.
        servers = [_peak_of_server(running, log) for process, log, running in started if not process.trains]
        reports = [_last_json(log) for process, log, _ in started if process.trains]
        tasks = [
            progress_of(report["training_began"], report["ends"], [BATCH] * report["steps"], length.warmup)
            for report in reports
        ]
        return _figures(
            tasks,
            first_step=reports[0]["ends"][0] - began,
            peaks=[report["peak_rss"] for report in reports],
            server_peaks=servers,
            losses=[report["loss"] for report in reports],
        )

    def _wait(self, processes: Sequence[tuple[subprocess.Popen[Any], Path]], watch: Any = None) -> None:
        """Until all have ended well."""
        deadline = time.monotonic() + self.limit
        while True:
            codes = [process.poll() for process, _ in processes]
            for code, (_, log) in zip(codes, processes, strict=True):
                if code not in (None, 0):
                    raise RunFailed(f"exit code {code}\n{_tail(log)}")
            if None not in codes:
                return
            if time.monotonic() > deadline:
                raise RunFailed(f"not done within {self.limit:g} s\n" + "\n".join(_tail(log) for _, log in processes))
            if watch:
                watch()
            time.sleep(POLL_SECONDS)

    # --- Headway ---------------------------------------------------------------------------------------------
    def _headway(self, setup: Setup, length: Length, place: Path) -> dict[str, Any]:
        jobs = headway_jobs(setup, length, self.cores)
        files = []
        for number, job in enumerate(jobs):
            files.append(place / f"job-{number}.yaml")
            files[-1].write_text(json.dumps(job), encoding="utf-8")  # JSON is YAML
        began = time.time()
        started = []
        for number, file in enumerate(files):
            argv = [sys.executable, "-m", "headway", "run", str(file), "--runs", str(place / f"runs-{number}")]
            log = place / f"{number}.log"
            started.append((self.start(argv, log), log))
        memory = Memory([process.pid for process, _ in started], setup.training_tasks + setup.servers)
        self._wait(started, memory.look)
        tasks, firsts, peaks, server_peaks, losses = [], [], [], [], []
        for number, (process, _) in enumerate(started):
            [folder] = RunFolder.all(place / f"runs-{number}")
            rows = {name: _steps(folder, name) for name in ("chief-0", "worker-0")[: setup.tasks]}
            firsts.append(rows["chief-0"][0]["t"])
            for name, steps in rows.items():
                first = steps[0]["t"] - steps[0]["seconds"]
                ends, examples = [step["t"] for step in steps], [step["examples"] for step in steps]
                tasks.append(progress_of(first, ends, examples, length.warmup))
                losses.append(steps[-1]["loss"])
                peaks.append(memory.peak(process.pid, name, ends[-1]))
            trained = max(steps[-1]["t"] for steps in rows.values())
            server_peaks += [memory.peak(process.pid, f"ps-{index}", trained) for index in range(setup.servers)]
        return _figures(tasks, min(firsts) - began, peaks, server_peaks, losses)


class Memory:
    """Peak memory (VmHWM) of the training tasks and servers below some launchers, looked at while they run.

    The kernel keeps the peak, so looking seldom misses nothing but the last moments of a process. Those are kept
    apart: the chief's last evaluation and checkpoint, which the bare scripts have not, are no training.
    """

    def __init__(self, launchers: Sequence[int], expected: int) -> None:
        self._launchers = launchers
        self._expected = expected
        self._next = 0.0
        self._tasks: dict[tuple[int, str], int] = {}
        self._seen: dict[tuple[int, str], list[tuple[float, int]]] = {}

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + MEMORY_SECONDS
        if len(self._tasks) < self._expected:  # only until they are found: going through all processes takes time
            self._find()
        for key, pid in self._tasks.items():
            with suppress(OSError, IndexError):  # it has ended
                self._seen.setdefault(key, []).append((time.time(), _peak_of(pid)))

    def _find(self) -> None:
        for launcher in self._launchers:
            with suppress(psutil.Error):
                for process in psutil.Process(launcher).children(recursive=True):
                    task = process.environ().get("HEADWAY_TASK", "").replace("/", "-")
                    if task.startswith(("chief", "worker", "ps")):
                        self._tasks[launcher, task] = process.pid

    def peak(self, launcher: int, task: str, until: float) -> int:
        """The highest value seen before `until`, or the first one after it, whichever is later known."""
        seen = self._seen.get((launcher, task))
        if not seen:
            raise RunFailed(f"the process of {task} was never seen: make the runs longer (--scale)")
        return max(peak for t, peak in seen if t <= max(until, seen[0][0]))


def _peak_of(pid: int) -> int:
    """Of a living process; OSError or IndexError where it has ended."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _peak_of_server(server: subprocess.Popen[Any], log: Path) -> int:
    try:
        return _peak_of(server.pid)
    except (OSError, IndexError):
        raise RunFailed(f"a server ended before its workers\n{_tail(log)}") from None


def _steps(folder: RunFolder, task: str) -> list[dict[str, Any]]:
    rows = [event for event in read_events(folder.events(task)) if event["kind"] == "step"]
    if not rows:
        raise RunFailed(f"{task} made no step")
    return rows


def _figures(
    tasks: Sequence[Progress],
    first_step: float,
    peaks: Sequence[int],
    server_peaks: Sequence[int],
    losses: Sequence[float],
) -> dict[str, Any]:
    first, last = window_of(tasks)
    return {
        "examples_per_s": rate_of(tasks),
        "first_step_seconds": first_step,
        "peak_rss": max(peaks),
        "peaks": list(peaks),
        "server_peak_rss": max(server_peaks, default=None),
        "server_peaks": list(server_peaks),
        "window_seconds": last - first,
        "task_examples_per_s": [task.examples[-1] / (task.times[-1] - task.times[0]) for task in tasks],
        "losses": list(losses),
    }


def _last_json(log: Path) -> dict[str, Any]:
    lines = log.read_text(encoding="utf-8").splitlines()
    if not lines:
        raise RunFailed(f"no result\n{_tail(log)}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def _tail(log: Path) -> str:
    said = log.with_suffix(".err").read_text(encoding="utf-8", errors="replace").strip()
    return (said or log.read_text(encoding="utf-8", errors="replace").strip())[-1500:]


def sgemm(core: int) -> float:
    """GFLOP/s of one core in a large matrix product."""
    script = Path(__file__).with_name("sgemm.py")
    done = subprocess.run([sys.executable, str(script), str(core)], check=True, capture_output=True, text=True)
    return float(done.stdout)
