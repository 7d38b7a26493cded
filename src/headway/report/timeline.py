"""What a run did over time, on one axis: every node's CPU, memory, network and disk, and the pace of the training.

Counters become rates between neighbouring samples of one sampler, and then lose nothing but points: of each bucket the
lowest and the highest rate stay (thin.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headway.record.distributions import LEAST_INTERVAL
from headway.report.thin import Array, Buckets, extremes, packed

if TYPE_CHECKING:
    import duckdb

# Series of a node: name, columns that are summed up, whether it is a rate (of a counter).
NODE_SERIES = {
    "cpus": (("cpu_seconds",), True),
    "throttled": (("throttled_seconds",), True),
    "memory": (("memory",), False),
    "received": (("received_bytes",), True),
    "sent": (("sent_bytes",), True),
    "loopback": (("loopback_sent_bytes",), True),
    "disk_read": (("disk_read_bytes",), True),
    "disk_written": (("disk_written_bytes",), True),
    "credits": (("credits",), False),
}
# Left out where they are nothing all the time: most machines have no quota, no credits, one kind of network.
ONLY_IF_USED = ("throttled", "loopback", "credits", "disk_read", "received", "sent")
FEW_IN_A_BUCKET = 4  # steps in a bucket below which a rate of steps says more about the buckets than about the steps
MOST_BUCKETS = 900  # as many as a wide screen shows
FEWEST_BUCKETS = 60
MOST_VALUES = 1_300_000  # of all nodes' series in a report: some three megabytes when they are packed


def num_buckets(num_nodes: int) -> int:
    """How fine time lines are in a report over so many nodes of all runs together: it stays below 10 MB."""
    return int(np.clip(MOST_VALUES / (2 * 7 * max(num_nodes, 1)), FEWEST_BUCKETS, MOST_BUCKETS))


def timeline(connection: duckdb.DuckDBPyConnection, origin: float, num: int) -> dict[str, Any] | None:
    """Series on axes of seconds since `origin`; None where nothing was recorded.

    `connection`: has the run's tables as views (digest.py). `axes`: lists of moments; each series names its axis by
    number, its `of` (a node or task), its `what`, and has `unit` and whole `values` in it.
    """
    samples = _columns(connection, "node_samples", _wanted_columns())
    steps = _columns(connection, "steps", ("task", "t", "num_steps", "seconds", "examples"))
    times = np.concatenate([samples["t"], steps["t"]])
    if not len(times):
        return None
    start, end = float(times.min()) - origin, float(times.max()) - origin
    buckets = Buckets.over(start, end, num)
    axes: list[list[float]] = [buckets.pairs()]
    series = _of_nodes(samples, origin, buckets, axes) + _of_tasks(steps, origin, buckets, axes)
    return {"start": round(start, 3), "end": round(end, 3), "axes": axes, "series": series}


def _wanted_columns() -> tuple[str, ...]:
    return ("node", "t", "sampler", *dict.fromkeys(column for columns, _ in NODE_SERIES.values() for column in columns))


def _columns(connection: duckdb.DuckDBPyConnection, table: str, columns: tuple[str, ...]) -> dict[str, Array]:
    found = connection.execute(f"select {', '.join(columns)} from {table}").fetchnumpy()
    return {name: _filled(values) for name, values in found.items()}


def _filled(values: Array) -> Array:
    """What is missing is NaN; names stay as they are."""
    if values.dtype.kind in "OU":
        return np.asarray(values)
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    return values.astype(np.float64)


def _of_nodes(samples: dict[str, Array], origin: float, buckets: Buckets, axes: list[list[float]]) -> list[Any]:
    found = []
    for node in sorted(set(samples["node"].tolist())):
        here = samples["node"] == node
        t, sampler = samples["t"][here], samples["sampler"][here]
        seconds = np.diff(t, prepend=np.nan)
        # A rate never goes over a gap: a monitor that began anew counts anew.
        seconds[np.concatenate([[True], sampler[1:] != sampler[:-1]])] = np.nan
        seconds[seconds < LEAST_INTERVAL] = np.nan
        thinned = len(t) > 2 * buckets.num
        if not thinned:
            axes.append([round(one, 3) for one in (t - origin).tolist()])
        axis = 0 if thinned else len(axes) - 1
        places = buckets.of(t - origin)
        for what, (columns, is_rate) in NODE_SERIES.items():
            values = np.sum([samples[column][here] for column in columns], axis=0)
            if is_rate:
                values = np.diff(values, prepend=np.nan) / seconds
            if what in ONLY_IF_USED and not np.nanmax(np.abs(values), initial=0.0) > 0:
                continue
            short = packed(extremes(places, values, buckets.num) if thinned else values)
            if short is not None:
                found.append({"of": node, "what": what, "axis": axis, **short})
    return found


def _of_tasks(steps: dict[str, Array], origin: float, buckets: Buckets, axes: list[list[float]]) -> list[Any]:
    """Examples per second of all tasks together, and of each task how long its steps took."""
    if not len(steps["t"]):
        return []
    t = steps["t"] - origin
    first, last = float((t - steps["seconds"]).min()), float(t.max())
    coarse = Buckets.over(first, last, int(np.clip(len(t) / FEW_IN_A_BUCKET, 1, buckets.num)))
    axes.append([round(coarse.start + (place + 0.5) * coarse.width, 4) for place in range(coarse.num)])
    examples = np.where(np.isnan(steps["examples"]), 0.0, steps["examples"])
    what, counted = ("examples_per_s", examples) if examples.any() else ("steps_per_s", steps["num_steps"])
    pace = packed(_pace(t, steps["seconds"], counted, steps["task"], coarse))
    found: list[Any] = [{"of": "all tasks", "what": what, "axis": len(axes) - 1, **pace}] if pace else []
    each = steps["seconds"] / steps["num_steps"]
    for task in sorted(set(steps["task"].tolist())):
        here = steps["task"] == task
        if here.sum() > 2 * buckets.num:
            short, axis = packed(extremes(buckets.of(t[here]), each[here], buckets.num)), 0
        else:
            axes.append([round(one, 3) for one in t[here].tolist()])
            short, axis = packed(each[here]), len(axes) - 1
        if short is not None:
            found.append({"of": task, "what": "step_seconds", "axis": axis, **short})
    return found


def _pace(t: Array, seconds: Array, counted: Array, task: Array, buckets: Buckets) -> Array:
    """What was done per second in each bucket. A step counts evenly over the time it took: else the picture would show
    how steps fall into buckets."""
    edges = buckets.start + buckets.width * np.arange(buckets.num + 1)
    done = np.zeros(len(edges))
    for name in set(task.tolist()):
        here = task == name
        ends = np.cumsum(counted[here])
        # A step begins where the one before ended, or later.
        moments = np.maximum.accumulate(np.stack([t[here] - seconds[here], t[here]], axis=1).reshape(-1))
        done += np.interp(edges, moments, np.stack([ends - counted[here], ends], axis=1).reshape(-1))
    return np.diff(done) / buckets.width
