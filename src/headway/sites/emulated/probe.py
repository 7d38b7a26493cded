"""What emulated hosts can have on this machine: everything is tried out, nothing assumed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from headway.host import control_groups
from headway.sites.emulated import storage
from headway.sites.isolation import Isolation, choose, why_no_private_network

LIMIT = 20.0
TOOL_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where `ip` and `tc` are, also for who is not root
# Run inside a private network: says which kind of latency the kernel has.
_TRY = """
import subprocess
from headway.sites.emulated import delay
def works(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""
works(*"ip link set lo up".split())
print("link", works(*"ip link add p0 type veth peer name p1".split()))
print("switch", works(*"ip link add switch type bridge".split()))
print("rate", works(*"tc qdisc add dev p0 root tbf rate 1gbit burst 128kb latency 50ms".split()))
print("netem", works(*"tc qdisc add dev p1 root netem delay 1ms".split()))
try:
    delay.Queue(0.0)
    print("queue")
    print("way", delay.send_arriving_to_queue())
except OSError as error:
    print("queue", str(error))
"""


@dataclass(frozen=True)
class Abilities:
    """None or an empty text: it works. Else: why not."""

    isolation: Isolation
    problem: str | None = None
    """Why there can be no emulated hosts at all."""
    rate: str | None = None
    netem: str | None = None
    queue: str | None = None
    """The substitute for netem."""
    way: str = ""
    """By what the kernel sends packets to the queue."""
    limits: dict[str, str] = field(default_factory=dict)
    """cpu, memory, io -> why control groups cannot limit them."""
    storage: str | None = None
    """The substitute for a limit of io: the disk behind a link."""
    groups_version: int = 0

    @property
    def disk(self) -> str | None:
        """Why a disk cannot be limited, by neither means."""
        return self.limits.get("io") and self.storage and f"{self.limits['io']}; and no link to it: {self.storage}"

    @property
    def latency(self) -> str | None:
        return self.queue and self.netem and f"no netem ({self.netem}), no queue ({self.queue})"


@cache
def abilities() -> Abilities:
    return try_out(choose(private_network=True), is_root=os.geteuid() == 0)


def try_out(isolation: Isolation, is_root: bool) -> Abilities:
    if not isolation.private_network or not isolation.private_processes:
        return Abilities(
            isolation, problem=f"no private network and processes can be made ({why_no_private_network()})"
        )
    missing = [tool for tool in ("ip", "tc") if not shutil.which(tool, path=TOOL_PATH)]
    if missing:
        return Abilities(isolation, problem=f"the command `{missing[0]}` (package iproute2) is missing")
    try:
        done = subprocess.run(
            [*isolation.command, sys.executable, "-c", _TRY],
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env={**os.environ, "PATH": TOOL_PATH},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Abilities(isolation, problem=str(error))
    said = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    if "link" not in said:
        return Abilities(isolation, problem=done.stderr.strip()[-300:] or "the trial said nothing")
    groups = control_groups.find()
    limits = dict(groups.problems)
    if not is_root:
        limits |= dict.fromkeys(("cpu", "memory", "io"), "root is needed")
    return Abilities(
        isolation,
        problem=said["link"] or said.get("switch") or None,
        rate=said.get("rate") or None,
        netem=said.get("netem") or None,
        queue=said.get("queue") or None,
        way=said.get("way", ""),
        limits={name: why for name, why in limits.items() if name != "freezer"},
        storage=said.get("rate") or storage.problem(TOOL_PATH),
        groups_version=groups.version,
    )


def disk_of(path: Path) -> str | None:
    """`major:minor` of the disk that holds a path; None where it is no disk of its own (tmpfs, overlay)."""
    number = path.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    device = Path("/sys/dev/block") / name
    if not device.exists():
        return None
    if (device / "partition").exists():  # limits are of whole disks
        return (device.resolve().parent / "dev").read_text(encoding="ascii").strip()
    return name
