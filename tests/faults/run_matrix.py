"""Run the fault matrix with real processes, and write docs/faults.md.

  python tests/faults/run_matrix.py                    every cell (43) and every undisturbed run (8): about 40 minutes
  python tests/faults/run_matrix.py --list             the cells, what is expected, and what is known of them
  python tests/faults/run_matrix.py --only ps-sync     the setups whose name begins so
  python tests/faults/run_matrix.py --cell NAME        one cell, anew; may be repeated
  python tests/faults/run_matrix.py --resume           only cells of which --results knows nothing
  python tests/faults/run_matrix.py --report           run nothing, write the page again

Results are JSON lines in --results, one for each run; the page shows the last one of each cell. Rows of cells of which
there is none stay as they are on the page, with the date and the commit of their run. A result counts only for the job
that it was made with. Folders of runs that were as expected are removed. Exit code 0: every chosen cell was as
expected.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "real")]

from matrix import CELLS, SETUPS, Cell, Setup  # noqa: E402
from observed import Record, Seen, count, end_of, observe  # noqa: E402
from page import COMMAND, Results, in_words, page  # noqa: E402
from running import Running, write_job  # noqa: E402
from verdict import undisturbed_problems  # noqa: E402

from headway.errors import HeadwayError  # noqa: E402
from headway.launch.prepare import environment  # noqa: E402
from headway.record.folder import RunFolder, default_root  # noqa: E402
from headway.record.reader import parse_line  # noqa: E402
from headway.spec import Task  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "faults.md"
LIMIT = 600.0  # seconds for a run to reach the fault, and again to end: ten times what an idle machine takes
TAIL = 4096  # bytes at the end of an event file in which its last step is
ALL_GONE = 5.0  # seconds for what the kernel ends by itself


# --- one run -------------------------------------------------------------------------------------------------
class Residue:
    """What belongs to a run, to see whether any of it is left."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._family: list[psutil.Process] = []
        # Held open: the kernel gives the name of a namespace that is gone to the next new one, which may be of another
        # run that somebody has just started.
        self._namespaces: dict[str, int] = {}

    def __enter__(self) -> Residue:
        return self

    def __exit__(self, *_: object) -> None:
        for held in self._namespaces.values():
            os.close(held)

    def look(self, running: Running) -> None:
        """Remember the run's processes, and the namespaces that are not ours."""
        with contextlib.suppress(psutil.NoSuchProcess):  # the run has just ended
            _, *self._family = running.processes()
        ours = {*_namespaces(os.getpid())}
        for process in self._family:
            for name, path in _namespaces(process.pid).items():
                if name not in ours and name not in self._namespaces:
                    with contextlib.suppress(OSError):  # it has just ended
                        self._namespaces[name] = os.open(path, os.O_RDONLY)

    def left(self) -> list[str]:
        deadline = time.monotonic() + ALL_GONE
        while (found := self._found()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _found(self) -> list[str]:
        found = {process.pid for process in self._family if process.is_running()}
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get("HEADWAY_RUN") == str(self._folder.path)
            except psutil.Error:  # it has just ended, or is not for us to see
                is_ours = False
            if is_ours or _namespaces(process.pid).keys() & self._namespaces.keys():
                found.add(process.pid)
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        held = [f"namespace {name}" for name in sorted(self._namespaces) if name in mounts]
        return [*(f"process {pid}" for pid in sorted(found)), *held]


def _namespaces(pid: int) -> dict[str, Path]:
    """The namespaces that a process is in: the kernel's name for each, and where it is found."""
    paths = [Path(f"/proc/{pid}/ns/{kind}") for kind in ("net", "pid", "mnt")]
    try:
        return {str(path.readlink()): path for path in paths}
    except OSError:
        return {}


def last_step(folder: RunFolder, task: str) -> int | None:
    """Of a task's events; cheap, because the cores belong to what is looked at."""
    path = folder.events(Task.parse(task))
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        events = [parse_line(line) for line in file]
    return next((event["step"] for event in reversed(events) if event and event["kind"] == "step"), None)


def is_due(folder: RunFolder, setup: Setup, cell: Cell) -> bool:
    """Whether the fault may come: every task trains, enough steps are made, and a checkpoint is there. The first of two
    comes early: others who go on must not have finished before the task is back twice."""
    steps = [last_step(folder, task) for task in setup.training]
    saved = setup.is_program or any(folder.checkpoints.glob("step-*"))
    return saved and None not in steps and max(step or 0 for step in steps) >= setup.fault_step / cell.num_faults


def strike(running: Running, setup: Setup, cell: Cell) -> float:
    """Do to the task what the cell says; the time of the fault that is looked at, which is the last one."""
    at = time.time()
    if cell.fault == "SIGSTOP at start":
        pid = running.wait_for(lambda: _starting(running, cell.task), f"the start of {cell.task}", LIMIT, every=0.01)
        os.kill(pid, signal.SIGSTOP)
        has_spoken = running.folder.events(Task.parse(cell.task)).exists()
        assert not has_spoken, f"{cell.task} had begun before it could be frozen"
        return time.time()
    for number, fault in enumerate(cell.fault.split(", ")):
        if number:  # it is back, and has told of a step
            first = running.wait_for(lambda: running.steps(cell.task, attempt=1), f"a step of {cell.task}", LIMIT)[0]
            at = first["t"]
        if fault != "hang":  # the program does that itself
            pid = running.pid(cell.task)
            if setup.is_program and fault == "SIGSTOP":
                (program,) = psutil.Process(pid).children()
                pid = program.pid
            at = time.time()
            os.kill(pid, getattr(signal, fault))
    return at


def _starting(running: Running, task: str) -> int | None:
    try:
        return next((one["pid"] for one in running.status()["tasks"] if one["task"] == task), None)
    except (OSError, HeadwayError):  # nobody answers yet
        return None


def run_job(setup: Setup, cell: Cell | None, root: Path) -> Seen:
    """One run, undisturbed or with the cell's fault, looked at until nothing of it should be left."""
    load, began = os.getloadavg()[0], time.monotonic()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    job = write_job(root / "job.yaml", **job_of(setup, cell))
    facts: dict[str, Any] = {"load": load}
    at = time.time()
    with Running(root / "runs", "run", str(job)) as running, Residue(running.folder) as residue:
        try:
            if cell is not None:
                if cell.fault != "SIGSTOP at start":
                    running.wait_for(lambda: is_due(running.folder, setup, cell), "the moment of the fault", LIMIT)
                    facts["fault_step"] = last_step(running.folder, setup.training[0])
                residue.look(running)
                at = strike(running, setup, cell)
            deadline = time.monotonic() + LIMIT
            while running.process.poll() is None:
                assert time.monotonic() < deadline, f"the run did not end within {LIMIT:g} s"
                residue.look(running)
                time.sleep(1)
        except AssertionError as error:
            facts["broke"] = str(error)
            running.process.kill()
        facts["exit_code"] = running.process.wait()
        facts["left"] = residue.left()
    record = Record(running.folder)
    run = running.folder.facts()
    facts |= {"state": run["state"], "reason": run["reason"], **end_of(record)}
    facts |= observe(record, setup, cell.task, at) if cell else count(record, setup, at)
    return Seen(**facts, seconds=time.monotonic() - began)


def job_of(setup: Setup, cell: Cell | None) -> dict[str, Any]:
    if cell is not None:
        return cell.job
    return setup.launched(None) if setup.is_program else setup.job(3)


# --- all of them ---------------------------------------------------------------------------------------------
class Laboratory:
    def __init__(self, folder: Path, keep: bool) -> None:
        self.folder = folder
        self._keep = keep
        self._file = folder / "results.jsonl"
        self._machine: dict[str, Any] = {}
        self._when: dict[str, str] = {}
        self._undisturbed: dict[str, Seen] = {}
        self._cells: dict[str, Seen] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                self._take(json.loads(line))

    @property
    def results(self) -> Results:
        return Results(self._machine, self._undisturbed, self._cells, self._when)

    def forget(self, cells: list[Cell]) -> None:
        """These are run anew, and so are the undisturbed runs of setups of which every cell is."""
        for cell in cells:
            self._cells.pop(cell.name, None)
        for setup in SETUPS:
            if all(cell in cells for cell in CELLS if cell.setup == setup):
                self._undisturbed.pop(setup, None)

    def run(self, cells: list[Cell]) -> None:
        self._add({"machine": _machine()})
        began = time.monotonic()
        for number, cell in enumerate(cells, start=1):
            setup = SETUPS[cell.setup]
            if setup.name not in self._undisturbed:
                self._show(f"{setup.name}, undisturbed")
                seen = run_job(setup, None, root := self.folder / setup.name)
                self._add({"setup": setup.name, "job": job_of(setup, None), "seen": dataclasses.asdict(seen)})
                self._told(undisturbed_problems(setup, seen), seen, root)
            self._show(f"[{number}/{len(cells)}, {(time.monotonic() - began) / 60:.0f} min] {cell.name}")
            seen = run_job(setup, cell, root := self.folder / cell.name)
            self._add({"cell": cell.name, "job": job_of(setup, cell), "seen": dataclasses.asdict(seen)})
            self._told(self.results.problems(cell) or [], seen, root)

    def _add(self, line: dict[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"t": time.time(), **line}) + "\n")
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        match line:
            case {"machine": machine}:
                self._machine = machine
            case {"setup": name, "job": job, "seen": seen} if name in SETUPS:
                if _anywhere(job) == _anywhere(job_of(SETUPS[name], None)):
                    self._undisturbed[name] = _seen(seen)
            case {"cell": name, "job": job, "seen": seen}:
                for cell in CELLS:
                    if cell.name == name and _anywhere(job) == _anywhere(job_of(SETUPS[cell.setup], cell)):
                        self._cells[name] = _seen(seen)
                        self._when[name] = f"{self._machine['date']}, {self._machine['commit']}"

    @staticmethod
    def _show(what: str) -> None:
        print(f"{what} ...", end=" ", flush=True)

    def _told(self, problems: list[str], seen: Seen, root: Path) -> None:
        times = [f"{seen.seconds:.0f} s"]
        times += [f"named {seen.named:.1f} s"] if seen.named is not None else []
        times += [f"back {seen.back:.1f} s"] if seen.back is not None else []
        print(f"{'FAILED' if problems else 'as expected'} ({', '.join(times)})", flush=True)
        for problem in problems:
            print(f"    {problem}", flush=True)
        if problems:
            print(f"    see {root}", flush=True)
        elif not self._keep:
            shutil.rmtree(root, ignore_errors=True)


def _anywhere(job: dict[str, Any]) -> dict[str, Any]:
    """Without the folder of this source tree: a result counts in another one, too."""
    return {**job, "workload": {name: value for name, value in job["workload"].items() if name != "directory"}}


def _seen(fields: dict[str, Any]) -> Seen:
    rollbacks = [(before, step, lost) for before, step, lost in fields["rollbacks"]]
    return Seen(**{**fields, "rollbacks": rollbacks})


def _machine() -> dict[str, Any]:
    """What the page says of where it was run; no names of machines or folders."""
    known = environment()
    packages = {name: known["packages"][name] for name in ("headway", "tensorflow-cpu") if name in known["packages"]}
    commit = known["commit"] or {"hash": "unknown", "has_changes": False}
    changes = " with changes" if commit["has_changes"] else ""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": known["cores"],
        "cpu": known["cpu"],
        "python": known["python"],
        "packages": packages,
        "commit": commit["hash"][:12] + changes,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", action="append", default=[], metavar="SETUP", help="the beginning of a setup's name; repeatable")
    add("--cell", action="append", default=[], metavar="NAME", help="a cell's name; repeatable")
    add("--list", action="store_true", help="show the cells, and run nothing")
    add("--report", action="store_true", help="write the page from what is known, and run nothing")
    add("--resume", action="store_true", help="skip cells that were run already")
    add("--keep", action="store_true", help="keep every run folder")
    add("--results", type=Path, default=default_root() / "faults", help="scratch folder [%(default)s]")
    return parser.parse_args()


def chosen(asked: argparse.Namespace) -> list[Cell]:
    known = [cell.name for cell in CELLS]
    if unknown := [name for name in asked.cell if name not in known]:
        sys.exit(f"no such cell: {', '.join(unknown)} ({COMMAND} --list shows them)")
    if unknown := [name for name in asked.only if not any(setup.startswith(name) for setup in SETUPS)]:
        sys.exit(f"no such setup: {', '.join(unknown)}; there are {', '.join(SETUPS)}")
    everything = not (asked.cell or asked.only)
    return [
        cell
        for cell in CELLS
        if everything or cell.name in asked.cell or any(cell.setup.startswith(name) for name in asked.only)
    ]


def main() -> int:
    asked = arguments()
    laboratory, cells = Laboratory(asked.results, asked.keep), chosen(asked)
    if asked.list:
        for cell in cells:
            problems = laboratory.results.problems(cell)
            known = "not run" if problems is None else "FAILED" if problems else "as expected"
            print(f"{cell.name:44}{known:14}{in_words(cell)}")
        return 0
    if not asked.report:
        if not asked.resume:
            laboratory.forget(cells)
        try:
            laboratory.run([cell for cell in cells if laboratory.results.problems(cell) is None])
        except KeyboardInterrupt:
            print("broken off; --resume goes on", flush=True)
    PAGE.write_text(page(laboratory.results, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    results = laboratory.results
    missed = [cell.name for cell in cells if results.problems(cell) is None]
    failed = [cell.name for cell in cells if results.problems(cell)]
    print(
        f"{len(cells) - len(missed) - len(failed)} of {len(cells)} as expected; see {PAGE.relative_to(HERE.parents[1])}"
    )
    for name in failed:
        print(f"  FAILED {name}")
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
