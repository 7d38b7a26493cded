"""How many times as fast each trial of a sweep is as its baseline, and which is the best.

A speed-up is against the sweep's baseline with the same workload and data. A sweep without a baseline has a reference:
the job as it is (`one_at_a_time`), else its first trial. Where neither is alike, there is no speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.bench.figures import RATES
from headway.bench.folder import Trial, samples
from headway.metrics.effect import is_difference, ratio
from headway.metrics.estimate import Estimate
from headway.metrics.factors import Measured, is_baseline_of
from headway.metrics.scaling import Point, Speedup, kind_of, speedup, what_is
from headway.plural import counted
from headway.spec.load import flat

NOT_OF_SPEED = ("workload.stop", "workload.evaluate", "workload.tensorboard")
WIDE = 0.1  # share of a value: beyond it an interval mostly reaches farther to one side
MOST_RIVALS = 3  # that are named
ALWAYS_ALIKE = ("workload.model", "workload.dataset")


@dataclass(frozen=True)
class Against:
    """A trial's speed-up."""

    trial: Trial
    reference: Trial
    speedup: Speedup

    @property
    def value(self) -> Estimate:
        return self.speedup.value


@dataclass(frozen=True)
class Best:
    """The fastest trial of a sweep, beside what it is compared with."""

    found: Against
    rivals: tuple[str, ...]
    """Names of trials that may be as fast."""
    of_seconds: bool = False
    """Of a time: twice as fast is half of it."""

    def words(self, what: str) -> str:
        """`what`: the figure, in words."""
        many = " and ".join(filter(None, [", ".join(self.rivals[:-1]), *self.rivals[-1:]]))
        if len(self.rivals) > MOST_RIVALS:
            many = counted(len(self.rivals), "other trial")
        return self._comparison(what) + (f"; {many} may be as fast" if many else "")

    def _comparison(self, what: str) -> str:
        best, value = self.found.trial.name, self.found.value
        reference = self.found.reference.name
        other = f"as fast as {reference} by {what}" if self.of_seconds else f"{reference} in {what}"
        if value.num < 2:
            return f"{best} is {value.value:.2f} times {other}, by a single run: it may be chance"
        if not is_difference(value):
            return f"no difference beyond chance: {best} is {value.low:.2f} to {value.high:.2f} times {other}"
        times = f"{best} is {plus_minus(value)} times {other}"
        return times if value.value > 1 else f"none is faster than {reference}: {times}"

    def as_value(self, what: str) -> dict[str, Any]:
        value = self.found.value
        return {
            "trial": self.found.trial.key,
            "against": self.found.reference.key,
            "speedup": value.value,
            "low": value.low,
            "high": value.high,
            "is_clear": is_difference(value),
            "may_be_as_fast": list(self.rivals),
            "words": self.words(what),
        }


def is_of_speed(figure: str) -> bool:
    return figure in RATES or what_is(figure) == "seconds"


def speedups(trials: Sequence[Trial], figure: str) -> dict[str, Against]:
    """Trial key -> its speed-up; the references themselves have none. Empty for a figure that is no rate or time."""
    if not is_of_speed(figure):
        return {}
    known = {trial.key: values for trial in trials if (values := samples(trial, figure)) and min(values) > 0}
    found = {}
    for trial in trials:
        reference = reference_of(trial, trials)
        if reference is None or reference.key == trial.key or not {trial.key, reference.key} <= known.keys():
            continue
        point = Point(trial.tasks, tuple(known[trial.key]), trial.name)
        base = Point(reference.tasks, tuple(known[reference.key]), reference.name)
        kind = kind_of(_figures(trial), _figures(reference), figure)
        (one,) = speedup([point], base, kind, what_is(figure))
        found[trial.key] = Against(trial, reference, one)
    return found


def reference_of(trial: Trial, trials: Sequence[Trial]) -> Trial | None:
    """What a trial's speed-up is against; None where nothing is alike."""
    if any(one.is_baseline for one in trials):
        alike = [one for one in trials if _is_machine(one) and _is_baseline_of(one, trial)]
        return max(alike, key=lambda one: (one.is_baseline, len(one.settings)), default=None)
    of_own_data = [one for one in trials if one.data == trial.data and one.state != "left_out"]
    as_it_is = [one for one in of_own_data if one.purpose == "one_at_a_time"]
    first = next(iter([*as_it_is, *of_own_data]), None)
    return first if first is not None and _workload(first, ALWAYS_ALIKE) == _workload(trial, ALWAYS_ALIKE) else None


def best_of(found: dict[str, Against], figure: str) -> Best | None:
    """None where nothing was compared. Of a search the candidates count only until one of them is chosen."""
    chosen = [each for each in found.values() if each.trial.purpose == "best"]
    meant = chosen or [each for each in found.values() if not each.trial.is_baseline]
    if not meant:
        return None
    of_seconds = what_is(figure) == "seconds"
    # Times of unlike amounts of work are no race: there the speed-up decides, which knows of it.
    best = max(meant, key=lambda each: each.value.value if of_seconds else _middle(each.trial, figure))
    rivals = [each for each in meant if each is not best and not _is_slower(each, best, figure)]
    return Best(best, tuple(each.trial.name for each in rivals), of_seconds)


def plus_minus(value: Estimate) -> str:
    """`2.18 +/- 0.07`, with as many digits as the interval allows; where it is wide, its ends: `1.7 (1.3 to 2.5)`."""
    half = max(value.high - value.value, value.value - value.low)
    decimals = 2 if half == 0 else min(4, max(0, -math.floor(math.log10(half))))
    shown, low, high = (f"{each:.{decimals}f}" for each in (value.value, value.low, value.high))
    if half > WIDE * abs(value.value):
        return f"{shown} ({low} to {high})"
    return f"{shown} +/- {half:.{decimals}f}"


def _is_slower(one: Against, best: Against, figure: str) -> bool:
    """Beyond chance."""
    if what_is(figure) == "seconds":
        return one.value.num > 1 and best.value.num > 1 and one.value.high < best.value.low
    quotient = ratio(samples(one.trial, figure), samples(best.trial, figure))
    return quotient.num > 1 and quotient.high < 1


def _middle(trial: Trial, figure: str) -> float:
    values = sorted(samples(trial, figure))
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def _figures(trial: Trial) -> list[dict[str, Any]]:
    return [run.figures for run in trial.runs if run.counts and run.figures]


def _is_machine(trial: Trial) -> bool:
    """A baseline, or a single machine that the sweep tries besides."""
    strategy = trial.job.get("strategy")
    kind = strategy.get("kind") if isinstance(strategy, dict) else strategy
    return trial.is_baseline or kind == "single"


def _is_baseline_of(one: Trial, trial: Trial) -> bool:
    if one.key == trial.key:
        return True
    mine, theirs = (
        Measured(each.settings, each.tasks, each is one or each.is_baseline, each.data, ()) for each in (one, trial)
    )
    return is_baseline_of(mine, theirs) and _workload(one) == _workload(trial)


def _workload(trial: Trial, only: tuple[str, ...] = ("workload",)) -> dict[str, Any]:
    return {
        path: value
        for path, value in flat(trial.job).items()
        if path.startswith(only) and not path.startswith(NOT_OF_SPEED)
    }
