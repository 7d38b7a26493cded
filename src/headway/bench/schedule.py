"""What is run next, and how long everything takes. Pure, and a function of what is done already: so a sweep that was
interrupted goes on as if it had not been.

Trials take turns. In each round every trial that needs a run gets one, in an order of its own that is shuffled anew in
every round: what changes slowly (heat, other users, the time of day) then falls on all trials alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from headway.bench.folder import Trial
from headway.metrics.estimate import FEWEST, Estimate, estimate, missing
from headway.spec.sweep import SweepMeasure

LONGER = 1.5  # than a run that was stopped for the budget: nobody knows by how much
MOST_FAILURES = 2  # of one trial without any success: then it is left alone
GUESS = 15.0  # seconds of a run, before there was one


@dataclass(frozen=True)
class Progress:
    """How far one trial is."""

    key: str
    marks: tuple[tuple[str, ...], ...] = ()
    """Of each finished run."""
    values: tuple[float, ...] = ()
    """What was measured, of the runs that count."""
    failures: int = 0
    seconds: tuple[float, ...] = ()
    """Wall time of each run."""
    cut: float | None = None
    """Seconds after which a run of it was stopped, for the budget: it takes longer."""
    under_way: int = 0
    """Runs of it that are being made now."""

    @property
    def made(self) -> int:
        """Those that are under way, too."""
        return len(self.marks) + self.failures + self.under_way

    @property
    def clean(self) -> int:
        return sum(not each for each in self.marks)


def progress_of(trial: Trial) -> Progress:
    finished = [run for run in trial.runs if run.state == "finished"]
    return Progress(
        trial.key,
        tuple(run.marks for run in finished),
        tuple(run.value for run in finished if run.counts and run.value is not None and math.isfinite(run.value)),
        sum(run.state != "finished" and not run.is_forgiven for run in trial.runs),
        tuple(run.seconds for run in trial.runs if run.seconds),
        trial.cut,
    )


@dataclass(frozen=True)
class Need:
    """Why a trial gets another run, or why not."""

    runs: int
    """How many more it gets."""
    reason: str
    is_short: bool = False
    """It gets none, though it has fewer than were asked for or than its interval needs."""


def need(progress: Progress, measure: SweepMeasure) -> Need:
    """How many more runs a trial needs, as far as can be said now."""
    room = measure.most_runs - progress.made
    if not progress.marks and progress.failures >= MOST_FAILURES:
        return Need(0, f"it failed {progress.failures} times", is_short=True)
    if progress.clean + progress.under_way < measure.repeats:
        lacking = measure.repeats - progress.clean - progress.under_way
        what = f"{lacking} {'repeat' if lacking == 1 else 'repeats'}"
        if progress.clean < len(progress.marks):
            what = f"{_runs(lacking)} without a mark"
        are_missing = f"{what} {'is' if lacking == 1 else 'are'} missing"
        if room <= 0:
            return Need(0, f"{are_missing}, and {_made(progress)}", is_short=True)
        return Need(min(room, lacking), are_missing)
    if progress.under_way:
        return Need(0, "whether it needs more follows from the runs that are under way")
    more = lacking_for_interval(progress.values, measure)
    if not more:
        return Need(0, "the interval is narrow enough")
    wide = f"the interval is wider than {measure.interval:.0%}"
    if len(progress.values) < FEWEST:
        wide = f"an interval says nothing of fewer than {FEWEST} runs, and {len(progress.values)} can be counted"
    if room <= 0:
        return Need(0, f"{wide}: about {_runs(more, 'more ')} would be needed, and {_made(progress)}", is_short=True)
    return Need(min(room, more), f"{wide}: about {_runs(more, 'more ')} {'is' if more == 1 else 'are'} needed")


def _runs(count: int, more: str = "") -> str:
    return f"{count} {more}{'run' if count == 1 else 'runs'}"


def _made(progress: Progress) -> str:
    return f"{_runs(progress.made)} {'was' if progress.made == 1 else 'were'} made, the most allowed"


def lacking_for_interval(values: Sequence[float], measure: SweepMeasure) -> int:
    """Runs that are probably missing until the interval is as narrow as asked. Who asks for one or two repeats wants no
    interval, unless `most` says that there may be enough of them."""
    if not values or (measure.repeats < FEWEST and (measure.most or 0) < FEWEST):
        return 0
    return missing(values, measure.interval, measure.statistic)


def of_values(values: Sequence[float], measure: SweepMeasure) -> Estimate | None:
    return estimate(values, measure.statistic) if values else None


def following(trials: Sequence[Progress], measure: SweepMeasure, seed: int, left: float | None = None) -> str | None:
    """The trial that is run next: of those with the fewest runs, the first in this round's order. `left`: seconds in
    which its run has to end; one that takes longer is passed over for the first that does not."""
    waiting = [trial for trial in trials if need(trial, measure).runs > 0]
    ordered = sorted(waiting, key=lambda trial: (trial.made, rank(seed, trial.made, trial.key)))
    return next((each.key for each in ordered if left is None or expected_seconds(each, trials) <= left), None)


def rank(seed: int, turn: int, key: str) -> str:
    """A place in a shuffled order that does not depend on who else is in it."""
    return hashlib.sha256(f"{seed}/{turn}/{key}".encode()).hexdigest()


def expected_seconds(trial: Progress, everybody: Sequence[Progress]) -> float:
    """Of its next run: as its own ones before, else longer than one that was stopped, else as those of the others, else
    a guess."""
    if trial.seconds:
        return median(trial.seconds)
    if trial.cut is not None:
        return LONGER * trial.cut
    known = [median(each.seconds) for each in everybody if each.seconds]
    return median(known) if known else GUESS


def remaining_seconds(trials: Sequence[Progress], measure: SweepMeasure) -> float:
    return sum(need(trial, measure).runs * expected_seconds(trial, trials) for trial in trials)


@dataclass(frozen=True)
class Fit:
    """What fits into a budget."""

    runs: int
    """That fit."""
    wanted: int
    left_out: tuple[str, ...]
    """Trials that get no run at all."""
    cut: tuple[str, ...]
    """Trials that get fewer runs than asked."""
    is_guess: bool = False
    """Whether there was no run yet that would say how long one takes."""


def fit(trials: Sequence[Progress], measure: SweepMeasure, budget: float, seed: int, lanes: int = 1) -> Fit:
    """Runs in the order in which they would be made, for as long as the budget lasts. `lanes`: how many at once."""
    made = {trial.key: trial.made for trial in trials}
    left = {trial.key: need(trial, measure).runs for trial in trials}
    by_key = {trial.key: trial for trial in trials}
    wanted, done, spent = sum(left.values()), 0, 0.0
    while waiting := [key for key in left if left[key] and spent + expected_seconds(by_key[key], trials) <= budget]:
        key = min(waiting, key=lambda each: (made[each], rank(seed, made[each], each)))
        spent += expected_seconds(by_key[key], trials) / lanes
        made[key] += 1
        left[key] -= 1
        done += 1
    cut = [key for key, number in left.items() if number]
    none, fewer = tuple(key for key in cut if not made[key]), tuple(key for key in cut if made[key])
    return Fit(done, wanted, none, fewer, not any(trial.seconds for trial in trials))
