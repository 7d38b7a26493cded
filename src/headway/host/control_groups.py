"""Control groups, both kinds, behind one small interface: limits of CPU, memory and disk, and what was used.

Version 2 has one tree; version 1 has a tree for each controller. Which controllers can be used is probed (`find`),
never assumed. Every group that we make begins with `hw-`, so that leftovers can be told from other people's.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headway.host.files import content, lines, number, pairs

ROOT = Path("/sys/fs/cgroup")
PREFIX = "hw-"
CONTROLLERS = ("cpu", "memory", "io", "freezer")
# Quotas are given out in slices of this length. Shorter ones make a slow CPU smoother, and cost more switches.
PERIOD_US = 20_000
NO_BOUND = 2**60  # bytes: version 1 says a number like this (2^63, less a page) where there is no limit
LEAST_QUOTA_US = 1000  # the kernel refuses less: a small share of a CPU comes in longer slices


def slices(cpus: float) -> tuple[int | None, int]:
    """(quota, period) in microseconds; no quota for as much as there is."""
    if math.isinf(cpus):
        return None, PERIOD_US
    period = max(PERIOD_US, min(1_000_000, round(LEAST_QUOTA_US / cpus)))
    return max(LEAST_QUOTA_US, round(cpus * period)), period


REMOVE_SECONDS = 2.0


class ControlGroupError(OSError):
    """A control group cannot be made or set as asked."""


@dataclass(frozen=True)
class Limits:
    cpus: float | None = None
    """Infinite: what there is."""
    memory: int | None = None
    """Bytes."""
    disk_read: float | None = None
    """Bytes per second."""
    disk_write: float | None = None
    device: str | None = None
    """The disk that is limited, as `major:minor`."""


@dataclass(frozen=True)
class Usage:
    """What a group has used so far; None where its controller is not there."""

    cpu_seconds: float | None = None
    throttled_seconds: float | None = None
    memory: int | None = None
    memory_limit: int | None = None
    oom_kills: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


class Group(Protocol):
    """One control group, in however many trees."""

    name: str

    def limit(self, limits: Limits) -> None:
        """Set what is given; may be called again with other numbers while tasks run."""

    def add(self, pid: int) -> None:
        """Move a process, and all that it starts from now on, into the group."""

    def usage(self) -> Usage: ...

    def freeze(self, frozen: bool) -> None: ...

    def processes(self) -> list[int]: ...

    def remove(self) -> None:
        """Remove it and the groups in it. The processes must be gone, or about to go."""


@dataclass(frozen=True)
class ControlGroups:
    """The trees that can be used here."""

    version: int
    trees: dict[str, Path]
    """Controller (cpu, memory, io, freezer) -> the folder in which our groups are made."""
    problems: dict[str, str] = field(default_factory=dict)
    """Controller -> why it cannot be used."""

    def make(self, name: str) -> Group:
        """A new group, without limits."""
        if not name.startswith(PREFIX):
            raise ControlGroupError(f"a group of ours is called {PREFIX}...; got {name!r}")
        group = _of(self, name)
        for folder in _folders(self, name):
            folder.mkdir(exist_ok=True)
        return group

    def existing(self) -> list[str]:
        """Names of groups that begin with our prefix, also those that another run has left."""
        names = {
            child.name
            for tree in set(self.trees.values())
            if tree.is_dir()
            for child in tree.glob(f"{PREFIX}*")
            if child.is_dir()
        }
        return sorted(names)

    def find(self, name: str) -> Group:
        return _of(self, name)


def _of(groups: ControlGroups, name: str) -> Group:
    return Version2(name, groups.trees) if groups.version == 2 else Version1(name, groups.trees)


def _folders(groups: ControlGroups, name: str) -> list[Path]:
    return [tree / name for tree in dict.fromkeys(groups.trees.values())]


# --- what is here --------------------------------------------------------------------------------------------------
def find(root: Path = ROOT) -> ControlGroups:
    """What can be used on this machine. Nothing is changed but, in version 2, which controllers our groups have."""
    if (root / "cgroup.controllers").exists():
        return _find_version_2(root)
    return _find_version_1(root)


def _find_version_2(root: Path) -> ControlGroups:
    there = set(_read(root / "cgroup.controllers").split())
    problems = {}
    for controller in ("cpu", "memory", "io"):
        if controller not in there:
            problems[controller] = f"the kernel offers no {controller} controller in {root}"
            continue
        try:
            enabled = _read(root / "cgroup.subtree_control").split()
            if controller not in enabled:
                (root / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
        except OSError as error:
            problems[controller] = f"{controller} cannot be switched on in {root}: {error.strerror}"
    usable = [controller for controller in CONTROLLERS if controller not in problems]
    if not os.access(root, os.W_OK):
        return ControlGroups(2, {}, dict.fromkeys(CONTROLLERS, f"{root} cannot be written to: root is needed"))
    return ControlGroups(2, dict.fromkeys(usable, root), problems)


def _find_version_1(root: Path) -> ControlGroups:
    names = {"cpu": "cpu", "memory": "memory", "io": "blkio", "freezer": "freezer"}
    marks = {
        "cpu": "cpu.cfs_quota_us",
        "memory": "memory.limit_in_bytes",
        "io": "blkio.throttle.read_bps_device",
        "freezer": "",
    }
    trees, problems = {}, {}
    for controller, name in names.items():
        tree = next((path for path in (root / name, root / f"{name},cpuacct") if path.is_dir()), root / name)
        if not tree.is_dir():
            problems[controller] = f"{tree} is not mounted"
        elif not os.access(tree, os.W_OK):
            problems[controller] = f"{tree} cannot be written to: root is needed"
        elif marks[controller] and not (tree / marks[controller]).exists() and controller != "cpu":
            problems[controller] = f"{tree} has no {marks[controller]}"
        else:
            trees[controller] = tree
    accounting = next((path for path in (root / "cpuacct", root / "cpu,cpuacct") if path.is_dir()), None)
    if accounting is not None and os.access(accounting, os.W_OK):
        trees["cpuacct"] = accounting
    return ControlGroups(1, trees, problems)


# --- who we are ----------------------------------------------------------------------------------------------------
def held_back(root: Path = ROOT, proc: Path = Path("/proc")) -> dict[Path, float]:
    """The group that we are in and those around it, by their folders: seconds in which the quota of each held its
    processes back. A container may show its own group as the outermost one, under whatever name."""
    try:
        told = content(proc / "self" / "cgroup").splitlines()
    except OSError:
        told = [b"0::/", b"1:cpu:/"]
    found = {}
    for hierarchy, controllers, path in (line.split(b":", 2) for line in told):
        if hierarchy == b"0" or b"cpu" in controllers.split(b","):
            trees = [root] if hierarchy == b"0" else [root / os.fsdecode(controllers), root / "cpu"]
            tree = next((each for each in trees if each.is_dir()), root)
            ours = tree / os.fsdecode(path).lstrip("/")
            for folder in (ours, *ours.parents):
                if folder.is_relative_to(tree) and (seconds := _throttled(pairs(folder / "cpu.stat"))) is not None:
                    found[folder] = seconds
    return found


# --- the two kinds -------------------------------------------------------------------------------------------------
class _Trees:
    def __init__(self, name: str, trees: dict[str, Path]) -> None:
        self.name = name
        self._trees = {controller: tree / name for controller, tree in trees.items()}

    def _need(self, controller: str, what: str) -> Path:
        if controller not in self._trees:
            raise ControlGroupError(f"{what} cannot be limited: no {controller} controller")
        return self._trees[controller]

    def _set(self, path: Path, text: str) -> None:
        try:
            path.write_text(text, encoding="ascii")
        except OSError as error:
            raise ControlGroupError(f"{path} refuses {text!r}: {error.strerror}") from error

    def add(self, pid: int) -> None:
        for folder in dict.fromkeys(self._trees.values()):
            self._set(folder / "cgroup.procs", str(pid))

    def processes(self) -> list[int]:
        found: set[int] = set()
        for folder in dict.fromkeys(self._trees.values()):
            for path in [folder, *_below(folder)]:
                with contextlib.suppress(OSError):
                    found.update(int(line) for line in _read(path / "cgroup.procs").split())
        return sorted(found)

    def remove(self) -> None:
        """A group can be removed some milliseconds after the last of its processes has ended."""
        deadline = time.monotonic() + REMOVE_SECONDS
        folders = [path for folder in dict.fromkeys(self._trees.values()) for path in [*_below(folder), folder]]
        for path in folders:
            while path.is_dir():
                try:
                    path.rmdir()
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise ControlGroupError(f"{path} cannot be removed: {error.strerror}") from error
                    time.sleep(0.01)


class Version1(_Trees):
    def limit(self, limits: Limits) -> None:
        if limits.cpus is not None:
            folder = self._need("cpu", "CPU")
            quota, period = slices(limits.cpus)
            self._set(folder / "cpu.cfs_period_us", str(period))
            self._set(folder / "cpu.cfs_quota_us", str(-1 if quota is None else quota))
        if limits.memory is not None:
            self._set(self._need("memory", "memory") / "memory.limit_in_bytes", str(limits.memory))
        for bound, kind in ((limits.disk_read, "read"), (limits.disk_write, "write")):
            if bound is not None:
                path = self._need("io", "the disk") / f"blkio.throttle.{kind}_bps_device"
                self._set(path, f"{limits.device} {round(bound)}")

    def usage(self) -> Usage:
        cpu, memory, disk = (self._trees.get(controller) for controller in ("cpu", "memory", "io"))
        accounting = self._trees.get("cpuacct")
        moved = _moved(disk / "blkio.throttle.io_service_bytes_recursive") if disk else {}
        return Usage(
            cpu_seconds=_scaled(number(accounting / "cpuacct.usage"), 1e-9) if accounting else None,
            throttled_seconds=_throttled(pairs(cpu / "cpu.stat")) if cpu else None,
            memory=number(memory / "memory.usage_in_bytes") if memory else None,
            memory_limit=_bounded(number(memory / "memory.limit_in_bytes")) if memory else None,
            oom_kills=pairs(memory / "memory.oom_control").get("oom_kill") if memory else None,
            read_bytes=moved.get(b"Read"),
            written_bytes=moved.get(b"Write"),
        )

    def freeze(self, frozen: bool) -> None:
        self._set(self._need("freezer", "freezing") / "freezer.state", "FROZEN" if frozen else "THAWED")


class Version2(_Trees):
    def limit(self, limits: Limits) -> None:
        if limits.cpus is not None:
            quota, period = slices(limits.cpus)
            self._set(self._need("cpu", "CPU") / "cpu.max", f"{'max' if quota is None else quota} {period}")
        if limits.memory is not None:
            self._set(self._need("memory", "memory") / "memory.max", str(limits.memory))
        bounds = {"rbps": limits.disk_read, "wbps": limits.disk_write}
        asked = " ".join(f"{key}={round(bound)}" for key, bound in bounds.items() if bound is not None)
        if asked:
            self._set(self._need("io", "the disk") / "io.max", f"{limits.device} {asked}")

    def usage(self) -> Usage:
        cpu, memory, disk = (self._trees.get(controller) for controller in ("cpu", "memory", "io"))
        spent = pairs(cpu / "cpu.stat") if cpu else {}
        moved = _moved_2(disk / "io.stat") if disk else {}
        return Usage(
            cpu_seconds=_scaled(spent.get("usage_usec"), 1e-6),
            throttled_seconds=_throttled(spent),
            memory=number(memory / "memory.current") if memory else None,
            memory_limit=number(memory / "memory.max") if memory else None,
            oom_kills=pairs(memory / "memory.events").get("oom_kill") if memory else None,
            read_bytes=moved.get(b"rbytes"),
            written_bytes=moved.get(b"wbytes"),
        )

    def freeze(self, frozen: bool) -> None:
        self._set(self._need("freezer", "freezing") / "cgroup.freeze", "1" if frozen else "0")


# --- reading -------------------------------------------------------------------------------------------------------
def _read(path: Path) -> str:
    return path.read_text(encoding="ascii")


def _moved(path: Path) -> dict[bytes, int]:
    """`254:0 Read 4096` lines -> bytes over all disks."""
    return _summed((line[1], line[2]) for line in lines(path) if len(line) == 3)


def _moved_2(path: Path) -> dict[bytes, int]:
    """`254:0 rbytes=4096 wbytes=0 ...` lines -> bytes over all disks."""
    return _summed(tuple(word.split(b"=", 1)) for line in lines(path) for word in line[1:] if b"=" in word)


def _summed(moved: Iterable[tuple[bytes, ...]]) -> dict[bytes, int]:
    total: dict[bytes, int] = {}
    for name, count in moved:
        if count.isdigit():
            total[name] = total.get(name, 0) + int(count)
    return total


def _bounded(limit: int | None) -> int | None:
    return None if limit is None or limit >= NO_BOUND else limit


def _throttled(stat: dict[str, int]) -> float | None:
    """By a group's `cpu.stat`, of either version; None where it counts none, as the outermost group does."""
    if "throttled_usec" in stat:
        return stat["throttled_usec"] * 1e-6
    return _scaled(stat.get("throttled_time"), 1e-9)


def _scaled(count: int | None, factor: float) -> float | None:
    return None if count is None else count * factor


def _below(folder: Path) -> list[Path]:
    """Groups inside this one, the innermost first."""
    return sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True) if folder.is_dir() else []
