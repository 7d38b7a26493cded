"""The overhead benchmark's arithmetic, and that both of its sides are told to do the same. Nothing is timed."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.launch.commands import task_command
from headway.record.folder import RunFolder
from headway.spec.load import parse_job

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import overhead_cases as cases  # noqa: E402
import overhead_figures as figures  # noqa: E402
import overhead_report as report  # noqa: E402

CORES = [4, 7]


# --- rates ---------------------------------------------------------------------------------------------------
def steps(began: float, seconds: float, count: int, warmup: int = 0) -> figures.Progress:
    return figures.progress_of(began, [began + seconds * (n + 1) for n in range(count)], [100] * count, warmup)


def test_a_steady_task_has_its_rate_whatever_the_warm_up() -> None:
    for warmup in (0, 3, 9):
        assert figures.rate_of([steps(50.0, 0.5, 10, warmup)]) == pytest.approx(200)


def test_slow_first_steps_are_left_out() -> None:
    task = figures.progress_of(0.0, [5.0, 6.0, 6.5, 7.0, 7.5], [100] * 5, warmup=2)
    assert figures.rate_of([task]) == pytest.approx(200)


def test_rates_add_up_only_while_all_train() -> None:
    early, late = steps(0.0, 0.5, 20), steps(4.0, 1.0, 20)  # 0..10 and 4..24: both in 4..10
    assert figures.window_of([early, late]) == (4.0, 10.0)
    assert figures.rate_of([early, late]) == pytest.approx(300)


def test_a_step_that_the_window_cuts_counts_in_part() -> None:
    early, late = steps(0.0, 1.0, 4), steps(0.5, 1.0, 4)
    assert figures.rate_of([early, late]) == pytest.approx(200)


def test_tasks_that_never_train_together_have_no_rate() -> None:
    with pytest.raises(ValueError, match="same time"):
        figures.rate_of([steps(0.0, 1.0, 4), steps(9.0, 1.0, 4)])


# --- intervals -----------------------------------------------------------------------------------------------
def test_the_interval_holds_the_median_and_narrows_with_more_pairs() -> None:
    few = [0.9, 0.95, 1.0, 1.05, 1.1]
    some, many = figures.bootstrap(few), figures.bootstrap(few * 8)
    assert some.low <= some.median == many.median == 1.0 <= some.high
    assert many.high - many.low < some.high - some.low
    assert some == figures.bootstrap(few)


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    import numpy as np

    draw = np.random.default_rng(5)
    intervals = [figures.bootstrap(draw.normal(1.0, 0.1, 15).tolist()) for _ in range(200)]
    assert 0.90 <= sum(one.low <= 1.0 <= one.high for one in intervals) / 200 <= 1.0


def sample(variant: str, pair: int, rate: float, case: str = "single:softmax", **changes: Any) -> figures.Sample:
    usual = {"first_step_seconds": 4.0, "peak_rss": 600e6, "loaded": False}
    return {
        "kind": "sample",
        "case": case,
        "variant": variant,
        "pair": pair,
        "examples_per_s": rate,
        **usual,
        **changes,
    }


def pairs(*ratios: float, bare: Any = None, **changes: Any) -> list[figures.Pair]:
    return [
        figures.Pair(sample("bare", n, 1000.0, **(bare or {})), sample("headway", n, 1000.0 * ratio, **changes))
        for n, ratio in enumerate(ratios)
    ]


def test_pairs_are_added_until_the_interval_is_narrow_or_there_are_enough() -> None:
    assert not figures.is_enough(pairs(1, 1, 1, 1), min_pairs=5, max_pairs=30)
    assert figures.is_enough(pairs(0.99, 1, 1, 1, 1.01), min_pairs=5, max_pairs=30)
    scattered = pairs(0.8, 0.9, 1.0, 1.1, 1.2)
    assert not figures.is_enough(scattered, min_pairs=5, max_pairs=30)
    assert figures.is_enough(scattered, min_pairs=5, max_pairs=5)
    assert figures.expected_pairs(scattered, min_pairs=5, max_pairs=30) == 30


def test_half_pairs_other_cases_and_disturbed_pairs_do_not_count() -> None:
    samples = [
        {"kind": "begin"},
        sample("headway", 2, 990.0),
        sample("bare", 2, 1000.0),
        sample("bare", 3, 1000.0),
        sample("bare", 4, 1000.0, "single:mnist_cnn"),
        sample("headway", 4, 1000.0, "single:mnist_cnn"),
        sample("bare", 5, 1000.0),
        sample("headway", 5, 500.0, loaded=True),
    ]
    every = figures.pairs_of(samples, "single:softmax")
    assert [pair.ratio("examples_per_s") for pair in every] == [0.99, 0.5]
    assert figures.counted(every, keep_loaded=False) == every[:1]
    assert figures.counted(every, keep_loaded=True) == every


# --- verdicts ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "ratios", "changes", "missed"),
    [
        ("mnist_cnn", [0.98, 0.98, 0.98], {}, []),
        ("mnist_cnn", [0.96, 0.96, 0.96], {}, ["rate"]),
        ("mnist_cnn", [0.94, 0.98, 0.98], {}, ["rate"]),  # the lower bound
        ("softmax", [0.91, 0.91, 0.91], {}, []),
        ("softmax", [0.89, 0.89, 0.89], {}, ["rate"]),
        ("softmax", [1.1, 1.1, 1.1], {"first_step_seconds": 5.1, "peak_rss": 661e6}, ["first step", "memory"]),
        ("softmax", [1.1, 1.1, 1.1], {"first_step_seconds": 5.0, "peak_rss": 660e6}, []),
    ],
)
def test_what_was_wanted_and_missed(model: str, ratios: list[float], changes: Any, missed: list[str]) -> None:
    verdict = figures.verdict(f"single:{model}", model, pairs(*ratios, **changes))
    assert verdict.missed == missed
    assert ("| yes" in figures.overhead_table([verdict])) == (not missed)


@pytest.mark.parametrize(("servers", "missed"), [(440e6, []), (441e6, ["server memory"])])
def test_servers_memory_is_judged_apart_from_that_of_training_tasks(servers: float, missed: list[str]) -> None:
    both = pairs(1.0, 1.0, 1.0, bare={"server_peak_rss": 400e6}, peak_rss=540e6, server_peak_rss=servers)
    verdict = figures.verdict("ps-sync:softmax", "softmax", both)
    assert verdict.memory == pytest.approx(0.9)
    assert verdict.server_memory == pytest.approx(servers / 400e6)
    assert verdict.missed == missed
    table = figures.overhead_table([verdict, figures.verdict("single:softmax", "softmax", pairs(1.0, 1.0))])
    assert "0.90 (600 / 540 MB)" in table and "1.10 (400 / 44" in table
    assert "| - " in table.splitlines()[-1]  # no servers


def core(rate: float, **changes: Any) -> figures.Sample:
    usual = {"sgemm_gflops": 82.0, "examples_per_s": rate, "loaded": False, "sgemm_loaded": False}
    return {"kind": "core", **usual, **changes}


def test_the_bare_cnn_is_held_against_the_core() -> None:
    for rate, is_reached in ((401.0, True), (399.0, False)):  # 8.2 GFLOP in 100 examples
        found = figures.core_of([core(rate)], keep_loaded=False)
        assert found is not None and found.is_reached == is_reached
        assert report.is_reached([core(rate)], keep_loaded=False) == is_reached
        assert (str(found).endswith("reached).")) == is_reached


def test_a_disturbed_core_counts_only_when_asked_for() -> None:
    for disturbed in (core(900.0, loaded=True), core(900.0, sgemm_loaded=True)):
        assert figures.core_of([disturbed], keep_loaded=False) is None
        for keep_loaded, gflops in ((False, 41.0), (True, 73.8)):
            found = figures.core_of([core(500.0), disturbed], keep_loaded)
            assert found is not None and found.cnn_gflops == pytest.approx(gflops)


def test_a_cnn_that_was_compared_needs_its_share_of_the_core() -> None:
    compared = [sample(variant, n, 1000.0, "single:mnist_cnn") for n in range(5) for variant in ("bare", "headway")]
    assert not report.is_reached(compared, keep_loaded=False)
    assert "is not known" in report.tables(compared, keep_loaded=False)
    assert report.is_reached([core(900.0), *compared], keep_loaded=False)
    assert not report.is_reached([core(900.0), *compared, {"kind": "failed", "case": "x", "reason": "y"}], False)
    small = [sample(variant, n, 1000.0) for n in range(5) for variant in ("bare", "headway")]
    assert report.is_reached(small, keep_loaded=False)


def test_scaling_is_held_against_single_of_the_same_kind_and_round() -> None:
    def run(variant: str, setup: str, tasks: int, rate: float, number: int = 1) -> figures.Sample:
        facts = {"kind": "scaling", "model": "mnist_cnn", "round": number, "loaded": False}
        return {**facts, "variant": variant, "setup": setup, "training_tasks": tasks, "examples_per_s": rate}

    samples = [run("bare", "single", 1, 100.0), run("headway", "single", 1, 80.0), run("bare", "ps-async 2", 2, 180.0)]
    samples += [run("headway", "ps-async 2", 2, 152.0), run("bare", "ps-async 2", 2, 100.0, number=2)]
    table = figures.scaling_table(samples, ["single", "ps-async 2"], keep_loaded=False)
    shares = [[cell.strip() for cell in line.split("|")][2:6] for line in table.splitlines()[2:]]
    assert [(row[0], row[1], row[3]) for row in shares] == [
        ("single", "bare", "1.000"),
        ("ps-async 2", "bare", "0.900"),
        ("single", "headway", "1.000"),
        ("ps-async 2", "headway", "0.950"),
    ]


def test_tuned_variants_are_held_against_the_bare_script_of_the_same_round() -> None:
    def run(variant: str, number: int, rate: float, **changes: Any) -> figures.Sample:
        facts = {"kind": "tuned", "model": "softmax", "setup": "single", "peak_rss": 6e8, "loaded": False}
        return {**facts, "variant": variant, "round": number, "examples_per_s": rate, **changes}

    samples = [run("headway", 1, 1300.0), run("bare", 1, 1000.0), run("tuned", 1, 1200.0)]
    samples += [run("tuned", 2, 2800.0), run("bare", 2, 2000.0), run("bare", 2, 9000.0, loaded=True)]
    samples += [run("headway", 3, 5000.0)]  # the bare one of its round is still to come
    table = figures.tuned_table(samples, keep_loaded=False)
    rows = [[cell.strip() for cell in line.split("|")][2:-1] for line in table.splitlines()[2:]]
    assert [(row[1], row[2], row[-1]) for row in rows] == [
        ("1500", "1.000", "2"),
        ("2000", "1.300", "2"),
        ("1300", "1.300", "1"),
    ]
    assert rows[-1][0] == "Headway"
    assert table in report.tables(samples, keep_loaded=False)


# --- versions ------------------------------------------------------------------------------------------------
def begin(commit: str) -> figures.Sample:
    return {"kind": "begin", "commit": commit, "settings": {"scale": 1.0}}


def test_samples_of_another_version_are_added_to_only_when_asked_for() -> None:
    samples = [begin("a1"), sample("bare", 1, 1000.0)]
    assert report.refusal(samples, begin("a1"), mix_commits=False) is None
    refused = report.refusal(samples, begin("b2"), mix_commits=False)
    assert refused is not None and "a1" in refused and "b2" in refused and "--mix-commits" in refused
    assert report.refusal(samples, begin("b2"), mix_commits=True) is None
    mixed = [*samples, begin("b2"), sample("headway", 1, 1000.0)]
    assert report.refusal(mixed, begin("b2"), mix_commits=False) is not None
    assert "several versions of Headway: a1 (1), b2 (1)" in report.tables(mixed, keep_loaded=False)
    assert "several" not in report.tables(samples, keep_loaded=False)


def test_a_start_that_measured_nothing_is_no_version_and_other_settings_are_refused() -> None:
    assert report.refusal([begin("a1"), begin("b2")], begin("c3"), mix_commits=False) is None
    longer = {**begin("a1"), "settings": {"scale": 2.0}}
    assert "same settings" in str(report.refusal([begin("a1")], longer, mix_commits=True))


def test_a_torn_line_is_dropped_and_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "results" / "samples.jsonl"
    figures.SampleFile(path).add({"kind": "begin"})
    with path.open("a") as file:
        file.write('{"kind": "sam')
    again = figures.SampleFile(path)
    again.add({"kind": "core"})
    assert figures.SampleFile(path).samples == [{"kind": "begin"}, {"kind": "core"}]


# --- what is run ---------------------------------------------------------------------------------------------
def test_cases_are_chosen_by_pattern() -> None:
    assert len(cases.chosen_cases([])) == 8
    assert [case.name for case in cases.chosen_cases(["ps-*:softmax"])] == ["ps-async:softmax", "ps-sync:softmax"]
    with pytest.raises(ValueError, match="no case 'horovod:softmax'"):
        cases.chosen_cases(["horovod:softmax"])


def every_setup() -> list[cases.Setup]:
    both, options = cases.scaling_setups("mnist_cnn")
    return [case.setup for case in cases.chosen_cases([])] + both + options


@pytest.mark.parametrize("setup", every_setup(), ids=lambda setup: f"{setup.name}:{setup.model}")
def test_both_sides_get_the_same_tasks_threads_cores_and_steps(setup: cases.Setup) -> None:
    length = cases.Lengths().of(setup)
    jobs = [parse_job(job, origin="benchmark") for job in cases.headway_jobs(setup, length, CORES)]
    processes = cases.bare_processes(setup, length, CORES, Path("data"))
    bare = [dict(zip(one.argv[2::2], one.argv[3::2], strict=True)) for one in processes if one.trains]
    assert sum(len(job.cluster.training_tasks()) for job in jobs) == len(bare) == setup.training_tasks
    assert sum(job.cluster.ps.count for job in jobs) == len(processes) - len(bare)
    pinned = [
        job.cluster.role(task.role).cores for job in jobs for task in job.cluster.tasks() if task.role != "evaluator"
    ]
    assert sorted(map(str, pinned)) == sorted(str(None if one.core is None else [one.core]) for one in processes)
    for job in jobs:
        stop = job.training.stop
        for task in job.cluster.training_tasks():
            threads = job.cluster.role(task.role).threads
            assert (threads.intra_op, threads.inter_op) == (1, int(bare[0]["--inter-op"]))
        assert (stop.steps or stop.steps_per_task) == int(bare[0]["--steps"])
        assert job.measure.warmup == int(bare[0]["--warmup"]) < int(bare[0]["--steps"])
        assert (job.workload.batch_size, job.training.model.name) == (int(bare[0]["--batch"]), bare[0]["--model"])
        assert (job.training.optimizer.name, job.training.optimizer.learning_rate) == ("sgd", 0.01)
        assert not job.export and job.training.evaluate.every is None


@pytest.mark.parametrize("model", cases.MODELS)
def test_the_tuned_section_goes_from_the_bare_script_to_headway(model: str) -> None:
    trainings = cases.tuned_trainings(model)
    assert [variant for variant, _ in trainings] == list(figures.TUNED)
    commands = {}
    for variant, setup in trainings[:-1]:
        assert (setup.strategy, setup.model, setup.training_tasks) == ("single", model, 1)
        [process] = cases.bare_processes(setup, cases.Lengths().of(setup), CORES, Path("data"), variant)
        commands[variant] = process.argv
    assert commands["tuned"] == commands["tuned-malloc"] == (*commands["bare"], "--tuned")


def test_the_malloc_settings_are_those_of_a_headway_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = cases.Case("single", "softmax").setup
    [job] = [parse_job(job, origin="benchmark") for job in cases.headway_jobs(setup, cases.Lengths().of(setup), CORES)]
    [task] = job.cluster.training_tasks()
    monkeypatch.delenv("MALLOC_TOP_PAD_", raising=False)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "3")  # the user's own stays, on both sides
    given = task_command(job, task, RunFolder(tmp_path), {}).env
    settings = cases.bare_environment("tuned-malloc", os.environ)
    assert settings == {name: value for name, value in given.items() if "MALLOC" in name.upper() or "GLIBC" in name}
    assert "MALLOC_TOP_PAD_" in settings and "MALLOC_ARENA_MAX" not in settings
    assert cases.bare_environment("bare", ()) == cases.bare_environment("tuned", ()) == {}


def test_lengths_can_be_changed() -> None:
    setup = cases.Case("ps-async", "softmax").setup
    usual = cases.Lengths().of(setup)
    assert cases.Lengths(scale=0.5).of(setup).steps == usual.steps / 2
    assert cases.Lengths(steps=30).of(setup) == cases.Length(30, 10, usual.inter_op)
    assert cases.Lengths(steps=30, warmup=5, inter_op=3).of(setup) == cases.Length(30, 5, 3)


@pytest.mark.parametrize("path", sorted(cases.BARE.glob("*.py")), ids=lambda path: path.name)
def test_bare_scripts_are_short_and_know_nothing_of_headway(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 150
    imported = [
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    ]
    assert not [name for name in imported if name.startswith(("headway", "overhead"))]
