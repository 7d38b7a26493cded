"""The one place where "500ms", "2GiB" or "1Gbit" become SI numbers, and numbers become text again.

Inside Headway a duration is seconds, a size bytes, a rate bytes per second: always plain floats or ints.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "kB": 1e3,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_BYTES_PER_SECOND = {
    **{f"{unit}/s": float(size) for unit, size in _BYTES.items()},
    "bit": 1 / 8,
    "kbit": 1e3 / 8,
    "Mbit": 1e6 / 8,
    "Gbit": 1e9 / 8,
}
ROUNDED_UP = 999.5  # with three digits this is 1,000 of the unit before
A_MINUTE_ROUNDED = 59.95  # with one digit behind the point this is 60.0 seconds
LARGEST = 1e30  # of any unit: far beyond what there is, and far from where floats end
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*([A-Za-z/]*)\s*")


def _parse(value: object, units: dict[str, float], bare_unit: str, what: str, examples: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"not a {what}; write for example {examples}")
    if isinstance(value, (int, float)):
        if not abs(value) <= LARGEST:  # also what is not a number at all
            raise ValueError(f"not a {what} that can be meant; write for example {examples}")
        return float(value) * units[bare_unit]
    match = _NUMBER_AND_UNIT.fullmatch(value)
    if not match:
        raise ValueError(f"not a {what}; write for example {examples}")
    number, unit = match.groups()
    if unit and unit not in units:
        raise ValueError(f"unknown unit {unit!r} for a {what}; known: {', '.join(units)}")
    if float(number) > LARGEST:
        raise ValueError(f"not a {what} that can be meant; write for example {examples}")
    return float(number) * units[unit or bare_unit]


def seconds(value: object) -> float:
    """``"500ms"`` -> 0.5. A bare number is seconds."""
    return _parse(value, _SECONDS, "s", "duration", "500ms, 10s, 2min or 1h")


def num_bytes(value: object) -> int:
    """``"2GiB"`` -> 2147483648. A bare number is bytes."""
    return round(_parse(value, dict(_BYTES), "B", "size", "64MB or 2GiB"))


def bytes_per_second(value: object) -> float:
    """``"1Gbit"`` -> 125e6. A bare number is bytes per second."""
    return _parse(value, _BYTES_PER_SECOND, "B/s", "rate", "100Mbit, 1Gbit or 50MB/s")


Seconds = Annotated[float, BeforeValidator(seconds)]
Bytes = Annotated[int, BeforeValidator(num_bytes)]
BytesPerSecond = Annotated[float, BeforeValidator(bytes_per_second)]


def format_seconds(value: float | None) -> str:
    """0.0123 -> "12.3 ms"; 75 -> "1 min 15 s"; None -> "-"."""
    if value is None:
        return "-"
    if value * 1e6 < ROUNDED_UP:
        return f"{value * 1e6:.0f} µs"
    if value * 1e3 < ROUNDED_UP:
        return f"{value * 1e3:.3g} ms"
    if value < A_MINUTE_ROUNDED:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_rate(value: float | None) -> str:
    """125e6 -> "1 Gbit/s"; None -> "-"."""
    if value is None:
        return "-"
    bits = value * 8
    for unit in ("bit", "kbit", "Mbit"):
        if abs(bits) < ROUNDED_UP:
            return f"{bits:.3g} {unit}/s"
        bits /= 1000
    return f"{bits:.3g} Gbit/s"


def format_bytes(value: float | None) -> str:
    """13098536 -> "13.1 MB"; None -> "-"."""
    return _format_large(value, "B")


def format_flops(value: float | None) -> str:
    """8178000000 -> "8.18 GFLOP"; None -> "-"."""
    return _format_large(value, "FLOP")


def _format_large(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    for prefix in ("", "k", "M", "G"):
        if abs(value) < ROUNDED_UP:
            return f"{value:.3g} {prefix}{unit}" if prefix else f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.3g} T{unit}"


def significant(value: float, digits: int = 3) -> str:
    """So many significant digits, and no exponent however large it is: 1234.5 -> "1,234"; 999.7 -> "1,000"."""
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if abs(float(text)) >= 10**digits else text
