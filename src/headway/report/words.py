"""How numbers of a page are written, the same in every form of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from headway.findings.words import amount
from headway.units import format_bytes, format_rate, format_seconds, significant

MISSING = "-"


def number(value: float, digits: int = 3) -> str:
    """So many significant digits, two of what is next to nothing: 1234.5 -> 1,234; 0.0000123 -> 1.2e-05."""
    if not math.isfinite(value):
        return str(value)
    return significant(value, digits) if abs(value) >= 1e-4 or not value else f"{value:.2g}"


def say(value: Any, unit: str = "") -> str:
    """A value in its unit. `unit`: s, B, B/s, share, accuracy, dollars, times, count, text; else it is left away."""
    if value is None or (isinstance(value, str) and not value):
        return MISSING
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if unit == "text":
        return str(value)
    ways: dict[str, Callable[[float], str]] = {
        "s": format_seconds,
        "B": format_bytes,
        "B/s": format_rate,
        "share": lambda one: f"{one:.1%}" if abs(one) < 0.1 else f"{one:.0%}",
        "accuracy": lambda one: f"{one:.4f}",
        "dollars": lambda one: f"${one:,.2f}" if abs(one) >= 0.1 else f"${one:,.4f}",
        "times": lambda one: f"{one:.2f}\u00d7",
        "count": lambda one: f"{one:,.0f}",
        "disk": lambda one: f"{format_bytes(one)}/s",
    }
    return ways.get(unit, number)(value)


def interval(low: float, high: float, unit: str) -> str:
    """Without the unit's name where the value beside it has that."""
    if unit in ("s", "B", "B/s"):
        return f"{say(low, unit)} to {say(high, unit)}"
    return f"{say(low, unit)}–{say(high, unit)}"  # noqa: RUF001 (an interval has an en dash)


def spread(value: dict[str, Any], unit: str) -> list[str]:
    """Of a mean over samples: what 95 % of them stayed below, the most, and by how much they vary."""
    varies = value.get("variability")
    more = [] if varies is None else [f"varies by {say(varies, 'share')}"]
    return [f"p95 {say(value['p95'], unit)}", f"most {say(value['max'], unit)}", *more]


def cell(value: Any, unit: str = "") -> str:
    """A cell of a table: a plain value, or an estimate (`value`, `low`, `high`, `num`), or a mean over
    samples (`value`, `p95`, `max`, `variability`)."""
    if not isinstance(value, dict):
        return say(value, unit)
    text = say(value["value"], unit)
    if "p95" in value:
        return f"{text} ({', '.join(spread(value, unit))})"
    if value.get("num", 1) < 2 or value["low"] == value["high"]:
        return text
    return f"{text} ({interval(value['low'], value['high'], unit)})"


def commit_in_words(commit: Mapping[str, Any], length: int | None = None) -> str | None:
    """The hash, or the first letters of it, and whether the folder was as the commit has it."""
    if not commit.get("hash"):
        return None
    return str(commit["hash"])[:length] + (" with changes" if commit.get("has_changes") else "")


def in_unit(value: float | None, unit: str) -> str:
    """Of evidence: as `headway findings` says it."""
    return MISSING if value is None else amount(value, unit)
