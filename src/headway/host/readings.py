"""What Linux says of a host and of the processes on it: counters, as they are, never rates.

Counters lose nothing: a rate between any two samples can be computed later, and a sampler that was late or away for a
while has still counted everything. All reading is of a few small files (`/proc`, control groups), without a subprocess.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from headway.host.control_groups import Group

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SECTOR = 512  # /proc/diskstats counts in these, whatever the disk's own are
LOOPBACK = "lo"
PRESSURES = ("cpu", "memory", "io")
# Partitions, loop devices and RAM disks would count the same bytes again, or none that matter.
_NOT_A_DISK = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")


@dataclass(frozen=True)
class Traffic:
    """Bytes and packets since the interface came up."""

    received_bytes: int = 0
    received_packets: int = 0
    sent_bytes: int = 0
    sent_packets: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.received_bytes + other.received_bytes,
            self.received_packets + other.received_packets,
            self.sent_bytes + other.sent_bytes,
            self.sent_packets + other.sent_packets,
        )


@dataclass(frozen=True)
class HostReading:
    """A node, now. None: not known here."""

    cpu_seconds: float | None = None
    """Of all processes; of an emulated host, of its own ones."""
    memory: int | None = None
    """Bytes in use."""
    memory_limit: int | None = None
    loopback: Traffic = Traffic()
    external: Traffic = Traffic()
    """Of all other interfaces."""
    read_bytes: int | None = None
    written_bytes: int | None = None
    context_switches: int | None = None
    throttled_seconds: float | None = None
    """In which processes wanted a CPU that the quota did not give them."""
    oom_kills: int | None = None
    pressure: dict[str, float] = field(default_factory=dict)
    """cpu, memory, io -> seconds in which some process waited for it."""


@dataclass(frozen=True)
class ProcessReading:
    """A task's process, now."""

    cpu_seconds: float
    rss: int
    threads: int
    read_bytes: int | None = None
    written_bytes: int | None = None
    context_switches: int | None = None
    """Of all threads that live; only where they were asked for, because each thread costs a look."""


class Readings:
    """Reads of one host. `group`: the control group that makes it a host of its own, if there is one."""

    def __init__(self, proc: Path = PROC, group: Group | None = None) -> None:
        self._proc = proc
        self._group = group

    def host(self) -> HostReading:
        """The whole machine, or the group's share of it."""
        loopback, external = self._traffic()
        if self._group is not None:
            used = self._group.usage()
            return HostReading(
                used.cpu_seconds,
                used.memory,
                used.memory_limit,
                loopback,
                external,
                used.read_bytes,
                used.written_bytes,
                None,  # the kernel counts them for the whole machine
                used.throttled_seconds,
                used.oom_kills,
            )
        switches, busy = self._scheduler()
        memory, total = self._memory()
        read, written = self._disks()
        return HostReading(
            busy, memory, total, loopback, external, read, written, switches, None, None, self._pressure()
        )

    def process(self, pid: int, switches: bool = False) -> ProcessReading | None:
        """None when it is gone. All threads of it are counted."""
        folder = self._proc / str(pid)
        try:
            # The name in brackets may have blanks and brackets in it.
            fields = _text(folder / "stat").rpartition(")")[2].split()
        except OSError:
            return None
        moved = _pairs(folder / "io")
        return ProcessReading(
            cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS,
            rss=int(fields[21]) * PAGE,
            threads=int(fields[17]),
            read_bytes=moved.get("read_bytes"),
            written_bytes=moved.get("write_bytes"),
            context_switches=self._switches(folder) if switches else None,
        )

    def _switches(self, process: Path) -> int | None:
        try:
            threads = list((process / "task").iterdir())
        except OSError:
            return None
        found = (_pairs(thread / "status") for thread in threads)
        return sum(each.get("voluntary_ctxt_switches", 0) + each.get("nonvoluntary_ctxt_switches", 0) for each in found)

    def _scheduler(self) -> tuple[int | None, float | None]:
        """Context switches, and seconds in which CPUs were not idle."""
        switches, busy = None, None
        for line in _lines(self._proc / "stat"):
            if line[0] == "ctxt":
                switches = int(line[1])
            elif line[0] == "cpu":
                user, nice, system, idle, iowait, irq, softirq, *_ = (int(each) for each in line[1:8])
                del idle, iowait
                busy = (user + nice + system + irq + softirq) / TICKS
        return switches, busy

    def _memory(self) -> tuple[int | None, int | None]:
        sizes = {line[0]: int(line[1]) * 1024 for line in _lines(self._proc / "meminfo") if len(line) > 1}
        total, available = sizes.get("MemTotal:"), sizes.get("MemAvailable:")
        return (None if total is None or available is None else total - available), total

    def _traffic(self) -> tuple[Traffic, Traffic]:
        """Of loopback, and of all other interfaces of the network namespace that we are in."""
        loopback, external = Traffic(), Traffic()
        for line in _lines(self._proc / "net" / "dev"):
            name, colon, first = line[0].partition(":")
            if not colon:
                continue  # the two lines of headings
            numbers = [int(each) for each in ([first] if first else []) + line[1:]]
            traffic = Traffic(numbers[0], numbers[1], numbers[8], numbers[9])
            if name == LOOPBACK:
                loopback += traffic
            else:
                external += traffic
        return loopback, external

    def _disks(self) -> tuple[int | None, int | None]:
        disks = [
            line
            for line in _lines(self._proc / "diskstats")
            if len(line) > 9 and not line[2].startswith(_NOT_A_DISK) and not _is_partition(line[2])
        ]
        if not disks:
            return None, None
        return sum(int(line[5]) for line in disks) * SECTOR, sum(int(line[9]) for line in disks) * SECTOR

    def _pressure(self) -> dict[str, float]:
        found = {}
        for name in PRESSURES:
            for line in _lines(self._proc / "pressure" / name):
                total = next((word for word in line if word.startswith("total=")), None)
                if line[0] == "some" and total:
                    found[name] = int(total.removeprefix("total=")) / 1e6
        return found


def _is_partition(name: str) -> bool:
    """sda1, vda2, nvme0n1p3, mmcblk0p1"""
    if name.startswith(("nvme", "mmcblk")):
        return "p" in name.removeprefix("nvme").removeprefix("mmcblk").lstrip("0123456789")
    return name[-1:].isdigit()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _lines(path: Path) -> list[list[str]]:
    """Words of each line; nothing where the file cannot be read."""
    try:
        return [words for line in _text(path).splitlines() if (words := line.split())]
    except OSError:
        return []


def _pairs(path: Path) -> dict[str, int]:
    return {line[0].rstrip(":"): int(line[1]) for line in _lines(path) if len(line) == 2 and line[1].isdigit()}
