"""The search for the best of several values: found where there is one peak, with fewer trials than values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.bench.figures import check_searched, is_less_better
from headway.bench.search import choice_text, choose, next_candidate, not_found_text
from headway.errors import SpecError
from headway.metrics.estimate import Estimate, estimate


def search(
    values: list[float], impossible: frozenset[int] = frozenset(), is_less_better: bool = False
) -> tuple[int | None, list[int]]:
    """The best candidate, and those that were tried, in order."""
    found: dict[int, Estimate] = {}
    order: list[int] = []
    while (number := next_candidate(len(values), found, impossible, is_less_better)) is not None:
        assert number not in found
        assert number not in impossible
        found[number] = estimate([values[number]])
        order.append(number)
    return (choose(len(values), found, impossible, is_less_better).best if found else None), order


def single_peak(num: int, peak: int) -> list[float]:
    return [100.0 - abs(number - peak) * (2 if number < peak else 1) for number in range(num)]


@pytest.mark.parametrize("num", range(1, 20))
def test_the_peak_is_found_wherever_it_is(num: int) -> None:
    for peak in range(num):
        best, order = search(single_peak(num, peak))
        assert best == peak
        assert len(order) <= num


@pytest.mark.parametrize(("num", "most"), [(8, 6), (16, 8), (32, 10), (128, 13)])
def test_it_takes_far_fewer_trials_than_there_are_values(num: int, most: int) -> None:
    tried = [len(search(single_peak(num, peak))[1]) for peak in range(num)]
    assert max(tried) <= most
    assert np.mean(tried) < most


def test_three_values_of_which_the_first_is_best_take_two_trials() -> None:
    """As in E1: one server is enough."""
    assert search([100, 90, 80]) == (0, [1, 0])


@pytest.mark.parametrize("num", range(1, 12))
def test_of_times_the_shortest_is_found(num: int) -> None:
    for valley in range(num):
        assert search([1000.0 / value for value in single_peak(num, valley)], is_less_better=True)[0] == valley


def test_values_that_cannot_be_tried_are_passed_over() -> None:
    best, order = search(single_peak(9, 4), frozenset({4, 7}))
    assert best in (3, 5)
    assert not {4, 7} & set(order)
    assert search([1.0, 2.0], frozenset({0, 1})) == (None, [])


def test_all_alike_ends_too() -> None:
    best, order = search([5.0] * 10)
    assert best is not None
    assert len(order) <= 10


def sure(value: float, width: float) -> Estimate:
    return Estimate(value, value - width, value + width, 5, "median")


def test_the_choice_says_what_was_saved_and_what_may_be_lost() -> None:
    chosen = choose(6, {1: sure(100, 3), 2: sure(98, 4), 3: sure(80, 3)}, impossible=frozenset({5}))
    assert (chosen.best, chosen.tried, chosen.skipped) == (1, (1, 2, 3), (0, 4))
    assert chosen.rivals == (2,)
    assert chosen.may_lose == pytest.approx(1 - 97 / 102)


def test_a_clear_choice_loses_nothing() -> None:
    chosen = choose(2, {0: sure(100, 1), 1: sure(80, 1)})
    assert (chosen.rivals, chosen.may_lose) == ((), 0.0)


def test_of_times_the_loss_is_how_much_longer_it_may_take() -> None:
    chosen = choose(2, {0: sure(100, 2), 1: sure(99, 3)}, is_less_better=True)
    assert (chosen.best, chosen.rivals) == (1, (0,))
    assert chosen.may_lose == pytest.approx(102 / 98 - 1)


def test_a_neighbour_that_may_be_as_good_shuts_nothing_off() -> None:
    """The first two differ by less than the noise: with bare values the peak behind them was never tried in one of four
    searches, and up to 10 % was said to be lost where it was a third."""
    random = np.random.default_rng(3)
    for _ in range(60):
        truth = [100.0, 101.0, 150.0]
        found: dict[int, Estimate] = {}
        while (number := next_candidate(3, found)) is not None:
            found[number] = estimate(list(truth[number] * random.normal(1, 0.03, 5)))
        assert choose(3, found).best == 2


@pytest.mark.parametrize(
    ("figure", "is_less"),
    [
        ("examples_per_s", False),
        ("accuracy", False),
        ("training_seconds", True),
        ("time_to_accuracy.0.9", True),
        ("step_seconds.median", True),
        ("loss", True),
        ("seconds_per_epoch", True),
        ("effective_batch", None),
        ("role_use.ps.cpus.mean", None),
    ],
)
def test_which_way_a_figure_is_better(figure: str, is_less: bool | None) -> None:
    assert is_less_better(figure) is is_less
    if is_less is None:
        with pytest.raises(SpecError, match="whether more or less of"):
            check_searched(figure)
    else:
        check_searched(figure)


def test_of_single_runs_nothing_is_known_of_what_may_be_lost() -> None:
    assert choose(3, {0: estimate([100.0]), 1: estimate([99.0])}).may_lose is None


def test_with_noise_what_is_lost_is_small_and_mostly_within_what_was_said() -> None:
    """A hundred searches among 10 values with 3 % noise, 5 repeats each."""
    random = np.random.default_rng(7)
    within, losses = 0, []
    for _ in range(100):
        truth = single_peak(10, int(random.integers(10)))
        found: dict[int, Estimate] = {}
        while (number := next_candidate(10, found)) is not None:
            found[number] = estimate(list(truth[number] * random.normal(1, 0.03, 5)))
        chosen = choose(10, found)
        lost = 1 - truth[chosen.best] / max(truth)
        losses.append(lost)
        within += lost <= max(chosen.may_lose or 0.0, 0.02)
    assert np.mean(losses) < 0.02
    assert within >= 85


# --- which one is next ------------------------------------------------------------------------------------------------
def test_the_first_is_at_the_golden_section_of_what_is_possible() -> None:
    assert [next_candidate(num, {}) for num in (1, 2, 3, 8, 11)] == [0, 0, 1, 3, 4]
    assert next_candidate(11, {}, impossible=frozenset({0, 1, 2, 3})) == 6  # the third of seven
    assert next_candidate(11, {4: sure(1, 0)}, impossible=frozenset({4})) == 3  # of the ten others


def test_the_longer_side_is_searched_first_and_near_the_best() -> None:
    found = {4: sure(100, 1)}
    assert next_candidate(11, found) == 7, "six are open on the right: the third of them"
    assert next_candidate(9, found) == 2, "four on each side: to the left, the second from the best"
    assert next_candidate(6, found) == 2, "one on the right, four on the left"


def test_what_lies_behind_a_worse_one_is_never_tried() -> None:
    found = {0: sure(50, 1), 4: sure(100, 1), 5: sure(80, 1)}
    assert next_candidate(11, found) == 2
    assert next_candidate(11, {**found, 2: sure(70, 1), 3: sure(90, 1)}) is None


def test_where_less_is_better_the_worse_are_the_larger() -> None:
    found = {0: sure(50, 1), 1: sure(60, 1)}
    assert next_candidate(3, found, is_less_better=True) is None
    assert next_candidate(3, found) == 2


def test_of_candidates_that_are_alike_the_first_is_taken() -> None:
    alike = {2: sure(100, 1), 0: sure(100, 1), 1: sure(90, 1)}
    assert choose(3, alike).best == 0
    assert choose(3, alike, is_less_better=True).best == 1


# --- what may be lost -------------------------------------------------------------------------------------------------
def test_the_only_one_that_was_tried_loses_nothing_even_if_it_ran_once() -> None:
    assert choose(1, {0: estimate([100.0])}).may_lose == 0.0


def test_one_single_run_among_several_leaves_unknown_what_may_be_lost() -> None:
    assert choose(2, {0: sure(100, 1), 1: estimate([50.0])}).may_lose is None


def test_the_loss_is_to_the_rival_that_may_be_best() -> None:
    assert choose(3, {0: sure(100, 2), 1: sure(99, 2), 2: sure(98, 8)}).may_lose == pytest.approx(1 - 98 / 106)
    slow = choose(3, {0: sure(100, 2), 1: sure(101, 2), 2: sure(102, 8)}, is_less_better=True)
    assert slow.may_lose == pytest.approx(102 / 94 - 1)


def test_a_rate_that_may_be_nothing_has_no_share_to_lose() -> None:
    nothing = {0: Estimate(-0.5, -1.0, 0.0, 5, "median"), 1: Estimate(-1.0, -2.0, 0.0, 5, "median")}
    assert choose(2, nothing).may_lose == 0.0
    assert choose(2, {0: sure(1.0, 1), 1: sure(2.0, 2)}, is_less_better=True).may_lose == 0.0
    less_than_one = choose(2, {0: sure(0.5, 0.1), 1: sure(0.4, 0.1)})
    assert less_than_one.may_lose == pytest.approx(1 - 0.4 / 0.5)
    short = choose(2, {0: sure(0.5, 0.1), 1: sure(0.4, 0.1)}, is_less_better=True)
    assert short.may_lose == pytest.approx(0.5 / 0.4 - 1)


# --- in words ---------------------------------------------------------------------------------------------------------
CHOSEN: dict[str, Any] = {
    "group": "softmax",
    "path": "cluster.ps",
    "value": 2,
    "tried": [1, 2],
    "skipped": [],
    "rivals": [],
    "may_lose": 0.0,
    "assumes": "there is one peak",
}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "softmax: best cluster.ps is 2 (2 of 2 tried)"),
        (
            {"skipped": [3, 4]},
            "softmax: best cluster.ps is 2 (2 of 4 tried, 2 saved: 3, 4, if there is one peak)",
        ),
        (
            {"rivals": [1], "may_lose": 0.0512},
            "softmax: best cluster.ps is 2 (2 of 2 tried); 1 may be as good: up to 5.1% may be lost",
        ),
        (
            {"may_lose": None, "rivals": [1]},
            "softmax: best cluster.ps is 2 (2 of 2 tried); "
            "with so few runs of each, whether another is as good is not known",
        ),
        ({"value": None}, "softmax: no cluster.ps could be tried"),
    ],
)
def test_a_choice_is_told_in_words(changes: dict[str, Any], text: str) -> None:
    assert choice_text({**CHOSEN, **changes}) == text


def test_a_search_without_its_end_is_told_with_the_reason() -> None:
    event = {"group": "softmax", "path": "cluster.ps", "reason": "the budget is over"}
    assert not_found_text(event) == "softmax: the best cluster.ps was not found: the budget is over"
