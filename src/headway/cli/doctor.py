"""`headway doctor`: looks at the machine, one check after the other."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

from headway.units import format_bytes

if TYPE_CHECKING:
    from headway.sites.emulated.probe import Abilities

Verdict = Literal["ok", "warning", "missing"]
IMPORT_LIMIT = 120.0
ALLOW_NAMESPACES = (
    "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu 24.04 also "
    "kernel.apparmor_restrict_unprivileged_userns=0)"
)


@dataclass(frozen=True)
class Check:
    what: str
    verdict: Verdict
    found: str
    advice: str = ""


def examine() -> list[Check]:
    from headway.sites.emulated.probe import abilities

    return [
        python(),
        tensorflow(),
        tensorboard(),
        cores(),
        memory(),
        disk(),
        private_network(),
        outbound_network(),
        *emulated_hosts(abilities()),
        *data_sets(),
    ]


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
        f"{ALLOW_NAMESPACES}, or accept open ports with expose=cluster",
    )


def outbound_network() -> Check:
    """Which way out of a private network works: each that could is tried out."""
    import asyncio

    from headway.sites import outbound
    from headway.sites.isolation import choose

    what, isolation = "outbound network for programs", choose(private_network=True)
    if not isolation.private_network:
        return Check(what, "ok", "no private network can be made: programs use this machine's own")
    found = dict(outbound.problems())
    for way in outbound.candidates():
        found[way] = asyncio.run(outbound.try_out(way, isolation))
        if found[way] is None:
            return Check(what, "ok", f"by {way}")
    why = "; ".join(f"{way}: {problem}" for way, problem in found.items())
    return Check(what, "warning", why, "apt-get install passt, or use expose=cluster")


def emulated_hosts(able: Abilities) -> list[Check]:
    """Whether there can be any, and what of a machine they can have. What they cannot have is left out, and said."""
    if able.problem:
        advice = "apt-get install iproute2" if "iproute2" in able.problem else ALLOW_NAMESPACES
        return [Check("emulated hosts", "warning", able.problem, f"{advice}; without them: site: local")]
    return [Check("emulated hosts", "ok", able.isolation.reason), _rate(able), _latency(able), _limits(able)]


def _rate(able: Abilities) -> Check:
    what = "emulated hosts: rate"
    if able.rate:
        return Check(what, "warning", f"links cannot be slowed down: {able.rate}", "a kernel with sch_tbf")
    return Check(what, "ok", "links can be slowed down (tbf)")


def _latency(able: Abilities) -> Check:
    what = "emulated hosts: latency"
    if not able.netem:
        return Check(what, "ok", "netem")
    if able.latency:
        return Check(what, "warning", able.latency, "a kernel with sch_netem, or with nfnetlink_queue")
    return Check(what, "ok", f"a queue, to which {able.way} sends packets; the kernel has no netem ({able.netem})")


def _limits(able: Abilities) -> Check:
    """Control groups call the disk `io`."""
    what = "emulated hosts: CPU, memory and disk limits"
    names = {"cpu": "CPU", "memory": "memory", "io": "disk"}
    works = ", ".join(words for name, words in names.items() if name not in able.limits) or "none"
    found = f"{works} (control groups, version {able.groups_version})"
    without = dict(able.limits)
    if "io" in without and not able.storage:
        found += f"; disk: behind a shaped link, by sshfs ({without.pop('io')})"
    elif able.disk:
        without["io"] = able.disk
    if not without:
        return Check(what, "ok", found)
    why = dict.fromkeys(without.values())  # often one reason for all of them
    missing = "; ".join(
        f"not {', '.join(names.get(name, name) for name, given in without.items() if given == reason)}: {reason}"
        for reason in why
    )
    advice = "as root, with control groups that can be written to"
    if "io" in without:
        advice += "; for the disk apt-get install sshfs will do"
    return Check(what, "warning", f"{found}; {missing}", advice)


def data_sets() -> list[Check]:
    from headway import workloads

    found = []
    for name in workloads.dataset_names():
        settings = workloads.default_settings(name)
        if settings is None:  # the user's own files
            continue
        problems = workloads.dataset(name).verify(settings, workloads.cache_folder())
        found.append(
            Check(f"data set {name}", "ok", "here")
            if not problems
            else Check(f"data set {name}", "warning", problems[0], f"headway data fetch {name} (a run does it too)")
        )
    return found
