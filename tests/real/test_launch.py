"""`headway launch`: real programs of a user, which know nothing of us, supervised and recorded as our own tasks are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from emulating import need_emulation
from running import LIMIT, Running, headway

from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.units import format_seconds

pytestmark = pytest.mark.timeout(120)
TRAIN = """
import json, os, signal, sys, time
role, steps = sys.argv[1], int(sys.argv[2])
print("tasks of", os.environ["TF_CONFIG"], flush=True)
if role == "ps":
    signal.pause()  # as server.join() does
rank = int(os.environ["RANK"])
for step in range(1, steps + 1):
    time.sleep(0.02)
    print(f"step {step} loss {1 / step:.4f}", flush=True)
"""


def launch(root: Path, script: str, *arguments: str, options: tuple[str, ...] = ()) -> Any:
    """The command, run to its end, and its run."""
    (root / "train.py").write_text(script)
    done = headway("launch", *options, "--", "python", "train.py", *arguments, root=root / "runs", cwd=root)
    runs = RunFolder.all(root / "runs")
    return done, Run(runs[-1]) if runs else None


def launching(root: Path, script: str, *arguments: str, options: tuple[str, ...] = ()) -> Running:
    (root / "train.py").write_text(script)
    return Running(root / "runs", "launch", *options, "--", "python", str(root / "train.py"), *arguments)


def log_of(run: Run, name: str) -> str:
    path = run.path / "logs" / f"{name}.log"
    return path.read_text() if path.exists() else ""


def test_a_program_on_a_server_and_two_workers(tmp_path: Path) -> None:
    settings = ("workload.batch_size=10", "measure.warmup=5", "strategy=ps-async")
    options = ("--ps", "1", "--worker", "2", *(word for each in settings for word in ("--set", each)))
    done, run = launch(tmp_path, TRAIN, "{job_name}", "50", options=options)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = run.summary()
    assert (figures["state"], figures["reason"]) == ("finished", "the command ended")
    assert figures["steps"] == 50
    # Both print the steps of all tasks: what no report before has told of counts, once.
    assert figures["steps_per_s"] == pytest.approx(1 / 0.021, rel=0.3)
    assert figures["examples_per_s"] == pytest.approx(10 * figures["steps_per_s"], rel=0.01)
    assert figures["train_loss"] < 0.1
    assert figures["command"] == "python train.py '{job_name}' 50"
    assert {task["task"] for task in figures["tasks"]} == {"worker/0", "worker/1"}
    config = json.loads(log_of(run, "worker-1").splitlines()[0].removeprefix("tasks of "))
    assert config["task"] == {"type": "worker", "index": 1}
    assert set(config["cluster"]) == {"ps", "worker"}
    assert "50 reached, as it counts" in done.stdout
    samples = run.table("task_samples")
    assert set(samples["task"]) == {"ps/0", "worker/0", "worker/1"}  # watched like any task


def test_what_it_says_with_headway_log_is_in_the_record(tmp_path: Path) -> None:
    script = """
import headway, time
for step in range(1, 31):
    time.sleep(0.01)
    headway.log(step=step, loss=1 / step, learning_rate=0.1)
headway.log(step=31, loss=0.03, accuracy=0.9)
"""
    done, run = launch(tmp_path, script)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = run.summary()
    assert (figures["steps"], figures["accuracy"]) == (31, 0.9)
    assert figures["reported"] == [{"task": "worker/0", "learning_rate": 0.1}]
    assert "learning_rate 0.1" in done.stdout


def test_what_is_not_known_of_a_program_with_servers_is_not_claimed(tmp_path: Path) -> None:
    """Whether a global step takes the batch of one worker or of both is the program's business."""
    options = ("--ps", "1", "--worker", "2", "--set", "workload.batch_size=10", "--set", "measure.warmup=2")
    done, run = launch(tmp_path, TRAIN, "{job_name}", "20", options=options)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = run.summary()
    assert (figures["strategy"], figures["steps"], figures["examples_per_s"]) == ("program", 20, None)
    assert "strategy=ps-async or strategy=ps-sync" in done.stdout


SILENT_RANKS = """
import headway, os, time
for step in range(1, 41):
    time.sleep(0.02)
    if os.environ["RANK"] == "0":
        headway.log(step=step, examples=16)
        print(f"loss {1 / step:.3f} at step {step}", flush=True)
"""


def test_examples_of_silent_ranks_count_and_losses_come_from_lines(tmp_path: Path) -> None:
    """Rank 0 speaks for both: a step of an all-reduce is everybody's. headway.log() knows no loss; the lines do."""
    done, run = launch(tmp_path, SILENT_RANKS, options=("--worker", "2", "--set", "measure.warmup=5"))
    assert done.returncode == 0, done.stdout + done.stderr
    figures = run.summary()
    assert figures["steps"] == 40
    assert figures["examples_per_s"] == pytest.approx(2 * 16 * figures["steps_per_s"], rel=0.01)
    assert {row["source"] for row in run.rows("steps")} == {"headway.log()"}
    assert figures["train_loss"] == pytest.approx(1 / 40, abs=0.01)
    assert "0.025, as last reported" in done.stdout
    assert f"measured over {format_seconds(figures['window_seconds'])}" in done.stdout


def test_a_program_that_counts_examples_is_asked_for_its_batch_size(tmp_path: Path) -> None:
    script = """
import sys, time
for epoch in (1, 2):
    for batch in range(0, 20, 2):
        time.sleep(0.05)
        done = f"{batch * 8}/160 ({100 * batch / 20:.0f}%)"
        print(f"Train Epoch: {epoch} [{done}]\tLoss: {1 / (batch + 1):.6f}", flush=True)
"""
    done, run = launch(tmp_path, script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "count examples, not steps: with workload.batch_size" in done.stdout
    figures = run.summary()
    assert (figures["tasks"], figures["steps_per_s"]) == ([], None)
    # Also of a program without steps it is known what it used.
    (task,) = figures["task_usage"]
    assert task["cpus"] >= 0
    assert task["memory_peak"] <= figures["nodes"][0]["memory_peak"]
    assert "CPUs" in next(line for line in done.stdout.splitlines() if "worker/0" in line)
    done, run = launch(tmp_path, script, options=("--set", "workload.batch_size=8", "--set", "measure.warmup=1"))
    assert run.summary()["steps"] == 38
    assert run.summary()["examples_per_s"] == pytest.approx(8 * run.summary()["steps_per_s"], rel=0.01)


def test_the_environment_is_that_of_the_programs_own_python(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "own")], check=True)
    package = next((tmp_path / "own" / "lib").glob("python*/site-packages")) / "torch-9.8.7.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.8.7\n")
    python = str(tmp_path / "own" / "bin" / "python")
    options = ("--python", python, "--set", "workload.tf_config.model_dir={model_dir}")
    done, run = launch(tmp_path, "import os; print(os.environ['TF_CONFIG'])", options=options)
    assert done.returncode == 0, done.stdout + done.stderr
    packages = run.environment["packages"]
    assert packages["torch"] == "9.8.7"
    assert not {"tensorflow", "tensorflow-cpu"} & set(packages)  # which Headway's own environment has
    assert run.environment["executable"] == python
    assert json.loads(log_of(run, "worker-0"))["model_dir"] == str(run.folder.model_dir)


def test_a_program_that_fails_ends_the_run_with_its_own_last_words(tmp_path: Path) -> None:
    script = "print('hello', flush=True)\nraise ValueError('the data is not there')"
    done, run = launch(tmp_path, script, options=("--set", "restart.attempts=1", "--set", "restart.delay=0.1"))
    assert done.returncode == 6
    assert "ValueError: the data is not there" in done.stderr
    assert log_of(run, "worker-0").count("hello") == 2  # it had its second chance


FAILS = """
import os, signal, sys, time
rank = int(os.environ["RANK"]) if "RANK" in os.environ else signal.pause()  # a server
seconds, code = sys.argv[1:][rank].split(":")
time.sleep(float(seconds))
sys.exit(int(code))
"""


@pytest.mark.parametrize(
    ("options", "ranks", "code", "starts", "text"),
    [
        (("--worker", "2"), ("0:0", "1:3"), 6, 1, "worker/1 failed: exit code 3"),
        pytest.param(
            ("--worker", "2", "--ps", "1"),
            ("0:0", "1:3"),
            6,
            1,
            "worker/1 failed: exit code 3",
            marks=pytest.mark.fault,
        ),
        (("--worker", "2", "--set", "workload.ends_with=chief"), ("0:0", "1:3"), 0, 1, "worker/1 failed: exit code 3"),
        pytest.param(
            ("--worker", "2", "--set", "workload.ends_with=chief"),
            ("2:0", "0:3"),
            0,
            1,
            "worker/1 failed: exit code 3",
            marks=pytest.mark.fault,
        ),
        pytest.param(
            ("--worker", "2", "--set", "restart.attempts=9"),
            ("0:0", "1:3"),
            6,
            2,
            "twice, without a step in between",
            marks=pytest.mark.fault,
        ),
    ],
)
def test_a_run_succeeds_only_if_those_who_decide_did(
    tmp_path: Path, options: tuple[str, ...], ranks: tuple[str, ...], code: int, starts: int, text: str
) -> None:
    """Rank 0 is done long before rank 1 fails, or the other way round."""
    every = ("--set", "restart.attempts=0", "--set", "restart.delay=0.1", *options)
    done, run = launch(tmp_path, FAILS, *ranks, options=every)
    assert done.returncode == code, done.stdout + done.stderr
    assert run.facts["state"] == ("failed" if code else "finished")
    assert text in (done.stderr if code else done.stdout)
    assert any(text in warning for warning in run.summary()["warnings"]) == (code == 0)
    tries = [note for note in run.rows("events") if note["kind"] == "task_started"]
    assert len([note for note in tries if '"worker/1"' in note["data"]]) == starts


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("no-such-program",), "no-such-program: No such file or directory"),
        (("python", "no-such-file.py"), "can't open file"),
        pytest.param(("python", "-m", "no_such_module"), "No module named no_such_module", marks=pytest.mark.fault),
        pytest.param(
            ("python", "-c", "import no_such_module"), "No module named 'no_such_module'", marks=pytest.mark.fault
        ),
        pytest.param(("python", "-c", "def broken(:"), "SyntaxError: invalid syntax", marks=pytest.mark.fault),
        pytest.param(("sh", "-c", "no-such-program"), "no-such-program: not found", marks=pytest.mark.fault),
    ],
)
def test_a_program_that_cannot_start_is_not_started_again(tmp_path: Path, command: tuple[str, ...], words: str) -> None:
    done = headway("launch", "--worker", "2", "--", *command, root=tmp_path / "runs")
    assert done.returncode == 6
    assert words in done.stderr
    assert "is started again" not in done.stdout
    assert "checkpoint" not in done.stdout


@pytest.mark.fault
def test_without_servers_all_begin_anew_when_one_is_killed(tmp_path: Path) -> None:
    with launching(tmp_path, TRAIN, "worker", "1000", options=("--worker", "2", "--set", "restart.delay=0.1")) as run:
        run.trains("worker/0", "worker/1")
        program = psutil.Process(run.pid("worker/1")).children()[0]
        program.kill()
        run.trains("worker/0", "worker/1", attempt=1)
        assert "SIGKILL" in run.events("restarting")[0]["reason"]
        run.stop()
    # It has no checkpoint, and both make all steps again: these are lost once.
    assert run.run.summary()["steps_lost"] == max(row["step"] for row in run.steps() if row["attempt"] == 0)


def test_stop_is_a_sigterm_and_nothing_is_left(tmp_path: Path) -> None:
    script = """
import pathlib, signal, subprocess, sys, time
def end(*_):
    pathlib.Path("saved").write_text("in order")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
subprocess.Popen(["sleep", "1000"])  # a child that it forgets
print("up", flush=True)
while True:
    time.sleep(0.1)
"""
    options = ("--worker", "2", "--set", f"workload.directory={tmp_path}")
    with launching(tmp_path, script, options=options) as run:
        run.wait_for(lambda: all("up" in log_of(run.run, f"worker-{index}") for index in (0, 1)), "both programs")
        processes = run.processes()
        assert any(process.name() == "sleep" for process in processes)
        run.stop()
        assert run.run.facts["state"] == "stopped"
    assert (tmp_path / "saved").read_text() == "in order"
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert not alive, [process.cmdline() for process in alive]


@pytest.mark.fault
@pytest.mark.parametrize("victim", ["launcher", "agent", "task"])
def test_a_program_does_not_outlive_those_who_watch_it(tmp_path: Path, victim: str) -> None:
    with launching(tmp_path, TRAIN, "worker", "10000", options=("--set", "restart.attempts=0")) as run:
        run.trains("worker/0")
        program = psutil.Process(run.pid("worker/0")).children()[0]
        pid = {"launcher": run.process.pid, "agent": run.status()["agents"][0], "task": run.pid("worker/0")}[victim]
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + LIMIT
        while program.is_running() and program.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "it is still there"
            time.sleep(0.1)
        run.process.wait(timeout=LIMIT)


@pytest.mark.fault
def test_an_evaluator_is_given_the_time_that_it_needs(tmp_path: Path) -> None:
    script = """
import sys, time
time.sleep(3 if sys.argv[1] == "evaluator" else 0.5)
print(sys.argv[1], "ends", flush=True)
"""
    options = ("--chief", "1", "--worker", "1", "--ps", "1", "--evaluator", "1")
    done, run = launch(tmp_path, script, "{job_name}", options=options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "evaluator ends" in log_of(run, "evaluator-0")


def test_dry_run_shows_the_very_command(tmp_path: Path) -> None:
    arguments = ("--worker", "2", "--dry-run", "--", "python", "train.py", "--task_index={task_index}")
    done = headway("launch", *arguments, root=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "python train.py --task_index=1" in done.stdout
    assert "MASTER_PORT=<port of worker/0>" in done.stdout
    assert RunFolder.all(tmp_path) == []


@pytest.mark.fault
def test_a_job_file_can_name_a_command_and_be_resumed(tmp_path: Path) -> None:
    """The program's own checkpoint is its business: here it counts on from a file."""
    script = """
import pathlib, sys, time
file = pathlib.Path(sys.argv[1]) / "step"
step = int(file.read_text()) if file.exists() else 0
while step < 400:
    step += 1
    time.sleep(0.02)
    file.write_text(str(step))
    print(f"step {step} loss {1 / step}", flush=True)
"""
    (tmp_path / "train.py").write_text(script)
    job = {
        "name": "own",
        "workload": {"command": "python train.py {model_dir}", "directory": str(tmp_path)},
        "cluster": {"worker": 1},
    }
    (tmp_path / "own.yaml").write_text(json.dumps(job))
    with Running(tmp_path / "runs", "run", str(tmp_path / "own.yaml")) as run:
        run.trains("worker/0", steps=50)
        run.stop()
    name, reached = run.folder.name, run.run.summary()["steps"]
    done = headway("resume", name, root=tmp_path / "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    figures = Run(run.folder).summary()
    assert 50 <= reached < 400
    assert (figures["state"], figures["steps"]) == ("finished", 400)
    first_again = run.steps("worker/0", attempt=1)[0]["step"]
    assert reached - 5 <= first_again <= reached + 5
    assert headway("resume", name, root=tmp_path / "runs").returncode == 8


@pytest.mark.system
def test_the_tasks_of_emulated_hosts_meet_where_they_are_told_to(tmp_path: Path) -> None:
    need_emulation()
    script = """
import os, socket, time
place, rank = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), int(os.environ["RANK"])
assert os.environ["LOCAL_RANK"] == "0" and socket.gethostname() == f"worker{rank}"
if rank == 0:
    with socket.create_server(place) as server:
        connection = server.accept()[0]
        for step in range(1, 41):
            print(f"step {step} loss {1 / step}", flush=True)
            time.sleep(0.05)
        connection.sendall(b"the end")
else:
    while True:
        try:
            connection = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    assert connection.recv(7) == b"the end"
"""
    done, run = launch(tmp_path, script, options=("--worker", "2", "--set", "site=emulated"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.summary()["steps"] == 40
    assert {node["node"] for node in run.summary()["nodes"]} == {"worker0", "worker1"}
