"""Counted nouns: `1 run`, `2 runs`. Every text that puts a count before a noun uses it; a test looks for others."""

from __future__ import annotations


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """1, "run" -> "1 run"; 1200, "training task" -> "1,200 training tasks"; 0, "run" -> "0 runs"."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:,g}"
    return f"{shown} {noun if number == 1 else plural or plural_of(noun)}"


def plural_of(noun: str) -> str:
    if noun.endswith(("s", "x", "sh", "tch", "nch")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"
