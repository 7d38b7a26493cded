"""From a job and the nodes' ports to what each task is started with. Pure: `--dry-run` prints it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.launch.programs import by_role, program_command
from headway.record.folder import RunFolder
from headway.spec.cluster import Task
from headway.spec.job import Job
from headway.workloads import cache_folder

# A training step allocates and frees tensors of many megabytes. glibc would give each back to the kernel and get zeroed
# pages for the next, tens of thousands of page faults in a step: kept, and in huge pages, they cost a few percent less
# of a step (docs/performance.md). What the user has set stays.
MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**31),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}


@dataclass(frozen=True)
class TaskCommand:
    task: Task
    argv: tuple[str, ...]
    env: dict[str, str]
    """Only what we set: it is shown and stored; the rest of the environment is inherited and is not."""
    cores: tuple[int, ...] | None


def needs_port(job: Job, task: Task) -> bool:
    """The evaluator only reads checkpoints, and a single task talks to nobody, unless it is a program that may."""
    return (job.strategy.kind != "single" or job.program is not None) and task.role != "evaluator"


def task_command(
    job: Job,
    task: Task,
    folder: RunFolder,
    addresses: Mapping[Task, str],
    *,
    attempt: int = 0,
    own_steps: int = 0,
    trained_seconds: float = 0.0,
    cores: Sequence[int] = (),
) -> TaskCommand:
    """`addresses`: host:port of every task that listens; `cores`: the node's, to pin to."""
    env = {
        "HEADWAY_RUN": str(folder.path),
        "HEADWAY_TASK": str(task),
        "HEADWAY_ATTEMPT": str(attempt),
        "HEADWAY_CONTINUE": json.dumps({"own_steps": own_steps, "trained_seconds": trained_seconds}),
        "HEADWAY_CACHE": str(cache_folder().absolute()),
        "PYTHONUNBUFFERED": "1",
    }
    engine: tuple[str, ...] = (sys.executable, "-m", f"headway.engines.{job.engine}")
    if job.program is None:
        env |= {name: value for name, value in MEMORY.items() if name not in os.environ}
        if job.training.code is not None:  # first, as it was here; what the user had follows
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [job.training.code, os.environ.get("PYTHONPATH")]))
        if addresses and needs_port(job, task):
            env["TF_CONFIG"] = json.dumps(tf_config(task, addresses))
    else:
        engine = (sys.executable, "-m", "headway.engines.command", "--")
        argv, added = program_command(job, job.program, task, folder, addresses)
        engine, env = (*engine, *argv), env | added
    return TaskCommand(task=task, argv=engine, env=env, cores=pinned_cores(job, task, cores))


def tf_config(task: Task, addresses: Mapping[Task, str]) -> dict[str, Any]:
    return {"cluster": by_role(addresses), "task": {"type": task.role, "index": task.index}}


def pinned_cores(job: Job, task: Task, available: Sequence[int]) -> tuple[int, ...] | None:
    """The cores a task is bound to: the listed ones, or its number of cores, given out in turn over all tasks."""
    wanted = job.cluster.role(task.role).cores
    if wanted is None or not available:
        return None
    if isinstance(wanted, list):
        return tuple(wanted)
    first = 0
    for other in job.cluster.tasks():
        count = job.cluster.role(other.role).cores
        if other == task:
            break
        first += count if isinstance(count, int) else 0
    return tuple(sorted({available[(first + turn) % len(available)] for turn in range(wanted)}))


def files_of(task: Task, folder: RunFolder) -> dict[str, str]:
    """Where the agent finds what a task writes."""
    return {
        "log": str(folder.log(task)),
        "events": str(folder.events(task)),
        "alive": str(folder.alive(task)),
    }


def missing_cores(job: Job, available: Sequence[int]) -> list[int]:
    """Asked core ids that the node does not have."""
    asked = {
        core
        for task in job.cluster.tasks()
        if isinstance(cores := job.cluster.role(task.role).cores, list)
        for core in cores
    }
    return sorted(asked - set(available))
