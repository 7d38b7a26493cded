"""How far a training task is behind the others, whatever the strategy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from headway.findings.facts import Facts, Task, median
from headway.findings.words import percent, times
from headway.units import format_seconds


@dataclass(frozen=True)
class Lag:
    factor: float
    """Times as long as the others need for a step."""
    text: str


def lag(facts: Facts, task: Task) -> Lag | None:
    """None: it is not behind, or that cannot be seen."""
    others = [other for other in facts.training if other is not task]
    if not others:
        return None
    if facts.strategy == "ps-sync":
        return _last(facts, task)
    if facts.strategy == "allreduce":
        return _awaited(facts, task, others)
    theirs = median(np.array([other.step_seconds for other in others]))
    factor = task.step_seconds / theirs if theirs > 0 else 0.0
    if not factor > 1:
        return None
    return Lag(
        factor, f"{format_seconds(task.step_seconds)} a step, {times(factor)} the others' {format_seconds(theirs)}"
    )


def _last(facts: Facts, task: Task) -> Lag | None:
    """Of updates that take a gradient of every task, or of the first few: who comes last, and how late."""
    if not facts.last_of:
        return None
    often = Counter(facts.last_of)[task.name] / len(facts.last_of)
    waited = facts.updates["spread"][np.array([name == task.name for name in facts.last_of], dtype=bool)]
    interval = median(np.diff(facts.updates["t"]))
    late = median(waited) if len(waited) else 0.0
    if often < 0.6 or not interval > late > 0:
        return None
    return Lag(
        interval / (interval - late),
        f"it was the last in {percent(often)} of the updates, by {format_seconds(late)} of {format_seconds(interval)}",
    )


def _awaited(facts: Facts, task: Task, others: list[Task]) -> Lag | None:
    """All-reduce tells nobody who came last: it is who computes while the others do not."""
    mine = facts.node_of(task)
    theirs = [node for other in others if (node := facts.node_of(other))]
    if mine is None or not theirs or any(node is mine for node in theirs):
        return None
    busy = mine.mean("cpus") / mine.cpus if mine.cpus else float("nan")
    most = max(node.mean("cpus") / node.cpus if node.cpus else float("nan") for node in theirs)
    if not busy > most > 0 or busy < 0.8:
        return None
    return Lag(busy / most, f"it used {percent(busy)} of its CPUs and the others at most {percent(most)}: they waited")
