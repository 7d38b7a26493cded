"""What the monitors say, as rates of now and of the last minute: for whoever watches. The record has the counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

KEPT = 150  # samples: a minute, as often as agents tell them
# Counter -> gauge of its rate.
NODE_RATES = {
    "cpu_seconds": "cpus",
    "received_bytes": "received",
    "sent_bytes": "sent",
    "loopback_received_bytes": "loopback_received",
    "loopback_sent_bytes": "loopback_sent",
    "disk_read_bytes": "disk_read",
    "disk_written_bytes": "disk_written",
    "throttled_seconds": "throttled",
}
NODE_LEVELS = {"memory": "memory", "memory_limit": "memory_limit", "credits": "credits"}
TASK_RATES = {"cpu_seconds": "cpus", "received_bytes": "received", "sent_bytes": "sent"}
TASK_LEVELS = {"memory": "memory"}
GPU_LEVELS = {"busy": "busy", "memory": "memory"}


class Gauge:
    """One node or task: its last sample, and the rates between the last ones."""

    def __init__(self, rates: dict[str, str], levels: dict[str, str]) -> None:
        self._rates, self._levels = rates, levels
        self.last: dict[str, Any] = {}
        self._read_at: dict[str, float] = {}
        self.history: deque[dict[str, float]] = deque(maxlen=KEPT)

    def hear(self, row: dict[str, Any]) -> None:
        before = self.last
        begins = any(before.get(name) != row.get(name) for name in ("sampler", "attempt"))  # counters begin anew
        self.last = row if begins else {**before, **row}
        now = {"t": row["t"]}
        for counter, name in self._rates.items():
            if counter not in row:
                if not begins and self.history and name in self.history[-1]:
                    now[name] = self.history[-1][name]  # what is read less often keeps its last rate
                continue
            if not begins and counter in before and (seconds := row["t"] - self._read_at[counter]) > 0:
                now[name] = max(0.0, (row[counter] - before[counter]) / seconds)
            self._read_at[counter] = row["t"]
        if not begins:  # else there is a gap
            now |= {name: float(row[level]) for level, name in self._levels.items() if level in row}
        self.history.append(now)

    def now(self) -> dict[str, float]:
        return self.history[-1] if self.history else {}

    def series(self, name: str, count: int) -> list[float | None]:
        """The last values, None where there is a gap."""
        return [sample.get(name) for sample in list(self.history)[-count:]]


class Gauges:
    def __init__(self) -> None:
        self.nodes: dict[str, Gauge] = {}
        self.tasks: dict[str, Gauge] = {}
        self.gpus: dict[str, dict[int, Gauge]] = {}
        """Of each node that has any, by their numbers."""

    def hear(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            match row.get("kind"):
                case "node_sample":
                    self.nodes.setdefault(row["node"], Gauge(NODE_RATES, NODE_LEVELS)).hear(row)
                case "task_sample":
                    self.tasks.setdefault(row["task"], Gauge(TASK_RATES, TASK_LEVELS)).hear(row)
                case "gpu_sample":
                    gpus = self.gpus.setdefault(row["node"], {})
                    gpus.setdefault(row["gpu"], Gauge({}, GPU_LEVELS)).hear(row)
                case _:
                    pass
