"""What figures look like: `result.json` is read as it lies there, and a run folder is untrusted."""

from __future__ import annotations

import math
from typing import Any

from headway.errors import FormatError
from headway.record.reader import ANYTHING, NUMBER, TEXT, fits

# Figures that are one value, in the order of the table `runs`, with their types there.
RUN_COLUMNS = {
    "run": "VARCHAR",
    "name": "VARCHAR",
    "state": "VARCHAR",
    "strategy": "VARCHAR",
    "aggregate": "INTEGER",
    "replication": "VARCHAR",
    "placement": "VARCHAR",
    "pull_ahead": "INTEGER",
    "exchange": "VARCHAR",
    "transfer": "VARCHAR",
    "command": "VARCHAR",
    "model": "VARCHAR",
    "dataset": "VARCHAR",
    "batch_size": "INTEGER",
    "global_batch_size": "INTEGER",
    "site": "VARCHAR",
    "dilation": "DOUBLE",
    "num_training_tasks": "INTEGER",
    "num_ps": "INTEGER",
    "asked_steps": "BIGINT",
    "steps": "BIGINT",
    "steps_per_s": "DOUBLE",
    "task_steps_per_s": "DOUBLE",
    "examples_per_s": "DOUBLE",
    "window_seconds": "DOUBLE",
    "updates": "BIGINT",
    "asked_batch": "BIGINT",
    "effective_batch": "DOUBLE",
    "effective_batch_min": "BIGINT",
    "effective_batch_max": "BIGINT",
    "dropped": "BIGINT",
    "accuracy": "DOUBLE",
    "loss": "DOUBLE",
    "train_loss": "DOUBLE",
    "penalty": "DOUBLE",
    "seconds": "DOUBLE",
    "training_seconds": "DOUBLE",
    "time_to_train": "DOUBLE",
    "communication_share": "DOUBLE",
    "bytes_per_step": "DOUBLE",
    "variable_bytes": "BIGINT",
    "restarts": "INTEGER",
    "rollbacks": "INTEGER",
    "steps_lost": "BIGINT",
    "created": "DOUBLE",
    "path": "VARCHAR",
}
_NUMBERS = {...: NUMBER}
_SETTINGS = {...: ANYTHING}
# Every figure. `...` stands for all other keys; what is not known (None) fits everywhere.
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
NEEDED = ("name", "state", "strategy", "num_training_tasks", "num_ps", "steps")


def checked(figures: dict[str, Any], where: str) -> None:
    """FormatError says what is wrong with them."""
    fits(figures, FIGURES, where)
    for needed in NEEDED:
        if figures.get(needed) is None:
            raise FormatError(f"{where}: damaged: {needed} is not there")
    for target in figures.get("time_to_accuracy") or ():
        if not _is_accuracy(target):
            raise FormatError(f"{where}: time_to_accuracy: {target[:60]!r} is no accuracy")


def _is_accuracy(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
