"""What each task is started with: a value, the same on every machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.launch.commands import MEMORY, missing_cores, needs_port, pinned_cores, task_command, tf_config
from headway.record.folder import RunFolder
from headway.spec import Job, Task
from headway.spec.load import parse_job
from headway.spec.resolve import resolve

CHIEF, WORKER0, WORKER1, PS, EVALUATOR = (
    Task("chief", 0),
    Task("worker", 0),
    Task("worker", 1),
    Task("ps", 0),
    Task("evaluator", 0),
)


def job(**changes: Any) -> Job:
    settings = {
        "workload": {"model": "softmax", "dataset": "synthetic"},
        "strategy": "ps-async",
        "cluster": {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1},
        **changes,
    }
    return resolve(parse_job(settings), 4).job


ADDRESSES = {task: f"10.0.0.{place}:2222" for place, task in enumerate((CHIEF, WORKER0, WORKER1, PS))}


def test_a_task_gets_what_the_contract_says_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    monkeypatch.setenv("SECRET", "not for the record")
    for name in MEMORY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")  # the user's own stays, and is inherited
    command = task_command(job(), WORKER1, RunFolder(tmp_path / "run"), ADDRESSES, attempt=2, own_steps=7)
    assert command.argv == (sys.executable, "-m", "headway.engines.tensorflow")
    assert command.env.pop("TF_CONFIG")
    assert command.env == {
        "HEADWAY_RUN": str(tmp_path / "run"),
        "HEADWAY_TASK": "worker/1",
        "HEADWAY_ATTEMPT": "2",
        "HEADWAY_CONTINUE": '{"own_steps": 7, "trained_seconds": 0.0}',
        "HEADWAY_CACHE": str(tmp_path),
        "PYTHONUNBUFFERED": "1",
        **{name: value for name, value in MEMORY.items() if name != "MALLOC_ARENA_MAX"},
    }


def test_tf_config_lists_every_member_in_order() -> None:
    assert tf_config(WORKER1, ADDRESSES) == {
        "cluster": {"chief": ["10.0.0.0:2222"], "ps": ["10.0.0.3:2222"], "worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
        "task": {"type": "worker", "index": 1},
    }


def test_ten_workers_stay_in_the_order_of_their_index() -> None:
    addresses = {Task("worker", index): f"h:{index}" for index in range(12)}
    assert tf_config(Task("worker", 0), addresses)["cluster"]["worker"] == [f"h:{index}" for index in range(12)]


def test_only_members_of_the_cluster_listen() -> None:
    assert [needs_port(job(), task) for task in (CHIEF, WORKER0, PS, EVALUATOR)] == [True, True, True, False]
    assert not needs_port(job(strategy="single"), CHIEF)
    evaluator = task_command(job(), EVALUATOR, RunFolder(Path("run")), ADDRESSES)
    assert "TF_CONFIG" not in evaluator.env


def test_cores_are_given_out_in_turn_and_shared_when_there_are_too_few() -> None:
    pinned = job(cluster={"chief": {"count": 1, "cores": 2}, "worker": {"count": 2, "cores": 1}, "ps": 1})
    assert [pinned_cores(pinned, task, [0, 1, 2, 3]) for task in (CHIEF, WORKER0, WORKER1)] == [(0, 1), (2,), (3,)]
    assert [pinned_cores(pinned, task, [5, 7]) for task in (CHIEF, WORKER0, WORKER1)] == [(5, 7), (5,), (7,)]
    assert pinned_cores(pinned, PS, [0, 1]) is None


def test_listed_cores_are_taken_as_they_are_and_must_exist() -> None:
    listed = job(cluster={"worker": {"count": 1, "cores": [1, 3]}, "ps": 1})
    assert pinned_cores(listed, WORKER0, [0, 1, 2, 3]) == (1, 3)
    assert missing_cores(listed, [0, 1]) == [3]


def test_the_command_is_json() -> None:
    command = task_command(job(), CHIEF, RunFolder(Path("run")), ADDRESSES)
    assert json.loads(command.env["TF_CONFIG"])["task"] == {"type": "chief", "index": 0}
