"""Long series made short without losing a peak: of every bucket of time its lowest and its highest value stay.

Everything here is NumPy over whole columns; a value that is missing is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DIGITS = 4  # that count of a thinned value, however much larger another one of its series is


@dataclass(frozen=True)
class Buckets:
    """A stretch of time in equal parts."""

    start: float
    width: float
    num: int

    @staticmethod
    def over(start: float, end: float, num: int) -> Buckets:
        return Buckets(start, max(end - start, 1e-9) / num, num)

    def of(self, t: Array) -> Array:
        """The bucket of each moment."""
        return np.clip(((t - self.start) / self.width).astype(np.int64), 0, self.num - 1)

    def pairs(self) -> list[float]:
        """Where a bucket's two values are drawn."""
        return [
            round(self.start + (place + part) * self.width, 4) for place in range(self.num) for part in (0.25, 0.75)
        ]


def extremes(buckets: Array, values: Array, num: int) -> Array:
    """Two values a bucket, its lowest and its highest, in the order in which the series goes: it falls or it rises.

    `buckets`: of each value, ascending. An empty bucket gives NaN.
    """
    result = np.full((num, 2), np.nan)
    known = ~np.isnan(values)
    buckets, values = buckets[known], values[known]
    if len(values):
        starts = np.flatnonzero(np.diff(buckets, prepend=buckets[0] - 1))
        ends = np.append(starts[1:], len(values)) - 1
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        rises = values[ends] >= values[starts]
        places = buckets[starts]
        result[places, 0] = np.where(rises, low, high)
        result[places, 1] = np.where(rises, high, low)
    return result.reshape(-1)


def packed(values: Array) -> dict[str, Any] | None:
    """Numbers with `DIGITS` digits that count, and their unit, by which most of them are whole: short as text. None
    where nothing is known."""
    finite = np.isfinite(values)
    if not finite.any():
        return None
    sizes = np.abs(values[finite & (values != 0)])
    if not len(sizes):
        return {"unit": 0.0, "values": [0 if known else None for known in finite.tolist()]}
    # Of a power of ten that makes a small value whole, and not the smallest: zeros cost room, too.
    small = max(float(np.percentile(sizes, 5)), 1e-200)
    unit = float(f"1e{math.floor(math.log10(small)) - DIGITS + 1}")
    scaled = np.where(finite, values, 0.0) / unit
    nonzero = np.where(scaled == 0, 1.0, np.abs(scaled))
    power = 10.0 ** (DIGITS - 1 - np.floor(np.log10(nonzero)))
    rounded = np.rint(scaled * power) / power
    rounded = np.where(np.abs(rounded) >= 10 ** (DIGITS - 1), np.rint(rounded), rounded)
    short = [int(one) if one.is_integer() else one for one in rounded.tolist()]
    return {"unit": unit, "values": [one if known else None for one, known in zip(short, finite.tolist(), strict=True)]}


def unpacked(series: dict[str, Any]) -> list[float | None]:
    return [None if one is None else one * series["unit"] for one in series["values"]]


def smooth(values: Array, share: float = 0.05) -> Array:
    """A running mean over `share` of all values, at least 5; what is not finite counts for nobody."""
    width = max(5, math.ceil(len(values) * share))
    known = np.isfinite(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    count = np.concatenate([[0], np.cumsum(known)])
    middle = np.arange(len(values))
    first, last = np.maximum(middle - width // 2, 0), np.minimum(middle + width // 2 + 1, len(values))
    number = count[last] - count[first]
    return np.where(number > 0, (total[last] - total[first]) / np.maximum(number, 1), np.nan)


def histogram(values: Array, edges: Array) -> list[int]:
    """How many in each bin; what lies beyond the last edge is counted in the last bin."""
    inside = np.clip(values, edges[0], edges[-1])
    return np.histogram(inside, edges)[0].tolist()  # type: ignore[no-any-return]


def plain(values: Array, digits: int = 6) -> list[float | None]:
    """Numbers as JSON has them."""
    return [float(f"{one:.{digits}g}") if math.isfinite(one) else None for one in values.tolist()]
