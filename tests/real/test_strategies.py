"""One real run of each strategy, from the command line to the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running import headway, write_job

import headway as api

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]
STEPS = 150


def run_to_the_end(folder: Path, strategy: Any, cluster: dict[str, Any], **workload: Any) -> api.Run:
    job = write_job(
        folder / "job.yaml",
        strategy=strategy,
        cluster=cluster,
        workload={
            "model": "softmax",
            "dataset": {"name": "synthetic", "size": 4000, "test_size": 500},
            "batch_size": 50,
            "optimizer": {"name": "momentum", "learning_rate": 0.02, "weight_decay": 0.001},
            "stop": {"steps": STEPS},
            **workload,
        },
        measure={"warmup": 5},
    )
    done = headway("run", str(job), root=folder / "runs", timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return api.load("last", folder / "runs")


def gradients(run: api.Run) -> dict[str, int]:
    return {task["task"]: task["gradients"] for task in run.summary()["tasks"]}


def test_ps_sync_takes_one_gradient_of_every_task(tmp_path: Path) -> None:
    run = run_to_the_end(tmp_path, "ps-sync", {"training": 2, "ps": 2})
    figures = run.summary()
    assert (figures["state"], figures["steps"]) == ("finished", STEPS)
    assert gradients(run) == {"chief/0": STEPS, "worker/0": STEPS}
    updates = run.rows("updates")
    assert [row["step"] for row in updates] == list(range(1, STEPS + 1))
    assert all(sorted(row["tasks"]) == ["chief/0", "worker/0"] and row["examples"] == 100 for row in updates)
    assert (figures["effective_batch"], figures["dropped"]) == (100, 0)
    assert figures["accuracy"] > 0.8
    assert figures["penalty"] > 0
    shown = headway("show", "last", root=tmp_path / "runs").stdout
    assert "ps-sync, 2 of 2 gradients per update" in shown
    assert "ps/0" in shown
    assert "ps/1" in shown


def test_one_client_computes_on_every_task(tmp_path: Path) -> None:
    """In-graph, with a global batch that leaves a remainder, and two devices in each task."""
    strategy = {"kind": "ps-sync", "replication": "in_graph"}
    cluster = {"chief": {"count": 1, "devices": 2}, "worker": {"count": 1, "devices": 2}, "ps": 1}
    run = run_to_the_end(tmp_path, strategy, cluster, batch_size=None, global_batch_size=101)
    figures = run.summary()
    assert (figures["state"], figures["steps"], figures["reason"]) == ("finished", STEPS, "steps")
    assert gradients(run) == {"chief/0": STEPS, "worker/0": STEPS}
    assert {row["task"]: row["examples"] for row in run.rows("steps")} == {"chief/0": 51, "worker/0": 50}
    updates = run.rows("updates")
    assert [row["step"] for row in updates] == list(range(1, STEPS + 1))
    assert all(sorted(row["tasks"]) == ["chief/0", "worker/0"] and row["examples"] == 101 for row in updates)
    assert (figures["batch_size"], figures["global_batch_size"], figures["effective_batch"]) == (None, 101, 101)
    assert figures["accuracy"] > 0.8
    ready = [json.loads(row["data"]) for row in run.rows("events") if row["kind"] == "ready"]
    assert [event["devices"] for event in ready if "devices" in event] == [["CPU:0", "CPU:1"]] * 2
    shown = headway("show", "last", root=tmp_path / "runs").stdout
    assert "one client (in-graph)" in shown
    assert "101 examples, shared out over 2 training tasks" in shown


def test_allreduce_trains_without_servers(tmp_path: Path) -> None:
    run = run_to_the_end(tmp_path, "allreduce", {"training": 2}, steps_per_call=3)
    figures = run.summary()
    assert (figures["state"], figures["steps"]) == ("finished", STEPS)
    assert gradients(run) == {"chief/0": STEPS, "worker/0": STEPS}
    assert figures["effective_batch"] == 100
    assert figures["accuracy"] > 0.8
    last = {task: [row for row in run.rows("steps") if row["task"] == task][-1] for task in ("chief/0", "worker/0")}
    assert {row["step"] for row in last.values()} == {STEPS}
    assert "every training task holds all variables" in headway("show", "last", root=tmp_path / "runs").stdout


@pytest.mark.parametrize(
    "options",
    [{"pull_ahead": 1}, {"exchange": "in_turn", "transfer": "bfloat16"}],
    ids=["pull ahead", "in turn, bfloat16"],
)
def test_ps_async_with_its_options(tmp_path: Path, options: dict[str, Any]) -> None:
    run = run_to_the_end(tmp_path, {"kind": "ps-async", **options}, {"chief": 1, "ps": 1})
    figures = run.summary()
    assert (figures["state"], figures["steps"]) == ("finished", STEPS)
    assert figures["accuracy"] > 0.8
    # Nobody else pushes: what is stale is a task's own update, which a pull ahead has not seen.
    staleness = [value for row in run.rows("steps") for value in row["staleness"]]
    if "pull_ahead" in options:
        # Nothing orders the pull for the next step and this step's count: the machine decides which is first.
        assert staleness[0] == 0
        assert set(staleness) == {0, 1}
    else:
        assert staleness == [0] * STEPS
