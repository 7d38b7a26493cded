"""Rates between samples, as SQL over the tables of counters. Never over a gap: a sampler that began anew counts
anew."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    base: str
    """The table of counters."""
    of: tuple[str, ...]
    """Columns that name whose counters they are."""
    levels: tuple[str, ...]
    """Columns that are taken as they are."""
    rates: dict[str, str]
    """Counter -> column of its rate per second."""


_NETWORK = {
    "received_bytes": "received",
    "sent_bytes": "sent",
    "loopback_received_bytes": "loopback_received",
    "loopback_sent_bytes": "loopback_sent",
}
_DISK = {"disk_read_bytes": "disk_read", "disk_written_bytes": "disk_written"}

RATES = {
    "node_rates": Rates(
        "node_samples",
        ("node", "sampler"),
        ("memory", "memory_limit", "credits"),
        {
            "cpu_seconds": "cpus",
            "throttled_seconds": "throttled",
            **_NETWORK,
            "received_packets": "received_packets",
            "sent_packets": "sent_packets",
            **_DISK,
            "context_switches": "context_switches",
            "cpu_pressure_seconds": "cpu_pressure",
            "memory_pressure_seconds": "memory_pressure",
            "io_pressure_seconds": "io_pressure",
            "machine_cpu_seconds": "machine_cpus",
            "steal_seconds": "steal",
        },
    ),
    "task_rates": Rates(
        "task_samples",
        ("node", "task", "attempt", "sampler"),
        ("rss", "memory", "threads"),
        {"cpu_seconds": "cpus", **_NETWORK, **_DISK, "context_switches": "context_switches"},
    ),
}


def rates(name: str, base: str, *more: str) -> str:
    """SQL of one of RATES. `base`: selects the counters; `more`: further columns that name whose they are (a run)."""
    shape = RATES[name]
    keys = ", ".join([*more, *shape.of])
    window = f"over (partition by {keys} order by t)"
    columns = []
    for counter, rate in shape.rates.items():
        # What is sampled less often than the rest has a rate where it was sampled.
        before, when = (
            f"lag({counter} ignore nulls) {window}",
            f"lag(case when {counter} is not null then t end ignore nulls) {window}",
        )
        columns.append(f"({counter} - {before}) / nullif(t - {when}, 0) as {rate}")
    return (
        f"select {keys}, t, t - lag(t) {window} as seconds, {', '.join([*shape.levels, *columns])} "
        f"from ({base}) qualify seconds is not null order by t"
    )
