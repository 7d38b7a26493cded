"""Before a run: its folder, what it was asked, where it runs, and what earlier launches of it have left."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from headway import clock
from headway.errors import Busy, SpecError
from headway.launch import environments
from headway.launch.taskstate import History
from headway.locks import Held
from headway.record.files import to_json, write_atomically
from headway.record.folder import FORMAT, RunFolder
from headway.record.lost import reached
from headway.record.sources import that_count
from headway.sites import SitePlan, site
from headway.spec.cluster import Task
from headway.spec.command import Command
from headway.spec.job import Job
from headway.spec.load import apply_override, parse_job
from headway.spec.nodes import needs_core_speed
from headway.spec.resolve import Resolved, resolve
from headway.workloads.own import is_own

# What a resumed run may change: when it ends and how it is looked after, not what it is.
RESUMABLE = ("workload.stop.", "workload.evaluate.", "checkpoint.", "restart.", "limits.", "export")
PACKAGES = ("headway", "tensorflow-cpu", "tensorflow", "keras", "numpy", "protobuf", "grpcio", "duckdb", "pydantic")
OURS = ("headway", "duckdb", "pydantic")  # of these, what measures, and not what trains


def plan_run(asked: Job) -> tuple[Resolved, SitePlan]:
    """What would run, and where. SiteError when the site cannot give what is asked."""
    speed = None
    if asked.program is not None:
        asked = asked.model_copy(update={"workload": _placed(asked.program)})
    if needs_core_speed(asked):
        from headway.launch.calibrate import core_speed  # which starts a run itself

        print(f"measuring what one core here does with {asked.training.model.name} ...", file=sys.stderr, flush=True)
        speed = core_speed(asked)
    resolved = resolve(asked, num_cores(), speed, Path.cwd())
    plan = site(resolved.job.site.kind).plan(resolved.job)
    return replace(resolved, choices=(*resolved.choices, *plan.choices)), plan


def _placed(program: Command) -> Command:
    """With the folder in which it is started: a run may be resumed from another one."""
    directory = Path(program.directory or ".").expanduser().absolute()
    if not directory.is_dir():
        raise SpecError(f"workload.directory: {directory} is no folder")
    if program.python is not None:
        environments.check(program.python, directory)
    return program.model_copy(update={"directory": str(directory)})


def placed(asked: Job) -> dict[str, Any]:
    """A job's settings with the folder that its own code is in: it may be run from another one."""
    settings = asked.model_dump(mode="json", exclude_unset=True)
    if asked.program is not None:
        settings["workload"]["directory"] = _placed(asked.program).directory
    elif is_own(asked.training.model.name) and asked.training.code is None:
        settings["workload"]["code"] = str(Path.cwd())
    return settings


def create_run(asked: Job, root: Path) -> RunFolder:
    """A new run folder that holds the job. Nothing has been started."""
    resolved, _ = plan_run(asked)
    folder = RunFolder.create(root, asked.name)
    write_job(folder, resolved)
    here = environment()
    if resolved.job.program is not None:  # what it runs with is another thing, and perhaps not there yet
        here["packages"] = {name: found for name, found in here["packages"].items() if name in OURS}
    write_atomically(folder.environment_file, to_json({"format": FORMAT, **here}, indent=1))
    folder.write_facts(
        {
            "run": folder.name,
            "name": asked.name,
            "source": "measured",
            "state": "created",
            "reason": None,
            "created": clock.now(),
            "launches": [],
        }
    )
    return folder


def describe_program(folder: RunFolder, program: Command) -> None:
    """Into the run's environment: the Python and the packages that its program runs with."""
    here = folder.read(folder.environment_file)
    found = environments.described(program)
    ours = {name: version for name, version in here["packages"].items() if name in OURS}
    here |= {"python": found.get("python", here["python"]), "executable": found["executable"]}
    here["packages"] = {**ours, **found.get("packages", {})}
    write_atomically(folder.environment_file, to_json({**here, "format": FORMAT}, indent=1))


def write_job(folder: RunFolder, resolved: Resolved) -> None:
    write_atomically(folder.job_file, to_json({"format": FORMAT, **resolved.as_file()}, indent=1))


def read_job(folder: RunFolder) -> Job:
    """The job as it was resolved."""
    return parse_job(folder.read(folder.job_file)["resolved"], origin=str(folder.job_file))


def change_job(folder: RunFolder, overrides: Sequence[str]) -> None:
    """Overrides for a resumed run; what would make it another run is refused."""
    content = folder.read(folder.job_file)
    for override in overrides:
        if not override.startswith(RESUMABLE):
            raise SpecError(
                f"override {override!r}: a resumed run can change only {', '.join(RESUMABLE)}; "
                "for anything else start a new run"
            )
        apply_override(content["asked"], override)
    if (code := content["resolved"]["workload"].get("code")) is not None:  # the run may be resumed from elsewhere
        content["asked"]["workload"]["code"] = code
    resolved, _ = plan_run(parse_job(content["asked"], origin=folder.name))
    write_job(folder, resolved)


def check_resumable(folder: RunFolder, overrides: Sequence[str]) -> None:
    facts = folder.facts()
    held = folder.is_held()
    if held is Held.HELD:
        raise Busy(f"{folder.name} is running (`headway status`)")
    if held is Held.UNKNOWN:
        raise Busy(f"{folder.name} may be running: its lock cannot be opened")
    if facts["state"] == "finished" and "command" in folder.read(folder.job_file)["resolved"]["workload"]:
        raise Busy(f"{folder.name} is finished: its command ran to its end; start a new run")
    if facts["state"] == "finished" and not overrides:
        raise Busy(
            f"{folder.name} is finished ({facts['reason']}); to train on, say until when, for example:\n"
            f"  headway resume {folder.name} workload.stop.steps=5000"
        )


def num_cores() -> int:
    """Cores this process may use, which a container or batch system may have cut down."""
    return len(os.sched_getaffinity(0))


def history(folder: RunFolder, job: Job) -> History:
    """What the record of earlier launches says: attempts, steps, time trained."""
    attempts: dict[Task, int] = {}
    own_steps: dict[Task, int] = {}
    starts = [launch["started"] for launch in folder.facts()["launches"]]
    trained: dict[int, tuple[float, float]] = {}  # launch -> when its first step began and its last one ended
    last = (0, 0)  # generation and step: times may jump
    for task in job.cluster.tasks():
        path = folder.events(task)
        events: Iterable[dict[str, Any]] = folder.reader.lines(path) if folder.reader.exists(path) else ()
        for event in events if job.program is None else that_count(events):
            attempts[task] = max(attempts.get(task, -1), event.get("attempt", 0))
            if event["kind"] == "step":
                own_steps[task] = own_steps.get(task, 0) + event["num_steps"]
                launch, began = bisect_right(starts, event["t"]), event["t"] - event["seconds"]
                since, until = trained.get(launch, (began, event["t"]))
                trained[launch] = (min(since, began), max(until, event["t"]))
            last = max(last, reached(event) or last)
    return History(attempts, own_steps, last[1], sum(until - since for since, until in trained.values()))


# --- where it runs -------------------------------------------------------------------------------------------
def environment() -> dict[str, Any]:
    """Machine, versions and commit. Nothing of the process environment: it may hold secrets."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "cores": num_cores(),
        "memory": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": _commit(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> dict[str, Any] | None:
    """The commit of the folder that the run is started from, if it is a git checkout."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True, timeout=5
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain"], check=True, capture_output=True, text=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return {"hash": commit, "has_changes": bool(changed)}
