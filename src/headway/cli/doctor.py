"""`headway doctor`: looks at the machine, one check after the other."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from headway.units import format_bytes

Verdict = Literal["ok", "warning", "missing"]
IMPORT_LIMIT = 120.0


@dataclass(frozen=True)
class Check:
    what: str
    verdict: Verdict
    found: str
    advice: str = ""


def examine() -> list[Check]:
    return [python(), tensorflow(), tensorboard(), cores(), memory(), disk(), private_network(), *data_sets()]


def python() -> Check:
    found = f"{platform.python_version()} ({sys.executable})"
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        return Check("Python", "ok", found)
    return Check("Python", "missing", found, "TensorFlow 2.21 needs Python 3.11, 3.12 or 3.13")


def tensorflow() -> Check:
    code = "import tensorflow as tf; print(tf.__version__)"
    try:
        tried = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            timeout=IMPORT_LIMIT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
    except subprocess.TimeoutExpired:
        return Check("TensorFlow", "missing", f"its import took over {IMPORT_LIMIT:g} s")
    if tried.returncode == 0:
        return Check("TensorFlow", "ok", tried.stdout.strip())
    last = tried.stderr.strip().splitlines()[-1:] or ["import failed"]
    return Check("TensorFlow", "missing", last[0], "pip install 'headway[tensorflow]'")


def tensorboard() -> Check:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Check("TensorBoard", "ok", version("tensorboard"))
    except PackageNotFoundError:
        return Check("TensorBoard", "warning", "not installed", "pip install 'headway[tensorflow]'")


def cores() -> Check:
    usable, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    found = f"{usable} usable, load {load:.1f}"
    if load > 0.5 * usable:
        return Check("cores", "warning", found, "the machine is busy: rates measured now will be too low")
    return Check("cores", "ok", found)


def memory() -> Check:
    free = psutil.virtual_memory().available
    found = f"{format_bytes(free)} available (a task takes about 0.8 GB)"
    return Check("memory", "ok" if free > 4e9 else "warning", found)


def disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    return Check("disk", "ok" if free > 2e9 else "warning", f"{format_bytes(free)} free in the present folder")


def private_network() -> Check:
    from headway.sites.isolation import choose, why_no_private_network

    isolation = choose(private_network=True)
    if isolation.private_network:
        return Check("private network for local runs", "ok", isolation.reason)
    return Check(
        "private network for local runs",
        "warning",
        why_no_private_network(),
        "run as root, allow user namespaces (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu 24.04 also "
        "kernel.apparmor_restrict_unprivileged_userns=0), or accept open ports with expose=cluster",
    )


def data_sets() -> list[Check]:
    from headway import workloads

    found = []
    for name in workloads.dataset_names():
        dataset = workloads.dataset(name)
        problems = dataset.verify(dataset.Settings.model_validate({"name": name}), workloads.cache_folder())
        found.append(
            Check(f"data set {name}", "ok", "here")
            if not problems
            else Check(f"data set {name}", "warning", problems[0], f"headway data fetch {name} (a run does it too)")
        )
    return found
