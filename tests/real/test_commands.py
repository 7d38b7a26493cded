"""The command line on real runs, as a user types it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from running import LIMIT, Running, headway, write_job
from test_demo import accuracy_of_export

import headway as api
from headway.agent.agent import free_ports

pytestmark = pytest.mark.real
EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_KEYS = {
    *("run", "name", "state", "strategy", "num_training_tasks", "num_ps", "steps", "steps_per_s"),
    *("examples_per_s", "accuracy", "loss", "seconds", "path"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished ps-async run of the E1 CNN on MNIST and one single run, shared by the tests that only read."""
    root = tmp_path_factory.mktemp("commands") / "runs"
    overrides = ["workload.stop={steps: 60}", "workload.evaluate={}"]
    done = headway("run", str(EXAMPLES / "mnist-async.yaml"), *overrides, root=root, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    (root / "async.out").write_text(done.stdout)
    done = headway("run", str(EXAMPLES / "softmax.yaml"), "strategy=single", "workload.stop.steps=300", root=root)
    assert done.returncode == 0, done.stdout + done.stderr
    (root / "single.out").write_text(done.stdout)
    return root


def test_without_a_terminal_there_are_plain_lines_and_a_summary(root: Path) -> None:
    text = (root / "async.out").read_text()
    assert "\x1b" not in text
    for part in (
        "accuracy on the test set",
        "steps/s",
        "examples/s",
        "run folder",
        "next",
        "headway show",
        "headway findings",
        "staleness",
    ):
        assert part in text
    assert "chosen cluster.chief.threads.intra_op" in text


def test_single_says_that_it_replaced_the_cluster(root: Path) -> None:
    assert "the asked cluster is replaced" in (root / "single.out").read_text()


def test_runs_as_json_has_the_promised_keys(root: Path) -> None:
    listed = json.loads(headway("runs", "-o", "json", root=root).stdout)
    assert [one["strategy"] for one in listed] == ["ps-async", "single"]
    first, second = listed
    assert set(first) >= RUN_KEYS
    assert first["num_training_tasks"] == 2
    assert first["num_ps"] == 1
    assert 60 <= first["steps"] <= 62
    assert second["steps"] == 300
    assert second["accuracy"] > 0.6


def test_runs_and_show_as_text(root: Path) -> None:
    table = headway("runs", root=root).stdout
    assert len(table.splitlines()) == 3
    assert "\x1b" not in table
    shown = headway("show", "mnist", root=root).stdout
    for part in ("ps/0", "26.2 MB of variables", "evaluations", "chosen, and why", "tensorflow-cpu 2.21"):
        assert part in shown


def test_show_as_json_holds_job_choices_and_environment(root: Path) -> None:
    shown = json.loads(headway("show", "mnist", "-o", "json", root=root).stdout)
    assert shown["job"]["workload"]["stop"]["steps"] == 60
    assert shown["environment"]["cores"] >= 1
    assert shown["evaluations"][-1]["num_examples"] == 10_000


def test_the_python_api_and_sql_agree(root: Path) -> None:
    run = api.load("mnist", root)
    steps = run.table("steps")
    sql = "select count(*) as n, median(seconds) as middle from steps where run like 'mnist%'"
    (row,) = json.loads(headway("query", sql, "-o", "json", root=root).stdout)
    assert row["n"] == len(steps["step"]) >= 60
    assert steps["input_seconds"].min() >= 0
    assert (steps["seconds"] > steps["input_seconds"]).all()


def test_both_tasks_share_the_work_and_staleness_is_counted(root: Path) -> None:
    summary = api.load("mnist", root).summary()
    # Of so few steps the task that joins later makes few: how many is the machine's to decide.
    assert all(task["share"] > 0 for task in summary["tasks"]), summary["tasks"]
    assert summary["staleness"]["gradients"] == sum(task["gradients"] for task in summary["tasks"])
    assert summary["staleness"]["max"] >= 1


def test_the_exported_model_gives_the_recorded_accuracy_in_a_fresh_process(root: Path) -> None:
    run = api.load("mnist", root)
    assert accuracy_of_export(run.folder.model) == pytest.approx(run.summary()["accuracy"], abs=1e-4)


def test_logs_of_one_task_and_of_all(root: Path) -> None:
    everything = headway("logs", "mnist", root=root)
    assert everything.returncode == 0
    wrong = headway("logs", "mnist", "--task", "worker/9", root=root)
    assert wrong.returncode == 3
    assert "there are:" in wrong.stderr


def test_tensorboard_really_reads_it_back(root: Path) -> None:
    (port,) = free_ports(1, None, None)
    command = [
        sys.executable,
        "-m",
        "headway",
        "tensorboard",
        "mnist",
        "softmax",
        "--runs",
        str(root),
        "--port",
        str(port),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as board:
        try:
            tags = _eventually(f"http://127.0.0.1:{port}/data/plugin/scalars/tags")
            family = psutil.Process(board.pid).children(recursive=True)
            board.terminate()
            board.wait(LIMIT)
            assert not psutil.wait_procs(family, LIMIT)[1], "a server was left behind"
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=5)
        finally:
            board.kill()
    names = {name for run in tags.values() for name in run}
    assert {"loss", "accuracy", "steps_per_s"} <= {name.split("/")[-1] for name in names}
    assert any(run.startswith("mnist") for run in tags)
    assert any(run.startswith("softmax") for run in tags)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_tensorboard_does_not_outlive_its_command(root: Path, number: signal.Signals) -> None:
    # A shell's background job, which the tests may be part of, has SIGINT ignored, and so has what it starts.
    heard = ["env", "--default-signal=INT"]
    command = [*heard, sys.executable, "-m", "headway", "tensorboard", "mnist", "--runs", str(root), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as board:
        try:
            own = psutil.Process(board.pid)
            deadline = time.monotonic() + LIMIT
            family = [own]
            while not any("tensorboard.main" in process.cmdline() for process in family):
                assert time.monotonic() < deadline
                time.sleep(0.05)
                family = [own, *own.children(recursive=True)]
            board.send_signal(number)
            board.wait(LIMIT)
            assert not psutil.wait_procs(family, LIMIT)[1], "a server was left behind"
        finally:
            board.kill()


def _eventually(address: str) -> dict[str, dict[str, object]]:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                found: dict[str, dict[str, object]] = json.load(answer)
            if len(found) >= 3:  # chief and worker of one run, the single task of the other
                return found
        except OSError:
            pass
        time.sleep(0.3)
    raise AssertionError("TensorBoard showed no runs")


def test_a_finished_run_is_resumed_only_with_a_new_end(root: Path) -> None:
    refused = headway("resume", "softmax", root=root)
    assert refused.returncode == 8
    assert "workload.stop.steps=" in refused.stderr
    other = headway("resume", "softmax", "workload.batch_size=7", root=root)
    assert other.returncode == 2
    assert "can change only" in other.stderr


@pytest.fixture
def background(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    root = tmp_path / "runs"
    job = write_job(tmp_path / "job.yaml", cluster={"worker": 2, "ps": 1, "evaluator": 1})
    started = headway("run", str(job), "--detach", "-o", "json", root=root)
    assert started.returncode == 0, started.stderr
    name = json.loads(started.stdout)["run"]
    yield root, name
    headway("stop", name, "--now", root=root)


def test_a_background_run_is_seen_followed_and_stopped(background: tuple[Path, str]) -> None:
    root, name = background
    deadline = time.monotonic() + LIMIT
    while True:
        (seen,) = json.loads(headway("status", "-o", "json", root=root).stdout)
        if seen.get("evaluation") and seen["evaluation"]["step"] > 0:
            break
        assert time.monotonic() < deadline, seen
        time.sleep(0.5)
    assert seen["state"] == "running"
    assert {task["task"] for task in seen["tasks"]} == {"worker/0", "worker/1", "ps/0", "evaluator/0"}
    text = headway("status", root=root).stdout
    assert re.search(r"worker/0 +training", text)
    assert headway("resume", name, root=root).returncode == 8
    with Running.following(root, name) as follower:
        stopped = headway("stop", name, root=root)
        assert stopped.returncode == 0, stopped.stderr
        assert "stopped (headway stop)" in stopped.stdout
        assert follower.wait(timeout=10) == 0  # `logs -f` ends with the run
    run = api.load(name, root)
    assert run.is_sealed
    assert {row["task"] for row in run.rows("evaluations")} >= {"evaluator/0"}
    assert headway("stop", name, root=root).returncode == 8
    assert "nothing runs" in headway("status", root=root).stdout


def test_json_output_of_run_is_json_alone(tmp_path: Path) -> None:
    done = headway("run", str(EXAMPLES / "linear.yaml"), "-o", "json", "cluster={chief: 1, ps: 1}", root=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["accuracy"] is None
    assert figures["loss"] < 0.5
    assert "running" in done.stderr


def test_a_step_longer_than_the_heartbeats_limit_is_not_killed(tmp_path: Path) -> None:
    """Liveness is a heartbeat, and it goes on during a step."""
    job = write_job(
        tmp_path / "job.yaml",
        workload={
            "model": "mnist_cnn",
            "dataset": {"name": "synthetic", "size": 5000, "test_size": 10},
            "batch_size": 5000,
            "stop": {"steps": 2},
        },
        strategy="single",
        limits={"heartbeat": "1500ms"},
        restart={"attempts": 0},
    )
    done = headway("run", str(job), "-o", "json", root=tmp_path / "runs", timeout=2 * LIMIT)
    assert done.returncode == 0, done.stderr
    (run,) = api.load_all(tmp_path / "runs")
    assert run.table("steps")["seconds"].max() > 2  # else it proves nothing


def test_a_run_that_fails_says_why_and_keeps_its_record(tmp_path: Path) -> None:
    job = write_job(
        tmp_path / "job.yaml", cluster={"chief": {"count": 1, "cores": [4000]}, "ps": 1}, restart={"attempts": 0}
    )
    failed = headway("run", str(job), root=tmp_path / "runs")
    assert failed.returncode != 0
    assert "4000" in failed.stderr
    assert "Traceback" not in failed.stderr
    (run,) = api.load_all(tmp_path / "runs")
    assert run.state == "failed"
    assert run.is_sealed


def test_a_server_that_cannot_live_fails_the_run_with_its_reason(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.yaml", limits={"start": "100ms"}, restart={"attempts": 1, "delay": 0})
    failed = headway("run", str(job), root=tmp_path / "runs")
    assert failed.returncode == 6
    assert "limits.start" in failed.stderr
