"""When figures contradict each other, by how much they may differ, and what is said of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headway.metrics.consistency import Inconsistency, check, copies, of_run, rounding_of


def texts(found: list[Inconsistency]) -> list[str]:
    return [each.text for each in found]


# --- identities -------------------------------------------------------------------------------------------------------
def test_what_was_not_rounded_may_differ_by_two_hundredths() -> None:
    figures = {"steps_per_s": 10.0, "seconds": 100.0}
    for steps, expected in ((980, []), (979, ["steps"]), (1020, []), (1021, ["steps"])):
        found = check({**figures, "steps": steps}, is_rounded=False)
        assert [each.rule for each in found] == expected, steps


def test_what_was_printed_may_also_differ_by_half_of_each_last_digit() -> None:
    """7.5 steps/s may have been 7.45, 40 s may have been 39.5: 2 % and 0.67 % and 1.25 % (and 0.16 % of the steps)."""
    figures: dict[str, Any] = {"steps_per_s": 7.5, "seconds": 40}
    assert check({**figures, "steps": 312}) == []
    assert texts(check({**figures, "steps": 313})) == ["7.5 steps/s x 40 seconds = 300, but steps is 313"]
    assert check({**figures, "steps": 312}, is_rounded=False) != []
    assert check({**figures, "steps": 288}) == []
    assert check({**figures, "steps": 287}) != []


def test_an_inconsistency_tells_what_the_figures_give_and_how_far_off_what_is_stated_is() -> None:
    (found,) = check({"steps_per_s": 10.0, "seconds": 100.0, "steps": 900}, where="row 3")
    assert found == Inconsistency("steps", "row 3", 1000.0, 900, "10 steps/s x 100 seconds = 1,000, but steps is 900")
    assert found.off == pytest.approx(-0.1)
    assert Inconsistency("steps", "", 0.0, 900, "").off == math.inf
    assert Inconsistency("steps", "", 0.5, 1.0, "").off == 1.0


def test_minutes_serve_where_seconds_are_missing() -> None:
    assert check({"steps_per_s": 10.0, "minutes": 2.0, "steps": 1200}) == []
    assert texts(check({"steps_per_s": 10.0, "minutes": 2.0, "steps": 2000}, is_rounded=False)) == [
        "10 steps/s x 2 minutes = 1,200, but steps is 2,000"
    ]
    assert texts(check({"minutes": 2.0, "seconds": 150.0}, is_rounded=False)) == ["2 minutes = 120, but seconds is 150"]


def test_dollars_are_the_hours_at_their_price() -> None:
    assert check({"dollars": 1.5, "price_per_h": 3.0, "seconds": 1800.0}) == []
    assert check({"dollars": 1.5, "price_per_h": 3.0, "minutes": 30.0}) == []
    (found,) = check({"dollars": 2.0, "price_per_h": 3.0, "seconds": 1800.0}, is_rounded=False)
    assert (found.rule, found.expected, found.got) == ("dollars", 1.5, 2.0)
    assert found.text == "3 dollars an hour x 1,800 seconds = 1.5, but dollars is 2"


def test_a_price_of_nothing_has_nothing_to_compare() -> None:
    assert check({"dollars": 2.0, "price_per_h": 3.0}) == []
    assert check({"dollars": 2.0, "seconds": 3.0}) == []
    assert check({"steps_per_s": 2.0, "seconds": 3.0}) == []
    assert check({"steps_per_s": 2.0, "steps": 3}) == []
    assert check({"steps_per_s": 2.0, "examples_per_s": 3.0}) == []


def test_real_data_may_be_as_fast_as_synthetic_data_and_no_faster() -> None:
    assert check({"synthetic": 100.0, "real": 100.0}) == []
    assert texts(check({"synthetic": 100.0, "real": 100.5})) == [
        "real data (100.5) is faster than synthetic data (100)"
    ]


# --- examples ---------------------------------------------------------------------------------------------------------
def test_any_whole_number_of_tasks_up_to_all_explains_examples() -> None:
    figures: dict[str, Any] = {"steps_per_s": 10.0, "batch_size": 100, "tasks": 3}
    for rate in (1000.0, 2000.0, 3000.0):
        assert check({**figures, "examples_per_s": rate}) == []
    (found,) = check({**figures, "examples_per_s": 4000.0})
    assert (found.expected, found.got) == (3000.0, 4000.0)
    (between,) = check({**figures, "examples_per_s": 1450.0}, is_rounded=False)
    assert between.expected == 1000.0
    assert between.text == (
        "10 steps/s x 100 examples = 1,000, but examples/s are 1,450: 1.45 times that, no whole number"
    )


def test_of_two_tasks_what_is_between_is_no_whole_number() -> None:
    (found,) = check({"steps_per_s": 10.0, "batch_size": 100, "tasks": 2, "examples_per_s": 1600.0}, is_rounded=False)
    assert found.text.endswith("examples/s are 1,600: 1.60 times that, no whole number")


def test_where_no_tasks_are_told_of_one_contributes() -> None:
    figures: dict[str, Any] = {"steps_per_s": 10.0, "batch_size": 100}
    assert check({**figures, "examples_per_s": 1000.0}) == []
    assert texts(check({**figures, "examples_per_s": 2000.0})) == [
        "10 steps/s x 100 examples = 1,000, but examples/s are 2,000"
    ]


def test_contributing_tasks_that_are_told_of_are_taken_at_their_word() -> None:
    figures: dict[str, Any] = {"steps_per_s": 10.0, "batch_size": 100, "tasks": 3, "contributing": 2}
    assert check({**figures, "examples_per_s": 2000.0}) == []
    assert texts(check({**figures, "examples_per_s": 1000.0})) == [
        "10 steps/s x 100 examples x 2 contributing tasks = 2,000, but examples/s are 1,000"
    ]


# --- copies -----------------------------------------------------------------------------------------------------------
def test_rows_with_the_same_measured_figures_are_most_likely_copies() -> None:
    rows = [{"a": 1.5, "b": 2500.0}, {"a": 1.5, "b": 2500.1}, {"a": 1.5, "b": 2500.0}]
    assert copies(rows, ["a", "b"], ["x", "y", "z"]) == [
        Inconsistency("copy", "z", 1.5, 1.5, "the same as x: a 1.5, b 2,500; most likely a copy")
    ]


def test_one_figure_that_is_the_same_may_be_chance() -> None:
    rows: list[dict[str, Any]] = [{"a": 1.5, "b": None}, {"a": 1.5, "b": 2.0}, {"a": 1.5}]
    assert copies(rows, ["a", "b"], ["x", "y", "z"]) == []


# --- a run's own figures ----------------------------------------------------------------------------------------------
RUN = {
    "run": "r",
    "steps_per_s": 10.0,
    "window_seconds": 90.0,
    "updates": 1000,
    "examples_per_s": 1000.0,
    "asked_batch": 100,
    "steps": 1000,
    "first_step": 0,
    "num_training_tasks": 2,
}


def test_a_run_that_counts_right_has_nothing_to_say() -> None:
    assert of_run(RUN) == []
    assert of_run({}) == []


def test_examples_may_be_off_by_half_a_hundredth() -> None:
    assert of_run({**RUN, "examples_per_s": 1004.0}) == []
    (found,) = of_run({**RUN, "examples_per_s": 1006.0})
    assert (found.rule, found.where) == ("examples", "r")
    assert found.text == "10 steps/s x 100 examples = 1,000, but examples/s are 1,006"


def test_a_window_holds_no_more_updates_than_the_whole_run() -> None:
    assert of_run({**RUN, "window_seconds": 100.4}) == []
    assert of_run({**RUN, "window_seconds": 100.6}) != []
    (found,) = of_run({**RUN, "window_seconds": 101.0})
    assert found == Inconsistency(
        "steps", "r", 1000.0, 1010.0, "1,010 updates in the window, but only 1,000 in the whole run"
    )
    assert of_run({**RUN, "window_seconds": 101.0, "steps_per_s": None, "examples_per_s": None}) == []
    assert of_run({**RUN, "window_seconds": None}) == []


def test_updates_are_the_steps_made_and_those_that_a_rollback_undid() -> None:
    few = {**RUN, "updates": 100, "window_seconds": 9.0}
    assert of_run({**few, "steps": 600, "first_step": 500}) == []
    assert of_run({**few, "steps": 80, "steps_lost": 20}) == []
    (found,) = of_run({**few, "steps": 80})
    assert found == Inconsistency("steps", "r", 80.0, 100.0, "100 updates recorded, but the global step went up by 80")


@pytest.mark.parametrize(("tasks", "unseen"), [(None, 2), (1, 2), (5, 5)])
def test_the_last_updates_of_others_may_be_unseen(tasks: int | None, unseen: int) -> None:
    few = {**RUN, "updates": 100, "window_seconds": 9.0, "num_training_tasks": tasks}
    assert of_run({**few, "steps": 100 - unseen}) == []
    assert of_run({**few, "steps": 100 - unseen - 1}) != []


def test_of_many_updates_half_a_hundredth_may_be_missing() -> None:
    assert of_run({**RUN, "steps": 996}) == []
    assert of_run({**RUN, "steps": 994}) != []


@pytest.mark.parametrize("known", [{"restarts": 1}, {"command": ["python", "x.py"]}, {"first_step": None}])
def test_steps_are_not_compared_where_rows_may_be_missing_or_mean_something_else(known: dict[str, Any]) -> None:
    assert of_run({**RUN, "steps": 500}) != []
    assert of_run({**RUN, "steps": 500, **known}) == []
    assert of_run({**RUN, "steps": None}) == of_run({**RUN, "updates": None}) == []


# --- printed numbers --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("printed", "off"), [(0, 0.0), (5, 0.1), (5.0, 0.1), (0.5, 0.1), (2.5, 0.02), (100, 0.005), (-4, 0.125)]
)
def test_a_printed_number_may_be_off_by_half_of_its_last_digit(printed: float, off: float) -> None:
    assert rounding_of(printed) == pytest.approx(off)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1234567, "1,234,567"),
        (1234.5, "1,234"),
        (1000.4, "1,000"),
        (999.96, "1000"),
        (12.3456, "12.35"),
        (-5000.2, "-5,000"),
    ],
)
def test_figures_are_said_as_short_as_they_can_be(value: float, said: str) -> None:
    (found,) = copies([{"a": value, "b": 1}, {"a": value, "b": 1}], ["a", "b"], ["x", "y"])
    assert f"a {said}, b 1;" in found.text
