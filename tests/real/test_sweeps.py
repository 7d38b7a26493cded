"""A small sweep with real processes: killed, resumed, stopped, and read back."""

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
from running import LIMIT, headway

from headway.bench.folder import SweepFolder, samples
from headway.errors import RunFailed
from headway.record.folder import RunFolder
from headway.record.run import Run

pytestmark = [pytest.mark.real, pytest.mark.system]


def write_sweep(path: Path, **changes: Any) -> Path:
    settings = {
        "job": {
            "workload": {
                "model": "linear",
                "dataset": {"name": "synthetic", "shape": [1], "classes": None, "size": 500, "test_size": 50},
                "batch_size": 50,
            },
        },
        "vary": {"workload.batch_size": [10, 50]},
        "measure": {"warmup": 2, "steps": 20, "seconds": 0.5, "repeats": 1, "most": 1},
        **changes,
    }
    path.write_text(json.dumps(settings))  # JSON is YAML
    return path


def begin(root: Path, sweep: Path, *options: str) -> subprocess.Popen[bytes]:
    with (root / "bench.out").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "headway", "bench", str(sweep), *options],
            env={**os.environ, "HEADWAY_RUNS": str(root)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for_run(root: Path, process: subprocess.Popen[bytes], number: int) -> SweepFolder:
    """Until the sweep's run of this number trains."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        assert process.poll() is None, (root / "bench.out").read_text()
        for sweep in SweepFolder.all(root):
            runs = RunFolder.all(sweep.runs)
            if len(runs) > number and (runs[number].path / "control.sock").exists():
                return sweep
        time.sleep(0.1)
    raise AssertionError(f"no run {number}: {(root / 'bench.out').read_text()}")


def test_a_killed_sweep_leaves_no_process_and_goes_on_where_it_was(tmp_path: Path) -> None:
    process = begin(tmp_path, write_sweep(tmp_path / "small.yaml"))
    sweep = wait_for_run(tmp_path, process, 1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert not sweep.is_finished
    (first,) = [trial for trial in sweep.trials() if trial.state == "done"]

    resumed = headway("bench", "--resume", "last", root=tmp_path, timeout=4 * LIMIT)
    assert resumed.returncode == 0, resumed.stderr + resumed.stdout
    sweep = SweepFolder.find(tmp_path, "last")
    trials = sweep.trials()
    assert sweep.is_finished
    assert [trial.state for trial in trials] == ["done"] * 2
    # What was done is not done again; what was under way is; every run has its steps, and none is counted twice.
    assert [run.folder.name for run in sweep.trial(first.key).runs] == [first.runs[0].folder.name]
    assert [len(trial.runs) for trial in trials] == [1] * 2
    assert len(RunFolder.all(sweep.runs)) == 3
    for trial in trials:
        (run,) = trial.runs
        rows = Run(run.folder).table("steps")
        assert (~rows["warmup"]).sum() >= 20
        assert samples(trial)[0] > 0
        assert run.figures is not None
        assert run.figures["reason"] == "measured"

    shown = headway("sweeps", "show", "last", "-o", "json", root=tmp_path)
    value = json.loads(shown.stdout)
    assert value["state"] == "finished"
    assert [entry["runs"] for entry in value["trials"]] == [1] * 2
    alike = headway("compare", sweep.name, sweep.name, root=tmp_path)
    assert alike.returncode == 0, alike.stderr
    names = [trial.runs[0].folder.path for trial in trials]
    refused = headway("compare", str(names[0]), str(names[1]), root=tmp_path)
    assert refused.returncode == 2
    assert "workload.batch_size" in refused.stderr
    allowed = headway("compare", str(names[0]), str(names[1]), "--across", "workload.batch_size", root=tmp_path)
    assert allowed.returncode == 0, allowed.stderr


def test_ctrl_c_stops_a_sweep_in_order_and_a_failed_trial_stops_nothing(tmp_path: Path) -> None:
    sweep_file = write_sweep(
        tmp_path / "failing.yaml",
        vary={"workload.batch_size": [10]},
        also=[{"cluster.chief": {"count": 1, "cores": [4000]}}],  # there is no such core
    )
    process = begin(tmp_path, sweep_file)
    sweep = wait_for_run(tmp_path, process, 0)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=LIMIT) == 130, (tmp_path / "bench.out").read_text()
    assert f"--resume {sweep.name}" in (tmp_path / "bench.out").read_text()

    resumed = headway("bench", "--resume", sweep.name, root=tmp_path, timeout=4 * LIMIT)
    assert resumed.returncode == 0, resumed.stderr + resumed.stdout
    states = {trial.key: trial.state for trial in SweepFolder.find(tmp_path, sweep.name).trials()}
    assert sorted(states.values()) == ["done", "failed"]
    assert "failed" in resumed.stdout


def test_a_signal_in_the_last_moment_of_a_run_ends_the_sweep(tmp_path: Path) -> None:
    """The run ends by itself, as measured; the next one used to be begun as if nobody had asked."""
    process = begin(tmp_path, write_sweep(tmp_path / "small.yaml"))
    sweep = wait_for_run(tmp_path, process, 0)
    (run,) = RunFolder.all(sweep.runs)
    deadline = time.monotonic() + LIMIT
    while run.facts()["state"] != "stopping":
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == 130, (tmp_path / "bench.out").read_text()
    (trial,) = [trial for trial in sweep.trials() if trial.runs]
    assert [run.state for run in trial.runs] == ["finished"]
    assert len(RunFolder.all(sweep.runs)) == 1


def test_a_budget_ends_a_run_that_takes_far_longer(tmp_path: Path) -> None:
    sweep_file = write_sweep(
        tmp_path / "long.yaml", measure={"warmup": 2, "steps": 20, "seconds": 600, "repeats": 1, "most": 1}
    )
    began = time.monotonic()
    short = headway("bench", str(sweep_file), "--budget", "16s", root=tmp_path, timeout=4 * LIMIT)
    assert time.monotonic() - began < 120
    assert short.returncode == RunFailed.exit_code, short.stdout + short.stderr  # no trial succeeded
    assert "its run was stopped; a run takes more than" in short.stdout


def test_a_search_tries_servers_until_the_best_is_known_and_a_budget_names_what_it_left_out(tmp_path: Path) -> None:
    job = {
        "workload": {
            "model": "linear",
            "dataset": {"name": "synthetic", "classes": None, "size": 500},
            "batch_size": 10,
        },
        "strategy": "ps-async",
        "cluster": {"training": 1, "ps": 1},
    }
    sweep_file = write_sweep(
        tmp_path / "search.yaml",
        job=job,
        vary={"cluster.ps": {"best_of": [1, 2, 3]}},
        # A run takes longer than half of the budget, on any machine: there is time for one.
        measure={"warmup": 2, "steps": 20, "seconds": 8.1, "repeats": 1, "most": 1},
    )
    short = headway("bench", str(sweep_file), "--budget", "16s", root=tmp_path, timeout=4 * LIMIT)
    sweep = SweepFolder.find(tmp_path, "last")
    assert short.returncode == 0, short.stderr + short.stdout
    assert not sweep.choices
    assert "was not found within the budget" in short.stdout
    (left_out,) = [trial for trial in sweep.trials() if trial.state == "left_out"]
    assert "budget 16.0 s: it was not tried" in str(left_out.reason)

    whole = headway("bench", "--resume", "last", root=tmp_path, timeout=4 * LIMIT)
    assert whole.returncode == 0, whole.stderr + whole.stdout
    (chosen,) = sweep.choices
    trials = {trial.key: trial for trial in sweep.trials()}
    assert sorted(chosen["tried"] + chosen["skipped"]) == [1, 2, 3]
    assert len(trials) == len(chosen["tried"])
    best = max(trials.values(), key=lambda trial: samples(trial)[0])
    assert chosen["best"] == best.key
    assert f"best cluster.ps is {best.settings['cluster.ps']}" in whole.stdout
