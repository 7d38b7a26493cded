"""A disk that is full, read-only or gone ends a run in order, with that as the reason, and leaves a readable record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import write_job

from headway.errors import StorageError

pytestmark = [pytest.mark.real, pytest.mark.system]
HERE = Path(__file__).parent
PRIVATE = ["unshare", *(["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"])]
STEPS = """
import time
for step in range(1, 4000):
    print(f"step {step} loss {1 / step}", flush=True)
    time.sleep(0.02)
"""


def on_small_disk(folder: Path, arguments: list[str], size: str, then: str, options: str = "") -> dict[str, Any]:
    order = {"disk": str(folder / "disk"), "size": size, "arguments": arguments, "then": then, "options": options}
    done = subprocess.run(
        [*PRIVATE, sys.executable, str(HERE / "small_disk.py"), json.dumps(order)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def check_message(found: dict[str, Any], cause: str) -> None:
    assert found["code"] == StorageError.exit_code, found["out"] + found["err"]
    said = found["err"].strip().splitlines()
    assert said[0].startswith(f"headway: {cause}"), found["err"]
    assert len(said) <= 4, found["err"]
    assert "Traceback" not in found["out"] + found["err"] + found["logs"], found["logs"]


def check_record(found: dict[str, Any]) -> None:
    """It says why the run ended, and has what was recorded until then."""
    (run,) = found["runs"]
    assert (run["state"], run["steps"] > 0) == ("failed", True)
    assert run["reason"].startswith("the disk is full"), run["reason"]
    code, shown, err = found["show"]
    assert (code, err) == (0, "")
    assert "the disk is full" in shown
    assert not [name for name in found["files"] if name.endswith((".tmp", "/reserve"))]


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    path = tmp_path / "steps.py"
    path.write_text(STEPS)
    return ["launch", "--worker", "2", "--", "python", str(path)]


@pytest.fixture
def training(tmp_path: Path) -> list[str]:
    return ["run", str(write_job(tmp_path / "job.yaml"))]


@pytest.fixture
def sweep(tmp_path: Path) -> list[str]:
    """With a job whose steps take a while, so that the disk is full in the middle of a run."""
    path = tmp_path / "sweep.yaml"
    steps = tmp_path / "steps.py"
    steps.write_text(STEPS)
    job = {"workload": {"command": ["python", str(steps)]}}
    path.write_text(
        json.dumps({"job": job, "vary": {"cluster.worker": [1, 2]}, "measure": {"steps": None, "figure": "steps"}})
    )
    return ["bench", str(path)]


@pytest.mark.parametrize("what", ["program", "training"])
def test_a_disk_that_gets_full_ends_the_run_and_the_record_stays_readable(
    what: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = on_small_disk(tmp_path, request.getfixturevalue(what), "4m", "fill")
    check_message(found, "the disk is full")
    check_record(found)
    assert found["seconds"] < 15


def test_a_checkpoint_that_does_not_fit_ends_the_run_and_leaves_no_half_of_itself(tmp_path: Path) -> None:
    workload = {
        "model": "mnist_cnn",
        "dataset": {"name": "mnist", "synthetic": True},
        "batch_size": 10,
        "stop": {"steps": 500},
    }
    job = write_job(tmp_path / "job.yaml", workload=workload, checkpoint={"steps": 3, "seconds": None})
    found = on_small_disk(tmp_path, ["run", str(job)], "10m", "nothing")
    check_message(found, "the disk is full")
    check_record(found)
    assert not [name for name in found["files"] if "checkpoints/" in name]


def test_a_disk_that_gets_full_ends_the_whole_sweep(tmp_path: Path, sweep: list[str]) -> None:
    found = on_small_disk(tmp_path, sweep, "4m", "fill")
    check_message(found, "the disk is full")
    assert "headway bench --resume" in found["err"]
    assert found["seconds"] < 15


@pytest.mark.parametrize("what", ["program", "training", "sweep"])
def test_a_folder_that_is_deleted_ends_the_run_and_is_not_made_again(
    what: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = on_small_disk(tmp_path, request.getfixturevalue(what), "20m", "delete")
    check_message(found, "the run folder was deleted")
    assert [name for name in found["files"] if name.endswith((".jsonl", ".json", ".parquet"))] == []
    assert found["seconds"] < 15


@pytest.mark.parametrize("what", ["program", "training", "sweep"])
@pytest.mark.parametrize(
    ("size", "options", "cause"), [("8k", "", "the disk is full"), ("4m", ",ro", "the file system is read-only")]
)
def test_a_disk_that_takes_nothing_is_said_before_anything_starts(
    size: str, options: str, cause: str, what: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = on_small_disk(tmp_path, request.getfixturevalue(what), size, "nothing", options)
    check_message(found, cause)
    assert "started" not in found["out"]
