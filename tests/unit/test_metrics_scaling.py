"""Speed-ups: E1's by hand, against the baseline that is named; and trends whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.bench.plan import make_plan
from headway.metrics.published import table
from headway.metrics.scaling import Kind, Point, kind_of, speedup, trend
from headway.record.distributions import asked_batch
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
