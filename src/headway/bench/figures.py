"""Which figures of a run a sweep can look at: a wrong name is told before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from headway.errors import SpecError
from headway.metrics.lookup import DERIVED, NAMES, OF_SETTINGS, QUOTIENT, SERVER_NODE, STEPS_TO_ACCURACY, figure_of
from headway.metrics.scaling import TIMES, TO_ACCURACY, what_is
from headway.record.run import Run
from headway.spec.load import flat

# Names at the top of a run's summary (docs/formats.md): numbers; what has numbers in it, by dotted names; and what is
# no outcome of a run. A test holds the three against a summary.
NUMBERS = (
    "examples_per_s",
    "steps_per_s",
    "task_steps_per_s",
    "steps",
    "updates",
    "dropped",
    "accuracy",
    "loss",
    "train_loss",
    "penalty",
    "seconds",
    "training_seconds",
    "time_to_train",
    "window_seconds",
    "effective_batch",
    "effective_batch_min",
    "effective_batch_max",
    "rate_change",
    "communication_share",
    "bytes_per_step",
    "variable_bytes",
    "nobody_full",
    "fabric_full",
    "evaluated_step",
    "restarts",
    "rollbacks",
    "steps_lost",
    "bad_records",
)
PARTS = (
    "time_to_accuracy",
    "step_seconds",
    "staleness",
    "spread",
    "straggling",
    "role_use",
    "node_use",
    "nodes",
    "task_usage",
    "tasks",
    "servers",
    "reported",
)
DERIVED_PARTS = (STEPS_TO_ACCURACY, SERVER_NODE)
"""As PARTS, but made of them when they are asked for."""
NO_OUTCOME = (
    *("run", "name", "state", "reason", "path", "created", "warnings", "first_step"),
    *("strategy", "aggregate", "replication", "placement", "pull_ahead", "exchange", "transfer"),
    *("command", "model", "dataset", "batch_size", "global_batch_size", "asked_batch", "asked_steps"),
    *("num_training_tasks", "num_ps", "site", "layout", "dilation"),
)


RATES = ("examples_per_s", "steps_per_s", "task_steps_per_s")
LESS_IS_BETTER = ("loss", "train_loss", "seconds_per_epoch")


def check_searched(name: str) -> None:
    """SpecError where nobody can say which value of a figure is the best."""
    if is_less_better(name) is None:
        raise SpecError(
            f"best_of: whether more or less of {name} is better is not known; measure.figure may be a rate "
            f"({', '.join(RATES)}), a time ({', '.join(TIMES)}, {TO_ACCURACY}.0.9, step_seconds.median), accuracy or "
            "loss. A list instead of best_of tries every value"
        )


def is_less_better(name: str) -> bool | None:
    """None: neither is."""
    if name in RATES or name == "accuracy":
        return False
    return True if name in LESS_IS_BETTER or what_is(name) == "seconds" or name.startswith("step_seconds.") else None


def check_figure(name: str, origin: str) -> None:
    """SpecError where no run has such a figure. `origin`: where the name stands."""
    if QUOTIENT in name:
        for part in name.split(QUOTIENT, 1):
            check_figure(part, origin)
        return
    first, dot, _ = name.partition(".")
    known = [*NUMBERS, *DERIVED, *OF_SETTINGS]
    parts = (*PARTS, *DERIVED_PARTS)
    if name in known or (dot and first in parts):
        return
    if name in parts:
        raise SpecError(f"{origin}: {name} is several numbers; name one of them, such as {_example(name)}")
    near = get_close_matches(first, [*known, *parts], n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    raise SpecError(
        f"{origin}: no figure {name!r}{hint} Known: {', '.join(known)}; and what is in {', '.join(parts)}, by dotted "
        "names such as role_use.ps.rss.max"
    )


def _example(name: str) -> str:
    return {
        "time_to_accuracy": "time_to_accuracy.0.9",
        STEPS_TO_ACCURACY: f"{STEPS_TO_ACCURACY}.0.9",
        SERVER_NODE: f"{SERVER_NODE}.memory.max",
        "role_use": "role_use.ps.rss.max",
    }.get(name, f"{name}.median")


def figure_in(run: Run, figures: Mapping[str, Any], name: str) -> float | None:
    """None where it is not known. `figures`: the run's summary."""
    return figure_of(figures, name, flat(run.job) if name in OF_SETTINGS else None)


def finite_figure(run: Run, figures: Mapping[str, Any], name: str) -> float | None:
    """None where it is not known, or no number (a loss that diverged)."""
    value = figure_in(run, figures, name)
    return value if value is not None and math.isfinite(value) else None


def why_missing(figures: Mapping[str, Any], name: str) -> str:
    """Of a dotted name that this run does not have: as far as it leads, and what is there instead."""
    value: Any = figures
    way: list[str] = []
    for part in name.split("."):
        if isinstance(value, list):
            value = {str(each.get(key)): each for each in value for key in NAMES if key in each}
        if not isinstance(value, Mapping):
            break
        if part not in value:
            there = ", ".join(map(str, value)) or "nothing"
            return f"it gave no {name}: {'.'.join(way)} has {there}" if way else f"it gave no {name}"
        way.append(part)
        value = value[part]
    return f"it gave no {name}"
