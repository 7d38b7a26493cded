"""The monitor: samples of the node and of each task on it, as counters, at a fixed rate. Part of the agent.

Samples stand in the run folder (metrics/NODE.jsonl), on the node's own clock, which the launcher compares with its own.
They go to the launcher, too, about twice a second, for whoever watches. A monitor that breaks down begins anew
with another number (`sampler`), so that nobody computes a rate over the gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway import clock
from headway.host import control_groups, gpus
from headway.host.control_groups import Group, Limits
from headway.host.credits import Account
from headway.host.readings import Readings, Traffic
from headway.host.sockets import Sockets, SocketTraffic
from headway.host.trees import Tree, together
from headway.record.files import EventWriter

# Seconds between what costs more. Counters lose nothing by being read less often.
CONNECTIONS = 1.0
SWITCHES = 5.0  # a look at each thread: TensorFlow's tasks have a hundred
TELL = 0.5  # messages to the launcher


@dataclass(frozen=True)
class Watched:
    """A task's process."""

    pid: int
    attempt: int
    with_children: bool = False
    """Its work is done by what it has started: count that, too."""


class Monitor:
    """One sampler. `settings`: what the launcher said of this node: whether it `is_part` of a machine, the `group` that
    makes it one, credits."""

    def __init__(
        self,
        path: Path,
        node: str,
        interval: float,
        tell: Callable[[list[dict[str, Any]]], None],
        settings: Mapping[str, Any],
    ) -> None:
        self.interval = interval
        self._node = node
        self._tell = tell
        self._last: dict[str, float] = {}
        self._sampler = round(clock.now(), 3)
        self._group: Group | None = control_groups.find().find(settings["group"]) if settings.get("group") else None
        self._is_part = bool(settings.get("is_part"))
        self._readings = Readings(group=self._group, is_part=self._is_part)
        self._used: dict[tuple[str, int], dict[str, Any]] = {}
        self._sockets = Sockets()
        self._trees: dict[int, Tree] = {}
        self._gpus = gpus.find()
        self._account = self._open_account(settings)
        self._writer = EventWriter(path)
        self._writer.write(
            "sampler_started", node=node, sampler=self._sampler, interval=interval, problem=self._sockets.problem
        )

    def sample(self, tasks: Mapping[str, Watched]) -> None:
        """Read everything once, write it down, and tell it if it is time."""
        now = time.monotonic()
        is_told = self._is_time("tell", now, TELL)
        of_tasks = self._of_tasks(now, tasks, is_told)
        rows = [self._of_node(now, of_tasks), *self._of_gpus(), *of_tasks]
        rows = [self._writer.write(row.pop("kind"), later=True, **row) for row in rows]
        if is_told:
            self._tell(rows)

    def _is_time(self, what: str, now: float, every: float) -> bool:
        is_time = now - self._last.get(what, -every) >= every - self.interval / 2
        if is_time:
            self._last[what] = now
        return is_time

    def close(self) -> None:
        self._writer.close()
        self._sockets.close()

    def _of_node(self, now: float, of_tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        reading = self._readings.host()
        row = {
            "kind": "node_sample",
            "node": self._node,
            "sampler": self._sampler,
            "cpu_seconds": reading.cpu_seconds,
            "memory": reading.memory,
            "memory_limit": reading.memory_limit,
            **_traffic("loopback_", reading.loopback),
            **_traffic("", reading.external),
            "disk_read_bytes": reading.read_bytes,
            "disk_written_bytes": reading.written_bytes,
            "context_switches": reading.context_switches,
            "throttled_seconds": reading.throttled_seconds,
            "oom_kills": reading.oom_kills,
            **{f"{what}_pressure_seconds": seconds for what, seconds in reading.pressure.items()},
            "machine_cpu_seconds": reading.machine_cpu_seconds,
            "steal_seconds": reading.steal_seconds,
        }
        if self._is_part and self._group is None:  # a group counts nothing of its disk before it has used it
            row |= {name: value for name, value in self._of_all(of_tasks).items() if row[name] is None}
        if self._account is not None and reading.cpu_seconds is not None and self._group is not None:
            before = self._account.cpus
            row["credits"] = self._account.settle(now, reading.cpu_seconds)
            row["cpus"] = self._account.cpus
            if self._account.cpus != before:
                self._group.limit(Limits(cpus=self._account.cpus))
        return {name: value for name, value in row.items() if value is not None}

    def _of_all(self, of_tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What all tasks together have used, those that have ended, too: counters never go back. Where no control group
        counts for a host that is a part of a machine, this is what is known of it."""
        self._used |= {(row["task"], row["attempt"]): row for row in of_tasks}

        def whole(name: str) -> Any:
            known = [row[name] for row in self._used.values() if name in row]
            return sum(known) if len(known) == len(self._used) else None

        counted = {name: whole(name) for name in ("cpu_seconds", "disk_read_bytes", "disk_written_bytes")}
        return {**counted, "memory": sum(row.get("memory", row["rss"]) for row in of_tasks)}

    def _of_gpus(self) -> list[dict[str, Any]]:
        return [
            {"kind": "gpu_sample", "node": self._node, "sampler": self._sampler, **reading}
            for reading in self._gpus.read()
        ]

    def _of_tasks(self, now: float, tasks: Mapping[str, Watched], is_told: bool) -> list[dict[str, Any]]:
        if not tasks:
            return []
        # Only in rows that the launcher gets, too.
        is_due = is_told and self._is_time("connections", now, CONNECTIONS)
        self._plant(tasks, is_due)
        traffic = self._traffic(tasks) if is_due else {}
        switches = is_told and self._is_time("switches", now, SWITCHES)
        rows = []
        for name, task in tasks.items():
            tree = self._trees.get(task.pid)
            reading = tree.reading(switches) if tree else self._readings.process(task.pid, switches)
            if reading is None:
                continue
            row = {
                "kind": "task_sample",
                "node": self._node,
                "task": name,
                "attempt": task.attempt,
                "sampler": self._sampler,
                "cpu_seconds": reading.cpu_seconds,
                "rss": reading.rss,
                "memory": reading.memory,
                "threads": reading.threads,
                "disk_read_bytes": reading.read_bytes,
                "disk_written_bytes": reading.written_bytes,
                "context_switches": reading.context_switches,
            }
            if task.pid in traffic:
                moved = traffic[task.pid]
                row |= {
                    "loopback_sent_bytes": moved.loopback_sent,
                    "loopback_received_bytes": moved.loopback_received,
                    "sent_bytes": moved.external_sent,
                    "received_bytes": moved.external_received,
                    "retransmitted": moved.retransmitted,
                }
            rows.append({name: value for name, value in row.items() if value is not None})
        return rows

    def _plant(self, tasks: Mapping[str, Watched], is_due: bool) -> None:
        """Trees of the tasks that have one, and now and then who belongs to them."""
        pids = [task.pid for task in tasks.values() if task.with_children]
        self._trees = {pid: self._trees.get(pid) or Tree(pid, self._readings) for pid in pids}
        for tree in self._trees.values() if is_due else ():
            tree.look()

    def _traffic(self, tasks: Mapping[str, Watched]) -> dict[int, SocketTraffic]:
        """Of each task, by its process."""
        members = {
            task.pid: tree.pids if (tree := self._trees.get(task.pid)) else [task.pid] for task in tasks.values()
        }
        found = self._sockets.read([pid for pids in members.values() for pid in pids])
        return {
            root: together(seen)
            for root, pids in members.items()
            if (seen := [found[pid] for pid in pids if pid in found])
        }

    def _open_account(self, settings: Mapping[str, Any]) -> Account | None:
        """A burstable CPU needs a control group that can be read and limited."""
        if not settings.get("credits") or self._group is None:
            return None
        used = self._group.usage().cpu_seconds
        return None if used is None else Account(now=time.monotonic(), used=used, **settings["credits"])


def _traffic(prefix: str, traffic: Traffic) -> dict[str, int]:
    return {
        f"{prefix}received_bytes": traffic.received_bytes,
        f"{prefix}received_packets": traffic.received_packets,
        f"{prefix}sent_bytes": traffic.sent_bytes,
        f"{prefix}sent_packets": traffic.sent_packets,
    }
