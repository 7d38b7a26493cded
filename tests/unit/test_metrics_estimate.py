"""Estimates and effects: known truths, and how often an interval holds them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headway.metrics.effect import in_words, is_difference, ratio
from headway.metrics.estimate import Estimate, estimate, jitter, mad, missing, student


def coverage(how: str, num: int, trials: int = 100) -> float:
    """The share of simulated experiments whose interval holds the true median (and mean) of 100."""
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(trials):
        found = estimate(list(random.normal(100, 5, num)), how)
        hits += found.low <= 100 <= found.high
    return hits / trials


@pytest.mark.parametrize("how", ["median", "mean", "mlperf"])
@pytest.mark.parametrize("num", [5, 20])
def test_an_interval_holds_the_truth_about_as_often_as_it_says(how: str, num: int) -> None:
    assert 0.90 <= coverage(how, num) <= 0.99


def test_three_repeats_cannot_be_as_sure_and_say_so() -> None:
    assert coverage("median", 3) == pytest.approx(estimate([1.0, 2.0, 3.0]).confidence_limit, abs=0.1)
    assert estimate([1.0, 2.0, 3.0]).confidence_limit == 0.75


def test_the_same_samples_give_the_same_interval() -> None:
    samples = [4.1, 4.3, 3.9, 4.0, 4.4, 4.2]
    assert estimate(samples) == estimate(samples)
    assert estimate(samples).value == pytest.approx(4.15)


def test_one_outlier_moves_the_mean_but_not_the_median() -> None:
    samples = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 2.0]
    assert estimate(samples).value == 10.0
    assert estimate(samples, "mean").value < 9
    assert estimate(samples, "mlperf").value == pytest.approx(9.98, abs=0.01)


def test_mlperf_leaves_out_the_best_and_the_worst() -> None:
    assert estimate([1.0, 5.0, 6.0, 7.0, 100.0], "mlperf").value == 6.0


def test_the_mean_comes_with_its_standard_error() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0], "mean")
    assert found.error == pytest.approx(math.sqrt(5 / 3) / 2)
    assert found.high - found.value == pytest.approx(3.1824 * (found.error or 0), rel=1e-4)


def test_jitter_is_that_of_tf_cnn_benchmarks() -> None:
    assert mad([1.0, 2.0, 3.0, 4.0, 100.0]) == 1.0
    assert jitter([1.0, 2.0, 3.0, 4.0, 100.0]) == pytest.approx(1.4826)


def test_of_a_single_sample_the_interval_is_not_known() -> None:
    for how in ("median", "mean", "mlperf"):
        found = estimate([3.0], how)
        assert (found.value, found.num) == (3.0, 1)
        assert not found.is_narrow(1e9)


def test_repeats_that_are_missing_follow_from_the_width() -> None:
    assert missing([100.0] * 5, 0.05) == 0
    assert missing([100.0], 0.05) == 2
    assert missing([80.0, 100.0, 120.0, 90.0, 110.0], 0.05) == 75  # 20 % each way: 16 times as many are needed
    assert missing([94.0, 100.0, 106.0], 0.05) == 2


def test_enough_repeats_are_enough() -> None:
    """Sampling as many as are said to be missing makes the interval about narrow."""
    random = np.random.default_rng(3)
    samples = list(random.normal(100, 8, 6))
    for _ in range(10):
        more = missing(samples, 0.05)
        if not more:
            break
        samples += list(random.normal(100, 8, more))
    assert estimate(samples).is_narrow(0.05)
    assert len(samples) < 60


def test_student_is_the_tables() -> None:
    for freedom, quantile in {
        1: 12.706,
        2: 4.303,
        3: 3.182,
        4: 2.776,
        5: 2.571,
        10: 2.228,
        30: 2.042,
        1000: 1.962,
    }.items():
        assert student(0.95, freedom) == pytest.approx(quantile, abs=1e-3)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_what_is_no_sample_is_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="sample"):
        estimate(samples)


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed: median"):
        estimate([1.0], "mode")


def test_a_ratio_holds_the_true_ratio() -> None:
    random = np.random.default_rng(11)
    hits = 0
    for _ in range(100):
        found = ratio(list(random.normal(120, 4, 8)), list(random.normal(100, 4, 8)))
        hits += found.low <= 1.2 <= found.high
    assert hits >= 90


def test_an_effect_is_one_only_outside_of_chance() -> None:
    clear = ratio([12.0, 12.1, 11.9, 12.2, 11.8], [10.0, 10.1, 9.9, 10.2, 9.8])
    assert is_difference(clear)
    assert in_words(clear).startswith("20.0 % more (")
    unclear = ratio([10.0, 12.0, 8.0], [10.5, 9.0, 11.0])
    assert not is_difference(unclear)
    assert in_words(unclear).startswith("no clear difference")
    alone = ratio([30.0], [10.0])
    assert not is_difference(alone)
    assert in_words(alone) == "3 times as much, with one sample on a side, which says nothing of chance"


def test_a_ratio_to_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        ratio([1.0], [0.0])


def test_another_unit_turns_an_interval_round_only_where_it_must() -> None:
    assert Estimate(2.0, 1.0, 3.0, 5, "median").scaled(0.5) == Estimate(1.0, 0.5, 1.5, 5, "median")
    assert Estimate(2.0, 1.0, 3.0, 5, "median").scaled(-1) == Estimate(-2.0, -3.0, -1.0, 5, "median")


def test_narrow_is_to_each_side() -> None:
    """Half of its width is 5 %, but upwards it reaches 10 %: times are skewed as a rule."""
    skewed = Estimate(100.0, 100.0, 110.0, 5, "median")
    assert skewed.half_width == pytest.approx(0.1)
    assert not skewed.is_narrow(0.05)
