"""What a user's own program is started with: who it is, in all the ways in which such programs ask. Pure.

TF_CONFIG                                             TensorFlow's strategies and estimators
--job_name --task_index --ps_hosts --worker_hosts     TensorFlow 1 scripts, by placeholders in the command
MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK    PyTorch
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.launch.environments import python_for
from headway.record.folder import RunFolder
from headway.spec.cluster import Role, Task
from headway.spec.command import Command, TfConfig, filled_in
from headway.spec.job import Job
from headway.spec.nodes import hosts


def program_command(
    job: Job, program: Command, task: Task, folder: RunFolder, addresses: Mapping[Task, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command, and what its environment has besides ours."""
    model_dir = str(folder.model_dir.absolute())
    training = job.cluster.training_tasks()
    roles = by_role(addresses)
    values = {
        "job_name": task.role,
        "task_index": str(task.index),
        **{f"{role}_hosts": ",".join(roles.get(role, [])) for role in ("ps", "worker", "chief")},
        "rank": str(training.index(task)) if task in training else "",
        "world_size": str(len(training)),
        "run": str(folder.path.absolute()),
        "model_dir": model_dir,
    }
    env = {
        "TF_CONFIG": json.dumps(_tf_config(program.tf_config, task, roles, values)),
        **_ranks(job, task, addresses),
        **_threads(job, task),
        "HEADWAY_REPORTS": str(folder.reports(task).absolute()),
    }
    python = Path(sys.executable)
    if program.python is not None:
        python = python_for(program.python, Path(program.directory or "."))
        env["VIRTUAL_ENV"] = str(python.parent.parent)
    env["PATH"] = f"{python.parent}:{os.environ.get('PATH', os.defpath)}"
    env |= {name: filled_in(value, values) for name, value in program.env.items()}
    return tuple(filled_in(word, values) for word in program.command), env


def by_role(addresses: Mapping[Task, str]) -> dict[str, list[str]]:
    cluster: dict[str, list[str]] = {}
    for member in sorted(addresses):
        cluster.setdefault(member.role, []).append(addresses[member])
    return cluster


def _tf_config(asked: TfConfig, task: Task, roles: dict[str, list[str]], values: dict[str, str]) -> dict[str, Any]:
    def called(role: Role | str) -> str:
        return asked.chief if role == "chief" else role

    config: dict[str, Any] = {
        "cluster": {called(role): members for role, members in roles.items()},
        "task": {"type": called(task.role), "index": task.index},
    }
    if asked.environment is not None:
        config["environment"] = asked.environment
    if asked.model_dir is not None:
        config["model_dir"] = filled_in(asked.model_dir, values)
    return config


def _ranks(job: Job, task: Task, addresses: Mapping[Task, str]) -> dict[str, str]:
    """For the tasks that train: PyTorch knows no servers."""
    training = job.cluster.training_tasks()
    if task not in training:
        return {}
    host, _, port = addresses.get(training[0], "").rpartition(":")
    neighbours = next([other for other in node.tasks if other in training] for node in hosts(job) if task in node.tasks)
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "RANK": str(training.index(task)),
        "WORLD_SIZE": str(len(training)),
        "LOCAL_RANK": str(neighbours.index(task)),
        "LOCAL_WORLD_SIZE": str(len(neighbours)),
    }


def _threads(job: Job, task: Task) -> dict[str, str]:
    """As many as a task of ours would have: each would else take all cores for its own. What the user has set stays."""
    threads = job.cluster.role(task.role).threads
    wanted = {
        "OMP_NUM_THREADS": threads.intra_op,
        "TF_NUM_INTRAOP_THREADS": threads.intra_op,
        "TF_NUM_INTEROP_THREADS": threads.inter_op,
    }
    return {name: str(value) for name, value in wanted.items() if value is not None and name not in os.environ}
