"""Programs that stand still, with real processes: stopped, hung, waiting. None of them needs TensorFlow."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from running import Running, headway, write_job

pytestmark = [pytest.mark.real, pytest.mark.fault, pytest.mark.timeout(120)]

PROGRAM = Path(__file__).parents[1] / "faults" / "launched.py"
NAMING = ("stopped", "silent", "stalled", "unresponsive", "restarting")
# A second process that does nothing: stopping it is no harm.
WITH_HELPER = """
import subprocess, time
helper = subprocess.Popen(["sleep", "300"])
for step in range(1, 10_000):
    time.sleep(0.05)
    print(f"step {step} loss 1.0", flush=True)
"""


def launched(tmp_path: Path, *command: str, cluster: dict[str, int], **changes: Any) -> Running:
    kind = "allreduce" if sum(cluster.values()) > 1 else "single"
    job = write_job(
        tmp_path / "job.yaml",
        workload={"command": [sys.executable, *command]},
        strategy=kind,
        cluster=cluster,
        checkpoint={},
        **changes,
    )
    return Running(tmp_path / "runs", "run", str(job))


def program_of(running: Running, task: str) -> psutil.Process:
    (program,) = psutil.Process(running.pid(task)).children()
    return program


def named(running: Running) -> set[str]:
    return {event["task"] for kind in NAMING for event in running.events(kind)}


def test_a_frozen_program_is_named_shown_and_replaced_and_nobody_else_is_blamed(tmp_path: Path) -> None:
    """Its heartbeat goes on: it comes from the process beside it."""
    with launched(tmp_path, str(PROGRAM), "100000", cluster={"chief": 1, "worker": 1}) as running:
        running.trains("chief/0", "worker/0")
        program = program_of(running, "worker/0")
        program.suspend()
        at = time.time()
        running.wait_for(lambda: running.events("stopped"), "its name", 10)
        assert running.task("worker/0")["trouble"] == "stopped"
        running.trains("chief/0", "worker/0", attempt=1)
        assert not program.is_running()
        running.stop()
    (stopped,) = running.events("stopped")
    assert (stopped["task"], stopped["process"]) == ("worker/0", program_name())
    assert 5 <= stopped["t"] - at < 10
    (restart,) = running.events("restarting")
    assert (restart["task"], restart["reason"]) == ("worker/0", "it was stopped for 10 s (state T; limits.heartbeat)")
    assert named(running) == {"worker/0"}
    shown = headway("show", running.folder.name, root=running.root).stdout
    assert f"worker/0 was stopped (process {program_name()}, state T) for" in shown
    assert "and was started again" in shown


def program_name() -> str:
    return Path(sys.executable).name[:15]


def test_a_task_frozen_before_its_first_heartbeat_is_named_and_replaced(tmp_path: Path) -> None:
    with launched(tmp_path, str(PROGRAM), "100000", cluster={"chief": 1, "worker": 1}) as running:
        running.wait_for(lambda: running.events("task_started"), "a task", every=0.01)
        pid = running.wait_for(lambda: running.task("worker/0")["pid"], "its process", every=0.01)
        os.kill(pid, signal.SIGSTOP)
        at = time.time()
        assert running.task("worker/0")["phase"] == "starting"
        running.trains("chief/0", "worker/0", attempt=1)
        running.stop()
    (stopped,) = running.events("stopped")
    assert stopped["task"] == "worker/0"
    assert stopped["t"] - at < 10
    assert named(running) == {"worker/0"}


def test_restarted_and_hung_after_one_report_is_judged_and_the_one_that_waits_is_not(tmp_path: Path) -> None:
    cluster = {"chief": 1, "worker": 1}
    with launched(tmp_path, str(PROGRAM), "100000", "worker/0", cluster=cluster, limits={"stall": 14}) as running:
        running.trains("chief/0", "worker/0")
        running.kill("worker/0")
        first = running.wait_for(lambda: running.steps("worker/0", attempt=1), "a step")[0]["t"]
        running.trains("chief/0", "worker/0", attempt=2)
        running.stop()
    (stalled,) = running.events("stalled")
    assert (stalled["task"], stalled["doing"]) == ("worker/0", "nothing")
    assert 9 < stalled["t"] - first < 14
    assert [event["task"] for event in running.events("restarting")] == ["worker/0", "worker/0"]
    assert "limits.stall" in running.events("restarting")[-1]["reason"]


def test_a_program_that_goes_on_though_a_process_of_it_is_stopped_is_named_and_left_alone(tmp_path: Path) -> None:
    with launched(tmp_path, "-c", WITH_HELPER, cluster={"chief": 1}, limits={"heartbeat": 3}) as running:
        running.trains("chief/0")
        (helper,) = program_of(running, "chief/0").children()
        helper.suspend()
        running.wait_for(lambda: running.events("stopped"), "its name", 10)
        time.sleep(4)
        assert running.task("chief/0")["attempt"] == 0
        helper.resume()
        running.wait_for(lambda: running.events("going_on"), "its going on", 10)
        running.stop()
    assert running.events("restarting") == []
    assert running.events("stopped")[0]["process"] == "sleep"


def test_a_program_stopped_for_a_moment_goes_on(tmp_path: Path) -> None:
    with launched(tmp_path, str(PROGRAM), "100000", cluster={"chief": 1}) as running:
        running.trains("chief/0")
        program = program_of(running, "chief/0")
        program.suspend()
        running.wait_for(lambda: running.events("stopped"), "its name", 10)
        program.resume()
        running.wait_for(lambda: running.events("going_on"), "its going on", 10)
        assert running.task("chief/0")["trouble"] is None
        running.stop()
    assert running.events("restarting") == []
