"""Private namespaces for the processes of a local run, through util-linux's `unshare`.

A private network keeps TensorFlow's ports (no authentication, all interfaces) from everybody outside the run. A
private process space ends every task, and whatever a task started, in the instant its agent dies. Neither needs
root where the system allows user namespaces; what works here is tried out, never assumed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

import psutil

PROBE_LIMIT = 10.0


@dataclass(frozen=True)
class Isolation:
    """How the agent of a local node is started, and what that gives."""

    command: tuple[str, ...]
    private_network: bool
    private_processes: bool
    reason: str


_PROCESSES = ("--pid", "--mount-proc", "--fork", "--kill-child")


def candidates() -> list[Isolation]:
    """Every way worth trying, the strongest of each kind first."""
    as_root = ("unshare",)
    as_user = ("unshare", "--user", "--map-root-user")
    found = []
    for base, who in ((as_root, "as root"), (as_user, "in a user namespace")):
        if base is as_root and os.geteuid() != 0:
            continue
        found += [
            Isolation((*base, "--net", *_PROCESSES, "--"), True, True, f"private network and processes, {who}"),
            Isolation((*base, "--net", "--mount", "--"), True, False, f"private network, {who}"),
            Isolation((*base, *_PROCESSES, "--"), False, True, f"private processes, {who}"),
        ]
    return found


NONE = Isolation((), False, False, "no namespaces can be made here")


def _works(isolation: Isolation) -> str | None:
    """None when it works, else what the system said."""
    if not shutil.which("unshare"):
        return "the command `unshare` (package util-linux) is missing"
    try:
        tried = subprocess.run(
            [*isolation.command, "true"], check=False, capture_output=True, text=True, timeout=PROBE_LIMIT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if tried.returncode == 0 else (tried.stderr.strip() or f"exit code {tried.returncode}")


@cache
def probe() -> dict[Isolation, str | None]:
    """Every way to isolate, with None where it works here and the system's words where it does not."""
    return {isolation: _works(isolation) for isolation in candidates()}


def choose(private_network: bool) -> Isolation:
    """The strongest isolation that works here and has (or has not) a private network; else NONE."""
    working = [isolation for isolation, problem in probe().items() if problem is None]
    fitting = [isolation for isolation in working if isolation.private_network == private_network]
    return max(fitting, key=lambda isolation: isolation.private_processes, default=NONE)


def why_no_private_network() -> str:
    problems = [problem for isolation, problem in probe().items() if problem and isolation.private_network]
    return problems[-1] if problems else "unknown"


def outside_pid(ancestor: int, inside: tuple[int, ...]) -> int | None:
    """The process id, as seen from here, of the descendant that has these ids in its innermost namespaces.

    (17,): it calls itself 17; (40, 1): it calls itself 1, and is 40 in the namespace around.
    """
    for process in psutil.Process(ancestor).children(recursive=True):
        try:
            with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123
                ids = next((line.split()[1:] for line in status if line.startswith("NSpid:")), [])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if tuple(int(number) for number in ids[-len(inside) :]) == inside:
            return process.pid
    return None
