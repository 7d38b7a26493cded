"""Figures beyond means, from event files whose truth is known by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_record import CHIEF, WORKER, new_run, row, write_rows

from headway.metrics.consistency import of_run
from headway.record.distributions import asked_batch
from headway.record.files import to_json
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.run import Run
from headway.spec import Task
from headway.spec.load import parse_job


def finished(folder: RunFolder, started: float, ended: float) -> RunFolder:
    facts = folder.facts()
    folder.write_facts({**facts, "state": "finished", "launches": [{"started": started, "ended": ended}]})
    return folder


def tell(folder: RunFolder, who: Task | str, **event: Any) -> None:
    with folder.events(who).open("a", encoding="utf-8") as file:
        file.write(to_json(event) + "\n")


@pytest.fixture
def unlike(tmp_path: Path) -> RunFolder:
    """The chief makes a step in 0.1 s, the worker in 0.2 s, both from t=100 to 104; an evaluation at 102 and 104."""
    folder = new_run(tmp_path)
    tell(folder, CHIEF, t=99.0, kind="initialized", how="fresh", step=0, generation=1)
    write_rows(folder, CHIEF, [row(100 + 0.1 * k, 1 + k, seconds=0.1, input_seconds=0.01) for k in range(1, 41)])
    write_rows(folder, WORKER, [row(100 + 0.2 * k, 50 + k, seconds=0.2) for k in range(1, 21)])
    for t, accuracy in ((102, 0.85), (104, 0.96)):
        tell(folder, CHIEF, t=t, kind="evaluation", step=round(15 * (t - 100)), accuracy=accuracy, loss=0.5, attempt=0)
    tell(folder, CHIEF, t=104.5, kind="finished", step=60, accuracy=0.96, loss=0.5)
    return finished(folder, 90.0, 106.0)


def test_step_times_have_a_distribution(unlike: RunFolder) -> None:
    figures = Run(unlike).summary()
    found = figures["step_seconds"]
    assert (found["median"], found["max"]) == pytest.approx((0.1, 0.2))  # 40 steps of 0.1 s, 20 of 0.2 s
    assert found["mean"] == pytest.approx(8 / 60)
    by_task = {task["task"]: task["distribution"]["mean"] for task in figures["tasks"]}
    assert by_task == pytest.approx({"chief/0": 0.1, "worker/0": 0.2})


def test_each_task_has_rates_of_its_own(unlike: RunFolder) -> None:
    tasks = {task["task"]: task for task in Run(unlike).summary()["tasks"]}
    assert tasks["chief/0"]["examples_per_s"] == pytest.approx(1000)
    assert tasks["worker/0"]["examples_per_s"] == pytest.approx(500)


def test_the_straggler_is_named(unlike: RunFolder) -> None:
    found = Run(unlike).summary()["straggling"]
    assert (found["task"], found["how"]) == ("worker/0", "own steps")
    assert found["ratio"] == pytest.approx(0.2 / 0.15)  # the median of two is their mean


def test_time_to_train_and_to_accuracy(unlike: RunFolder) -> None:
    figures = Run(unlike).summary()
    assert figures["time_to_train"] == pytest.approx(14.0)  # from the command at 90
    assert figures["training_seconds"] == pytest.approx(4.0)
    found = figures["time_to_accuracy"]
    assert set(found) == {"0.5", "0.8", "0.9", "0.95", "0.96"}
    assert found["0.8"] == {"seconds": pytest.approx(2.0), "after": 0.0, "step": 30, "t": 102.0}
    assert found["0.95"] == {"seconds": pytest.approx(4.0), "after": pytest.approx(2.0), "step": 60, "t": 104.0}


def test_a_run_that_counts_right_is_consistent(unlike: RunFolder) -> None:
    figures = Run(unlike).summary()
    assert (figures["updates"], figures["first_step"], figures["asked_batch"]) == (60, 0, 100)
    assert figures["window_seconds"] == pytest.approx(4.0)
    assert of_run(figures) == []


def test_rows_that_are_counted_twice_are_seen(unlike: RunFolder) -> None:
    write_rows(unlike, WORKER, [row(100 + 0.2 * k, 50 + k, seconds=0.2) for k in range(1, 21)])
    (found,) = of_run(Run(unlike).summary())
    assert (found.rule, found.expected, found.got) == ("steps", 60, 80)


def test_the_last_updates_of_others_need_not_be_in_the_step_that_a_task_knows(unlike: RunFolder) -> None:
    figures = {**Run(unlike).summary(), "steps": 56}  # of 60 updates
    assert of_run({**figures, "num_training_tasks": 5}) == []
    assert [found.rule for found in of_run({**figures, "num_training_tasks": 2})] == ["steps"]


def test_examples_that_are_not_the_batch_are_seen(unlike: RunFolder) -> None:
    figures = {**Run(unlike).summary(), "asked_batch": 64}
    (found,) = of_run(figures)
    assert found.rule == "examples"
    assert found.off == pytest.approx(100 / 64 - 1)


def test_a_rate_that_falls_is_a_figure(tmp_path: Path) -> None:
    """Ten steps a second for 3 s, then five a second for 6 s."""
    folder = new_run(tmp_path, strategy="single", cluster={})
    times = [100 + 0.1 * k for k in range(1, 31)] + [103 + 0.2 * k for k in range(1, 31)]
    write_rows(folder, WORKER, [row(t, n, seconds=0.1 if t < 103.05 else 0.2) for n, t in enumerate(times, 1)])
    assert Run(finished(folder, 90.0, 110.0)).summary()["rate_change"] == pytest.approx(0.5)


def test_in_step_the_latecomer_is_told_from_the_order_of_arrival(tmp_path: Path) -> None:
    folder = new_run(tmp_path, strategy="ps-sync")
    for task in (CHIEF, WORKER):
        write_rows(folder, task, [row(100 + k, k, seconds=1.0, staleness=None) for k in range(1, 11)])
    for k in range(1, 11):
        late = ["chief/0", "worker/0"] if k > 2 else ["worker/0", "chief/0"]
        update = {"t": 100 + k - 0.01, "kind": "update", "attempt": 0, "generation": 1, "step": k, "tasks": late}
        tell(folder, Task("ps", 0), **update, examples=200, dropped=[], spread=0.25)
    found = Run(finished(folder, 95.0, 111.0)).summary()["straggling"]
    assert (found["task"], found["last_share"]) == ("worker/0", pytest.approx(0.8))
    assert found["ratio"] == pytest.approx(1 / 0.75)


def test_use_has_peaks_and_variability(unlike: RunFolder) -> None:
    """One CPU in every second half, none in the first; 100 bytes sent a second, always."""
    tell(unlike, LAUNCHER, t=99.0, kind="node_ready", node="local", tasks=["chief/0"], asked={"cpus": 1.0})
    cpu = 0.0
    with unlike.metrics("local").open("a", encoding="utf-8") as file:
        for half in range(200, 209):
            sample = {"t": half / 2, "sampler": 1.0, "cpu_seconds": cpu}
            file.write(to_json({"kind": "node_sample", "node": "local", "sent_bytes": 50 * half, **sample}) + "\n")
            task = {"kind": "task_sample", "node": "local", "task": "chief/0", "attempt": 0, "rss": 7, "threads": 1}
            file.write(to_json({**task, **sample}) + "\n")
            cpu += 0.5 * (half % 2)
    figures = Run(unlike).summary()
    node = figures["node_use"]["local"]
    assert (node["cpus"]["mean"], node["cpus"]["max"]) == pytest.approx((0.5, 1.0))
    assert node["cpus"]["variability"] == pytest.approx(1.07, abs=0.01)  # of eight samples, four of them 0 and four 1
    assert node["sent"] == pytest.approx({"mean": 100, "p95": 100, "max": 100, "variability": 0})
    assert figures["role_use"]["chief"]["rss"]["max"] == 7
    assert figures["communication_share"] == pytest.approx(1 - 0.5 - 0.1)  # of the chief; a tenth is input


@pytest.mark.parametrize(
    ("settings", "batch"),
    [
        ({"strategy": "ps-async"}, 100),
        ({"strategy": "ps-sync"}, 200),
        ({"strategy": {"kind": "ps-sync", "aggregate": 1}}, 100),
        ({"strategy": "ps-async", "cluster": {"chief": {"count": 1, "batch_size": 50}, "worker": 1, "ps": 1}}, None),
        ({"strategy": "ps-sync", "cluster": {"chief": {"count": 1, "batch_size": 50}, "worker": 1, "ps": 1}}, 150),
    ],
)
def test_what_an_update_takes_follows_from_the_job(settings: dict[str, Any], batch: int | None) -> None:
    workload = {"model": "softmax", "dataset": "synthetic", "batch_size": 100}
    job = parse_job({"workload": workload, "cluster": {"chief": 1, "worker": 1, "ps": 1}, **settings})
    assert asked_batch(job.model_dump(mode="json")) == batch
