"""A run's own time: seconds since its first launch. What lies between two launches is nobody's and is left out, as in
`training_seconds`: a run that went on the next day is not a day long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.errors import FormatError
from headway.report.thin import Array

if TYPE_CHECKING:
    import duckdb

EVERYTHING = " union all ".join(f"select t from {table}" for table in ("steps", "events", "node_samples"))


@dataclass(frozen=True)
class OwnTime:
    starts: tuple[float, ...]
    """When each launch began, by the clock."""
    ends: tuple[float, ...] = ()
    """When each but the last one ended."""

    def at(self, t: Array) -> Array:
        """Moments of the clock as seconds of the run. What lies between launches is where they join."""
        starts, ends = np.array(self.starts), np.array([*self.ends, np.inf])
        before = np.concatenate([[0.0], np.cumsum(ends[:-1] - starts[:-1])])
        launch = np.maximum(np.searchsorted(starts, t, side="right") - 1, 0)
        return np.asarray(before[launch] + np.minimum(t, ends[launch]) - starts[launch])

    def moment(self, t: float) -> float:
        return round(float(self.at(np.array([t]))[0]), 3)

    @property
    def breaks(self) -> list[dict[str, float]]:
        """Where launches join: `t`, seconds of the run, and `seconds`, how long nothing ran."""
        joins = zip(self.starts[1:], self.ends, strict=True)
        return [{"t": self.moment(start), "seconds": round(start - end, 3)} for start, end in joins]


def own_time(connection: duckdb.DuckDBPyConnection, launches: Sequence[Mapping[str, Any]], created: float) -> OwnTime:
    """`connection`: has the run's tables as views. A launch that was killed ends with the last that was recorded."""
    starts = sorted(float(launch["started"]) for launch in launches) or [float(created)]
    if not all(map(math.isfinite, starts)):
        raise FormatError("run.json: it is not known when it started")
    said = sorted(float(launch["ended"]) for launch in launches if isinstance(launch.get("ended"), (int, float)))
    ends = []
    for start, following in pairwise(starts):
        known = [end for end in said if start <= end <= following]
        if not known:
            asked = f"select max(t) from ({EVERYTHING}) where t between {start!r} and {following!r}"
            (last,) = connection.execute(asked).fetchall()[0]
            known = [start if last is None else float(last)]
        ends.append(known[-1])
    return OwnTime(tuple(starts), tuple(ends))
