"""The order of a sweep's runs, how many there are, and what fits into a budget."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.bench.folder import Trial, TrialRun
from headway.bench.schedule import (
    Progress,
    expected_seconds,
    fit,
    following,
    lacking_for_interval,
    need,
    of_values,
    progress_of,
    rank,
    remaining_seconds,
)
from headway.record.folder import RunFolder
from headway.spec.sweep import SweepMeasure

MEASURE = SweepMeasure(repeats=3, interval=0.05)
CLEAN: tuple[str, ...] = ()


def done(key: str, *values: float, marks: tuple[tuple[str, ...], ...] | None = None, seconds: float = 10.0) -> Progress:
    return Progress(key, marks or (CLEAN,) * len(values), values, 0, (seconds,) * len(values))


def order_of(keys: list[str], measure: SweepMeasure, seed: int) -> list[str]:
    """As a sweep would make its runs, when all values are alike."""
    made: Counter[str] = Counter()
    order = []
    while key := following([done(each, *[100.0] * made[each]) for each in keys], measure, seed):
        order.append(key)
        made[key] += 1
    return order


def test_repeats_are_interleaved_and_every_round_has_an_order_of_its_own() -> None:
    keys = [f"trial-{number}" for number in range(12)]
    order = order_of(keys, MEASURE, seed=1)
    rounds = [order[begin : begin + 12] for begin in range(0, 36, 12)]
    assert len(order) == 36
    assert all(sorted(each) == sorted(keys) for each in rounds)
    assert len({tuple(each) for each in [*rounds, keys]}) == 4
    assert order_of(keys, MEASURE, seed=1) == order
    assert order_of(keys, MEASURE, seed=2) != order


def test_an_interrupted_sweep_goes_on_in_the_same_order() -> None:
    keys = ["a", "b", "c", "d"]
    order = order_of(keys, MEASURE, seed=5)
    for begin in range(len(order)):
        made = Counter(order[:begin])
        assert following([done(key, *[100.0] * made[key]) for key in keys], MEASURE, seed=5) == order[begin]


def test_places_do_not_depend_on_who_else_is_there() -> None:
    keys = [f"trial-{number}" for number in range(9)]
    whole = sorted(keys, key=lambda key: rank(3, 0, key))
    part = sorted(keys[:5], key=lambda key: rank(3, 0, key))
    assert [key for key in whole if key in part] == part


def test_narrow_intervals_need_no_more_runs_and_wide_ones_say_how_many() -> None:
    assert need(done("a", 100, 101, 99), MEASURE).runs == 0
    wide = need(done("a", 100, 130, 70), MEASURE)
    assert wide.runs == 3  # the most allowed are 6
    assert "wider than 5%" in wide.reason


def test_at_the_most_allowed_it_ends_and_says_what_would_be_needed() -> None:
    values = (100.0, 140.0, 60.0, 120.0, 80.0, 100.0)
    ended = need(done("a", *values), MEASURE)
    assert ended.runs == 0
    assert "more runs would be needed, and 6 runs were made, the most allowed" in ended.reason
    assert ended.is_short


def test_two_equal_runs_have_no_interval_which_is_not_a_wide_one() -> None:
    measure = SweepMeasure(repeats=3, most=3)
    short = need(replace(done("a", 100.0, 100.0, 100.0), values=(100.0, 100.0)), measure)
    assert (short.runs, short.is_short) == (0, True)
    assert short.reason == (
        "an interval says nothing of fewer than 3 runs, and 2 can be counted: about 1 more run would be needed, "
        "and 3 runs were made, the most allowed"
    )
    assert need(done("a", 100.0, 100.0), SweepMeasure(repeats=2, most=3)).reason.endswith("about 1 more run is needed")
    for most in (None, 2):  # nobody asked for an interval
        assert not need(done("a", 100.0, 100.0), SweepMeasure(repeats=2, most=most)).is_short


def test_the_number_of_missing_runs_is_about_right() -> None:
    """Noise of 8 %: as many runs as are said to be missing make the interval narrow, more often than not."""
    measure = SweepMeasure(repeats=5, most=400, interval=0.05)
    random = np.random.default_rng(4)
    ratios = []
    for _ in range(60):
        values = list(random.normal(100, 8, 5))
        asked = 5 + need(done("a", *values), measure).runs
        while need(done("a", *values), measure).runs:
            values.append(random.normal(100, 8))
        ratios.append(len(values) / asked)
    assert 0.5 < np.median(ratios) < 2.0


def test_marked_runs_are_made_again_up_to_the_most_allowed() -> None:
    loaded = ("loaded",)
    again = need(done("a", 100, 100, 100, marks=(CLEAN, loaded, CLEAN)), MEASURE)
    assert again.runs == 1
    assert "without a mark" in again.reason
    assert need(done("a", *[100.0] * 6, marks=(loaded,) * 6), MEASURE).runs == 0


def test_one_repeat_means_one_run_and_no_interval() -> None:
    assert need(done("a", 100), SweepMeasure(repeats=1)).runs == 0
    assert need(done("a", 100, 120), SweepMeasure(repeats=2)).runs == 0
    assert need(done("a", 100, 120), SweepMeasure(repeats=2, most=8)).runs > 0


def test_a_trial_that_only_fails_is_left_alone() -> None:
    assert need(Progress("a", failures=1), MEASURE).runs == 3
    assert need(Progress("a", failures=2), MEASURE).runs == 0
    assert following([Progress("a", failures=2), Progress("b")], MEASURE, 1) == "b"


def test_the_statistic_decides_what_narrow_is() -> None:
    values = (100.0, 100.0, 100.0, 100.0, 160.0)
    assert need(done("a", *values), SweepMeasure(repeats=5, statistic="mean")).runs > 0
    assert need(done("a", *values), SweepMeasure(repeats=5, statistic="mlperf")).runs == 0


def test_time_is_expected_from_own_runs_then_from_others_then_guessed() -> None:
    slow, quick, new = done("slow", 1, 1, seconds=60), done("quick", 1, seconds=4), Progress("new")
    assert expected_seconds(slow, [slow, quick, new]) == 60
    assert expected_seconds(new, [slow, quick, new]) == 32
    assert expected_seconds(new, [new]) > 0
    assert remaining_seconds([slow, quick, new], MEASURE) == pytest.approx(60 + 2 * 4 + 3 * 32)


def test_a_budget_cuts_repeats_before_it_leaves_out_trials() -> None:
    trials = [done(f"trial-{number}", seconds=10) for number in range(4)]
    known = [Progress(each.key, seconds=(10.0,)) for each in trials]
    assert fit(known, MEASURE, budget=1000, seed=1).runs == 12
    tight = fit(known, MEASURE, budget=55, seed=1)
    assert (tight.runs, tight.wanted) == (5, 12)
    assert tight.left_out == ()
    assert len(tight.cut) == 4
    tighter = fit(known, MEASURE, budget=25, seed=1)
    assert len(tighter.left_out) == 2


def test_a_run_that_takes_too_long_is_passed_over_for_one_that_ends_in_time() -> None:
    long, short = done("long", 100, seconds=60), done("short", 100, 101, seconds=5)
    trials = [long, short]
    assert following(trials, MEASURE, 1) == "long"
    assert following(trials, MEASURE, 1, left=100) == "long"
    assert following(trials, MEASURE, 1, left=20) == "short"
    assert following(trials, MEASURE, 1, left=4) is None
    fitting = fit(trials, MEASURE, budget=20, seed=1)
    assert (fitting.runs, fitting.cut) == (1, ("long",))


def test_before_the_first_run_what_fits_is_a_guess() -> None:
    assert fit([Progress("a")], MEASURE, budget=1000, seed=1).is_guess
    assert not fit([Progress("a"), done("b", 1)], MEASURE, budget=1000, seed=1).is_guess


# --- how many more, and why -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("progress", "runs", "reason"),
    [
        (Progress("a"), 3, "3 repeats are missing"),
        (done("a", 100.0, 100.0), 1, "1 repeat is missing"),
        (done("a", 100.0, marks=(("loaded",),)), 3, "3 runs without a mark are missing"),
        (done("a", *[100.0] * 3, marks=(CLEAN, CLEAN, ("loaded",))), 1, "1 run without a mark is missing"),
        (done("a", 100.0, 100.0, 100.0), 0, "the interval is narrow enough"),
        (done("a", 94.0, 100.0, 106.0), 2, "the interval is wider than 5%: about 2 more runs are needed"),
        (Progress("a", failures=2), 0, "it failed 2 times"),
    ],
)
def test_the_reason_for_more_runs_is_said_with_their_number(progress: Progress, runs: int, reason: str) -> None:
    found = need(progress, MEASURE)
    assert (found.runs, found.reason) == (runs, reason)
    assert found.is_short == (reason == "it failed 2 times")


def test_runs_under_way_count_as_repeats_and_are_waited_for() -> None:
    two = replace(done("a", 100.0), under_way=1)
    assert (two.made, need(two, MEASURE).runs) == (2, 1)
    three = replace(done("a", 100.0), under_way=2)
    waits = need(three, MEASURE)
    assert (waits.runs, waits.is_short) == (0, False)
    assert waits.reason == "whether it needs more follows from the runs that are under way"


def test_failures_use_up_the_runs_that_are_allowed() -> None:
    measure = SweepMeasure(repeats=2, most=3)
    failed = replace(done("a", 100.0), failures=2)
    ended = need(failed, measure)
    assert (failed.made, ended.runs, ended.is_short) == (3, 0, True)
    assert ended.reason == "1 repeat is missing, and 3 runs were made, the most allowed"
    assert need(Progress("a", failures=1), SweepMeasure(repeats=1, most=1)).reason == (
        "1 repeat is missing, and 1 run was made, the most allowed"
    )


def test_a_trial_that_failed_often_but_succeeded_once_goes_on() -> None:
    assert need(replace(done("a", 100.0), failures=3), MEASURE).runs == 2


def test_no_more_runs_are_asked_for_than_are_allowed() -> None:
    measure = SweepMeasure(repeats=3, most=4)
    assert need(replace(done("a", 100.0), failures=2), measure).runs == 1
    assert need(done("a", 70.0, 100.0, 130.0), measure).runs == 1


def test_an_interval_is_wanted_only_where_three_runs_are_asked_for_or_allowed() -> None:
    wide = [70.0, 130.0]
    assert lacking_for_interval([], MEASURE) == 0
    assert lacking_for_interval(wide, SweepMeasure(repeats=3)) == 1
    assert lacking_for_interval(wide, SweepMeasure(repeats=2)) == 0
    assert lacking_for_interval(wide, SweepMeasure(repeats=2, most=2)) == 0
    assert lacking_for_interval(wide, SweepMeasure(repeats=2, most=3)) == 1


def test_an_estimate_is_made_the_way_that_was_asked_for() -> None:
    mean = of_values([1.0, 2.0, 6.0], SweepMeasure(repeats=3, statistic="mean"))
    assert mean is not None
    assert (mean.value, mean.how) == (3.0, "mean")
    assert of_values([], MEASURE) is None


# --- what has been done -----------------------------------------------------------------------------------------------
def test_progress_counts_what_was_finished_measured_failed_and_forgiven() -> None:
    def run(counts: bool = True, **known: Any) -> TrialRun:
        return TrialRun(RunFolder(Path("a-run")), 0, counts, **{"marks": (), **known})

    runs = [
        run(value=10.0, seconds=5.0),
        run(counts=False, value=11.0, seconds=6.0, marks=("loaded",)),
        run(value=math.inf),
        run(value=None),
        run(state="failed", seconds=1.0),
        run(state="failed"),
        run(state="interrupted", is_forgiven=True),
    ]
    found = progress_of(Trial("key", {}, 2, False, "real", runs, "done", None, cut=7.0))
    assert found == Progress("key", ((), ("loaded",), (), ()), (10.0,), 2, (5.0, 6.0, 1.0), 7.0)
    assert (found.made, found.clean) == (6, 3)


# --- time -------------------------------------------------------------------------------------------------------------
def test_a_run_that_was_stopped_takes_half_as_long_again_at_least() -> None:
    cut = Progress("cut", cut=20.0)
    assert expected_seconds(cut, [cut, done("b", 1.0, seconds=4.0)]) == 30.0
    assert expected_seconds(replace(cut, seconds=(9.0,)), [cut]) == 9.0


def test_before_there_was_a_run_fifteen_seconds_are_guessed() -> None:
    assert expected_seconds(Progress("a"), [Progress("a"), Progress("b")]) == 15.0


def test_a_run_that_ends_exactly_in_time_is_made() -> None:
    trials = [done("a", 100.0, seconds=10.0)]
    assert following(trials, MEASURE, 1, left=10.0) == "a"
    assert following(trials, MEASURE, 1, left=9.9) is None
    assert fit(trials, MEASURE, budget=20.0, seed=1).runs == 2
    assert fit(trials, MEASURE, budget=19.9, seed=1).runs == 1


def test_two_lanes_fit_twice_as_many_runs() -> None:
    trials = [Progress(key, seconds=(10.0,)) for key in "abcd"]
    assert fit(trials, MEASURE, budget=35.0, seed=1).runs == 3
    assert fit(trials, MEASURE, budget=35.0, seed=1, lanes=2).runs == 6


def test_what_fits_is_made_in_the_order_of_the_sweep() -> None:
    """Where only some trials get a run, they are those that come first."""
    trials = [Progress(key, seconds=(10.0,)) for key in "abcdef"]
    order = order_of(list("abcdef"), MEASURE, seed=3)
    fitting = fit(trials, MEASURE, budget=25.0, seed=3)
    assert {*fitting.left_out} == {*"abcdef"} - {*order[:2]}
    assert {*fitting.cut} == {*order[:2]}
    second = [replace(trial, marks=(CLEAN,), values=(100.0,)) for trial in trials]
    assert fit(second, MEASURE, budget=15.0, seed=3).left_out == ()
