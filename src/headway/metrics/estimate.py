"""One number for several repeats, and how far it may be off. Raw samples stay with the caller.

Three ways, for three habits: the median with a bootstrap interval (the default here), the mean with its standard error
(tf_cnn_benchmarks), and the mean without the best and the worst (MLPerf).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

How = Literal["median", "mean", "mlperf"]
HOW: tuple[How, ...] = ("median", "mean", "mlperf")

NUM_RESAMPLES = 4_000
MOST_AT_ONCE = 4_000_000  # resampled numbers in memory at one time
FEWEST = 3  # repeats from which on an interval says anything
# A normal distribution's standard deviation is 1.4826 times its median absolute deviation.
TO_DEVIATION = 1.4826

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    """The interval's lower end. Of a single sample it is the sample itself, and `half_width` is infinite."""
    high: float
    num: int
    """How many samples it is made of (of a ratio: the fewer of the two)."""
    how: str
    """`median`, `mean` or `mlperf`; of a quotient of two medians `ratio`."""
    error: float | None = None
    """The standard error, where there is one: tf_cnn_benchmarks prints `value +/- error`."""

    @property
    def half_width(self) -> float:
        """How far the interval reaches from the value, on the side where that is farther, as a share of the value.
        Infinite where nothing is known of it."""
        if self.num < (4 if self.how == "mlperf" else 2) or self.value == 0:  # MLPerf's leaves two of them out
            return math.inf
        return max(self.high - self.value, self.value - self.low) / abs(self.value)

    @property
    def confidence_limit(self) -> float:
        """The most that an interval of a median can be sure of, whatever it was asked for: the true median lies outside
        of all samples with a probability of 2 ** (1 - num). Five repeats: 0.94; three: 0.75."""
        return 1.0 - 2.0 ** (1 - self.num) if self.how == "median" else 1.0

    def is_narrow(self, limit: float) -> bool:
        """Whether the interval is within `limit` (0.05: five per cent) of the value, to each side."""
        return self.half_width <= limit

    def overlaps(self, other: Estimate) -> bool:
        return self.low <= other.high and other.low <= self.high

    def scaled(self, factor: float) -> Estimate:
        """The same in another unit."""
        low, high = sorted((self.low * factor, self.high * factor))
        error = None if self.error is None else self.error * abs(factor)
        return Estimate(self.value * factor, low, high, self.num, self.how, error)


def estimate(samples: Sequence[float], how: str = "median", confidence: float = 0.95, seed: int = 0) -> Estimate:
    """`samples`: one for each repeat, at least one, all finite.

    median: percentiles of the medians of samples drawn with replacement (the seed is fixed: the same samples give the
    same interval). mean: Student's t times the standard error. mlperf: the mean without the best and the worst, with
    the standard error of a trimmed mean (Tukey and McLaughlin); of fewer than three samples, the mean of all.
    """
    values = checked(samples)
    if how == "median":
        low, high = bootstrap([values], lambda drawn: medians(drawn[0]), confidence, seed)
        return Estimate(float(np.median(values)), low, high, len(values), how)
    if how == "mean":
        return _around(float(values.mean()), _standard_error(values), len(values) - 1, len(values), how, confidence)
    if how == "mlperf":
        return _mlperf(values, confidence)
    raise ValueError(f"how: {how!r}; allowed: {', '.join(HOW)}")


def _mlperf(values: Floats, confidence: float) -> Estimate:
    num = len(values)
    if num < 3:
        return _around(float(values.mean()), _standard_error(values), num - 1, num, "mlperf", confidence)
    kept = np.sort(values)[1:-1]
    pulled_in = np.concatenate(
        ([kept[0]], kept, [kept[-1]])
    )  # the two that are left out stand where their neighbours do
    error = float(pulled_in.std(ddof=1)) * math.sqrt(num) / len(kept)
    return _around(float(kept.mean()), error, len(kept) - 1, num, "mlperf", confidence)


def _around(value: float, error: float, freedom: int, num: int, how: str, confidence: float) -> Estimate:
    if freedom < 1:
        return Estimate(value, value, value, num, how)
    half = student(confidence, freedom) * error
    return Estimate(value, value - half, value + half, num, how, error)


def bootstrap(
    groups: Sequence[Floats], statistic: Callable[[list[Floats]], Floats], confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """The interval of a statistic of one or several groups of samples, each drawn anew from itself. `statistic` gets an
    array of (resamples, samples) for each group and gives one number for each resample."""
    random = np.random.default_rng(seed)
    at_once = max(1, MOST_AT_ONCE // sum(map(len, groups)))
    found = []
    for begin in range(0, NUM_RESAMPLES, at_once):
        num = min(at_once, NUM_RESAMPLES - begin)
        found.append(statistic([group[random.integers(0, len(group), (num, len(group)))] for group in groups]))
    low, high = np.quantile(np.concatenate(found), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def medians(drawn: Floats) -> Floats:
    """Of each row; several times as fast as np.median, which looks for NaN and copies."""
    length = drawn.shape[1]
    upper = length // 2
    if length % 2:
        return np.partition(drawn, upper, axis=1)[:, upper]
    ordered = np.partition(drawn, (upper - 1, upper), axis=1)
    return (ordered[:, upper - 1] + ordered[:, upper]) / 2


def mad(samples: Sequence[float]) -> float:
    """Median absolute deviation from the median."""
    values = checked(samples)
    return float(np.median(np.abs(values - np.median(values))))


def jitter(samples: Sequence[float]) -> float:
    """As tf_cnn_benchmarks prints it: 1.4826 times the median absolute deviation of the rates."""
    return TO_DEVIATION * mad(samples)


def missing(samples: Sequence[float], limit: float, how: str = "median", confidence: float = 0.95) -> int:
    """How many more repeats are probably needed until the interval is narrow; 0 when it is. An interval shrinks with
    the square root of the number of samples: four times as many, half as wide."""
    if len(samples) < FEWEST:
        return FEWEST - len(samples)
    now = estimate(samples, how, confidence)
    if now.is_narrow(limit):
        return 0
    if not math.isfinite(now.half_width):
        return 1
    return max(1, math.ceil(len(samples) * (now.half_width / limit) ** 2) - len(samples))


def student(confidence: float, freedom: int) -> float:
    """The two-sided quantile of Student's t distribution: 2.776 for 0.95 and 4 degrees of freedom."""
    from scipy.special import stdtrit  # a quarter of what scipy.stats takes to import

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _standard_error(values: Floats) -> float:
    """Of the mean; 0 of a single sample (its interval is not known, which `num` says)."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def checked(samples: Sequence[float]) -> Floats:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError("an estimate needs at least one sample")
    if not np.isfinite(values).all():
        raise ValueError("an estimate needs finite samples")
    return values
