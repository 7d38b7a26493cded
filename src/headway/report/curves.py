"""How well a run learnt, and how its step times are spread: losses raw and smoothed, accuracy, histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headway.report.thin import Buckets, extremes, histogram, plain, smooth

if TYPE_CHECKING:
    import duckdb

NUM_BINS = 40
ALMOST_ALL = 99.5  # per cent of the step times; the rest is in the last bin, or one pause would flatten all others


def curves(connection: duckdb.DuckDBPyConnection, origin: float, num: int) -> dict[str, Any]:
    """Training loss (raw with peaks kept, and smoothed) and evaluations, each by global step and by seconds."""
    rows = connection.execute("select step, t, loss from steps where loss is not null order by t").fetchnumpy()
    found: dict[str, Any] = {"train": None, "test": None}
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
            "seconds": [round(one, 3) for one in (t[here] - origin).tolist()],
            "raw": plain(raw, 4),
            "smooth": plain(line[here], 4),
            "not_finite": int((~np.isfinite(loss)).sum()),
        }
    tests = connection.execute(f"select step, t - {origin!r}, loss, accuracy from evaluations order by t").fetchall()
    if tests:
        found["test"] = {
            name: plain(np.array([row[place] for row in tests], dtype=np.float64), digits)
            for place, (name, digits) in enumerate((("step", 9), ("seconds", 6), ("loss", 5), ("accuracy", 5)))
        }
    return found


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
