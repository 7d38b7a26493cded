"""Settings in a few words, for names, tables and sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Of settings: their last part, or as many as tell them apart: `ps cpus` and `chief cpus`."""
    parts = {path: path.split(".") for path in paths}

    def is_unique(path: str, depth: int) -> bool:
        return all(other == path or each[-depth:] != parts[path][-depth:] for other, each in parts.items())

    depths = {path: next((n for n in range(1, len(parts[path])) if is_unique(path, n)), None) for path in parts}
    return {path: " ".join(parts[path][-depth:] if depth else parts[path]) for path, depth in depths.items()}


def value_in_words(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    said = next((key for key in ("name", "kind", "count") if key in value), None)
    rest = ", ".join(f"{key} {value_in_words(inner)}" for key, inner in value.items() if key != said)
    return " ".join([*([] if said is None else [str(value[said])]), *([f"({rest})"] if rest else [])])
