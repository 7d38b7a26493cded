"""What `make demo` promises. It takes minutes, so it is a target of its own (`make test-system`) and part of CI."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headway
from headway.bench.folder import SweepFolder, samples

PROJECT = Path(__file__).parents[2]
MOST_SECONDS = 300  # of `make demo` on two cores, once everything is set up
ACCURACY_OF_EXPORT = """
import sys, tensorflow as tf
from headway import workloads
dataset = workloads.dataset("mnist")
images, labels = dataset.load(dataset.Settings(name="mnist"), workloads.cache_folder(), "test")
model = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
parts = [slice(first, first + 1000) for first in range(0, len(images), 1000)]
right = sum(int((model(features=tf.constant(images[part]))["classes"].numpy() == labels[part]).sum()) for part in parts)
print(right / len(images))
"""


def accuracy_of_export(model: Path) -> float:
    """Of the SavedModel on the whole test set, in a fresh process."""
    command = [sys.executable, "-c", ACCURACY_OF_EXPORT, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return float(done.stdout.split()[-1])


@pytest.mark.demo
@pytest.mark.timeout(1200)
def test_the_demo_learns_shares_the_work_and_exports_what_it_measured(tmp_path: Path) -> None:
    subprocess.run(["make", "setup"], cwd=PROJECT, timeout=1000, check=True)
    began = time.monotonic()
    done = subprocess.run(
        ["make", "demo"],
        cwd=PROJECT,
        env={**os.environ, "HEADWAY_RUNS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    assert seconds < MOST_SECONDS, done.stdout
    (run,) = headway.load_all(tmp_path)
    summary = run.summary()
    assert summary["accuracy"] >= 0.97
    assert [task["task"] for task in summary["tasks"]] == ["chief/0", "worker/0"]
    assert all(task["share"] >= 0.25 for task in summary["tasks"]), summary["tasks"]
    assert accuracy_of_export(run.folder.model) == pytest.approx(summary["accuracy"], abs=1e-4)
    for part in ("accuracy on the test set", "steps/s", "examples/s", "run folder", "next"):
        assert part in done.stdout
    check_sweep(tmp_path)
    page = (PROJECT / "report.html").read_text(encoding="utf-8")
    assert SweepFolder.all(tmp_path)[0].name in page
    assert "plotly" in page.lower()
    print(done.stdout)


def check_sweep(root: Path) -> None:
    """Single; three strategies with one and two tasks; real data for single and async with two. Each measured."""
    (sweep,) = SweepFolder.all(root)
    trials = {trial.key: trial for trial in sweep.trials()}
    strategies = [f"{kind}-training-{tasks}" for kind in ("ps-async", "ps-sync", "allreduce") for tasks in (1, 2)]
    assert list(trials) == ["single", *strategies, "single-mnist", "ps-async-training-2-mnist"]
    assert [trial.data for trial in trials.values()] == ["synthetic"] * 7 + ["real"] * 2
    assert [trial.key for trial in trials.values() if trial.is_baseline] == ["single"]
    assert sweep.is_finished
    for trial in trials.values():
        assert trial.state == "done", (trial.key, trial.reason)
        assert all(value > 0 for value in samples(trial))
        for run in trial.runs:
            steps = headway.load(run.folder.path).table("steps")
            for task in set(steps["task"].tolist()):
                assert (~steps["warmup"][steps["task"] == task]).sum() >= 30
