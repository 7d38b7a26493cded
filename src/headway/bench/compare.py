"""Two sweeps, or two runs, side by side: the effect with its interval, or a refusal that names what is different."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headway.bench.facts import ENDS, RATES, chosen, commits_of, differences, is_below, run_facts
from headway.bench.figures import check_figure, finite_figure
from headway.bench.folder import SweepFolder, Trial, samples
from headway.bench.judge import window
from headway.errors import NotFound, SpecError
from headway.metrics.effect import in_words, ratio
from headway.metrics.estimate import Estimate
from headway.plural import counted
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.record.seal import result

FEW = 4
BLOCKS = 10  # parts of one run's measured time, for an interval where there is but one run


@dataclass(frozen=True)
class Side:
    """A sweep's trials, or one run, to be put beside another."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Point:
    key: str
    name: str
    facts: Mapping[str, Any]
    """Dotted path -> value: the settings, and `machine...`, `versions...`."""
    chosen: frozenset[str]
    """Settings that Headway chose itself."""
    trial: Trial | None = None
    run: Run | None = None

    @property
    def runs(self) -> list[Run]:
        """Those that count."""
        if self.trial is None:
            return [self.run] if self.run is not None else []
        return [Run(each.folder) for each in self.trial.runs if each.counts]

    def samples(self, figure: str) -> list[float]:
        if self.trial is not None:
            return samples(self.trial, figure)
        assert self.run is not None
        return run_samples(self.run, figure)


@dataclass(frozen=True)
class Effect:
    name: str
    a: float | None
    b: float | None
    effect: Estimate | None
    in_words: str

    def as_value(self) -> dict[str, Any]:
        effect = {f"ratio_{key}": value for key, value in asdict(self.effect).items()} if self.effect else {}
        return {"name": self.name, "a": self.a, "b": self.b, "in_words": self.in_words, **effect}


@dataclass(frozen=True)
class Comparison:
    a: str
    b: str
    effects: tuple[Effect, ...]
    differing: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Allowed differences."""
    only: tuple[str, ...] = ()
    """Trials that only one side has."""
    single: tuple[str, ...] = ()
    """Sides that are one run: `A`, `B`."""
    doubts: tuple[str, ...] = ()
    """Sides and trials of which doubtful runs had to be taken."""

    def as_value(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "b": self.b,
            "effects": [each.as_value() for each in self.effects],
            "differing": {path: list(values) for path, values in self.differing.items()},
            "only_in_one": list(self.only),
            "single_runs": list(self.single),
            "doubts": list(self.doubts),
        }

    def lines(self) -> list[str]:
        lines = [f"A  {self.a}", f"B  {self.b}"]
        for path, (a, b) in self.differing.items():
            is_whole = path == "commit"  # all are named: one may be that of a single run among many
            lines.append(f"   {path}: {_shown(a, is_whole)} and {_shown(b, is_whole)}")
        lines += [f"   only in one of them: {name}" for name in self.only]
        lines += [f"   doubtful: {text}" for text in self.doubts]
        if len(self.single) == 2:
            lines.append("   one run each: intervals are from parts of each run, and say nothing of how runs differ")
        elif self.single:
            lines.append(
                f"   {self.single[0]} is one run: of how runs differ, intervals say nothing on that side, only of how "
                "parts of that run do"
            )
        return [*lines, ""]


def open_side(root: Path, name: str) -> Side:
    """A sweep or a run, whichever has this name."""
    try:
        sweep = SweepFolder.find(root, name)
    except NotFound as no_sweep:
        if "could be any of" in str(no_sweep):
            raise
    else:
        return _of_sweep(sweep)
    try:
        return _of_run(Run(RunFolder.find(root, name)))
    except NotFound as error:
        raise NotFound(f"no sweep and no run {name!r}: {error}") from None


def _of_sweep(sweep: SweepFolder) -> Side:
    trials = [trial for trial in sweep.trials() if any(run.counts for run in trial.runs)]
    if not trials:
        raise SpecError(f"{sweep.name}: no trial is done yet, so there is nothing to compare")
    points = []
    for trial in trials:
        run = Run(next(each for each in trial.runs if each.counts).folder)
        points.append(Point(trial.key, trial.name, run_facts(run), chosen(run), trial=trial))
    return Side(sweep.name, tuple(points))


def _of_run(run: Run) -> Side:
    return Side(run.name, (Point("", run.name, run_facts(run), chosen(run), run=run),))


def compare_all(a: Side, b: Side, across: tuple[str, ...] = (), figure: str = "examples_per_s") -> Comparison:
    """Trial by trial. SpecError names the first facts that differ and are not in `across`."""
    check_figure(figure, "--figure")
    pairs, only = _pairs(a, b)
    if not pairs:
        here, there = (", ".join(point.name for point in side.points[:4]) for side in (a, b))
        raise SpecError(f"{a.name} and {b.name} have no trial in common: {here} in one, {there} in the other")
    ignored = ENDS if figure in RATES else ()
    allowed: dict[str, tuple[Any, Any]] = {}
    for left, right in pairs:
        for path, values in differences(left.facts, right.facts, left.chosen & right.chosen).items():
            if is_below(path, ignored):
                continue
            if is_below(path, across):
                allowed[path] = values
                continue
            where = f"{left.name}: " if len(pairs) > 1 else ""
            raise SpecError(
                f"{a.name} and {b.name} are not alike: {where}{path} is {_shown(values[0])} in one and "
                f"{_shown(values[1])} in the other. If that is what you want to compare: --across {across_for(path)}"
            )
    commits = [commits_of(run for pair in pairs for run in pair[side].runs) for side in (0, 1)]
    if commits[0] != commits[1] or len(commits[0]) > 1:
        allowed["commit"] = (", ".join(commits[0]), ", ".join(commits[1]))
    effects = tuple(_effect(left, right, figure) for left, right in pairs)
    sides = {"A": [left for left, _ in pairs], "B": [right for _, right in pairs]}
    doubts = tuple(text for side, points in sides.items() if (text := _doubt(side, points)))
    single = tuple(side for side, points in sides.items() if any(point.run for point in points))
    return Comparison(a.name, b.name, effects, allowed, only, single, doubts)


def _doubt(side: str, points: list[Point]) -> str | None:
    """A run that did not end by itself; or of how many trials runs count that are marked, because there are too few
    others."""
    marks = [
        {mark for run in point.trial.runs if run.counts for mark in run.marks} if point.trial is not None else set()
        for point in points
    ]
    if states := sorted({point.run.state for point in points if point.run is not None} - {"finished"}):
        return f"{side}: its run did not come to its end ({', '.join(states)})"
    if not any(marks):
        return None
    which = ", ".join(sorted(set[str]().union(*marks)))
    return (
        f"{side}: runs that are marked had to be taken in {sum(map(bool, marks))} of "
        f"{counted(len(points), 'trial')} ({which})"
    )


def across_for(path: str) -> str:
    """What a user would name to allow this difference: `machine`, not each of its numbers."""
    parts = path.split(".")
    return parts[0] if parts[0] in ("machine", "versions") else ".".join(parts[:2])


def _pairs(a: Side, b: Side) -> tuple[list[tuple[Point, Point]], tuple[str, ...]]:
    if len(a.points) == 1 and len(b.points) == 1:
        return [(a.points[0], b.points[0])], ()
    there = {point.key: point for point in b.points}
    pairs = [(point, there[point.key]) for point in a.points if point.key in there]
    met = {left.key for left, _ in pairs}
    return pairs, tuple(point.name for point in (*a.points, *b.points) if point.key not in met)


def _effect(left: Point, right: Point, figure: str) -> Effect:
    name = left.name if left.trial is not None else figure
    one, other = left.samples(figure), right.samples(figure)
    if not one or not other:
        missing = "A" if not one else "B"
        return Effect(name, _middle(one), _middle(other), None, f"{missing} has no {figure}")
    if min(one) <= 0:
        return Effect(name, _middle(one), _middle(other), None, "A is not above 0: there is no ratio")
    found = ratio(other, one)
    # Two or three samples make an interval, but one that is wrong more often than one in twenty times.
    fewest = min((len(values) for point, values in ((left, one), (right, other)) if point.trial), default=FEW)
    few = f", of only {fewest} runs" if 1 < fewest < FEW else ""
    return Effect(name, _middle(one), _middle(other), found, in_words(found) + few)


def run_samples(run: Run, figure: str) -> list[float]:
    """Of one run: rates of equal parts of its measured time; other figures have one value."""
    figures = result(run)
    value = finite_figure(run, figures, figure)
    if value is None:
        return []
    span = window(run) if figure in RATES else None
    if span is None:
        return [value]
    steps = run.table("steps")
    inside = np.asarray(steps["t"]) > span[0]
    what = np.asarray(steps["examples" if figure == "examples_per_s" else "num_steps"], dtype=np.float64)[inside]
    done, _ = np.histogram(np.asarray(steps["t"])[inside], bins=BLOCKS, range=span, weights=what)
    if np.count_nonzero(done) < BLOCKS or what.size < 3 * BLOCKS:
        return [value]
    # Parts say how much it varies; how much there is altogether is said by the run's own figure.
    return [float(each) for each in done / done.mean() * value]


def _middle(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def _shown(value: Any, is_whole: bool = False) -> str:
    text = str(value)
    return text if is_whole or len(text) <= 60 else f"{text[:57]}..."
