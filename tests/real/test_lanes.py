"""Two trials at once, with real processes: each on its own core, stopped together, gone when the sweep is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from running import LIMIT, headway
from test_sweeps import begin, write_sweep

from headway.bench.folder import SweepFolder, samples
from headway.bench.lanes import Lanes, cores_here, divide
from headway.bench.making import Order
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.reader import read_events
from headway.record.run import Run

pytestmark = [pytest.mark.real, pytest.mark.system]
LONG = {"warmup": 2, "steps": 20, "seconds": 600, "repeats": 1, "most": 1}


def wait_for_two(root: Path, bench: int) -> tuple[SweepFolder, list[psutil.Process]]:
    """Until two runs train at once. Also the processes that belong to them."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for sweep in SweepFolder.all(root):
            steps = [list(run.path.glob("events/chief-0.jsonl")) for run in RunFolder.all(sweep.runs)]
            if len(steps) == 2 and all(paths and "step" in paths[0].read_text() for paths in steps):
                return sweep, psutil.Process(bench).children(recursive=True)
        time.sleep(0.1)
    raise AssertionError((root / "bench.out").read_text())


def test_trials_at_once_have_cores_of_their_own(tmp_path: Path) -> None:
    sweep_file = write_sweep(
        tmp_path / "two.yaml", measure={"warmup": 2, "steps": 20, "seconds": 3, "repeats": 2, "most": 2}
    )
    ended = headway("bench", str(sweep_file), "--parallel", "2", root=tmp_path, timeout=4 * LIMIT)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "2 trials at once, each on its own cores" in ended.stdout
    sweep = SweepFolder.find(tmp_path, "last")
    assert [[run.state for run in trial.runs] for trial in sweep.trials()] == [["finished", "finished"]] * 2
    assert all(samples(trial) for trial in sweep.trials())
    assert [sorted(run.repeat for run in trial.runs) for trial in sweep.trials()] == [[0, 1], [0, 1]]

    times, cores = [], []
    for folder in RunFolder.all(sweep.runs):
        run = Run(folder)
        assert run.environment["cores"] == len(divide(cores_here(), 2)[0])
        (node,) = [each for each in read_events(folder.events(LAUNCHER)) if each["kind"] == "node_ready"]
        cores.append(set(node["cores"]))
        steps = run.table("steps")
        times.append((float((steps["t"] - steps["seconds"]).min()), float(steps["t"].max())))
    pairs = [(a, b) for a in range(4) for b in range(a) if times[a][0] < times[b][1] and times[b][0] < times[a][1]]
    assert pairs  # some did train at the same time
    assert all(cores[a].isdisjoint(cores[b]) for a, b in pairs)

    refused = headway("bench", "--resume", "last", "--parallel", "1", root=tmp_path)
    assert refused.returncode == 2
    assert "was begun with 2" in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_all_of_them_in_order_and_the_sweep_goes_on_later(tmp_path: Path, number: int) -> None:
    bench = begin(tmp_path, write_sweep(tmp_path / "two.yaml", measure=LONG), "--parallel", "2")
    sweep, processes = wait_for_two(tmp_path, bench.pid)
    os.kill(bench.pid, number)
    assert bench.wait(timeout=LIMIT) == 130, (tmp_path / "bench.out").read_text()
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not alive
    assert [run.facts()["state"] for run in RunFolder.all(sweep.runs)] == ["stopped", "stopped"]
    assert "Traceback" not in (tmp_path / "bench.out").read_text()
    shown = headway("bench", "--resume", sweep.name, "--dry-run", root=tmp_path)
    assert "open are 2 trials" in shown.stdout


def test_a_killed_sweep_takes_its_lanes_with_it_and_a_killed_lane_fails_one_run(tmp_path: Path) -> None:
    bench = begin(tmp_path, write_sweep(tmp_path / "two.yaml", measure=LONG), "--parallel", "2")
    sweep, processes = wait_for_two(tmp_path, bench.pid)
    lane = psutil.Process(bench.pid).children()[0]
    lane.kill()
    deadline = time.monotonic() + LIMIT
    while not (failed := [each for each in sweep.events() if each["kind"] == "ended"]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [(each["state"], each["reason"]) for each in failed] == [("failed", "its launcher ended with -9")]
    processes += psutil.Process(bench.pid).children(recursive=True)
    bench.kill()
    bench.wait()
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not alive


def test_what_is_begun_when_an_end_was_wanted_already_ends_at_once(tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []
    with Lanes(divide(cores_here(), 1)) as lanes:
        os.kill(os.getpid(), signal.SIGTERM)
        assert lanes.is_stopping
        lanes.begin(Order("a", 0, {}, "examples_per_s", str(tmp_path)))
        lanes.wait(lambda order, message: heard.append((order.trial, message["state"])))
    assert heard == [("a", "interrupted")]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # ours again


def test_a_lane_goes_on_after_an_order_that_fails(tmp_path: Path) -> None:
    heard: list[tuple[int, str]] = []
    with Lanes(divide(cores_here(), 1)) as lanes:
        for repeat in range(2):
            lanes.begin(Order("a", repeat, {"workload": {"model": "no such"}}, "examples_per_s", str(tmp_path)))
            lanes.wait(lambda order, message: heard.append((order.repeat, message["reason"][:10])))
    assert [repeat for repeat, _ in heard] == [0, 1]
    assert heard[0][1] == heard[1][1] != ""
