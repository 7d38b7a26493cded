"""How much larger one thing is than another, with an interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.metrics.estimate import Estimate, bootstrap, checked, medians


def ratio(a: Sequence[float], b: Sequence[float], seed: int = 0, confidence: float = 0.95) -> Estimate:
    """median(a) / median(b), with a bootstrap interval: both are drawn anew, each from itself. 1.2: a is 20 % more."""
    over, under = checked(a), checked(b)
    if (under <= 0).any():
        raise ValueError("a ratio needs positive samples below the line")
    low, high = bootstrap([over, under], lambda drawn: medians(drawn[0]) / medians(drawn[1]), confidence, seed)
    value = float(np.median(over) / np.median(under))
    return Estimate(value, low, high, min(len(over), len(under)), "ratio")


def is_difference(effect: Estimate) -> bool:
    """Whether 1 (no effect) lies outside of the interval. Of a single sample nothing can be said."""
    return effect.num > 1 and not effect.low <= 1.0 <= effect.high


def in_words(effect: Estimate) -> str:
    """Such as `12 % more (8 % to 16 % more)` or `no clear difference (3 % less to 5 % more)`."""
    if effect.num < 2:
        return f"{_change(effect.value)}, with one sample on a side, which says nothing of chance"
    between = f"{_change(effect.low)} to {_change(effect.high)}"
    return f"{_change(effect.value)} ({between})" if is_difference(effect) else f"no clear difference ({between})"


def _change(value: float) -> str:
    if value >= 2:
        return f"{value:.3g} times as much"
    change = (value - 1) * 100
    return f"{abs(change):.1f} % {'more' if change >= 0 else 'less'}"
