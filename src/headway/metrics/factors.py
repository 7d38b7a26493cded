"""One factor at a time, all else equal (E4): what a setting does to a figure, over every pair of trials that differ
in it alone. Takes plain values: a sweep's trials become `Measured`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.metrics.effect import ratio
from headway.metrics.estimate import Estimate, bootstrap, checked, medians
from headway.metrics.lookup import figure_of

# What follows from the number of tasks: where that is compared, these differ too.
COUNTS = ("cluster.training", "cluster.worker", "cluster.worker.count", "cluster.chief", "layout")
SYNTHETIC = "workload.dataset.synthetic"
"""The setting that makes data real or synthetic: it differs where that is compared."""
# What a baseline leaves open besides: it is one machine.
NOT_OF_BASELINES = ("strategy", "cluster.ps", *COUNTS)


@dataclass(frozen=True)
class Measured:
    """A trial: its settings, and the figures of its runs that count."""

    settings: Mapping[str, Any]
    """Dotted path -> value, of what varies."""
    tasks: int
    is_baseline: bool
    data: str
    """`real` or `synthetic`."""
    figures: tuple[Mapping[str, Any], ...]
    """Of each repeat: its summary."""
    name: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        return {**self.settings, "tasks": self.tasks, "data": self.data, "baseline": self.is_baseline}

    def samples(self, figure: str) -> list[float]:
        found = (figure_of(one, figure, self.settings) for one in self.figures)
        return [value for value in found if value is not None and math.isfinite(value)]

    def matches(self, wanted: Mapping[str, Any]) -> bool:
        """`wanted`: fact -> value, or a list of values of which it is one."""
        facts = self.facts
        return all(key in facts and _is_one_of(facts[key], value) for key, value in wanted.items())


def _is_one_of(fact: Any, wanted: Any) -> bool:
    return bool(fact == wanted) or (isinstance(wanted, list) and fact in wanted)


@dataclass(frozen=True)
class Pair:
    when: Measured
    than: Measured
    effect: Estimate


@dataclass(frozen=True)
class Effect:
    """`figure` where the factor is `when`, over that where it is `than`."""

    figure: str
    when: Mapping[str, Any]
    than: Mapping[str, Any]
    value: Estimate
    """The geometric mean over the pairs; its interval is of the repeats, drawn anew in every trial."""
    pairs: tuple[Pair, ...]

    @property
    def is_mixed(self) -> bool:
        """Whether some pairs say more and others less, both beyond chance: then the mean says little."""
        above = any(pair.effect.num > 1 and pair.effect.low > 1 for pair in self.pairs)
        below = any(pair.effect.num > 1 and pair.effect.high < 1 for pair in self.pairs)
        return above and below


def effect_of(
    trials: Sequence[Measured], figure: str, when: Mapping[str, Any], than: Mapping[str, Any]
) -> Effect | None:
    """None where no two trials differ in just this, or the figure is not there."""
    places = [
        (here, there)
        for here, one in enumerate(trials)
        if one.matches(when) and _positive(one, figure)
        for there, other in enumerate(trials)
        if other.matches(than) and _is_pair(one, other, when, than) and _positive(other, figure)
    ]
    if not places:
        return None
    pairs = [
        Pair(trials[here], trials[there], ratio(_positive(trials[here], figure), _positive(trials[there], figure)))
        for here, there in places
    ]
    # A trial may be in several pairs (a baseline is): it is drawn once, and is the same in all of them.
    members = sorted({place for pair in places for place in pair})
    groups = [checked(_positive(trials[place], figure)) for place in members]

    def mean_of(drawn: list[Any]) -> Any:
        logs = {place: np.log(medians(each)) for place, each in zip(members, drawn, strict=True)}
        return np.exp(np.mean([logs[here] - logs[there] for here, there in places], axis=0))

    low, high = bootstrap(groups, mean_of)
    value = math.exp(sum(math.log(pair.effect.value) for pair in pairs) / len(pairs))
    return Effect(figure, when, than, Estimate(value, low, high, min(map(len, groups)), "ratio"), tuple(pairs))


def effects(trials: Sequence[Measured], figure: str) -> list[Effect]:
    """Every factor that varies: each of its further values against its first, all else equal."""
    found = []
    inner = [trial for trial in trials if not trial.is_baseline]
    for factor in dict.fromkeys(path for trial in inner for path in trial.settings):
        values = unique([trial.settings[factor] for trial in inner if factor in trial.settings])
        for value in values[1:]:
            effect = effect_of(inner, figure, {factor: value}, {factor: values[0]})
            found += [effect] if effect else []
    return found


def unique(values: Sequence[Any]) -> list[Any]:
    """In their order; values may be mappings."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _positive(trial: Measured, figure: str) -> list[float]:
    found = trial.samples(figure)
    return found if all(value > 0 for value in found) else []


def is_baseline_of(baseline: Measured, trial: Measured) -> bool:
    """Whether a trial's speed-up is against this one: what it does not leave open is as in the trial."""
    return _is_alike(trial, baseline, {}, {})


def _is_pair(one: Measured, other: Measured, when: Mapping[str, Any], than: Mapping[str, Any]) -> bool:
    """A baseline and another trial differ in more than a batch or the data: only where that is meant."""
    is_meant = not {"baseline", "tasks", "strategy"}.isdisjoint({*when, *than})
    return (is_meant or one.is_baseline == other.is_baseline) and _is_alike(one, other, when, than)


def _is_alike(one: Measured, other: Measured, when: Mapping[str, Any], than: Mapping[str, Any]) -> bool:
    """All else equal."""
    compared = {*when, *than}
    free = set(compared)
    if "tasks" in compared:
        free |= set(COUNTS)
    if one.is_baseline != other.is_baseline:
        free |= set(NOT_OF_BASELINES)
    if "data" in compared:
        free.add(SYNTHETIC)
    left, right = ({key: value for key, value in each.settings.items() if key not in free} for each in (one, other))
    if not compared & {"data", SYNTHETIC, "workload.dataset"} and one.data != other.data:
        return False
    if one.is_baseline != other.is_baseline:  # it leaves open what it does not name
        return all(right[key] == value for key, value in left.items() if key in right)
    return left == right
