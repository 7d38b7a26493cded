"""Is what an evaluation concluded so here, too? Each conclusion (metrics/tables/*.yaml) names one of these functions
and its arguments. A verdict says which figures it rests on. Intervals decide, not values: what is not so beyond chance
is not re-found, and where the contrary is not so either, the words begin with `not clear`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np

from headway.metrics.effect import in_words, ratio
from headway.metrics.estimate import Estimate, bootstrap, checked, estimate, medians
from headway.metrics.factors import Effect, Measured, effect_of, is_baseline_of, unique
from headway.metrics.published import Conclusion
from headway.metrics.scaling import Point, Speedup, kind_of, speedup, what_is
from headway.plural import counted
from headway.spec.words import short_names, value_in_words

Verdict = Literal["re-found", "not re-found", "not testable here", "not measured yet", "contradictory in the source"]
NOT_CLEAR = "not clear: "


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    words: str
    """Why, with the figures."""
    trials: tuple[Measured, ...] = ()
    """Whose figures these are."""

    @property
    def is_clear(self) -> bool:
        return not self.words.startswith(NOT_CLEAR)


def judge(conclusion: Conclusion, trials: Sequence[Measured] | None) -> Judgement:
    """`trials`: of the sweep that the conclusion names; None where it was not run."""
    if conclusion.contradicted is not None:
        return Judgement("contradictory in the source", conclusion.contradicted)
    if conclusion.not_testable is not None:
        return Judgement("not testable here", conclusion.not_testable)
    if not trials or not any(trial.figures for trial in trials):
        return Judgement("not measured yet", f"headway bench examples/{conclusion.sweep}.yaml")
    found = _tested(trials, **(conclusion.test or {}))
    if found.verdict == "not measured yet" and conclusion.full:
        original = _tested(trials, **{**(conclusion.test or {}), **conclusion.full})
        found = found if original.verdict == "not measured yet" else original
    if found.verdict == "not re-found" and conclusion.perhaps:
        return replace(found, words=f"{found.words}. Perhaps because {conclusion.perhaps}")
    return found


def _tested(
    trials: Sequence[Measured], function: str, only: Mapping[str, Any] | None = None, **arguments: Any
) -> Judgement:
    """`only`: fact -> value, or a list of them: the trials that the conclusion is about."""
    return FUNCTIONS[function]([trial for trial in trials if trial.matches(only or {})], **arguments)


def _verdict(is_so: bool, is_contrary: bool, words: str, trials: Iterable[Measured]) -> Judgement:
    """`is_contrary`: beyond chance."""
    used = tuple({id(trial): trial for trial in trials}.values())  # each once: a baseline is in many pairs
    if is_so:
        return Judgement("re-found", words, used)
    return Judgement("not re-found", words if is_contrary else NOT_CLEAR + words, used)


def _trials_of(effects: Iterable[Effect]) -> list[Measured]:
    return [trial for effect in effects for pair in effect.pairs for trial in (pair.when, pair.than)]


Test = Callable[[Estimate], bool]


def _of_effect(effect: Effect | None, figure: str, needed: str, is_so: Test, is_contrary: Test) -> Judgement:
    """`needed`: what the conclusion's words ask for, where that is more than a difference."""
    if effect is None:
        return _missing(figure)
    if effect.value.num < 2:
        words = f"{_said(effect)}: one run of each says nothing"
        return Judgement("not measured yet", words, tuple(_trials_of([effect])))
    # Where some pairs are so and others the contrary, it depends on something else, and their mean says neither.
    pairs = [pair.effect for pair in effect.pairs if pair.effect.num > 1]
    is_mixed = effect.is_mixed and any(map(is_contrary, pairs))
    so, contrary = (False, False) if is_mixed else (is_so(effect.value), is_contrary(effect.value))
    found = _verdict(so, contrary, _said(effect, is_mixed), _trials_of([effect]))
    # Else somebody would read "30 % less" and wonder why "far less" is not re-found.
    return found if found.verdict == "re-found" or not needed else replace(found, words=f"{found.words}; {needed}")


def _needed(comparison: str, by: float) -> str:
    return "" if by == 1 else f"needed: {comparison} {by:g} times as much"


def _missing(figure: str) -> Judgement:
    return Judgement("not measured yet", f"the sweep has no two trials with {figure}, each run twice, to compare")


def _not_there(figure: str, factor: str, lacking: Iterable[Any]) -> Judgement:
    return Judgement("not measured yet", f"no run gave {figure} with {factor} {', '.join(map(str, lacking))}")


def more(
    trials: Sequence[Measured], figure: str, when: Mapping[str, Any], than: Mapping[str, Any], by: float = 1.0
) -> Judgement:
    """More when this than when that, all else equal, by more than a factor. Which factor a word asks for is in
    docs/metrics.md."""
    effect = effect_of(trials, figure, when, than)
    needed = _needed("more than", by)
    return _of_effect(effect, figure, needed, lambda value: value.low > by, lambda value: value.high <= by)


def less(
    trials: Sequence[Measured], figure: str, when: Mapping[str, Any], than: Mapping[str, Any], by: float = 1.0
) -> Judgement:
    effect = effect_of(trials, figure, when, than)
    needed = _needed("less than", by)
    return _of_effect(effect, figure, needed, lambda value: value.high < by, lambda value: value.low >= by)


def not_more(
    trials: Sequence[Measured], figure: str, when: Mapping[str, Any], than: Mapping[str, Any], by: float = 1.0
) -> Judgement:
    """Not more than by this factor: it does not pay."""
    effect = effect_of(trials, figure, when, than)
    needed = _needed("at most", by)
    return _of_effect(effect, figure, needed, lambda value: value.high <= by, lambda value: value.low > by)


def same(
    trials: Sequence[Measured], figure: str, when: Mapping[str, Any], than: Mapping[str, Any], within: float = 0.1
) -> Judgement:
    """The same but for so much."""
    low, high = 1 - within, 1 + within
    return _of_effect(
        effect_of(trials, figure, when, than),
        figure,
        f"needed: within {within * 100:g} %",
        lambda value: low <= value.low and value.high <= high,
        lambda value: value.high < low or value.low > high,
    )


def cheaper(
    trials: Sequence[Measured],
    figure: str,
    when: Mapping[str, Any],
    than: Mapping[str, Any],
    price_when: float,
    price_than: float,
) -> Judgement:
    """Costs less for the same work: `figure` is a rate, prices are of an hour."""
    effect = effect_of(trials, figure, when, than)
    if effect is None or effect.value.num < 2:
        return _missing(figure)
    value = effect.value.scaled(price_than / price_when)
    words = f"{_said(effect)} for {price_when / price_than:.2f} times the price: {1 / value.value:.2f} times the cost"
    is_so, is_contrary = value.low > 1 and not effect.is_mixed, value.high <= 1 and not effect.is_mixed
    return _verdict(is_so, is_contrary, words, _trials_of([effect]))


def rises(trials: Sequence[Measured], figure: str, over: str) -> Judgement:
    """Each further value of `over` (tasks, or a setting) gives more, as far as can be told, and the last clearly more
    than the first."""
    series = _series(trials, figure, over, {})
    samples = [trial.samples(figure) for _, trial in series]
    if len(series) < 2 or min(map(len, samples)) < 2:
        return _missing(figure)
    estimates = [estimate(each) for each in samples]
    steps_up = all(a.value < b.value for a, b in pairwise(estimates))
    whole = ratio(samples[-1], samples[0])
    falls = whole.high <= 1 or any(ratio(b, a).high < 1 for a, b in pairwise(samples))
    shown = ", ".join(
        f"{at}: {each.value:.3g} ({each.low:.3g} to {each.high:.3g})"
        for (at, _), each in zip(series, estimates, strict=True)
    )
    asked = unique([trial.facts.get(over) for trial in trials if not trial.is_baseline])
    lacking = [str(at) for at in asked if at is not None and at not in dict(series)]
    words = f"{figure} by {over}: {shown}" + (f"; no run gave it with {over} {', '.join(lacking)}" if lacking else "")
    return _verdict(steps_up and whole.low > 1, falls, words, [trial for _, trial in series])


def flattens_earlier(
    trials: Sequence[Measured], figure: str, over: str, when: Mapping[str, Any], than: Mapping[str, Any]
) -> Judgement:
    """From the first value of `over` to the last it grows less when this than when that."""
    grown = [_series(trials, figure, over, only) for only in (when, than)]
    used = [trial for series in grown if len(series) > 1 for trial in (series[-1][1], series[0][1])]
    ends = [trial.samples(figure) for trial in used]
    if len(ends) < 4 or min(map(len, ends)) < 2:
        return _missing(figure)

    def quotient(drawn: list[Any]) -> Any:
        last, first, other_last, other_first = map(medians, drawn)
        return (last / first) / (other_last / other_first)

    groups = [checked(samples) for samples in ends]
    low, high = bootstrap(groups, quotient)
    value = float(quotient([group[None, :] for group in groups])[0])
    between = f"{grown[0][0][0]} to {grown[0][-1][0]}"
    each = " and ".join(
        f"{ratio(last, first).value:.2f} times with {_settings(only, used)}"
        for (last, first), only in zip((ends[:2], ends[2:]), (when, than), strict=True)
    )
    words = f"{figure} from {between} {over}: {each}, a quotient of {value:.2f} ({low:.2f} to {high:.2f})"
    return _verdict(high < 1, low >= 1, words, used)


def below_linear(trials: Sequence[Measured], figure: str, of_one_task: bool = False) -> Judgement:
    """More tasks give more, but less than so many times as much; against the baseline of the sweep, or against one task
    with its servers where those who concluded it had that. With the most tasks that is beyond chance, and with no
    number of tasks the contrary is: a curve that begins above linear and ends below is neither."""
    found, used = _speedups([trial for trial in trials if not (of_one_task and trial.is_baseline)], figure)
    if not found or found[-1].value.num < 2:
        return _missing(figure)
    last = found[-1]
    is_above = any(one.is_above_linear for one in found)
    is_contrary = is_above or last.efficiency.low >= 1 or last.value.high <= 1
    is_so = last.is_below_linear and last.value.low > 1 and not is_above
    return _verdict(is_so, is_contrary, _speedup_words(found), used)


def overhead(trials: Sequence[Measured], figure: str, most: float) -> Judgement:
    """(synthetic - real) / synthetic: there is one, and it is below `most`."""
    effect = effect_of(trials, figure, {"data": "real"}, {"data": "synthetic"})
    if effect is None or effect.value.num < 2:
        return _missing(figure)
    cost, low, high = 1 - effect.value.value, 1 - effect.value.high, 1 - effect.value.low
    words = (
        f"I/O overhead {cost:.1%} ({low:.1%} to {high:.1%}, "
        f"{counted(len(effect.pairs), 'pair of trials', 'pairs of trials')})"
    )
    return _verdict(low > 0 and high < most, high <= 0 or low >= most, words, _trials_of([effect]))


def _extreme(trials: Sequence[Measured], figure: str, factor: str, value: Any, is_most: bool) -> Judgement:
    rivals = [trial for trial in trials if factor in trial.settings and not trial.is_baseline]
    others = unique([trial.settings[factor] for trial in rivals])
    found = {
        value_in_words(other): effect_of(trials, figure, {factor: value}, {factor: other})
        for other in others
        if other != value
    }
    effects = [effect for effect in found.values() if effect is not None and effect.value.num > 1]
    if not effects:
        return _missing(figure)
    if lacking := [other for other, effect in found.items() if effect is None]:
        return _not_there(figure, factor, lacking)  # of the others it may be the highest, and of all not
    above = [effect.value.low > 1 and not effect.is_mixed for effect in effects]
    below = [effect.value.high < 1 and not effect.is_mixed for effect in effects]
    words = "; ".join(_said(effect) for effect in effects)
    is_so, is_contrary = (all(above), any(below)) if is_most else (all(below), any(above))
    return _verdict(is_so, is_contrary, words, _trials_of(effects))


def most(trials: Sequence[Measured], figure: str, factor: str, value: Any) -> Judgement:
    """With this value of the factor the figure is highest, all else equal, beyond chance."""
    return _extreme(trials, figure, factor, value, is_most=True)


def least(trials: Sequence[Measured], figure: str, factor: str, value: Any) -> Judgement:
    return _extreme(trials, figure, factor, value, is_most=False)


def alike(trials: Sequence[Measured], figure: str, factor: str, within: float) -> Judgement:
    """The same but for so much, whatever the factor's value, all else equal."""
    rivals = [trial for trial in trials if factor in trial.settings and not trial.is_baseline]
    pairs = list(combinations(unique([trial.settings[factor] for trial in rivals]), 2))
    found = [same(rivals, figure, {factor: one}, {factor: other}, within) for one, other in pairs]
    if not found or any(each.verdict == "not measured yet" for each in found):
        return _missing(figure)
    words = "; ".join(each.words.removeprefix(NOT_CLEAR) for each in found)
    is_so = all(each.verdict == "re-found" for each in found)
    is_contrary = any(each.verdict == "not re-found" and each.is_clear for each in found)
    return _verdict(is_so, is_contrary, words, [trial for each in found for trial in each.trials])


def lies_within(trials: Sequence[Measured], figure: str, least: float = -math.inf, most: float = math.inf) -> Judgement:
    """The figure (a share, or a quotient of two) is above `least` and below `most`, in the mean over the trials, and
    in none of them clearly not."""
    meant = [trial for trial in trials if trial.samples(figure)]
    if not meant or min(len(trial.samples(figure)) for trial in meant) < 2:
        return _missing(figure)
    groups = [checked(trial.samples(figure)) for trial in meant]
    low, high = bootstrap(groups, lambda drawn: np.mean([medians(each) for each in drawn], axis=0))
    value = float(np.mean([np.median(group) for group in groups]))
    each = [estimate(trial.samples(figure)) for trial in meant]
    is_out = any(one.high <= least or one.low >= most for one in each)
    limits = [f"above {least:g}"] * math.isfinite(least) + [f"below {most:g}"] * math.isfinite(most)
    many = f", mean of {counted(len(meant), 'trial')}" if len(meant) > 1 else ""
    mixed = "; not in every trial" if is_out and least < low and high < most else ""
    words = f"{figure}: {value:.3g} ({low:.3g} to {high:.3g}){many}{mixed}; needed: {' and '.join(limits)}"
    is_so = least < low and high < most and not is_out
    return _verdict(is_so, high <= least or low >= most, words, meant)


FUNCTIONS: dict[str, Callable[..., Judgement]] = {
    function.__name__: function
    for function in (
        more, less, not_more, same, alike, cheaper, rises, flattens_earlier, below_linear, overhead, most, least,
        lies_within,
    )
}  # fmt: skip


def _series(trials: Sequence[Measured], figure: str, over: str, only: Mapping[str, Any]) -> list[tuple[Any, Measured]]:
    """The best trial of each value; baselines are no part of it, unless it goes over tasks."""
    best: dict[Any, Measured] = {}
    for trial in trials:
        at = trial.facts.get(over)
        is_meant = trial.matches(only) and (over == "tasks" or not trial.is_baseline)
        if at is None or not is_meant or not trial.samples(figure):
            continue
        if at not in best or _middle(trial, figure) > _middle(best[at], figure):
            best[at] = trial
    return sorted(best.items(), key=lambda item: item[0])


def _speedups(trials: Sequence[Measured], figure: str) -> tuple[list[Speedup], list[Measured]]:
    """Of the best trial of each number of tasks, against the baseline with its settings; in a sweep without baselines,
    against the fewest tasks. And the trials that these are of."""
    bases = [trial for trial in trials if trial.is_baseline and trial.samples(figure)]
    best: dict[int, Measured] = {}
    for trial in trials:
        if trial.is_baseline or not trial.samples(figure):
            continue
        if trial.tasks not in best or _is_faster(trial, best[trial.tasks], figure):
            best[trial.tasks] = trial
    found: list[Speedup] = []
    used: list[Measured] = []
    for tasks in sorted(best):
        trial = best[tasks]
        own = [base for base in bases if is_baseline_of(base, trial)] if bases else [best[min(best)]]
        if own and tasks > own[0].tasks:
            name = own[0].name or counted(own[0].tasks, "task")
            baseline = Point(own[0].tasks, tuple(own[0].samples(figure)), name)
            point = Point(tasks, tuple(trial.samples(figure)), counted(tasks, "task"))
            found += speedup([point], baseline, kind_of(trial.figures, own[0].figures, figure), what_is(figure))
            used += [own[0], trial]
    return found, used


def _is_faster(one: Measured, other: Measured, figure: str) -> bool:
    here, there = _middle(one, figure), _middle(other, figure)
    return here < there if what_is(figure) == "seconds" else here > there


def _middle(trial: Measured, figure: str) -> float:
    return estimate(trial.samples(figure)).value


def _speedup_words(found: Sequence[Speedup]) -> str:
    each = ", ".join(
        f"{counted(one.tasks, 'task')}: {one.value.value:.2f} (efficiency {one.efficiency.value:.2f}, "
        f"{one.efficiency.low:.2f} to {one.efficiency.high:.2f})"
        for one in found
    )
    return f"speed-up against {', '.join(dict.fromkeys(one.baseline for one in found))}: {each}"


def _settings(settings: Mapping[str, Any], trials: Iterable[Measured]) -> str:
    """`trials`: whose settings have to be told apart."""
    names = short_names(dict.fromkeys([*settings, *(path for trial in trials for path in trial.settings)]))
    told = {path: value for path, value in settings.items() if path != "baseline" or len(settings) == 1}
    return ", ".join(
        ("the baseline" if value else "the others") if path == "baseline" else f"{names[path]} {value_in_words(value)}"
        for path, value in told.items()
    )


def _said(effect: Effect, is_mixed: bool | None = None) -> str:
    pairs = f", {len(effect.pairs)} pairs of trials" if len(effect.pairs) > 1 else ""
    is_mixed = effect.is_mixed if is_mixed is None else is_mixed
    mixed = "; the pairs contradict each other" if is_mixed else ""
    trials = _trials_of([effect])
    sides = f"{_settings(effect.when, trials)} against {_settings(effect.than, trials)}"
    return f"{effect.figure} with {sides}: {in_words(effect.value)}{pairs}{mixed}"
