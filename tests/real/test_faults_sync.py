"""Faults of `ps-sync` with real processes. Every task is in every update here: the others wait for one that died, and
what it had sent counts once."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from running import LIMIT, Running, counted_updates, write_job

pytestmark = [pytest.mark.real, pytest.mark.fault, pytest.mark.timeout(240)]

ALL = ["chief/0", "worker/0"]
SERVERS = ["ps/0", "ps/1"]
BATCH = 500


def job_of(folder: Path, steps: int, servers: int, replication: str = "between_graph") -> Path:
    return write_job(
        folder / "job.yaml",
        workload={
            "model": "softmax",
            "dataset": {"name": "synthetic", "size": 4000, "test_size": 500},
            "batch_size": BATCH,
            "optimizer": {"name": "adam", "learning_rate": 0.001},
            "stop": {"steps": steps},
        },
        strategy={"kind": "ps-sync", "replication": replication},
        cluster={"chief": 1, "worker": 1, "ps": servers},
    )


def has_one_gradient_of_each(update: dict[str, Any]) -> bool:
    return sorted(update["tasks"]) == ALL and update["examples"] == len(ALL) * BATCH


@pytest.mark.parametrize("replication", ["between_graph", "in_graph"])
def test_a_killed_worker_is_waited_for_and_nothing_is_lost(tmp_path: Path, replication: str) -> None:
    steps = 1500
    job = job_of(tmp_path, steps, servers=1, replication=replication)
    with Running(tmp_path / "runs", "run", str(job)) as running:
        running.trains(*ALL)
        running.kill("worker/0")
        killed_at = time.time()
        assert running.process.wait(timeout=2 * LIMIT) == 0, running.output()
    assert (running.run.state, running.run.summary()["steps"]) == ("finished", steps)
    (restart,) = running.events("restarting")
    assert (restart["task"], restart["reason"]) == ("worker/0", "signal SIGKILL")
    assert running.events("rollback") == []
    # With one client it is the chief's step that breaks: the chief connects again, to what is there.
    is_in_graph = replication == "in_graph"
    assert [event["how"] for event in running.events("initialized")] == ["fresh", *["adopted"] * is_in_graph]
    updates = running.events("update")
    assert [update["step"] for update in updates] == list(range(1, steps + 1))
    assert all(has_one_gradient_of_each(update) for update in updates)
    # What the worker had sent counts, so its next process may have sent a second one of that step. A task that a server
    # has refused (graph.was_refused) begins its step anew as well; that is rare, and the record says it.
    refused = Counter(event["task"] for event in running.events("refused")) + Counter(["chief/0"] * is_in_graph)
    dropped = Counter(name for update in updates for name in update["dropped"])
    assert dropped <= Counter(["worker/0"]) + refused
    first, *_, again = (event for event in running.events("joined") if event["task"] == "worker/0")
    assert (first["attempt"], again["attempt"]) == (0, 1)
    # One was under way when the worker died; of another one the worker, but not yet the record, had heard.
    assert sum(killed_at < update["t"] < again["t"] for update in updates) <= 2
    accepted = [row["step"] for row in running.steps("chief/0") if row["accepted"]]
    assert len(set(accepted)) == len(accepted) >= steps - refused["chief/0"]
    counted = counted_updates(running.folder.checkpoints / f"step-{steps:08}")
    assert counted == pytest.approx([steps, steps], abs=0.4)


def test_with_one_client_a_stop_loses_nothing(tmp_path: Path) -> None:
    """Also when the worker has just died, and the client could make no step any more."""
    with Running(tmp_path / "runs", "run", str(job_of(tmp_path, 10**6, servers=1, replication="in_graph"))) as running:
        running.trains(*ALL)
        running.kill("worker/0")
        running.wait_for(lambda: running.events("disconnected"), "the client to notice")
        running.stop()
    assert running.run.state == "stopped"
    last = running.events("update")[-1]["step"]
    assert [event["step"] for event in running.events("finished")] == [last]
    assert running.run.summary()["steps"] == last > 20
    assert running.events("rollback") == []


def test_when_the_server_with_the_updater_is_killed_all_begin_again_at_the_checkpoint(tmp_path: Path) -> None:
    steps = 1200
    with Running(tmp_path / "runs", "run", str(job_of(tmp_path, steps, servers=2))) as running:
        running.trains(*ALL)
        running.wait_for(lambda: running.events("checkpoint"), "a checkpoint")
        running.kill("ps/0")
        assert running.process.wait(timeout=2 * LIMIT) == 0, running.output()
    result = running.run.summary()
    assert (result["state"], result["steps"]) == ("finished", steps)
    _, restored = running.events("initialized")
    assert restored["how"] == "restored"
    assert restored["step"] == int(restored["checkpoint"].removeprefix("step-"))
    (rollback,) = running.events("rollback")
    assert rollback["step"] == restored["step"]
    assert rollback["steps_lost"] == rollback["step_before"] - rollback["step"] >= 0
    assert (result["rollbacks"], result["steps_lost"]) == (1, rollback["steps_lost"])
    # Both servers are new processes; the training tasks are not.
    started = {
        task: [event["attempt"] for event in running.events("ready") if event["task"] == task] for task in ALL + SERVERS
    }
    assert started == {"chief/0": [0], "worker/0": [0], "ps/0": [0, 1], "ps/1": [0, 1]}
    updates = running.events("update")
    assert all(has_one_gradient_of_each(update) for update in updates)
    after = [update["step"] for update in updates if update["generation"] == restored["generation"]]
    assert after == list(range(restored["step"] + 1, steps + 1))
    # No server has seen more or less than the other.
    counted = counted_updates(running.folder.checkpoints / f"step-{steps:08}")
    assert counted == pytest.approx([steps, steps], abs=0.4)
