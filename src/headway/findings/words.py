"""Numbers as they stand in a finding's sentence."""

from __future__ import annotations

from headway.units import format_bytes, format_rate, format_seconds


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
    return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.6f}"


def listed(names: list[str] | tuple[str, ...]) -> str:
    """a, b and c"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nobody"


def amount(value: float, unit: str) -> str:
    """A piece of evidence, for people: 0.97 share -> 97 %; 12.5e6 B/s -> 100 Mbit/s"""
    if unit == "share":
        return percent(value)
    if unit == "CPUs":
        return cpus(value)
    if unit == "times":
        return times(value)
    say = {"s": format_seconds, "B": format_bytes, "B/s": format_rate}.get(unit)
    return say(value) if say else f"{quantity(value)}{unit.removeprefix('1') if unit == '1/s' else f' {unit}'}"
