"""What Linux says of a host and of the processes on it: counters, as they are, never rates.

Counters lose nothing: a rate between any two samples can be computed later, and a sampler that was late or away for a
while has still counted everything. All reading is of a few small files (`/proc`, control groups), without a subprocess.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from headway.host.control_groups import Group, Usage
from headway.host.files import content, lines, pairs

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SECTOR = 512  # /proc/diskstats counts in these, whatever the disk's own are
LOOPBACK = b"lo"
STORAGE_LINK = b"disk0"  # an emulated host's disk may be behind a link of this name: what passes is disk, not network
PRESSURES = ("cpu", "memory", "io")
# Partitions, loop devices and RAM disks would count the same bytes again, or none that matter.
_NOT_A_DISK = (b"loop", b"ram", b"zram", b"dm-", b"md", b"sr", b"fd")


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
    """Of all processes; of an emulated host, of its tasks."""
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
    machine_cpu_seconds: float | None = None
    """Of all processes of the machine, also where the node is only a part of it: what others took can be seen."""
    steal_seconds: float | None = None
    """In which this machine, a virtual one, wanted a CPU and another one had it."""


@dataclass(frozen=True)
class ProcessReading:
    """A task's process, now."""

    cpu_seconds: float
    rss: int
    threads: int
    memory: int | None = None
    """Of that without mapped files: a library's pages are in memory once for all who use it, and count for whoever read
    them first, perhaps for no node of the run."""
    read_bytes: int | None = None
    written_bytes: int | None = None
    context_switches: int | None = None
    """Of all threads that live; only where they were asked for, because each thread costs a look."""


class Readings:
    """Reads of one host. `group`: the control group that makes it a host of its own, if there is one. `is_part`: it is
    only a part of the machine, also where it has no such group: what the machine does says nothing of it."""

    def __init__(self, proc: Path = PROC, group: Group | None = None, is_part: bool = False) -> None:
        self._proc = str(proc)
        self._group = group
        self._is_part = is_part or group is not None

    def host(self) -> HostReading:
        """The whole machine, or the group's share of it; of a part without a group, only its network is known."""
        loopback, external, storage = self._traffic()
        switches, busy, steal = self._scheduler()
        if self._is_part:
            used = Usage() if self._group is None else self._group.usage()
            return HostReading(
                used.cpu_seconds,
                used.memory,
                used.memory_limit,
                loopback,
                external,
                used.read_bytes if storage is None else storage.received_bytes,
                used.written_bytes if storage is None else storage.sent_bytes,
                None,  # the kernel counts them for the whole machine
                used.throttled_seconds,
                used.oom_kills,
                machine_cpu_seconds=busy,
                steal_seconds=steal,
            )
        memory, total = self._memory()
        read, written = self._disks() if storage is None else (storage.received_bytes, storage.sent_bytes)
        return HostReading(
            busy,
            memory,
            total,
            loopback,
            external,
            read,
            written,
            switches,
            pressure=self._pressure(),
            machine_cpu_seconds=busy,
            steal_seconds=steal,
        )

    def process(self, pid: int, switches: bool = False, ended_children: bool = False) -> ProcessReading | None:
        """None when it is gone. All threads of it are counted; the CPU time of children that have ended, where asked
        for."""
        folder = f"{self._proc}/{pid}"
        try:
            # The name in brackets may have blanks and brackets in it.
            fields = content(f"{folder}/stat").rpartition(b")")[2].split()
        except OSError:
            return None
        moved = pairs(f"{folder}/io")
        return ProcessReading(
            cpu_seconds=sum(int(ticks) for ticks in fields[11 : 15 if ended_children else 13]) / TICKS,
            rss=int(fields[21]) * PAGE,
            threads=int(fields[17]),
            memory=_own_pages(folder),
            read_bytes=moved.get("read_bytes"),
            written_bytes=moved.get("write_bytes"),
            context_switches=_switches(f"{folder}/task") if switches else None,
        )

    def shared_out(self, pid: int) -> tuple[int, int] | None:
        """Bytes of a process without mapped files, and of shared memory; a page that several processes have counts for
        each of them in part. None where that is not to be known. The kernel walks over all of its pages for it: 50
        microseconds for a megabyte."""
        try:
            sizes = {line[0]: int(line[1]) * 1024 for line in lines(f"{self._proc}/{pid}/smaps_rollup")[1:]}
        except (OSError, ValueError, IndexError):
            return None
        return (sizes[b"Pss_Anon:"], sizes.get(b"Pss_Shmem:", 0)) if b"Pss_Anon:" in sizes else None

    def _scheduler(self) -> tuple[int | None, float | None, float | None]:
        """Context switches, seconds in which CPUs were not idle, and in which they were another machine's."""
        switches, busy, steal = None, None, None
        for line in lines(f"{self._proc}/stat"):
            if line[0] == b"ctxt":
                switches = int(line[1])
            elif line[0] == b"cpu":
                user, nice, system, idle, iowait, irq, softirq, *more = (int(each) for each in line[1:9])
                del idle, iowait
                busy = (user + nice + system + irq + softirq) / TICKS
                steal = more[0] / TICKS if more else None
        return switches, busy, steal

    def _memory(self) -> tuple[int | None, int | None]:
        sizes = {line[0]: line[1] for line in lines(f"{self._proc}/meminfo") if len(line) > 1}
        total, available = (
            int(sizes[name]) * 1024 if name in sizes else None for name in (b"MemTotal:", b"MemAvailable:")
        )
        return (None if total is None or available is None else total - available), total

    def _traffic(self) -> tuple[Traffic, Traffic, Traffic | None]:
        """Of loopback, of all other interfaces of the network namespace that we are in, and of the link to the disk."""
        loopback, external, storage = Traffic(), Traffic(), None
        for line in lines(f"{self._proc}/net/dev"):
            name, colon, first = line[0].partition(b":")
            if not colon:
                continue  # the two lines of headings
            numbers = ([first] if first else []) + line[1:]
            traffic = Traffic(int(numbers[0]), int(numbers[1]), int(numbers[8]), int(numbers[9]))
            if name == LOOPBACK:
                loopback += traffic
            elif name == STORAGE_LINK:
                storage = traffic
            else:
                external += traffic
        return loopback, external, storage

    def _disks(self) -> tuple[int | None, int | None]:
        disks = [
            line
            for line in lines(f"{self._proc}/diskstats")
            if len(line) > 9 and not line[2].startswith(_NOT_A_DISK) and not _is_partition(line[2])
        ]
        if not disks:
            return None, None
        return sum(int(line[5]) for line in disks) * SECTOR, sum(int(line[9]) for line in disks) * SECTOR

    def _pressure(self) -> dict[str, float]:
        found = {}
        for name in PRESSURES:
            for line in lines(f"{self._proc}/pressure/{name}"):
                total = next((word for word in line if word.startswith(b"total=")), None)
                if line[0] == b"some" and total:
                    found[name] = int(total.removeprefix(b"total=")) / 1e6
        return found


def _own_pages(folder: str) -> int | None:
    try:
        _, resident, shared, *_ = content(f"{folder}/statm").split()
    except (OSError, ValueError):
        return None
    return (int(resident) - int(shared)) * PAGE


def _switches(threads: str) -> int | None:
    """How often any of the threads that live was put on a CPU. `schedstat` has little more than that; a thread's
    `status`, which counts switches by name, takes the kernel four times as long, and a task has a hundred threads."""
    try:
        names = os.listdir(threads)  # noqa: PTH208 (a Path for each thread would cost more than reading it)
    except OSError:
        return None
    found = []
    for name in names:
        try:
            found.append(int(content(f"{threads}/{name}/schedstat").split()[2]))
        except OSError:
            continue  # it has ended in between, or the kernel does not count
    return sum(found) if found else None


def _is_partition(name: bytes) -> bool:
    """sda1, vda2, nvme0n1p3, mmcblk0p1"""
    if name.startswith((b"nvme", b"mmcblk")):
        return b"p" in name.removeprefix(b"nvme").removeprefix(b"mmcblk").lstrip(b"0123456789")
    return name[-1:].isdigit()
