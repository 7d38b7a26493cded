"""Clocks that are off, or set while a run trains: real ones, by libfaketime."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from debian import unpacked

from headway import clock
from headway.launch import nodes
from headway.launch.calibrate import Nobody
from headway.launch.launcher import Launcher
from headway.launch.prepare import create_run
from headway.record.folder import RunFolder
from headway.record.reader import read_events
from headway.record.run import Run
from headway.sites.isolation import Isolation, choose
from headway.sites.local import LocalSite
from headway.spec.load import parse_job

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]
AHEAD = 7.0


def test_a_node_whose_clock_is_ahead_is_put_on_the_launchers_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (library,) = unpacked("libfaketime").rglob("libfaketime.so.1")
    here = choose(private_network=True)
    faked = ("env", f"LD_PRELOAD={library}", f"FAKETIME=+{AHEAD:g}s", "DONT_FAKE_MONOTONIC=1")
    site = LocalSite(private=Isolation((*here.command, *faked), here.private_network, here.private_processes, "faked"))
    monkeypatch.setattr(nodes, "site", lambda _: site)
    monkeypatch.setattr(clock, "_boot", lambda: "another machine's")  # so the agent keeps its own time
    workload = {"model": "softmax", "dataset": {"name": "synthetic", "size": 2000}, "stop": {"steps": 300}}
    folder = create_run(parse_job({"workload": workload}), tmp_path)
    end = Launcher(folder, Nobody()).run()
    assert end.state == "finished", end
    (launch,) = folder.facts()["launches"]
    raw = [event["t"] for event in read_events(folder.events("chief-0")) if event["kind"] == "step"]
    assert min(raw) > launch["started"] + AHEAD
    run = Run(folder)
    clocks = [event for event in read_events(folder.events("launcher")) if event["kind"] == "clock"]
    assert clocks[0]["offset"] == pytest.approx(AHEAD, abs=0.1)
    assert clocks[0]["uncertainty"] < 0.1
    for table in ("steps", "node_samples", "task_samples"):
        times = run.table(table)["t"]
        assert len(times) > 0
        assert times.min() > launch["started"], table
        assert times.max() < launch["ended"], table
    assert run.summary()["steps"] == 300


def test_setting_the_clock_while_a_run_trains_changes_no_figure(tmp_path: Path) -> None:
    """It is set back by an hour in mid-run, then forward by a day. Every process of the run sees that."""
    (library,) = unpacked("libfaketime").rglob("libfaketime.so.1")
    shift = tmp_path / "shift"
    shift.write_text("+0\n")
    faked = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(shift), "FAKETIME_NO_CACHE": "1"}
    job = tmp_path / "job.yaml"
    data = "dataset: {name: synthetic, size: 2000, test_size: 500}, batch_size: 500"
    job.write_text(f"workload: {{model: softmax, {data}, stop: {{seconds: 12}}, evaluate: {{every: 50}}}}\n")
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "run", str(job)],
        env={**os.environ, **faked, "DONT_FAKE_MONOTONIC": "1", "HEADWAY_RUNS": str(tmp_path / "runs")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        for seconds in ("-3600", "+86400"):
            time.sleep(2.0 if steps_of(tmp_path / "runs") else 0.0)
            wait_for_more_steps(tmp_path / "runs")
            shift.write_text(f"{seconds}\n")
        output, _ = process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait()
    took = time.monotonic() - began
    assert process.returncode == 0, output
    assert "clock was set back by" in output
    (folder,) = RunFolder.all(tmp_path / "runs")
    run = Run(folder)
    figures = run.summary()
    jumps = [event["seconds"] for event in read_events(folder.events("launcher")) if event["kind"] == "clock_jumped"]
    assert jumps == pytest.approx([-3600, 86400 + 3600], abs=1.0)
    assert figures["evaluated_step"] == figures["steps"]
    # The task's clock starts just before its first step does, so the steps take microseconds less.
    assert 11.9 <= figures["training_seconds"] <= figures["seconds"] <= took
    for table in ("steps", "evaluations", "node_samples"):
        times = run.table(table)["t"]
        (launch,) = folder.facts()["launches"]
        assert launch["started"] < times.min() <= times.max() < launch["ended"], table
    assert sum("clock was set" in warning for warning in figures["warnings"]) == 2


def steps_of(root: Path) -> int:
    return sum(path.read_text().count('"kind": "step"') for path in root.glob("*/events/*.jsonl"))


def wait_for_more_steps(root: Path) -> None:
    before, deadline = steps_of(root), time.monotonic() + 60
    while steps_of(root) <= before + 20:
        assert time.monotonic() < deadline, "no steps"
        time.sleep(0.1)
