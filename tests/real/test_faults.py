"""Faults with real processes. Each is what DESIGN promises a user; `make test-faults` runs them ten times."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from running import LIMIT, Running, counted_updates, headway, write_job

import headway as api

pytestmark = [pytest.mark.real, pytest.mark.fault, pytest.mark.timeout(240)]

ALL = ("chief/0", "worker/0")


def says_what_was_lost(running: Running) -> int:
    """What its rows and its last checkpoint show; the rollback that was recorded and the summary say the same."""
    restored = running.events("initialized")[-1]
    highest = max(row["step"] for row in running.steps() if row["generation"] < restored["generation"])
    lost = max(0, highest - restored["step"])
    (rollback,) = running.events("rollback")
    assert (rollback["step"], rollback["steps_lost"]) == (restored["step"], lost)
    assert running.run.summary()["steps_lost"] == lost
    return int(lost)


def test_a_killed_worker_rejoins_and_the_others_go_on(tmp_path: Path) -> None:
    with Running(tmp_path / "runs", "run", str(write_job(tmp_path / "job.yaml"))) as running:
        running.trains(*ALL)
        killed_at = time.time()
        running.kill("worker/0")
        running.trains("worker/0", attempt=1)
        rejoined = running.steps("worker/0", attempt=1)[0]["t"]
        meanwhile = [row for row in running.steps("chief/0") if killed_at < row["t"] < rejoined]
        running.stop()
    assert len(meanwhile) > 10
    assert running.run.state == "stopped"
    assert running.events("rollback") == []
    (restart,) = running.events("restarting")
    assert (restart["task"], restart["reason"]) == ("worker/0", "signal SIGKILL")
    # Every update is counted once; only rows of the killed worker's last second may be missing from the record.
    steps = [row["step"] for row in running.steps()]
    assert len(set(steps)) == len(steps)
    missing = set(range(1, max(steps) + 1)) - set(steps)
    around = [row["step"] for row in running.steps("chief/0") if killed_at - 1 < row["t"] < killed_at + 0.5]
    assert not missing or min(around) <= min(missing) <= max(missing) <= max(around)


def test_a_killed_chief_loses_nothing(tmp_path: Path) -> None:
    with Running(tmp_path / "runs", "run", str(write_job(tmp_path / "job.yaml"))) as running:
        running.trains(*ALL)
        step = running.status()["step"]
        running.kill("chief/0")
        running.trains("chief/0", attempt=1)
        running.stop()
    first, again = running.events("initialized")
    assert (first["how"], again["how"]) == ("fresh", "adopted")
    assert again["step"] >= step
    assert again["generation"] == first["generation"]
    assert running.events("rollback") == []
    # The worker's pushes went on all the while, and every step number is used at most once.
    steps = [row["step"] for row in running.steps()]
    assert len(set(steps)) == len(steps)


def test_a_killed_server_rolls_all_servers_back_to_one_checkpoint(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.yaml", cluster={"chief": 1, "worker": 1, "ps": 2})
    with Running(tmp_path / "runs", "run", str(job)) as running:
        running.trains(*ALL)
        running.wait_for(lambda: running.events("checkpoint"), "a checkpoint")
        survivor = running.pid("ps/0")
        running.kill("ps/1")
        running.wait_for(lambda: running.events("rollback"), "a rollback")
        for name in ALL:
            running.wait_for(partial(running.steps, name, generation=2), f"{name} after the rollback")
        assert not psutil.pid_exists(survivor)  # no server outlives another: its state would be of another time
        running.stop()
    (rollback,) = running.events("rollback")
    _, restored = running.events("initialized")
    assert restored["how"] == "restored"
    assert restored["step"] == rollback["step"] == int(restored["checkpoint"].removeprefix("step-"))
    assert rollback["steps_lost"] == rollback["step_before"] - rollback["step"] >= 0
    # Both servers are new processes; the training tasks are not.
    started = [(event["task"], event["attempt"]) for event in running.events("ready")]
    assert sorted(started) == [
        ("chief/0", 0),
        ("ps/0", 0),
        ("ps/0", 1),
        ("ps/1", 0),
        ("ps/1", 1),
        ("worker/0", 0),
    ]
    # No push was accepted in between: the restored servers count on from the checkpoint, without a gap or a double.
    after = sorted(row["step"] for row in running.steps(generation=2))
    assert after == list(range(restored["step"] + 1, restored["step"] + 1 + len(after)))
    result = json.loads((running.folder.path / "result.json").read_text())
    assert (result["rollbacks"], result["steps_lost"]) == (1, rollback["steps_lost"])
    assert result["steps"] == after[-1]


def test_after_a_rollback_each_server_has_seen_exactly_the_counted_updates(tmp_path: Path) -> None:
    """ps/0 counts updates in the global step, Adam counts them on ps/1: a stray push on either server would show."""
    job = write_job(
        tmp_path / "job.yaml",
        workload={
            "model": "softmax",
            "dataset": {"name": "synthetic", "size": 4000, "test_size": 500},
            "batch_size": 4000,
            "optimizer": {"name": "adam", "learning_rate": 0.001},
            "stop": {"steps": 400},
        },
        cluster={"chief": 1, "ps": 2},
        checkpoint={"steps": 50, "seconds": None},
    )
    with Running(tmp_path / "runs", "run", str(job)) as running:
        running.wait_for(lambda: running.events("checkpoint"), "a checkpoint")
        running.kill("ps/1")
        assert running.process.wait(timeout=2 * LIMIT) == 0, running.output()
    assert len(running.events("rollback")) == 1
    (variables,) = running.events("variables")
    device = {variable["name"]: variable["device"] for variable in variables["placement"]}
    assert (device["global_step"], device["beta2_power"]) == ("ps/0", "ps/1")
    assert counted_updates(running.folder.checkpoints / "step-00000400") == pytest.approx([400, 400], abs=0.4)


def test_a_frozen_agent_is_noticed_and_replaced(tmp_path: Path) -> None:
    never = {"steps": None, "seconds": None}
    job = write_job(tmp_path / "job.yaml", limits={"heartbeat": "3s"}, cluster={"chief": 1, "ps": 1}, checkpoint=never)
    with Running(tmp_path / "runs", "run", str(job)) as running:
        running.trains("chief/0")
        (unshare,) = running.status()["agents"]
        below = psutil.Process(unshare).children(recursive=True)
        next(process for process in below if "headway.agent" in process.cmdline()).suspend()
        running.trains("chief/0", attempt=1)
        assert not any(process.is_running() for process in below)
        running.stop()
    assert "said nothing" in running.events("agent_lost")[0]["reason"]
    assert says_what_was_lost(running) > 0  # while the agent was frozen its task trained on, and nobody heard of it
    assert "back to step 0 (there was no checkpoint)" in running.output()


def test_a_frozen_worker_is_noticed_and_replaced(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.yaml", limits={"heartbeat": "3s"})
    with Running(tmp_path / "runs", "run", str(job)) as running:
        running.trains(*ALL)
        pid = running.kill("worker/0", signal.SIGSTOP)
        running.trains("worker/0", attempt=1)
        assert not psutil.pid_exists(pid)
        running.stop()
    assert [event["task"] for event in running.events("stopped")] == ["worker/0"]
    assert "stopped" in running.events("restarting")[0]["reason"]


def test_a_killed_agent_is_replaced_and_training_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    with Running(tmp_path / "runs", "run", str(write_job(tmp_path / "job.yaml"))) as running:
        running.trains(*ALL)
        running.wait_for(lambda: running.events("checkpoint"), "a checkpoint")
        (unshare,) = running.status()["agents"]
        below = psutil.Process(unshare).children(recursive=True)
        agent = next(process for process in below if "headway.agent" in process.cmdline())
        agent.kill()
        running.trains(*ALL, attempt=1)
        assert not any(process.is_running() for process in below)
        running.stop()
    assert running.events("agent_lost")
    assert running.events("initialized")[-1]["how"] == "restored"
    says_what_was_lost(running)
    assert running.run.state == "stopped"


def test_a_killed_launcher_leaves_nothing_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    with Running(root, "run", str(write_job(tmp_path / "job.yaml"))) as running:
        running.trains(*ALL)
        running.wait_for(lambda: running.events("checkpoint"), "a checkpoint")
        family = running.processes()
        assert len(family) >= 6  # launcher, unshare, agent, three tasks
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        _, left = psutil.wait_procs(family[1:], timeout=10)
        # What is dead and only waits for the machine's init to take note of it is gone.
        assert [process for process in left if process.status() != psutil.STATUS_ZOMBIE] == []
    assert running.run.state == "interrupted"
    broken_off = running.run.summary()
    assert broken_off["steps"] > 0  # readable as it is
    target = broken_off["steps"] + 200
    with Running(root, "resume", "last", f"workload.stop.steps={target}") as resumed:
        assert resumed.folder.name == running.folder.name
        assert resumed.process.wait(timeout=2 * LIMIT) == 0, resumed.output()
    assert resumed.run.state == "finished"
    assert resumed.events("initialized")[-1]["how"] == "restored"
    result = resumed.run.summary()
    assert target <= result["steps"] <= target + 2
    assert len(resumed.run.facts["launches"]) == 2
    assert {row["attempt"] for row in resumed.steps("worker/0")} == {0, 1}


def test_ctrl_c_stops_in_order_and_seals(tmp_path: Path) -> None:
    with Running(tmp_path / "runs", "run", str(write_job(tmp_path / "job.yaml"))) as running:
        running.trains(*ALL)
        family = running.processes()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(timeout=LIMIT) == 130, running.output()
        assert not any(process.is_running() for process in family[1:])
    run = running.run
    assert (run.state, run.facts["reason"]) == ("stopped", "Ctrl-C")
    assert run.is_sealed
    assert run.summary()["accuracy"] is not None
    assert run.rows("checkpoints")[-1]["step"] == run.summary()["steps"]
    assert (run.folder.model / "saved_model.pb").exists()
    assert "headway resume" in running.output()
    # What was stopped goes on where it was, and loses nothing.
    steps = run.summary()["steps"]
    resumed = headway("resume", "last", f"workload.stop.steps={steps + 100}", root=running.root, timeout=2 * LIMIT)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert running.events("rollback") == []
    assert running.events("initialized")[-1]["step"] == steps
    assert running.run.state == "finished"


def test_a_reader_who_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    """`headway run job | head -1`: the pipe breaks, training does not."""
    job = write_job(
        tmp_path / "job.yaml",
        cluster={"chief": 1, "ps": 1},
        workload={"model": "softmax", "dataset": "synthetic", "stop": {"steps": 300}},
    )
    shell = f"{sys.executable} -m headway run {job} --runs {tmp_path / 'runs'} | head -1"
    subprocess.run(["sh", "-c", shell], check=True, stdout=subprocess.DEVNULL, timeout=2 * LIMIT)
    (run,) = api.load_all(tmp_path / "runs")
    assert (run.state, run.is_sealed) == ("finished", True)


def test_a_second_ctrl_c_kills(tmp_path: Path) -> None:
    # A large test set, so that the chief's last evaluation takes long enough to be broken off.
    job = write_job(
        tmp_path / "job.yaml",
        workload={
            "model": "mnist_cnn",
            "dataset": {"name": "synthetic", "size": 1000, "test_size": 40_000},
            "batch_size": 10,
            "stop": {"steps": 100_000},
        },
        cluster={"chief": 1, "ps": 1},
    )
    with Running(tmp_path / "runs", "run", str(job)) as running:
        running.trains("chief/0", steps=5)
        family = running.processes()
        running.process.send_signal(signal.SIGINT)
        running.wait_for(lambda: running.events("done"), "the end of training")
        began = time.monotonic()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(timeout=LIMIT) == 130
        assert time.monotonic() - began < 10
        assert not any(process.is_running() for process in family[1:])
    assert running.run.state == "stopped"
    assert running.run.is_sealed


def test_a_port_that_another_program_took_is_given_up_for_new_ones(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.yaml", expose="cluster", restart={"delay": 2})
    with Running(tmp_path / "runs", "run", str(job)) as running, contextlib.ExitStack() as held:
        running.trains(*ALL)
        running.wait_for(lambda: running.events("checkpoint"), "a checkpoint")
        address = running.task("worker/0")["address"]
        running.kill("worker/0")
        thief = held.enter_context(socket.socket())
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                thief.bind(("0.0.0.0", int(address.rpartition(":")[2])))
                break
        thief.listen()
        running.wait_for(lambda: running.events("regrouping"), "regrouping", limit=2 * LIMIT)
        running.wait_for(lambda: running.task("worker/0")["phase"] == "training", "training on new ports", 2 * LIMIT)
        assert running.task("worker/0")["address"] != address
        running.stop()
    assert "taken by another program" in running.events("regrouping")[0]["reason"]
    assert headway("runs", root=running.root).returncode == 0
