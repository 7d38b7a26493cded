"""What one core here does with a model: a short training of it, alone, kept for later.

Machines with a speed (GPUs) are emulated by as much of this machine's cores as that speed is worth.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from headway import locks, workloads
from headway.errors import HeadwayError
from headway.record.files import to_json, write_atomically
from headway.record.reader import read_json
from headway.record.run import Run
from headway.spec.cluster import shared_out
from headway.spec.job import Job
from headway.spec.load import parse_job
from headway.spec.workload import DEFAULT_BATCH_SIZE
from headway.workloads import own

FORMAT = 1
STEPS = 40


class Nobody:
    """Watches, and shows nothing."""

    def fetching(self, *_: Any) -> None: ...
    def noted(self, *_: Any) -> None: ...
    def said(self, *_: Any) -> None: ...
    def looked(self, *_: Any) -> None: ...


def core_speed(job: Job) -> float:
    """Examples per second of the job's model and batch size, one thread on one core; measured once."""
    path = workloads.cache_folder() / "core-speeds.json"
    key = _key(job)
    if (speed := _known(path).get(key)) is not None:
        return speed
    path.parent.mkdir(parents=True, exist_ok=True)
    with locks.held(path.with_suffix(".lock")):  # trials at once would measure it each, and each get another one
        if (speed := _known(path).get(key)) is None:
            speed = _measure(job)
            write_atomically(path, to_json({"format": FORMAT, "speeds": {**_known(path), key: speed}}, indent=1))
    return speed


def _known(path: Path) -> dict[str, float]:
    return dict(read_json(path, FORMAT)["speeds"]) if path.exists() else {}


def _key(job: Job) -> str:
    """Model, data and batch size, and the processor: all that the speed depends on."""
    from headway.launch.prepare import environment

    workload = job.training.model_dump(mode="json", include={"model", "dataset", "optimizer"})
    workload["batch_size"] = _batch_size(job)
    model = job.training.model.name
    source = [own.source_hash(model)] if own.is_own(model) else []  # a user's file changes
    text = json.dumps([workload, environment()["cpu"], environment()["packages"], *source], sort_keys=True)
    return f"{model}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _batch_size(job: Job) -> int:
    """Of one task, also where the job shares one out."""
    if job.training.global_batch_size is not None:
        return shared_out(job.training.global_batch_size, job.num_training_tasks)[-1]
    return job.training.batch_size or DEFAULT_BATCH_SIZE


def training_alone(job: Job) -> Job:
    """A short training of the job's model by one task on one core, with the batch that a task of the job has."""
    asked = job.model_dump(mode="json", exclude_unset=True)
    asked = {key: asked[key] for key in ("workload", "seed") if key in asked}
    asked |= {"name": "core-speed", "export": False, "cluster": {"chief": {"count": 1, "cores": 1}}}
    asked["workload"] |= {"stop": {"steps": STEPS}, "evaluate": {}}
    asked["workload"] |= {"batch_size": _batch_size(job), "global_batch_size": None}
    asked["cluster"]["chief"]["threads"] = {"intra_op": 1, "inter_op": 1}
    return parse_job(asked, origin="calibration")


def _measure(job: Job) -> float:
    from headway.launch.launcher import Launcher
    from headway.launch.prepare import create_run

    with tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        folder = create_run(training_alone(job), Path(scratch))
        end = Launcher(folder, Nobody()).run()
        speed = Run(folder).summary()["examples_per_s"]
    if end.state != "finished" or not speed:
        raise HeadwayError(
            f"what one core here does with {job.training.model.name} could not be measured: {end.reason}"
        )
    return float(f"{speed:.4g}")
