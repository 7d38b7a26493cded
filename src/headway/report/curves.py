"""How well a run learnt, and how its step times are spread: losses raw and smoothed, accuracy, histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headway.report.own_time import OwnTime
from headway.report.thin import Array, Buckets, extremes, histogram, plain, smooth

if TYPE_CHECKING:
    import duckdb

NUM_BINS = 40
ALMOST_ALL = 99.5  # per cent of the step times; the rest is in the last bin, or one pause would flatten all others


def curves(connection: duckdb.DuckDBPyConnection, own: OwnTime, num: int) -> dict[str, Any]:
    """Training loss (raw with peaks kept, and smoothed) and evaluations, each by global step and by seconds of the
    run's own time. `is_resumed`: whether that leaves something out."""
    rows = connection.execute("select step, t, loss from steps where loss is not null order by t").fetchnumpy()
    found: dict[str, Any] = {"train": None, "test": None, "is_resumed": bool(own.breaks)}
    if len(rows["t"]):
        step, t, loss = (np.asarray(rows[name], dtype=np.float64) for name in ("step", "t", "loss"))
        line, places = smooth(loss), np.arange(len(loss))
        finite = np.where(np.isfinite(loss), loss, np.nan)
        if len(loss) > 2 * num:
            buckets = Buckets.over(0, len(loss), num)
            here = np.clip(np.array(buckets.pairs()).astype(int), 0, len(loss) - 1)
            raw = extremes(buckets.of(places), finite, num)
        else:
            here, raw = places, finite
        found["train"] = {
            "step": [int(one) for one in step[here]],
            "seconds": [round(one, 3) for one in own.at(t[here]).tolist()],
            "raw": plain(raw, 4),
            "smooth": plain(line[here], 4),
            "not_finite": _not_finite(step, loss),
        }
    tests = connection.execute("select step, t, loss, accuracy from evaluations order by t").fetchall()
    if tests:
        step, t, loss, accuracy = np.array(tests, dtype=np.float64).T
        found["test"] = {
            "step": plain(step, 9),
            "seconds": plain(own.at(t), 6),
            "loss": plain(loss, 5),
            "accuracy": plain(accuracy, 5),
        }
    return found


def _not_finite(step: Array, loss: Array) -> dict[str, int] | None:
    """How many of all losses are not finite, and the first of them; None where all are."""
    wrong = ~np.isfinite(loss)
    return {"values": int(wrong.sum()), "of": len(loss), "first_step": int(step[wrong][0])} if wrong.any() else None


def step_times(connection: duckdb.DuckDBPyConnection) -> dict[str, Any] | None:
    """Seconds of a step, without warm-up: how many of each task in each bin."""
    rows = connection.execute("select task, seconds / num_steps as seconds from steps where not warmup").fetchnumpy()
    seconds = np.asarray(rows["seconds"], dtype=np.float64)
    if len(seconds) < 2:
        return None
    low, high = float(seconds.min()), float(np.percentile(seconds, ALMOST_ALL))
    edges = np.linspace(low, max(high, low * 1.001 + 1e-9), NUM_BINS + 1)
    tasks = sorted(set(rows["task"].tolist()))
    counts = {task: histogram(seconds[rows["task"] == task], edges) for task in tasks}
    return {
        "edges": plain(edges, 5),
        "tasks": counts,
        "beyond": int((seconds > edges[-1]).sum()),
        "most": seconds.max().item(),
    }
