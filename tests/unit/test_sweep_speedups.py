"""Speed-ups in a sweep's table: against what, how sure, and which trial is the best."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from test_sweep_cli import says
from test_sweep_folder import record, sweep_file

from headway.bench.conduct import prepare
from headway.bench.folder import SweepFolder, Trial, TrialRun
from headway.bench.speedups import Best, best_of, plus_minus, speedups
from headway.metrics.estimate import Estimate
from headway.record.folder import RunFolder
from headway.spec.sweep import load_sweep

NOISE = (0.99, 1.0, 1.01)
RATE = "examples_per_s"


def trial(strategy: str, rate: float, noise: tuple[float, ...] = NOISE, **changes: Any) -> Trial:
    """Runs of that many examples a second, and of 1,000 examples in all."""
    runs = []
    for repeat, factor in enumerate(noise):
        run = TrialRun(RunFolder(Path("nowhere")), repeat, counts=True, marks=())
        figures = {RATE: rate * factor, "training_seconds": 1000 / (rate * factor), "train_loss": 1.0}
        run.__dict__["figures"] = {**figures, "asked_steps": 10, "asked_batch": 100}  # as if it had been read
        runs.append(run)
    workload = {"model": "softmax", "batch_size": 100, **changes.pop("workload", {})}
    settings = {"strategy": strategy, **changes.pop("settings", {})}
    fixed: dict[str, Any] = {"tasks": 2, "is_baseline": False, "data": "real", "state": "done", "reason": None}
    job = {"workload": workload, "strategy": {"kind": strategy}}
    key = "-".join(map(str, settings.values()))
    return Trial(key=key, settings=settings, runs=runs, job=job, **{**fixed, **changes})


def single(rate: float, **changes: Any) -> Trial:
    return trial("single", rate, **{"is_baseline": True, "tasks": 1, "purpose": "baseline", **changes})


def found_in(*trials: Trial, figure: str = RATE) -> dict[str, tuple[str, float]]:
    found = speedups(trials, figure)
    return {key: (one.reference.key, round(one.value.value, 3)) for key, one in found.items()}


def best_in(*trials: Trial, figure: str = RATE) -> Best:
    found = best_of(speedups(trials, figure), figure)
    assert found is not None
    return found


def test_without_a_baseline_the_first_trial_is_the_reference() -> None:
    trials = trial("ps-sync", 10), trial("allreduce", 22), trial("ps-async", 15)
    assert found_in(*trials) == {"allreduce": ("ps-sync", 2.2), "ps-async": ("ps-sync", 1.5)}
    assert best_in(*trials).words("examples/s") == "allreduce is 2.20 +/- 0.04 times ps-sync in examples/s"


def test_with_baselines_it_is_against_the_one_with_the_same_workload_and_data() -> None:
    def of(batch: int) -> dict[str, Any]:
        return {"workload": {"batch_size": batch}, "settings": {"workload.batch_size": batch}}

    trials = [
        *(single(10, **of(50)), single(8, **of(100))),
        *(trial("allreduce", 15, **of(50)), trial("allreduce", 14, **of(100)), trial("allreduce", 9, **of(200))),
        trial("ps-async", 9, **of(100), data="synthetic"),
    ]
    assert found_in(*trials) == {"allreduce-50": ("single-50", 1.5), "allreduce-100": ("single-100", 1.75)}
    assert best_in(*trials).found.trial.key == "allreduce-50"  # the fastest, not the one with the slowest baseline


def test_a_single_machine_that_is_tried_besides_is_a_baseline_for_its_own_data() -> None:
    real: dict[str, Any] = {"workload": {"dataset": "mnist"}, "settings": {"workload.dataset": "mnist"}}
    trials = [
        *(single(10, data="synthetic"), trial("allreduce", 15, data="synthetic")),
        trial("single", 8, **real, tasks=1, purpose="also"),
        trial("allreduce", 12, **real, purpose="also"),
    ]
    assert found_in(*trials) == {"allreduce": ("single", 1.5), "allreduce-mnist": ("single-mnist", 1.5)}


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ((10, 10.05, 9), "no difference beyond chance: allreduce is 0.99 to 1.03 times ps-sync in x"),
        ((10, 5, 4), "none is faster than ps-sync: allreduce is 0.50 +/- 0.01 times ps-sync in x"),
        ((10, 20, 19.9), "allreduce is 2.00 +/- 0.04 times ps-sync in x; ps-async may be as fast"),
    ],
)
def test_nothing_is_claimed_that_may_be_chance(rates: tuple[float, ...], words: str) -> None:
    names = ("ps-sync", "allreduce", "ps-async")
    found = best_in(*(trial(name, rate) for name, rate in zip(names, rates, strict=True)))
    assert found.words("x") == words
    assert found.as_value("x")["is_clear"] == ("chance" not in words)


def test_one_run_of_each_says_nothing_of_chance() -> None:
    found = best_in(trial("ps-sync", 10, (1.0,)), trial("allreduce", 20, (1.0,)), trial("ps-async", 19, (1.0,)))
    words = "allreduce is 2.00 times ps-sync in x, by a single run: it may be chance; ps-async may be as fast"
    assert found.words("x") == words
    assert not found.as_value("x")["is_clear"]


def test_many_that_may_be_as_fast_are_counted() -> None:
    many = [trial(f"s{number}", 20) for number in range(6)]
    assert best_in(trial("ps-sync", 10), *many).words("x").endswith("in x; 5 other trials may be as fast")


def test_shorter_is_faster() -> None:
    trials = trial("ps-sync", 10), trial("allreduce", 20), trial("ps-async", 5)
    assert found_in(*trials, figure="training_seconds") == {"allreduce": ("ps-sync", 2.0), "ps-async": ("ps-sync", 0.5)}
    words = best_in(*trials, figure="training_seconds").words("training seconds")
    assert words == "allreduce is 2.00 +/- 0.04 times as fast as ps-sync by training seconds"


def test_what_is_no_speed_has_no_speedup() -> None:
    trials = trial("ps-sync", 10), trial("allreduce", 20)
    assert speedups(trials, "train_loss") == {}
    assert best_of({}, "train_loss") is None


def test_another_model_and_a_trial_without_runs_have_no_speedup() -> None:
    other = trial("allreduce", 20, workload={"model": "linear"})
    assert found_in(trial("ps-sync", 10), other, trial("ps-async", 20, ())) == {}


def test_settings_tried_alone_are_compared_with_the_job_as_it_is() -> None:
    alone: dict[str, Any] = {"purpose": "one_at_a_time"}
    trials = trial("ps-sync", 5), trial("ps-async", 10, **alone), trial("allreduce", 20, **alone)
    assert found_in(*trials) == {"ps-sync": ("ps-async", 0.5), "allreduce": ("ps-async", 2.0)}


def test_of_a_search_the_chosen_one_is_the_best() -> None:
    tried: dict[str, Any] = {"purpose": "search", "data": "synthetic", "group": "ps"}
    trials = [
        *(single(10), single(11, data="synthetic", settings={"data": "synthetic"})),
        trial("ps-sync", 20, **tried, settings={"cluster.ps": 1}),
        trial("ps-sync", 30, **tried, settings={"cluster.ps": 2, "data": "synthetic"}),
        trial("ps-sync", 25, purpose="best", group="ps", settings={"cluster.ps": 2}),
    ]
    assert best_in(*trials).words("x") == "ps-sync, ps 2, real data is 2.50 +/- 0.05 times single in x"


@pytest.mark.parametrize(
    ("low", "value", "high", "text"),
    [
        (2.11, 2.18, 2.2, "2.18 +/- 0.07"),
        (2.1, 2.2, 2.3, "2.2 +/- 0.1"),
        (1.27, 1.66, 2.53, "1.7 (1.3 to 2.5)"),
        (10.0, 14.0, 29.0, "14 (10 to 29)"),
        (2.0, 2.0, 2.0, "2.00 +/- 0.00"),
        (1.99999, 2.0, 2.00001, "2.0000 +/- 0.0000"),
    ],
)
def test_an_interval_has_as_many_digits_as_it_is_sure_of(low: float, value: float, high: float, text: str) -> None:
    assert plus_minus(Estimate(value, low, high, 3, "ratio")) == text


@pytest.fixture
def measured(tmp_path: Path) -> SweepFolder:
    """100 and 200 examples a second."""
    sweep = prepare(load_sweep(sweep_file(tmp_path)), tmp_path)
    for key in ("batch-size-10", "batch-size-20"):
        for repeat, factor in enumerate(NOISE):
            record(sweep, key, 0.1 * factor, repeat)
    return sweep


def test_the_table_has_a_column_and_a_last_line(measured: SweepFolder) -> None:
    root = measured.path.parents[1]
    lines = says(root, "sweeps", "show", "last").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("trial"))
    place = lines[begin].index("speed-up")
    assert [line[place:].split("  ")[0] for line in lines[begin + 1 : begin + 3]] == ["1", "2.00 +/- 0.04"]
    assert "speed-up: times batch_size 10; the sweep has no baseline, so its first trial is the reference" in lines
    assert lines[-1] == "best       batch_size 20 is 2.00 +/- 0.04 times batch_size 10 in examples/s"
    assert "speed-up" not in says(root, "sweeps", "show", "last", "--figure", "train_loss")


def test_programs_get_the_speedup_with_its_interval(measured: SweepFolder) -> None:
    root = measured.path.parents[1]
    found = json.loads(says(root, "sweeps", "show", "last", "-o", "json"))
    first, second = found["trials"]
    assert (first["speedup"], first["is_reference"], second["against"]) == (None, True, "batch-size-10")
    assert second["speedup"] == pytest.approx(2.0)
    assert second["speedup_low"] < second["speedup"] < second["speedup_high"]
    assert second["efficiency"] == pytest.approx(2.0)  # the same number of tasks
    assert found["best"]["trial"] == "batch-size-20"
    assert found["best"]["words"].startswith("batch_size 20 is 2.00")
    table = list(csv.DictReader(io.StringIO(says(root, "sweeps", "show", "last", "-o", "csv"))))
    assert float(table[1]["speedup"]) == pytest.approx(2.0)
