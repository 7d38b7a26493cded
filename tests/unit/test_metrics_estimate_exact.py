"""Estimates by hand: what an interval, an error or a number of repeats is, to the digit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headway.metrics.estimate import Estimate, Floats, bootstrap, estimate, medians, missing, student


def of(value: float, low: float, high: float, num: int = 5, how: str = "median") -> Estimate:
    return Estimate(value, low, high, num, how)


# --- what an estimate says of itself ----------------------------------------------------------------------------------
def test_half_a_width_is_the_longer_side_as_a_share_of_the_value() -> None:
    assert of(10.0, 9.0, 12.0).half_width == 0.2
    assert of(10.0, 7.0, 12.0).half_width == 0.3
    assert of(-10.0, -12.0, -9.0).half_width == 0.2
    assert of(0.5, 0.25, 0.5, num=2).half_width == 0.5
    assert of(0.0, -1.0, 1.0).half_width == math.inf


@pytest.mark.parametrize(("how", "fewest"), [("median", 2), ("mean", 2), ("ratio", 2), ("mlperf", 4)])
def test_a_width_is_known_from_two_samples_on_and_for_mlperf_from_four(how: str, fewest: int) -> None:
    assert of(10.0, 9.0, 11.0, fewest - 1, how).half_width == math.inf
    assert of(10.0, 9.0, 11.0, fewest, how).half_width == 0.1


def test_narrow_is_within_the_limit_and_at_it() -> None:
    assert of(10.0, 9.5, 10.0).is_narrow(0.05)
    assert not of(10.0, 9.5, 10.0).is_narrow(0.049)


def test_the_most_that_a_median_can_be_sure_of_grows_with_its_samples() -> None:
    assert [of(1.0, 1.0, 1.0, num).confidence_limit for num in (1, 2, 3, 5)] == [0.0, 0.5, 0.75, 0.9375]
    assert of(1.0, 1.0, 1.0, 3, "mean").confidence_limit == 1.0


def test_intervals_that_touch_overlap() -> None:
    assert of(2.0, 1.0, 3.0).overlaps(of(4.0, 3.0, 5.0))
    assert of(4.0, 3.0, 5.0).overlaps(of(2.0, 1.0, 3.0))
    assert not of(2.0, 1.0, 2.9).overlaps(of(4.0, 3.0, 5.0))
    assert not of(4.0, 3.0, 5.0).overlaps(of(2.0, 1.0, 2.9))
    assert of(4.0, 1.0, 9.0).overlaps(of(4.0, 3.0, 5.0))


def test_an_error_is_scaled_without_its_sign() -> None:
    assert Estimate(2.0, 1.0, 3.0, 5, "mean", 0.5).scaled(-3.0) == Estimate(-6.0, -9.0, -3.0, 5, "mean", 1.5)


# --- MLPerf -----------------------------------------------------------------------------------------------------------
def test_mlperfs_mean_keeps_two_samples_and_leaves_two_out_from_three_on() -> None:
    assert estimate([1.0, 9.0], "mlperf").value == 5.0
    assert estimate([1.0, 2.0, 9.0], "mlperf").value == 2.0
    assert estimate([1.0, 2.0, 4.0, 90.0], "mlperf").value == 3.0


def test_of_two_samples_mlperfs_interval_is_that_of_their_mean() -> None:
    found = estimate([4.0, 6.0], "mlperf")
    assert found.error == pytest.approx(1.0)
    assert found.high - 5.0 == 5.0 - found.low == pytest.approx(12.706, abs=0.001)


def test_of_three_samples_mlperfs_interval_is_not_known() -> None:
    assert estimate([1.0, 2.0, 9.0], "mlperf") == Estimate(2.0, 2.0, 2.0, 3, "mlperf", None)


def test_mlperfs_error_is_that_of_a_trimmed_mean() -> None:
    """Tukey and McLaughlin: the deviation of (2, 2, 3, 4, 4), which is 1, times sqrt(5) / 3; t for 2 degrees."""
    found = estimate([0.0, 2.0, 3.0, 4.0, 100.0], "mlperf")
    assert found.value == 3.0
    assert found.error == pytest.approx(math.sqrt(5) / 3)
    assert found.high - found.value == pytest.approx(4.3027 * math.sqrt(5) / 3, rel=1e-4)


# --- the mean ---------------------------------------------------------------------------------------------------------
def test_a_mean_of_two_has_an_error_and_a_mean_of_one_has_none() -> None:
    assert estimate([4.0, 6.0], "mean").error == pytest.approx(1.0)
    assert estimate([4.0], "mean") == Estimate(4.0, 4.0, 4.0, 1, "mean", None)


def test_a_surer_interval_is_wider() -> None:
    samples = [4.0, 5.0, 6.0, 7.0]
    for how in ("mean", "mlperf"):
        usual, sure = estimate(samples, how), estimate(samples, how, confidence=0.99)
        assert sure.low < usual.low < usual.value < usual.high < sure.high


# --- the bootstrap ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("lengths", "blocks"), [([5], [4000]), ([1500], [2666, 1334]), ([1000, 1000], [2000, 2000])])
def test_four_thousand_resamples_are_drawn_in_blocks_that_fit_into_memory(
    lengths: list[int], blocks: list[int]
) -> None:
    seen: list[int] = []

    def statistic(drawn: list[Floats]) -> Floats:
        assert [one.shape[1] for one in drawn] == lengths
        assert len({one.shape[0] for one in drawn}) == 1
        seen.append(drawn[0].shape[0])
        return medians(drawn[0])

    bootstrap([np.arange(float(length)) for length in lengths], statistic)
    assert seen == blocks


def test_samples_too_many_for_one_block_are_drawn_one_resample_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.metrics.estimate.MOST_AT_ONCE", 3)
    monkeypatch.setattr("headway.metrics.estimate.NUM_RESAMPLES", 4)
    seen: list[int] = []

    def statistic(drawn: list[Floats]) -> Floats:
        seen.append(len(drawn[0]))
        return medians(drawn[0])

    bootstrap([np.arange(5.0)], statistic)
    assert seen == [1, 1, 1, 1]


def test_the_interval_leaves_as_much_out_below_as_above() -> None:
    """Of a statistic that is the number of the resample, the percentiles are known."""
    low, high = bootstrap([np.arange(5.0)], lambda drawn: np.arange(float(len(drawn[0]))))
    assert (low, high) == pytest.approx((0.025 * 3999, 0.975 * 3999))
    low, high = bootstrap([np.arange(5.0)], lambda drawn: np.arange(float(len(drawn[0]))), confidence=0.5)
    assert (low, high) == pytest.approx((0.25 * 3999, 0.75 * 3999))


def test_every_sample_is_drawn_about_as_often() -> None:
    """4,000 draws of 4: each comes 4,000 times, with a deviation of sqrt(16,000 * 3 / 16) = 55; five are allowed."""
    counts = np.zeros(4)

    def statistic(drawn: list[Floats]) -> Floats:
        counts[:] = np.bincount(drawn[0].astype(int).ravel(), minlength=4)
        return medians(drawn[0])

    bootstrap([np.arange(4.0)], statistic)
    assert counts.sum() == 16_000
    assert np.abs(counts - 4000).max() < 275


def test_another_seed_gives_another_interval() -> None:
    samples = list(np.random.default_rng(1).normal(100, 5, 50))
    found = {estimate(samples, seed=seed).low for seed in range(20)}
    assert len(found) > 1


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8])
def test_medians_are_those_of_numpy(length: int) -> None:
    drawn = np.random.default_rng(length).normal(0, 1, (50, length))
    assert medians(drawn) == pytest.approx(np.median(drawn, axis=1))


# --- how many more ----------------------------------------------------------------------------------------------------
def test_three_repeats_are_the_fewest() -> None:
    assert [missing([100.0] * num, 0.05) for num in (1, 2, 3)] == [2, 1, 0]


def test_where_no_width_is_known_one_more_is_tried() -> None:
    assert missing([1.0, 2.0, 3.0], 0.05, how="mlperf") == 1


def test_half_the_width_takes_four_times_as_many() -> None:
    samples = [9.0, 10.0, 11.0, 10.0]
    width = estimate(samples, "mean").half_width
    assert missing(samples, width, "mean") == 0
    assert missing(samples, width / 2, "mean") == 12
    assert missing(samples, width * 0.999, "mean") == 1


# --- Student's t ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    [
        (0.5, 1, 1.0),
        (0.99, 1, 63.657),
        (0.99, 2, 9.925),
        (0.99, 3, 5.841),
        (0.9, 4, 2.132),
        (0.99, 7, 3.499),
        (0.99, 30, 2.750),
        (0.99, 200, 2.601),
        (0.999, 199, 3.340),
    ],
)
def test_quantiles_are_those_of_the_tables(confidence: float, freedom: int, quantile: float) -> None:
    assert student(confidence, freedom) == pytest.approx(quantile, abs=6e-4)


def test_many_degrees_are_exact_too() -> None:
    assert student(0.95, 201) == pytest.approx(1.971836506779859, rel=1e-9)
    assert student(0.95, 10**6) == pytest.approx(1.959966356814107, rel=1e-9)
