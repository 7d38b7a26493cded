"""Whether figures agree with each other. What is measured twice, or follows from other figures, must; where it does
not, one of them is wrong, and none should be calibrated against. E5's table is the reason for this file.

Each identity is applied where all of its terms are there:

    steps      steps_per_s x seconds = steps
    examples   examples_per_s = steps_per_s x batch_size x contributing tasks
    dollars    dollars = sum of the machines' prices x hours
    overhead   real data is not faster than synthetic data
    minutes    minutes x 60 = seconds
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from headway.plural import counted

TOLERANCE = 0.02  # beyond what rounding explains: rates are means of something that varies
FEWEST_ALIKE = 2  # measured figures that two rows share: one may be chance


@dataclass(frozen=True)
class Inconsistency:
    rule: str
    """Which identity: `steps`, `examples`, `dollars`, `overhead`, `minutes` or `copy`."""
    where: str
    """The row or the run."""
    expected: float
    """What the other figures give."""
    got: float
    """What is stated."""
    text: str
    """In words, with the figures."""

    @property
    def off(self) -> float:
        """How far what is stated is off, relative to what it should be."""
        return self.got / self.expected - 1 if self.expected else math.inf


def check(
    figures: Mapping[str, Any], where: str = "", tolerance: float = TOLERANCE, is_rounded: bool = True
) -> list[Inconsistency]:
    """`figures`: plain numbers by name (None: not known). `is_rounded`: they were printed, so each may be off by half
    of its last digit; a run's own figures are not.

    Names: steps_per_s, seconds, minutes, steps, examples_per_s, batch_size, contributing (gradients in one step; where
    only `tasks` is known, any number up to it will do), dollars, price_per_h (of all machines), synthetic, real.
    """
    known = {name: value for name, value in figures.items() if isinstance(value, (int, float))}
    found = _Found(known, where, tolerance, is_rounded)
    if "minutes" in known and "seconds" in known:
        found.compare("minutes", known["minutes"] * 60, "seconds", f"{_say(known['minutes'])} minutes", "minutes")
    seconds = known.get("seconds", known["minutes"] * 60 if "minutes" in known else None)
    time = "seconds" if "seconds" in known else "minutes"
    if seconds is not None and {"steps_per_s", "steps"} <= known.keys():
        words = f"{_say(known['steps_per_s'])} steps/s x {_say(known[time])} {time}"
        found.compare("steps", known["steps_per_s"] * seconds, "steps", words, "steps_per_s", time)
    if {"steps_per_s", "examples_per_s", "batch_size"} <= known.keys():
        found.check_examples()
    if seconds is not None and {"dollars", "price_per_h"} <= known.keys():
        words = f"{_say(known['price_per_h'])} dollars an hour x {_say(known[time])} {time}"
        found.compare("dollars", known["price_per_h"] * seconds / 3600, "dollars", words, "price_per_h", time)
    if {"synthetic", "real"} <= known.keys() and known["real"] > known["synthetic"]:
        text = f"real data ({_say(known['real'])}) is faster than synthetic data ({_say(known['synthetic'])})"
        found.add("overhead", known["synthetic"], known["real"], text)
    return found.all


class _Found:
    def __init__(self, known: Mapping[str, float], where: str, tolerance: float, is_rounded: bool) -> None:
        self.all: list[Inconsistency] = []
        self._known = known
        self._where = where
        self._tolerance = tolerance
        self._is_rounded = is_rounded

    def add(self, rule: str, expected: float, got: float, text: str) -> None:
        self.all.append(Inconsistency(rule, self._where, expected, got, text))

    def slack(self, *names: str) -> float:
        """How far a product of these figures may be off."""
        rounding = sum(rounding_of(self._known[name]) for name in names) if self._is_rounded else 0.0
        return self._tolerance + rounding

    def compare(self, rule: str, expected: float, stated: str, words: str, *terms: str) -> None:
        got = self._known[stated]
        if not math.isclose(expected, got, rel_tol=self.slack(stated, *terms)):
            self.add(rule, expected, got, f"{words} = {_say(expected)}, but {stated} is {_say(got)}")

    def check_examples(self) -> None:
        known = self._known
        given = known.get("contributing")
        counts = [given] if given is not None else list(range(1, int(known.get("tasks", 1)) + 1))
        one = known["steps_per_s"] * known["batch_size"]
        got = known["examples_per_s"]
        slack = self.slack("steps_per_s", "examples_per_s")
        if any(math.isclose(one * count, got, rel_tol=slack) for count in counts):
            return
        words = f"{_say(known['steps_per_s'])} steps/s x {_say(known['batch_size'])} examples"
        nearest = min(counts, key=lambda count: abs(one * count - got))
        if len(counts) > 1:
            text = f"{words} = {_say(one)}, but examples/s are {_say(got)}: {got / one:.2f} times that, no whole number"
        else:
            times = f" x {_say(nearest)} contributing tasks" if nearest != 1 else ""
            text = f"{words}{times} = {_say(one * nearest)}, but examples/s are {_say(got)}"
        self.add("examples", one * nearest, got, text)


def copies(rows: Sequence[Mapping[str, Any]], measured: Sequence[str], names: Sequence[str]) -> list[Inconsistency]:
    """Two different rows whose measured figures are all the same: most likely one was copied."""
    found = []
    for (first, a), (second, b) in combinations(enumerate(rows), 2):
        shared = [name for name in measured if a.get(name) is not None and b.get(name) is not None]
        if len(shared) >= FEWEST_ALIKE and all(a[name] == b[name] for name in shared):
            same = ", ".join(f"{name} {_say(a[name])}" for name in shared)
            text = f"the same as {names[first]}: {same}; most likely a copy"
            found.append(Inconsistency("copy", names[second], float(a[shared[0]]), float(b[shared[0]]), text))
    return found


def of_run(figures: Mapping[str, Any]) -> list[Inconsistency]:
    """Of a run's own summary: rate x window = updates in it; examples/s = steps/s x what an update takes, as the job
    says it; all updates = steps reached, and those that a rollback undid. They are counted from different rows, so a
    row that is lost, counted twice or mislabelled shows."""
    seconds, made = figures.get("window_seconds"), figures.get("updates")
    where = str(figures.get("run", ""))
    found = check(
        {
            "steps_per_s": figures.get("steps_per_s"),
            "examples_per_s": figures.get("examples_per_s"),
            "batch_size": figures.get("asked_batch"),
            "contributing": 1,  # the asked batch is already that of all contributing tasks
        },
        where,
        0.005,  # what a window that begins within a step cuts off
        is_rounded=False,
    )
    if seconds and made is not None and figures.get("steps_per_s") is not None:
        inside = figures["steps_per_s"] * seconds
        if inside > made * 1.005:
            text = f"{_say(inside)} updates in the window, but only {_say(made)} in the whole run"
            found.append(Inconsistency("steps", where, float(made), inside, text))
    reached, begun = figures.get("steps"), figures.get("first_step")
    if made is not None and begun is not None and reached is not None and figures.get("command") is None:
        expected = reached - begun + (figures.get("steps_lost") or 0)
        # A killed task's last rows (half a second) may be missing; so they may be where somebody was restarted. In
        # ps-async a task knows the global step as it was when it pulled: the last updates of the others are not in it.
        unseen = max(2, figures.get("num_training_tasks") or 0)
        if not figures.get("restarts") and not math.isclose(made, expected, rel_tol=0.005, abs_tol=unseen):
            text = f"{counted(made, 'update')} recorded, but the global step went up by {_say(expected)}"
            found.append(Inconsistency("steps", where, float(expected), float(made), text))
    return found


def rounding_of(value: float) -> float:
    """How far a printed number may be off, relatively: half of its last digit. 7 -> 0.071, 13.04 -> 0.0004."""
    if not value:
        return 0.0
    digits = repr(value).rstrip("0") if "." in repr(value) else repr(value)
    decimals = len(digits.partition(".")[2])
    return 0.5 * 10.0**-decimals / abs(value)


def _say(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
