"""Measuring began before warm-up was over."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts, Task, median
from headway.findings.words import percent, times
from headway.plural import counted
from headway.units import format_seconds

SLOW = 1.5  # times a later step
COST = 0.04  # of the measured time
EARLY = 0.2  # of the steps: what is slow later is no warm-up


def look(facts: Facts) -> Iterator[Finding]:
    slow = [(task, *_excess(task)) for task in facts.training]
    slow = [one for one in slow if one[1] > 0]
    if not slow:
        return
    task, count, lost, first = max(slow, key=lambda one: one[2])
    share = lost / facts.seconds
    if share < COST:
        return
    wanted = facts.warmup + count
    yield RULE.finding(
        facts.job,
        f"first steps of {task.name}",
        f"{_first(count, first)} of {task.name} took {format_seconds(lost)} more than later ones, {percent(share)} of "
        "the measured time: the rate is too low by about as much.",
        "certain" if share >= 2 * COST else "likely",
        Evidence("time lost in the first steps", lost, "s", task.name),
        Evidence("... of the measured time", share, "share", task.name),
        advice=(
            Advice(f"leave them out (measure.warmup: {max(wanted, 10)} or more)", "measure.warmup"),
            Advice("train for longer: they then matter less"),
        ),
    )


def _first(count: int, factor: float) -> str:
    if count == 1:
        return f"The first measured step ({times(factor)} a later one's time)"
    return f"The first {counted(count, 'measured step')} (the very first {times(factor)} a later one's time)"


def _excess(task: Task) -> tuple[int, float, float]:
    """(how many of the first steps are slow, seconds that they took too much, the first as a multiple)."""
    each, numbers = task.get("seconds") / task.get("num_steps"), task.get("num_steps")
    if len(each) < RULE.steps:
        return 0, 0.0, 0.0
    usual = median(each[len(each) // 4 :])
    is_slow = each > SLOW * usual
    count = int(np.argmin(is_slow)) if not np.all(is_slow) else len(each)
    # Others are started meanwhile: a quick step between two slow ones ends nothing.
    while np.mean(is_slow[: count + 4]) > 0.6 and count + 4 <= EARLY * len(each):
        count += 4
    if count == 0 or count > EARLY * len(each):
        return 0, 0.0, 0.0
    lost = float(np.sum((each[:count] - usual) * numbers[:count]))
    return int(np.sum(numbers[:count])), lost, float(each[0] / usual)


RULE = Rule(
    name="warmup",
    title="Measuring began before warm-up was over",
    means="The first steps build graphs, fill caches and wait for tasks that are not there yet. Counted in, they make "
    "a short run look slow.",
    threshold=f"The first measured steps of a task take {SLOW} times a later one's or more, and cost {percent(COST)} "
    f"of the measured time or more; they are at most {percent(EARLY)} of all steps (what is slow for longer is no "
    "warm-up).",
    advice=(
        Advice("leave them out (measure.warmup)", "measure.warmup"),
        Advice("train for longer: they then matter less"),
    ),
    needs="20 measured steps of a task.",
    look=look,
    steps=20,
    seconds=1.0,
)
