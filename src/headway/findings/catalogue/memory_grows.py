"""A task's memory grows all the time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Array, Facts
from headway.findings.words import percent
from headway.units import format_bytes, format_seconds

LEAST = 16e6  # bytes
SHARE = 0.04  # of what it had
STEADY = 0.7  # of its parts grow, and none of them makes up half of the growth
PARTS = 8
MINUTES = 180.0  # seconds: caches, pools of threads and allocators fill up for a minute or more


def look(facts: Facts) -> Iterator[Finding]:
    for task in facts.tasks:
        t, rss = task.used("t"), task.used("rss")
        if task.attempts > 1 or len(t) < 5 * PARTS or t[-1] - t[0] < RULE.seconds:
            continue
        from_now = t >= t[0] + (t[-1] - t[0]) / 5  # buffers and caches fill up first
        t, rss = t[from_now], rss[from_now]
        levels = np.array([float(np.median(part)) for part in np.array_split(rss, PARTS)])
        grown, seconds = levels[-1] - levels[0], (t[-1] - t[0]) * (PARTS - 1) / PARTS
        if grown < max(LEAST, SHARE * levels[0]) or not _is_steady(levels):
            continue
        speed = grown / seconds
        node = facts.node_of(task)
        limit = node.memory_limit if node else None
        until = (limit - levels[-1]) / speed if limit and limit > levels[-1] else None
        soon = f" At this rate it reaches the {format_bytes(limit)} of {task.node} in {_about(until)}." if until else ""
        yield RULE.finding(
            facts.job,
            f"memory of {task.name}",
            f"The memory of {task.name} grew from {format_bytes(levels[0])} to {format_bytes(levels[-1])} in "
            f"{format_seconds(seconds)}, {format_bytes(speed * 60)} a minute, and went on growing until the end.{soon}",
            "likely",
            Evidence("growth", speed, "B/s", task.name, float(t[0]), float(t[-1])),
            Evidence("memory at the end", float(levels[-1]), "B", task.name),
        )


def _is_steady(levels: Array) -> bool:
    changes = np.diff(levels)
    grown = levels[-1] - levels[0]
    late = levels[-1] - levels[len(levels) // 2]
    return bool(np.mean(changes > 0) >= STEADY and np.max(changes) <= 0.5 * grown and late >= 0.3 * grown)


def _about(seconds: float) -> str:
    return "less than a minute" if seconds < 60 else f"about {format_seconds(seconds)}"


RULE = Rule(
    name="memory_grows",
    title="A task's memory grows all the time",
    means="Memory that is never given back ends with the task being killed, perhaps after days.",
    threshold=f"After the first fifth of the measured time a task's resident memory grows by {percent(SHARE)} or more, "
    f"at least {format_bytes(LEAST)}, in most of {PARTS} equal parts, without one jump that makes up half of it, and "
    "still in the second half: buffers and caches fill up and stop.",
    advice=(
        Advice("look for lists that are appended to, graphs that grow (operations made in the loop), and cached data"),
        Advice("restart from checkpoints until the cause is found"),
    ),
    needs=f"{format_seconds(MINUTES)} of samples of the task's memory without a restart: a run that has just begun "
    "fills its caches.",
    look=look,
    steps=0,
    seconds=MINUTES,
    is_of_speed=False,
    explains_loss=False,
)
