"""Throughput changes at some time, or drifts; and what moved with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.catalogue.noisy_machine import taken
from headway.findings.facts import Array, Facts, bins, median, spread_of
from headway.findings.words import cpus, percent, quantity, times
from headway.units import format_bytes, format_rate, format_seconds

CHANGE = 0.25  # of the rate before
SURELY = 4.0  # times what the parts' own scatter lets one expect of their medians
PARTS = 16  # of the run, at least
LEAST_STEPS = 3.0  # in a part, so that single steps do not make waves
EDGE = 0.2  # of the run that each side has at least: no change within the first seconds, nor the last
MOVED = 0.2  # of a metric, between the two sides
NUM_MOVED = 4
PAUSE = 5.0  # times the steps around it, by one step: training stood still meanwhile
AROUND = 4  # steps on each side of it
SIDE_SECONDS = 3.0  # that each side of a change lasts at least
SIDE_STEPS = 10  # ... and has
MUCH = 3.0  # times the rate before: no percentage any more
# ... and by this much: below, it is rounding and what any process does. Of CPUs as a share of the node's (dilated hosts
# have few); of rates bytes per second. What a node may use and its credits are no measurements: they have no noise.
LEAST_MOVED = {"cpus": 0.05, "cpus_allowed": 0.0, "credits": 0.0, "memory": 10e6}
LEAST_RATE_MOVED = 100e3
ABRUPT = 0.6  # of the scatter around a step, of that around a line: it was a step
WORDS = {
    "cpus": "CPU in use",
    "received": "network in",
    "sent": "network out",
    "loopback_sent": "loopback",
    "disk_read": "disk reads",
    "credits": "credits",
    "cpus_allowed": "CPUs allowed",
    "memory": "memory",
}


Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Change:
    at: float
    before: float
    after: float
    is_abrupt: bool


def change(t: Array, rates: Array) -> Change | None:
    """The one place where the rate is another than before, if there is one."""
    count = len(rates)
    first, last = max(3, round(EDGE * count)), count - max(3, round(EDGE * count))
    best: tuple[float, int] | None = None
    for place in range(first, last + 1):
        error = float(np.sum(np.abs(rates[:place] - np.median(rates[:place])))) + float(
            np.sum(np.abs(rates[place:] - np.median(rates[place:])))
        )
        if best is None or error < best[0]:
            best = error, place
    if best is None:
        return None
    error, place = best
    before, after = rates[:place], rates[place:]
    low, high = median(before), median(after)
    if not low > 0 or abs(high / low - 1) < CHANGE:
        return None
    scatter = float(np.hypot(spread_of(before) / np.sqrt(len(before)), spread_of(after) / np.sqrt(len(after))))
    if abs(high - low) < SURELY * 1.25 * scatter:
        return None
    # Most of each side lies on its side of the middle: no wave that comes and goes.
    middle = (low + high) / 2
    sides = np.mean((before > middle) == (low > middle)), np.mean((after > middle) == (high > middle))
    if min(sides) < 0.75:
        return None
    slope, start = np.polyfit(t, rates, 1)
    around_line = float(np.sum(np.abs(rates - (slope * t + start))))
    return Change(float((t[place - 1] + t[place]) / 2), low, high, error <= ABRUPT * around_line)


def look(facts: Facts) -> Iterator[Finding]:
    tasks = facts.training
    if not tasks or facts.num_steps < PARTS * LEAST_STEPS:
        return
    width = max(facts.seconds / 60, 0.5, LEAST_STEPS * facts.seconds / facts.num_steps)
    if facts.seconds / width < PARTS:
        return
    t, rates = bins(facts, width)
    is_pause = _stands_still(facts, t, width)
    for start, end, _ in facts.pauses:  # the chief evaluates or saves: nobody's drift
        is_pause |= _touches(t, width, start, end)
    if np.count_nonzero(~is_pause) >= PARTS:
        t, rates = t[~is_pause], rates[~is_pause]
    found = change(t, rates)
    if found is None or not all(_is_rate(facts, t, width, side) for side in (t < found.at, t >= found.at)):
        return
    at = found.at - facts.start
    verb = "fell" if found.after < found.before else "rose"
    how = f"after {format_seconds(at)} of measured time" if found.is_abrupt else "little by little"
    with_it = moved(facts, found.at)
    events = [text for when, text in facts.notes if abs(when - found.at) <= 3 * width]
    said = f" With it moved: {'; '.join(text for text, _ in with_it)}." if with_it else ""
    said += f" At that time: {', '.join(events)}." if events else ""
    yield RULE.finding(
        facts.job,
        "throughput",
        f"Throughput {verb} {how}, from {quantity(found.before)} to {quantity(found.after)} examples/s "
        f"({_ratio(found)}).{said or ' No metric of any node moved with it.'}",
        "likely" if abs(found.after / found.before - 1) >= 1.5 * CHANGE else "possible",
        Evidence("examples per second before", found.before, "1/s", None, facts.start, found.at),
        Evidence("examples per second after", found.after, "1/s", None, found.at, facts.end),
        *(evidence for _, evidence in with_it),
    )


def _touches(t: Array, width: float, start: float, end: float) -> Flags:
    return (t + width / 2 > start) & (t - width / 2 < end)


def _stands_still(facts: Facts, t: Array, width: float) -> Flags:
    """Of each part of the run: whether every training task is in a step that takes many times as long as those around
    it. That is a pause (a suspended machine, a stopped program), and no rate. Steps that become slow for good have slow
    ones around them."""
    stands = np.ones(len(t), dtype=bool)
    for task in facts.training:
        ends = task.get("t")
        starts = np.concatenate([ends[:1] - task.get("seconds")[:1], ends[:-1]])
        gaps = ends - starts
        mine = np.zeros(len(t), dtype=bool)
        for place in np.flatnonzero(gaps > PAUSE * median(gaps)):
            around = np.concatenate([gaps[max(0, place - AROUND) : place], gaps[place + 1 : place + 1 + AROUND]])
            if gaps[place] > PAUSE * median(around):
                mine |= _touches(t, width, float(starts[place]), float(ends[place]))
        stands &= mine
    return stands


def _is_rate(facts: Facts, t: Array, width: float, side: Flags) -> bool:
    """Whether one side of a change has enough time and steps for a rate of its own."""
    parts = t[side]
    if len(parts) * width < SIDE_SECONDS:
        return False
    first, last = parts[0] - width / 2, parts[-1] + width / 2
    ends = np.concatenate([task.get("t") for task in facts.training])
    return int(np.count_nonzero((ends > first) & (ends <= last))) >= SIDE_STEPS


def _ratio(found: Change) -> str:
    """-50%; from three times as much on: 4.2 times as much."""
    ratio = found.after / found.before
    return f"{times(ratio)} as much" if ratio >= MUCH else f"{ratio - 1:+.0%}"


def moved(facts: Facts, at: float) -> list[tuple[str, Evidence]]:
    """What else is another than before, the most striking first."""
    found: list[tuple[float, str, Evidence]] = []
    for node in facts.nodes:
        for name, words in WORDS.items():
            values = node.get(name)
            before, after = values[node.t < at], values[node.t >= at]
            least = LEAST_MOVED.get(name, LEAST_RATE_MOVED) * ((node.cpus or 1.0) if name == "cpus" else 1.0)
            if (shift := _shift(before, after, least)) is not None:
                low, high = median(before), median(after)
                text = f"{words} of {node.name}, {_amount(name, low)} to {_amount(name, high)}"
                found.append((shift, text, Evidence(f"{words}, after", high, _unit(name), node.name, at, facts.end)))
    others = taken(facts)
    first = max(facts.nodes, key=lambda node: len(node.t), default=None)
    if others is not None and first is not None and len(first.t) == len(others[2]):
        before, after = others[2][first.t < at], others[2][first.t >= at]
        if (shift := _shift(before, after, 0.2)) is not None:
            text = f"CPU used by other processes, {cpus(median(before))} to {cpus(median(after))}"
            found.append((shift, text, Evidence("CPUs of other processes, after", median(after), "CPUs", None, at)))
    found.sort(key=lambda one: -one[0])
    return [(text, evidence) for _, text, evidence in found[:NUM_MOVED]]


def _shift(before: Array, after: Array, least: float) -> float | None:
    """How far it moved, in its own scatter; None: it did not, or by less than `least`."""
    before, after = before[~np.isnan(before)], after[~np.isnan(after)]
    if len(before) < 5 or len(after) < 5:
        return None
    low, high = median(before), median(after)
    scatter = (spread_of(before) + spread_of(after)) / 2
    size = max(abs(low), abs(high))
    if high == low or abs(high - low) < max(least, MOVED * size, 1.5 * scatter):
        return None
    return float(abs(high - low) / (scatter + 0.05 * size))


def _amount(name: str, value: float) -> str:
    if name in ("cpus", "cpus_allowed"):
        return cpus(value)
    if name == "credits":
        return quantity(value)
    if name == "disk_read":
        return f"{format_bytes(value)}/s"
    return format_bytes(value) if name == "memory" else format_rate(value)


def _unit(name: str) -> str:
    return {"cpus": "CPUs", "cpus_allowed": "CPUs", "credits": "credits", "memory": "B"}.get(name, "B/s")


RULE = Rule(
    name="throughput_change",
    title="Throughput changes during the run",
    means="A rate that is another one later has a cause that the mean hides: credits that ran out (E5's small server), "
    "another program, a full disk, a task that is gone. E3 wished for a tool that finds such a time and what moved "
    "then.",
    threshold=f"The rate in {PARTS} or more equal parts of the run has one place where it changes by {percent(CHANGE)} "
    f"or more, {SURELY:g} times what the scatter lets one expect, and stays so; not in the first or last "
    f"{percent(EDGE)} of the run. Each side has {format_seconds(SIDE_SECONDS)} and {SIDE_STEPS} steps or more. Times "
    "in which the chief evaluates or saves are left out, and so is a pause: a step of every task that takes "
    f"{PAUSE:g} times as long as those around it. What moved with it "
    f"did so by {percent(MOVED)} or more, and by {percent(LEAST_MOVED['cpus'])} of the node's CPUs or "
    f"{format_bytes(LEAST_RATE_MOVED)}/s at least.",
    advice=(
        Advice("look at what moved with it; where nothing did, the cause is outside of the nodes that were watched"),
    ),
    needs=f"15 s and {PARTS * LEAST_STEPS:.0f} steps whose examples are known.",
    look=look,
    seconds=15.0,
    steps=48,
)
