"""Speed-ups: E1's by hand, against the baseline that is named; and trends whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from headway.bench.plan import make_plan
from headway.metrics.estimate import Estimate
from headway.metrics.published import table
from headway.metrics.scaling import Kind, Point, Speedup, Trend, kind_of, speedup, trend, what_is
from headway.record.distributions import asked_batch
from headway.report.charts import about
from headway.spec.load import parse_job
from headway.spec.resolve import resolve
from headway.spec.sweep import load_sweep

EXAMPLES = Path(__file__).parents[2] / "examples"
KINDS: tuple[Kind, ...] = ("strong", "weak")


def e1_points() -> list[Point]:
    series = table("e1-scaling").series[0]
    return [Point(int(tasks), (seconds,), f"{tasks:g} tasks") for tasks, seconds in table("e1-scaling").points(series)]


def test_e1_against_its_single_machine() -> None:
    points = e1_points()
    found = speedup(points, points[0], "strong", of="seconds")
    by_hand = {1: 1.0, 2: 6677 / 4759, 3: 6677 / 3201, 4: 6677 / 2340, 5: 6677 / 2067, 6: 6677 / 1847}
    assert {one.tasks: one.value.value for one in found} == pytest.approx(by_hand)
    assert found[-1].efficiency.value == pytest.approx(6677 / 1847 / 6)  # 0.60: far below linear
    assert {one.baseline for one in found} == {"1 tasks"}


def test_e1_looks_above_linear_when_the_master_is_not_counted() -> None:
    """What E1 did in one place: workers as tasks, and the two tasks of `1 worker` as baseline."""
    workers = [Point(point.tasks - 1, point.samples, point.label) for point in e1_points()[1:]]
    found = speedup(workers, workers[0], "strong", of="seconds")
    assert found[1].efficiency.value < 1 < speedup(e1_points(), e1_points()[0], "strong", "seconds")[2].value.value
    assert found[-1].baseline == "2 tasks"  # the name tells


def test_of_rates_strong_and_weak_are_the_same_quotient() -> None:
    base, four = Point(1, (100.0, 101.0, 99.0), "single"), Point(4, (320.0, 324.0, 316.0), "4 tasks")
    for kind in KINDS:
        (found,) = speedup([four], base, kind)
        assert found.value.value == pytest.approx(3.2)
        assert found.efficiency.value == pytest.approx(0.8)
        assert found.efficiency.low < 0.8 < found.efficiency.high


def test_of_seconds_weak_scaling_counts_the_work_that_has_grown() -> None:
    """A step with twice the examples in the same time is a speed-up of 2; with as many in half the time, too."""
    alone = Point(1, (1.0,), "single")
    assert speedup([Point(2, (1.0,), "2")], alone, "weak", "seconds")[0].value.value == 2.0
    assert speedup([Point(2, (0.5,), "2")], alone, "strong", "seconds")[0].value.value == 2.0


def asked(steps: int | None, batch: int, global_batch: int | None = None) -> list[dict[str, Any]]:
    """Two repeats that were asked for so many global steps, with so many examples in each."""
    return [{"asked_steps": steps, "asked_batch": batch, "global_batch_size": global_batch}] * 2


@pytest.mark.parametrize(
    ("figures", "baseline", "of_time", "of_rate"),
    [
        (asked(10000, 100), asked(10000, 100), "strong", "weak"),  # E1 --full: ps-async, one batch in a step
        (asked(6000, 300), asked(6000, 100), "weak", "weak"),  # ps-sync, each of three tasks has its batch
        (asked(6000, 100, 100), asked(6000, 100, 100), "strong", "strong"),
        (asked(94, 6400), asked(600, 1000), "strong", "weak"),  # ten epochs of 60,000: steps are rounded up
        (asked(None, 300), asked(None, 100), "weak", "weak"),  # so many measured steps of each task
        (asked(None, 100, 100), asked(None, 100, 100), "strong", "strong"),
        (asked(10000, 100), asked(None, 100), "weak", "weak"),
        (asked(10000, 100), [], "weak", "weak"),
    ],
)
def test_of_a_time_strong_scaling_is_the_same_work_in_all(
    figures: list[dict[str, Any]], baseline: list[dict[str, Any]], of_time: str, of_rate: str
) -> None:
    assert kind_of(figures, baseline, "training_seconds") == of_time
    assert kind_of(figures, baseline, "examples_per_s") == of_rate
    assert kind_of(figures) == of_rate
    assert kind_of(figures, baseline, "time_to_accuracy.0.9") == "strong"  # the same goal


def test_of_unlike_batches_the_work_is_what_was_made_of_the_steps() -> None:
    unlike: list[dict[str, Any]] = [{"asked_steps": 1000, "asked_batch": None, "effective_batch": 100.4}]
    assert kind_of(unlike, asked(1000, 100), "training_seconds") == "strong"


def test_e1s_full_method_is_strong_and_its_local_form_is_weak() -> None:
    """As its jobs ask for it: what a run would be called follows from the example alone."""
    for full, kind in ((True, "strong"), (False, "weak")):
        plan = make_plan(load_sweep(EXAMPLES / "e1-scaling.yaml", full=full), num_cores=2)
        jobs = {trial.tasks: resolve(parse_job(trial.job), 2, core_speed=1.0).job for trial in plan.trials}
        figures = {
            tasks: [{"asked_steps": job.training.stop.steps, "asked_batch": asked_batch(job.model_dump(mode="json"))}]
            for tasks, job in jobs.items()
        }
        assert sorted(figures) == [1, 2, 3, 4, 5, 6]
        assert {kind_of(figures[n], figures[1], "training_seconds") for n in range(2, 7)} == {kind}


def test_a_baseline_may_have_several_tasks() -> None:
    two, four = Point(2, (100.0,), "2 tasks"), Point(4, (150.0,), "4 tasks")
    (found,) = speedup([four], two, "strong")
    assert (found.value.value, found.efficiency.value) == (1.5, 0.75)


def test_above_linear_is_said_only_when_it_is_no_chance() -> None:
    base = Point(1, (100.0, 101.0, 99.0, 100.5, 99.5), "single")
    (clear,) = speedup([Point(2, (230.0, 231.0, 229.0, 232.0, 228.0), "2")], base, "strong")
    (noisy,) = speedup([Point(2, (180.0, 240.0, 205.0, 190.0, 230.0), "2")], base, "strong")
    assert clear.is_above_linear
    assert not noisy.is_above_linear


@pytest.mark.parametrize(
    ("low", "high", "num", "above", "below"),
    [
        (1.01, 1.2, 2, True, False),
        (1.0, 1.2, 5, False, False),
        (0.9, 1.1, 5, False, False),
        (0.8, 1.0, 5, False, False),
        (0.8, 0.99, 2, False, True),
        (1.5, 1.5, 1, False, False),  # one sample says nothing of chance
        (0.5, 0.5, 1, False, False),
    ],
)
def test_an_interval_that_holds_the_ideal_is_neither_above_nor_below_linear(
    low: float, high: float, num: int, above: bool, below: bool
) -> None:
    efficiency = Estimate((low + high) / 2, low, high, num, "ratio")
    found = Speedup(2, efficiency.scaled(2), efficiency, "single")
    assert (found.is_above_linear, found.is_below_linear) == (above, below)


@pytest.mark.parametrize(("efficiency", "is_short"), [(0.89, True), (0.9, False), (1.0, False)])
def test_below_nine_tenths_of_ideal_one_asks_why(efficiency: float, is_short: bool) -> None:
    value = Estimate(efficiency, efficiency, efficiency, 3, "ratio")
    assert Speedup(2, value.scaled(2), value, "single").is_short == is_short


def test_speed_ups_come_in_the_order_of_tasks_and_then_of_labels() -> None:
    points = [Point(4, (1.0,), "b"), Point(2, (1.0,), "z"), Point(4, (1.0,), "a")]
    found = speedup(points, Point(1, (1.0,), "single"), "strong")
    assert [(one.tasks, one.label) for one in found] == [(2, "z"), (4, "a"), (4, "b")]


def test_work_that_differs_by_a_hundredth_is_the_same_and_by_more_is_not() -> None:
    assert kind_of(asked(1000, 101), asked(1000, 100), "training_seconds") == "strong"
    assert kind_of(asked(1000, 102), asked(1000, 100), "training_seconds") == "weak"


def test_of_times_less_is_faster() -> None:
    times = ("training_seconds", "time_to_train", "seconds", "time_to_accuracy.0.9")
    assert {what_is(figure) for figure in times} == {"seconds"}
    assert {what_is(figure) for figure in ("examples_per_s", "steps_per_s", "time_to_accuracy")} == {"rate"}


def law(tasks: int, each: float = 50.0, contention: float = 0.08, coherency: float = 0.01) -> float:
    return each * tasks / (1 + contention * (tasks - 1) + coherency * tasks * (tasks - 1))


def test_a_trend_finds_the_law_that_made_the_points() -> None:
    points = [Point(tasks, (law(tasks),), "") for tasks in (1, 2, 3, 4, 6, 8)]
    found = trend(points)
    assert found is not None
    assert (found.each, found.contention, found.coherency) == pytest.approx((50.0, 0.08, 0.01))
    assert found.residual == pytest.approx(0, abs=1e-9)
    assert found.peak == pytest.approx((0.92 / 0.01) ** 0.5)
    assert found.rate(8) == pytest.approx(law(8))
    assert found.limit == pytest.approx(law(10), rel=0.01)


@pytest.mark.parametrize(
    ("rates", "misfit"),
    [
        ((100.0, 190.0, 350.0), None),
        ((100.0, 90.0, 70.0), "slower"),  # 392.8 % "cannot be done at the same time" stood here
        ((100.0, 30.0, 26.0), "slower"),
        ((100.0, 200.0, 400.0), None),
        ((100.0, 230.0, 520.0), "superlinear"),
    ],
)
@pytest.mark.parametrize("kind", ["amdahl", "usl"])
def test_a_law_that_does_not_fit_says_so_and_its_contention_is_a_share_else(
    rates: tuple[float, ...], misfit: str | None, kind: Literal["amdahl", "usl"]
) -> None:
    found = trend([Point(tasks, (rate,), "") for tasks, rate in zip((1, 2, 4), rates, strict=True)], kind)
    assert found is not None
    assert found.misfit == misfit or (kind == "usl" and found.misfit is None)  # which has a term for slower ones
    assert found.misfit or 0 <= found.contention <= 1
    assert ("does not fit" in about(found)) == (found.misfit is not None)
    assert ("cannot be done at the same time" in about(found)) == (found.misfit is None)
    assert found.limit is None or found.limit >= found.each * 0.99 or found.coherency > 0


def test_amdahl_has_a_limit_and_no_peak() -> None:
    found = trend([Point(tasks, (law(tasks, coherency=0.0),), "") for tasks in (1, 2, 4)], "amdahl")
    assert found is not None
    assert found.contention == pytest.approx(0.08)
    assert found.peak is None
    assert found.limit == pytest.approx(50 / 0.08)


def test_a_trend_near_the_noise_stays_near_the_law() -> None:
    random = np.random.default_rng(5)
    points = [Point(tasks, tuple(law(tasks) * random.normal(1, 0.02, 5)), "") for tasks in (1, 2, 3, 4, 6, 8)]
    found = trend(points)
    assert found is not None
    assert found.contention == pytest.approx(0.08, abs=0.04)
    assert found.residual < 0.03


def test_parameters_are_never_negative() -> None:
    """Points above linear would fit a negative contention, which means nothing."""
    found = trend([Point(1, (100.0,), ""), Point(2, (210.0,), ""), Point(4, (440.0,), "")])
    assert found is not None
    assert (found.contention, found.coherency, found.limit) == (0.0, 0.0, None)


def test_too_few_sizes_make_no_trend() -> None:
    assert trend([Point(1, (1.0,), ""), Point(2, (2.0,), "")]) is None
    assert trend([Point(1, (1.0,), "")], "amdahl") is None
    assert trend([Point(2, (1.0,), ""), Point(2, (1.1,), ""), Point(2, (1.2,), "")], "amdahl") is None, "one size"


def test_two_sizes_are_enough_for_amdahl_and_three_for_the_universal_law() -> None:
    points = [Point(tasks, (law(tasks),), "") for tasks in (1, 2, 3)]
    amdahl, usl = trend(points[:2], "amdahl"), trend(points)
    assert amdahl is not None
    assert (amdahl.law, amdahl.num, amdahl.coherency) == ("amdahl", 2, 0.0)
    assert amdahl.rate(2) == pytest.approx(law(2))
    assert usl is not None
    assert (usl.law, usl.num) == ("usl", 3)
    assert usl.coherency == pytest.approx(0.01)


def test_points_without_a_rate_or_without_tasks_make_no_trend() -> None:
    good = [Point(tasks, (law(tasks),), "") for tasks in (1, 2, 3)]
    assert trend([*good, Point(4, (0.0,), "")]) is None
    assert trend([*good, Point(0, (1.0,), "")]) is None
    assert trend([Point(tasks, (0.5 * tasks,), "") for tasks in (1, 2, 3)]) is not None, "a rate below one is a rate"


def test_a_law_whose_peak_is_below_one_task_is_fastest_with_one() -> None:
    crowded = Trend("usl", each=50.0, contention=0.9, coherency=0.5, residual=0.0, num=3)
    assert crowded.peak == pytest.approx((0.1 / 0.5) ** 0.5)
    assert crowded.limit == 50.0
    worse = Trend("usl", each=50.0, contention=1.5, coherency=0.5, residual=0.0, num=3)
    assert worse.peak == 0.0


def test_a_law_without_contention_and_coherency_has_neither_peak_nor_limit() -> None:
    ideal = Trend("amdahl", each=50.0, contention=0.0, coherency=0.0, residual=0.0, num=2)
    assert (ideal.peak, ideal.limit, ideal.rate(3)) == (None, None, 150.0)


def test_the_residual_is_the_root_of_the_mean_squared_relative_error() -> None:
    """Two repeats of each size, 10 % above and below what the law gives: it goes between them."""
    points = [Point(tasks, (law(tasks, coherency=0.0) * off,), "") for tasks in (1, 2, 4) for off in (0.9, 1.1)]
    found = trend(points, "amdahl")
    assert found is not None
    between = found.each / 50.0
    expected = (((between / 0.9 - 1) ** 2 + (between / 1.1 - 1) ** 2) / 2) ** 0.5
    assert found.residual == pytest.approx(expected)
