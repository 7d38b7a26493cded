"""How far a training task is behind the others, whatever the strategy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from headway.findings.facts import Facts, Task, median
from headway.findings.words import percent, quantity, times
from headway.units import format_seconds

ALIKE = 1.1  # batches, and machines, that differ by less are the same
LARGER = 1.2  # times the others' batch: then it may be why a task comes late


@dataclass(frozen=True)
class Lag:
    factor: float
    """Times as long as the others need for a step; in ps-async where batches differ, for an example if that is less."""
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
    # Nobody waits for a step of ps-async. One that takes longer because its batch is larger is not behind; nor is one
    # that takes longer for an example because its batch is smaller: a part of each step is the same for any batch.
    batches = [one.batch for one in facts.training]
    by_example = all(batch > 0 for batch in batches) and max(batches) > ALIKE * min(batches)
    found = [_behind(task, others, False), *([_behind(task, others, True)] if by_example else [])]
    least = min(found, key=lambda one: one.factor)
    return least if least.factor > 1 else None


def _behind(task: Task, others: list[Task], by_example: bool) -> Lag:
    mine, *each = [one.step_seconds / (one.batch if by_example else 1.0) for one in (task, *others)]
    theirs = median(np.array(each))
    factor = mine / theirs if theirs > 0 and mine > 0 else 0.0
    of = "an example" if by_example else "a step"
    return Lag(factor, f"{format_seconds(mine)} {of}, {times(factor)} the others' {format_seconds(theirs)}")


def larger_batch(facts: Facts, task: Task) -> str | None:
    """In words, where a task's batch is so much larger than the others' that they wait for it in a synchronous
    strategy."""
    theirs = median(np.array([other.batch for other in facts.training if other is not task]))
    if not facts.is_synchronous or not task.batch >= LARGER * theirs:
        return None
    return f"its batch is {quantity(task.batch)}, the others' {quantity(theirs)}"


def has_less(facts: Facts, task: Task) -> bool:
    """Whether its machine has fewer CPUs than the other training tasks', or more tasks on it."""
    mine = facts.node_of(task)
    others = [node for other in facts.training if (node := facts.node_of(other)) and node is not mine]
    if mine is None or not others:
        return False
    theirs = median(np.array([node.cpus or np.inf for node in others]))  # who has no limit has more
    is_smaller = mine.cpus is not None and mine.cpus * ALIKE < theirs
    return is_smaller or len(mine.tasks) > median(np.array([float(len(node.tasks)) for node in others]))


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
    busy = mine.cpu_use
    most = max((node.cpu_use for node in theirs if not np.isnan(node.cpu_use)), default=0.0)
    if not busy > most > 0 or busy < 0.8:
        return None
    return Lag(busy / most, f"it used {percent(busy)} of its CPUs and the others at most {percent(most)}: they waited")
