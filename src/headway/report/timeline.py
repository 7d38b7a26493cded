"""What a run did over time, on one axis: every node's CPU, memory, network and disk, and the pace of the training.

Counters become rates between neighbouring samples of one sampler, and then lose nothing but points: of each bucket the
lowest and the highest rate stay (thin.py). The axis is the run's own time (own_time.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headway.record.distributions import LEAST_INTERVAL
from headway.report.own_time import OwnTime
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
FEW_IN_A_BUCKET = 4  # updates in a bucket below which their rate says more about the buckets than about them
INSTANT = 1e-6  # seconds that the shortest update took: clocks tell no shorter ones apart
MOST_BUCKETS = 900  # as many as a wide screen shows
FEWEST_BUCKETS = 60
MOST_VALUES = 1_300_000  # of all nodes' series in a report: some three megabytes when they are packed


def num_buckets(num_nodes: int) -> int:
    """How fine time lines are in a report over so many nodes of all runs together: it stays below 10 MB."""
    return int(np.clip(MOST_VALUES / (2 * 7 * max(num_nodes, 1)), FEWEST_BUCKETS, MOST_BUCKETS))


def timeline(connection: duckdb.DuckDBPyConnection, own: OwnTime, num: int) -> dict[str, Any] | None:
    """Series on axes of seconds of the run's own time; None where nothing was recorded.

    `connection`: has the run's tables as views (digest.py). `axes`: lists of moments; each series names its axis by
    number, its `of` (a node or task), its `what`, and has `unit` and `values` in it. `breaks`: where launches join.
    """
    samples = _columns(connection, own, "node_samples", _wanted_columns())
    steps = _columns(connection, own, "steps", ("task", "t", "num_steps", "seconds"))
    made = _columns(connection, own, "made", ("since", "t", "updates", "examples::double as examples"))
    times = np.concatenate([samples["t"], steps["t"]])
    if not len(times):
        return None
    start, end = float(times.min()), float(times.max())
    buckets = Buckets.over(start, end, num)
    axes: list[list[float]] = [buckets.pairs()]
    breaks = own.breaks
    joins = np.array([one["t"] for one in breaks])
    series = [
        *_of_nodes(samples, joins, buckets, axes),
        *_of_all_tasks(made, buckets, axes),
        *_of_tasks(steps, joins, buckets, axes),
    ]
    return {"start": round(start, 3), "end": round(end, 3), "breaks": breaks, "axes": axes, "series": series}


def _wanted_columns() -> tuple[str, ...]:
    return ("node", "t", "sampler", *dict.fromkeys(column for columns, _ in NODE_SERIES.values() for column in columns))


def _columns(
    connection: duckdb.DuckDBPyConnection, own: OwnTime, table: str, columns: tuple[str, ...]
) -> dict[str, Array]:
    """Moments are those of the run's own time."""
    found = connection.execute(f"select {', '.join(columns)} from {table}").fetchnumpy()
    filled = {name: _filled(values) for name, values in found.items()}
    return {name: own.at(values) if name in ("t", "since") else values for name, values in filled.items()}


def _filled(values: Array) -> Array:
    """What is missing is NaN; names stay as they are."""
    if values.dtype.kind in "OU":
        return np.asarray(values)
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    return values.astype(np.float64)


def _of_nodes(samples: dict[str, Array], joins: Array, buckets: Buckets, axes: list[list[float]]) -> list[Any]:
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
            axes.append([round(one, 3) for one in _cut(t, t, joins, joins).tolist()])
        axis = 0 if thinned else len(axes) - 1
        places = buckets.of(t)
        for what, (columns, is_rate) in NODE_SERIES.items():
            values = np.sum([samples[column][here] for column in columns], axis=0)
            if is_rate:
                values = np.diff(values, prepend=np.nan) / seconds
            if what in ONLY_IF_USED and not np.nanmax(np.abs(values), initial=0.0) > 0:
                continue
            short = packed(extremes(places, values, buckets.num) if thinned else _cut(values, t, joins))
            if short is not None:
                found.append({"of": node, "what": what, "axis": axis, **short})
    return found


def _of_all_tasks(made: dict[str, Array], buckets: Buckets, axes: list[list[float]]) -> list[Any]:
    """Examples per second of all tasks together, or updates where examples are not known: what the run's figures count
    (record/summary.py), so neither a gradient that was dropped nor a step that several tasks have told of."""
    updates, examples = made["updates"], made["updates"] * made["examples"]
    known = np.isfinite(examples) & (examples > 0)
    what, counted = ("examples_per_s", np.where(known, examples, 0.0)) if known.any() else ("steps_per_s", updates)
    here = counted > 0
    if not here.any():
        return []
    t = made["t"][here]
    since = np.fmin(made["since"][here], t)  # what is not known to have taken time took none
    num = int(np.clip(len(t) / FEW_IN_A_BUCKET, 1, buckets.num))
    coarse = Buckets.over(float(since.min()), float(t.max()), num)
    pace = packed(_pace(since, t, counted[here], coarse))
    axes.append([round(coarse.start + (place + 0.5) * coarse.width, 4) for place in range(coarse.num)])
    return [{"of": "all tasks", "what": what, "axis": len(axes) - 1, **pace}] if pace else []


def _of_tasks(steps: dict[str, Array], joins: Array, buckets: Buckets, axes: list[list[float]]) -> list[Any]:
    """Of each task how long its steps took."""
    found = []
    t, each = steps["t"], steps["seconds"] / steps["num_steps"]
    for task in sorted(set(steps["task"].tolist())):
        here = steps["task"] == task
        if here.sum() > 2 * buckets.num:
            short, axis = packed(extremes(buckets.of(t[here]), each[here], buckets.num)), 0
        else:
            axes.append([round(one, 3) for one in _cut(t[here], t[here], joins, joins).tolist()])
            short, axis = packed(_cut(each[here], t[here], joins)), len(axes) - 1
        if short is not None:
            found.append({"of": task, "what": "step_seconds", "axis": axis, **short})
    return found


def _cut(values: Array, t: Array, joins: Array, at_joins: Array | float = np.nan) -> Array:
    """With nothing, or what is given, where launches join: no line leads from one to the next."""
    return np.insert(values, np.searchsorted(t, joins), at_joins)


def _pace(since: Array, t: Array, counted: Array, buckets: Buckets) -> Array:
    """What was done per second in each bucket. An update counts evenly over the time it took: else the picture would
    show how updates fall into buckets."""
    edges = buckets.start + buckets.width * np.arange(buckets.num + 1)
    took = np.maximum(t - since, INSTANT)
    moments = np.concatenate([t - took, t])
    order = np.argsort(moments, kind="stable")
    rate = np.cumsum(np.concatenate([counted / took, -counted / took])[order])[:-1]
    done = np.concatenate([[0.0], np.cumsum(rate * np.diff(moments[order]))])
    pace = np.diff(np.interp(edges, moments[order], done)) / buckets.width
    return np.where(pace > 1e-6 * pace.max(), pace, 0.0)  # what is left over by rounding is nothing
