"""Figures of every strategy, from event files written here and numbers computed by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from test_record import CHIEF, WORKER, new_run, row, write_rows

import headway
from headway.cli.summary import server_rows, strategy_line, summary_lines
from headway.launch.prepare import create_run
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.query import query
from headway.record.run import Run
from headway.record.seal import result, seal
from headway.record.tables import is_sealed, quoted
from headway.spec import Task
from headway.spec.load import parse_job

BACKUP, SERVER = Task("worker", 1), Task("ps", 0)


def joint_row(t: float, step: int, **fields: Any) -> dict[str, Any]:
    """A row where tasks train together: a gradient that enters an update is never stale."""
    return row(t, step, staleness=None, **fields)


def update(t: float, step: int, tasks: list[Task], examples: int, dropped: list[Task], spread: float) -> dict[str, Any]:
    return {
        "t": t,
        "kind": "update",
        "attempt": 0,
        "generation": 1,
        "step": step,
        "tasks": [str(task) for task in tasks],
        "examples": examples,
        "dropped": [str(task) for task in dropped],
        "spread": spread,
    }


def end(folder: RunFolder, started: float, ended: float) -> None:
    folder.write_facts(
        {**folder.facts(), "state": "finished", "launches": [{"started": started, "ended": ended}], "created": started}
    )


def headway_says(root: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "headway", *arguments, "--runs", str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def synchronous(tmp_path: Path) -> RunFolder:
    """Two of three gradients make an update, one update a second. The chief has batches of 100, the workers of 50.

    worker/1 is killed after its gradient has entered the last update: it cannot write that row any more.
    """
    folder = new_run(
        tmp_path,
        "backup",
        strategy={"kind": "ps-sync", "aggregate": 2, "placement": "greedy"},
        cluster={"chief": 1, "worker": {"count": 2, "batch_size": 50}, "ps": 1},
    )
    write_rows(
        folder,
        SERVER,
        [
            update(101, 1, [CHIEF, WORKER], 150, [], 0.1),
            update(102, 2, [BACKUP, CHIEF], 150, [BACKUP], 0.2),
            update(103, 3, [WORKER, BACKUP], 100, [WORKER], 0.3),
            update(104, 4, [CHIEF, WORKER], 150, [CHIEF], 0.4),
            update(105, 5, [CHIEF, WORKER], 150, [BACKUP], 0.5),
            update(106, 6, [CHIEF, BACKUP], 150, [BACKUP], 0.6),
            {"t": 104.9, "kind": "blocked", "attempt": 0, "step": 4, "missing": ["worker/1"], "seconds": 5.0},
        ],
    )
    write_rows(
        folder,
        CHIEF,
        [
            joint_row(101.01, 1, warmup=True, seconds=0.9),
            joint_row(102.01, 2, seconds=1.0),  # began at 101.01
            joint_row(103.20, 3, accepted=0),
            *(joint_row(100.01 + step, step) for step in (4, 5, 6)),
        ],
    )
    write_rows(
        folder,
        WORKER,
        [
            joint_row(101.01, 1, warmup=True, examples=50),
            joint_row(102.30, 2, seconds=1.29, examples=50, accepted=0),  # began at 101.01
            *(joint_row(100.01 + step, step, examples=50) for step in (3, 4, 5)),
            joint_row(106.20, 6, examples=50, accepted=0),  # nobody's update comes after it
        ],
    )
    write_rows(
        folder,
        BACKUP,
        [
            joint_row(101.30, 1, warmup=True, examples=50, accepted=0),
            joint_row(102.01, 2, seconds=0.7, examples=50),  # began at 101.31: from here on nobody is warming up
            joint_row(103.01, 3, examples=50),
            joint_row(104.40, 4, examples=50, accepted=0),
            joint_row(105.40, 5, examples=50, accepted=0),
        ],
    )
    end(folder, 95.0, 110.0)
    return folder


@pytest.fixture
def reduced(tmp_path: Path) -> RunFolder:
    """All-reduce of two tasks, a step a second. The worker is killed before it has written its row of step 4; both go
    on from the checkpoint of step 2."""
    folder = new_run(
        tmp_path,
        "ring",
        strategy="allreduce",
        cluster={"chief": 1, "worker": {"count": 1, "batch_size": 50}},
    )
    again = {"generation": 2, "attempt": 1, "seconds": 1.0}
    for task, late, batch, last in ((CHIEF, 0.0, 100, 4), (WORKER, 0.02, 50, 3)):
        write_rows(
            folder,
            task,
            [
                joint_row(100 + step + late, step, seconds=1.0, warmup=step == 1, examples=batch)
                for step in range(1, last + 1)
            ],
        )
        write_rows(
            folder,
            task,
            [joint_row(108 + step + late, step, warmup=step == 3, examples=batch, **again) for step in (3, 4, 5)],
        )
    variables = [
        {"name": "softmax/weights", "device": "chief/0", "bytes": 800, "shape": [20, 10], "trainable": True},
        {"name": "global_step", "device": "chief/0", "bytes": 8, "shape": [], "trainable": False},
    ]
    write_rows(folder, CHIEF, [{"t": 100.0, "kind": "variables", "attempt": 0, "placement": variables}])
    rollback = {"t": 110.0, "kind": "rollback", "launch": 0, "step_before": 4, "step": 2, "steps_lost": 2}
    folder.events(LAUNCHER).write_text(json.dumps(rollback) + "\n")
    end(folder, 95.0, 115.0)
    return folder


# --- ps-sync -------------------------------------------------------------------------------------------------
def test_synchronous_rates_count_updates_and_own_steps_apart(synchronous: RunFolder) -> None:
    summary = Run(synchronous).summary()
    seconds = 106.20 - 101.31
    assert summary["steps_per_s"] == pytest.approx(5 / seconds)  # updates 2 to 6
    assert summary["examples_per_s"] == pytest.approx(700 / seconds)
    assert summary["task_steps_per_s"] == pytest.approx((5 + 5 + 4) / seconds)
    assert summary["steps"] == 6


def test_every_task_is_told_what_it_contributed(synchronous: RunFolder) -> None:
    summary = Run(synchronous).summary()
    found = {task["task"]: (task["gradients"], task["dropped"], task["examples"]) for task in summary["tasks"]}
    assert found == {"chief/0": (5, 1, 500), "worker/0": (4, 2, 200), "worker/1": (2, 3, 100)}
    assert [task["share"] for task in summary["tasks"]] == pytest.approx([5 / 11, 4 / 11, 2 / 11])
    assert summary["dropped"] == 6


def test_the_effective_batch_and_the_spread_are_those_of_the_updates(synchronous: RunFolder) -> None:
    summary = Run(synchronous).summary()
    assert summary["effective_batch"] == pytest.approx(850 / 6)
    assert (summary["effective_batch_min"], summary["effective_batch_max"]) == (100, 150)
    assert summary["spread"] == pytest.approx({"median": 0.35, "p95": 0.575})
    assert summary["staleness"] is None


def test_an_update_counts_as_reached_also_when_nobody_could_write_its_row(synchronous: RunFolder) -> None:
    write_rows(synchronous, SERVER, [update(106.9, 7, [WORKER, BACKUP], 100, [], 0.1)])
    assert Run(synchronous).summary()["steps"] == 7


def test_updates_are_a_table(synchronous: RunFolder) -> None:
    for _ in range(2):
        rows = Run(synchronous).rows("updates")
        assert [one["step"] for one in rows] == [1, 2, 3, 4, 5, 6]
        assert rows[1]["tasks"] == ["worker/1", "chief/0"]
        assert (rows[1]["task"], rows[1]["dropped"], rows[0]["dropped"]) == ("ps/0", ["worker/1"], [])
        seal(synchronous)
    (synchronous.tables / "updates.parquet").unlink()  # JSON lines are the truth
    assert Run(synchronous).rows("updates") == rows


def test_a_synchronous_run_is_shown_in_words(synchronous: RunFolder, tmp_path: Path) -> None:
    shown = headway_says(tmp_path, "show", "backup")
    for part in (
        "ps-sync, 2 of 3 gradients per update",
        "5 gradients (45%), 1 dropped, ",
        "141.7 examples an update (100 to 150); 6 gradients dropped",
        "median 350 ms, p95 575 ms from an update's first gradient to its last",
        "1.02 steps/s (2.86 of all tasks together), 143.1 examples/s",
    ):
        assert part in shown


def test_updates_of_a_resumed_run_leave_out_the_time_between_its_launches(tmp_path: Path) -> None:
    folder = new_run(tmp_path, strategy="ps-sync")
    for began in (100, 3700):
        steps = range(1, 11) if began == 100 else range(11, 21)
        ends = [(began + k, step) for k, step in enumerate(steps, start=1)]
        write_rows(folder, SERVER, [update(t - 0.01, step, [CHIEF, WORKER], 200, [], 0.1) for t, step in ends])
        for task in (CHIEF, WORKER):
            write_rows(folder, task, [joint_row(t, step, seconds=1.0) for t, step in ends])
    launches = [{"started": 90.0, "ended": 111.0}, {"started": 3690.0, "ended": 3711.0}]
    folder.write_facts({**folder.facts(), "launches": launches})
    summary = Run(folder).summary()
    rates = [summary[name] for name in ("steps_per_s", "task_steps_per_s", "examples_per_s")]
    assert rates == pytest.approx([1.0, 2.0, 200.0])


# --- allreduce -----------------------------------------------------------------------------------------------
def test_steps_that_come_again_after_a_rollback_are_other_updates(reduced: RunFolder) -> None:
    summary = Run(reduced).summary()
    # The window begins with the worker's second step, at 101.02, and ends with its last, at 113.02.
    assert summary["steps_per_s"] == pytest.approx((3 + 3) / 12)
    assert summary["examples_per_s"] == pytest.approx(6 * 150 / 12)
    assert summary["task_steps_per_s"] == pytest.approx((6 + 5) / 12)
    assert (summary["effective_batch"], summary["effective_batch_min"], summary["effective_batch_max"]) == (150,) * 3
    assert [task["gradients"] for task in summary["tasks"]] == [7, 6]
    assert (summary["steps"], summary["rollbacks"], summary["steps_lost"]) == (5, 1, 2)
    assert (summary["staleness"], summary["spread"], summary["dropped"]) == (None, None, 0)


def test_all_reduce_says_that_every_task_holds_all_variables(reduced: RunFolder) -> None:
    figures = Run(reduced).summary()
    assert (figures["servers"], figures["variable_bytes"]) == ([], 808)
    assert ("variables", "every training task holds all variables, 808 B") in summary_lines(figures, Run(reduced))
    assert strategy_line(figures) == "allreduce"


def test_several_steps_in_a_call_are_as_many_updates(tmp_path: Path) -> None:
    folder = new_run(tmp_path, strategy="allreduce", cluster={"chief": 1, "worker": 1})
    calls = [(2, 2, True), (4, 2, False), (6, 2, False), (7, 1, False)]  # global step after it, steps in it, warm-up
    for task in (CHIEF, WORKER):
        write_rows(
            folder,
            task,
            [
                joint_row(100 + step, step, num_steps=n, accepted=n, examples=100 * n, seconds=n, warmup=warmup)
                for step, n, warmup in calls
            ],
        )
    summary = Run(folder).summary()
    assert summary["steps_per_s"] == pytest.approx(1.0)
    assert summary["task_steps_per_s"] == pytest.approx(2.0)
    assert summary["examples_per_s"] == pytest.approx(200.0)
    assert summary["effective_batch"] == 200


# --- every strategy ------------------------------------------------------------------------------------------
def test_asynchronous_tasks_of_unlike_batches(tmp_path: Path) -> None:
    folder = new_run(tmp_path, cluster={"chief": 1, "worker": {"count": 1, "batch_size": 50}, "ps": 1})
    write_rows(folder, CHIEF, [row(100 + k, 2 * k, seconds=1.0) for k in range(1, 5)])
    write_rows(
        folder, WORKER, [row(100 + 2 * k, 4 * k, seconds=2.0, num_steps=2, accepted=2, examples=100) for k in (1, 2)]
    )
    summary = Run(folder).summary()
    assert summary["steps_per_s"] == summary["task_steps_per_s"] == pytest.approx(2.0)
    assert summary["examples_per_s"] == pytest.approx(150.0)
    assert summary["effective_batch"] == 75
    assert (summary["effective_batch_min"], summary["effective_batch_max"]) == (50, 100)


def test_weight_decay_is_apart_from_the_loss_of_the_data(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [row(100 + k, k, loss=float(k), penalty=k / 10) for k in range(60)])
    figures = Run(folder).summary()
    assert figures["train_loss"] == pytest.approx(34.5)  # mean of 10 to 59
    assert figures["penalty"] == pytest.approx(3.45)
    lines = dict(summary_lines(figures, Run(folder)))
    assert lines["training loss at the end"] == "34.5 of the data, 3.45 of weight decay (mean of the last 50 gradients)"


def test_servers_are_told_with_their_share_and_their_largest_variables(tmp_path: Path) -> None:
    folder = new_run(tmp_path, cluster={"chief": 1, "ps": 3})
    placement = [
        {"name": "global_step", "device": "ps/0", "bytes": 8, "shape": [], "trainable": False},
        {"name": "dense/weights", "device": "ps/0", "bytes": 600, "shape": [15, 10], "trainable": True, "part": "0/2"},
        {"name": "dense/weights", "device": "ps/1", "bytes": 560, "shape": [14, 10], "trainable": True, "part": "1/2"},
        {"name": "dense/bias", "device": "ps/1", "bytes": 40, "shape": [10], "trainable": True},
        {"name": "a", "device": "ps/1", "bytes": 32, "shape": [8], "trainable": True},
        {"name": "b", "device": "ps/1", "bytes": 10, "shape": [8], "trainable": True},
    ]
    write_rows(folder, CHIEF, [{"t": 100.0, "kind": "variables", "attempt": 0, "placement": placement}])
    figures = Run(folder).summary()
    assert figures["variable_bytes"] == 1250
    assert [(one["task"], one["bytes"], one["variables"]) for one in figures["servers"]] == [
        ("ps/0", 608, 2),
        ("ps/1", 642, 4),
        ("ps/2", 0, 0),
    ]
    assert [one["share"] for one in figures["servers"]] == pytest.approx([608 / 1250, 642 / 1250, 0])
    assert figures["servers"][1]["largest"] == [
        {"name": "dense/weights", "part": "1/2", "bytes": 560},
        {"name": "dense/bias", "part": None, "bytes": 40},
        {"name": "a", "part": None, "bytes": 32},
    ]
    assert server_rows(figures["servers"])[0] == [
        "  ps/0",
        "608 B",
        "48.6%",
        2,
        "dense/weights[0/2] 600 B, global_step 8 B",
    ]
    shown = headway_says(tmp_path, "show", "last")
    assert "608 B of variables (49%)" in shown
    assert "dense/weights[1/2] 560 B, dense/bias 40 B, a 32 B" in shown


@pytest.mark.parametrize(
    ("strategy", "settings", "words"),
    [
        ("single", (None, None, None, None, None), "single"),
        ("ps-async", (None, "partitioned", 0, "at_will", "float32"), "ps-async, partitioned over 2 servers"),
        (
            {"kind": "ps-async", "placement": "round_robin", "pull_ahead": 1, "transfer": "bfloat16"},
            (None, "round_robin", 1, "at_will", "bfloat16"),
            "ps-async, pulls 1 step ahead, round robin over 2 servers, bfloat16 on the wire",
        ),
        (
            {"kind": "ps-async", "exchange": "in_turn"},
            (None, "partitioned", 0, "in_turn", "float32"),
            "ps-async, pulls and pushes in turn, partitioned over 2 servers",
        ),
        (
            "ps-sync",
            (2, "partitioned", None, None, "float32"),
            "ps-sync, 2 of 2 gradients per update, partitioned over 2 servers",
        ),
        (
            {"kind": "ps-sync", "replication": "in_graph"},
            (2, "partitioned", None, None, "float32"),
            "ps-sync, 2 of 2 gradients per update, one client (in-graph), partitioned over 2 servers",
        ),
        ("allreduce", (None, None, None, None, "float32"), "allreduce"),
    ],
)
def test_a_strategys_settings_are_figures_where_they_mean_something(
    tmp_path: Path, strategy: Any, settings: tuple[Any, ...], words: str
) -> None:
    run = Run(new_run(tmp_path, strategy=strategy, cluster={"chief": 1, "worker": 1, "ps": 2}))
    figures = run.summary()
    assert tuple(figures[name] for name in ("aggregate", "placement", "pull_ahead", "exchange", "transfer")) == settings
    assert strategy_line(figures) == words
    asked = run.job["strategy"]["replication"] if figures["strategy"] == "ps-sync" else None
    assert figures["replication"] == asked
    assert query("select replication from runs", [run])[1] == [(asked,)]
    assert query("select aggregate, placement, pull_ahead, exchange, transfer from runs", [run])[1] == [settings]


@pytest.mark.parametrize("batch", [{"batch_size": 40}, {"global_batch_size": 50}])
def test_the_figures_say_which_batch_size_was_asked(tmp_path: Path, batch: dict[str, int]) -> None:
    workload = {"model": "softmax", "dataset": "synthetic", "stop": {"steps": 8}, **batch}
    run = Run(new_run(tmp_path, workload=workload))
    figures = run.summary()
    asked = (batch.get("batch_size"), batch.get("global_batch_size"))
    assert (figures["batch_size"], figures["global_batch_size"]) == asked
    assert query("select batch_size, global_batch_size from runs", [run])[1] == [asked]
    shown = dict(summary_lines(figures, run)).get("global batch size")
    assert shown == ("50 examples, shared out over 2 training tasks" if asked[1] else None)


def test_the_list_of_runs_fits_on_a_screen(synchronous: RunFolder, reduced: RunFolder, tmp_path: Path) -> None:
    job = {"name": "mnist-async", "workload": {"model": "mnist_cnn", "dataset": "mnist"}, "strategy": "ps-async"}
    end(create_run(parse_job({**job, "expose": "cluster"}), tmp_path), 120.0, 130.0)
    listed = headway_says(tmp_path, "runs").splitlines()
    assert len(listed) == 4
    assert max(len(line) for line in listed) <= 100
    assert "3+1 ps" in listed[1]


# --- runs from before ----------------------------------------------------------------------------------------
def as_before(folder: RunFolder) -> None:
    """As a Headway sealed it that knew neither table `updates` nor the columns `accepted` and `penalty`."""
    seal(folder)
    (folder.tables / "updates.parquet").unlink()
    old, new = folder.tables / "steps.parquet", folder.tables / "steps.new"
    duckdb.execute(f"copy (select * exclude (accepted, penalty) from {quoted(old)}) to {quoted(new)} (format parquet)")
    new.replace(old)
    stored = json.loads((folder.path / "result.json").read_text())
    for name in ("figures", "task_steps_per_s", "effective_batch", "servers"):
        del stored[name]
    (folder.path / "result.json").write_text(json.dumps(stored))


@pytest.fixture
def before(tmp_path: Path) -> RunFolder:
    folder = new_run(tmp_path, "before")
    write_rows(folder, CHIEF, [row(100 + k, k, num_steps=2, accepted=None, examples=200) for k in range(1, 5)])
    end(folder, 95.0, 110.0)
    as_before(folder)
    return folder


def test_a_table_that_came_later_has_its_columns_and_no_row(before: RunFolder) -> None:
    run = Run(before)
    assert is_sealed(before)
    assert run.rows("updates") == []
    columns = run.table("updates")
    assert list(columns) == [
        *("task", "t", "attempt", "generation", "step", "tasks", "examples", "dropped", "spread"),
    ]
    assert len(columns["tasks"]) == 0
    assert [(one["step"], one["accepted"], one["penalty"]) for one in run.rows("steps")] == [
        (step, None, None) for step in range(1, 5)
    ]
    assert list(run.table("steps"))[-3:] == ["accepted", "penalty", "source"]


def test_gradients_of_before_were_all_accepted_and_figures_are_made_again(before: RunFolder) -> None:
    figures = result(Run(before))
    assert figures == Run(before).summary()
    (chief,) = figures["tasks"]
    assert (chief["gradients"], chief["dropped"], chief["examples"]) == (8, 0, 800)
    assert figures["effective_batch"] == 100


def test_sql_over_runs_of_before_and_now(before: RunFolder, synchronous: RunFolder, tmp_path: Path) -> None:
    sql = "select run, count(*), sum(coalesce(accepted, num_steps)) from steps group by run order by run"
    contributed = "select task, count(*) from (select unnest(tasks) as task from updates) group by task order by task"
    for _ in range(2):  # the newer run unsealed, then sealed
        runs = headway.load_all(tmp_path)
        assert query(sql, runs)[1] == [(synchronous.name, 17, 11), (before.name, 4, 8)]
        assert query(contributed, runs)[1] == [("chief/0", 5), ("worker/0", 4), ("worker/1", 3)]
        assert query("select strategy, dropped from runs order by all", runs)[1] == [("ps-async", 0), ("ps-sync", 6)]
        seal(synchronous)
    assert query(contributed, [Run(before)])[1] == []  # the columns have their types also where no run has rows
    assert query(contributed, [])[1] == []


def test_a_result_of_now_is_read_as_it_was_stored(synchronous: RunFolder) -> None:
    seal(synchronous)
    path = synchronous.path / "result.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "accuracy": 0.123}))
    assert result(Run(synchronous))["accuracy"] == 0.123
    assert "figures" not in result(Run(synchronous))
