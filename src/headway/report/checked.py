"""Whether what a run folder says has the shape that a page expects. A run folder is untrusted input: also one that is
sealed, whose figures are read as they lie there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from headway.errors import FormatError
from headway.record.query import RUN_COLUMNS

TEXT, NUMBER, ANYTHING = "text", "number", "anything"
LARGEST = 2**63  # also Parquet's
_NUMBERS = {...: NUMBER}
_SETTINGS = {...: ANYTHING}
# Every figure that a page shows. `...` stands for all other keys; what is not known (None) fits everywhere.
FIGURES: dict[Any, Any] = {
    **{name: TEXT if kind == "VARCHAR" else NUMBER for name, kind in RUN_COLUMNS.items()},
    "reason": TEXT,
    "layout": ANYTHING,  # a text, or a rule
    "warnings": [TEXT],
    "tasks": [{"task": TEXT, "distribution": _NUMBERS, ...: NUMBER}],
    "nodes": [{"node": TEXT, "tasks": [TEXT], "asked": _SETTINGS, "limits": _SETTINGS, "full": _NUMBERS, ...: NUMBER}],
    "servers": [{"task": TEXT, "largest": [{"name": TEXT, "part": ANYTHING, "bytes": NUMBER}], ...: NUMBER}],
    "staleness": {"histogram": _NUMBERS, ...: NUMBER},
    "step_seconds": _NUMBERS,
    "straggling": {"ratio": NUMBER, ...: ANYTHING},
    "time_to_accuracy": {...: _NUMBERS},
    "node_use": {...: {...: _NUMBERS}},
    ...: ANYTHING,
}
HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")  # JSON may have one, and so may a file's name; UTF-8 cannot
NEEDED = ("name", "state", "strategy", "num_training_tasks", "num_ps")


def checked(figures: dict[str, Any], name: str) -> dict[str, Any]:
    """The same figures, of the run of this name; FormatError says what is wrong with them."""
    fits(figures, FIGURES, "result.json")
    for needed in NEEDED:
        if figures.get(needed) is None:
            raise FormatError(f"result.json: {needed} is not there")
    for target in figures.get("time_to_accuracy") or ():
        if not _is_accuracy(target):
            raise FormatError(f"result.json: time_to_accuracy: {target[:60]!r} is no accuracy")
    return {**figures, "run": name}


def _is_accuracy(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def fits(value: Any, shape: Any, where: str) -> None:
    if value is None or shape == ANYTHING:
        return
    if shape == NUMBER:
        is_right = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST
    elif shape == TEXT:
        is_right = isinstance(value, str)
    else:
        is_right = isinstance(value, type(shape))
    if not is_right:
        wanted = shape if isinstance(shape, str) else "table" if isinstance(shape, dict) else "list"
        raise FormatError(f"{where}: {str(value)[:60]!r} is no {wanted}")
    if isinstance(shape, list):
        for number, one in enumerate(value):
            fits(one, shape[0], f"{where}: {number}")
            if one is None:
                raise FormatError(f"{where}: {number} is not there")
    elif isinstance(shape, dict):
        for key, inner in value.items():
            fits(inner, shape.get(key, shape.get(..., ANYTHING)), f"{where}: {str(key)[:60]}")


def text_of(text: str) -> str:
    """The text as it can be written to a file."""
    return text if text.isascii() else HALF_A_CHARACTER.sub("\ufffd", text)


def environment_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Machine and versions, as texts and numbers; what is neither is not known."""
    packages = found.get("packages")
    return {
        **{key: found[key] for key in ("host", "system", "cpu", "cores", "memory", "python") if _is_plain(found, key)},
        "packages": {str(key): str(value) for key, value in packages.items()} if isinstance(packages, dict) else {},
    }


def _is_plain(found: Mapping[str, Any], key: str) -> bool:
    return isinstance(found.get(key), (str, int, float))


def commit_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """`hash` and `has_changes`; nothing where no commit is known."""
    commit = found.get("commit")
    if not isinstance(commit, dict) or not isinstance(commit.get("hash"), str):
        return {}
    return {"hash": commit["hash"], "has_changes": bool(commit.get("has_changes"))}
