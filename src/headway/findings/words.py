"""Numbers as they stand in a finding's sentence."""

from __future__ import annotations


def percent(share: float) -> str:
    """0.974 -> 97 %"""
    return f"{100 * share:.0f} %" if share >= 0.0095 or share <= 0 else f"{100 * share:.1f} %"


def cpus(value: float) -> str:
    """0.25 -> 0.25 CPUs; 1 -> 1 CPU"""
    text = f"{value:.2f}".rstrip("0").rstrip(".") if value < 10 else f"{value:.0f}"
    return f"{text} CPU" if text == "1" else f"{text} CPUs"


def times(value: float) -> str:
    """2.04 -> 2.0 times"""
    return f"{value:.1f} times" if value < 10 else f"{value:.0f} times"


def quantity(value: float) -> str:
    """A number with three significant digits, never with an exponent: 1234.5 -> 1,234; 0.01234 -> 0.0123"""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 2 if abs(value) >= 1 else 3
    text = f"{value:.{digits}g}" if abs(value) >= 1e-4 else f"{value:.6f}"
    return text


def listed(names: list[str] | tuple[str, ...]) -> str:
    """a, b and c"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nobody"
