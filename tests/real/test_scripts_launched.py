"""The scripts of tests/scripts, executed byte for byte by `headway launch`: supervised, heard of and recorded."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import user_scripts
from parts import need
from running import headway
from user_scripts import FOLDER, Script

from headway.record.run import Run, load

# Making an environment, once, takes longer than any script.
pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]


def launch(script: Script, root: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    """`{folder}` of a script's arguments is the folder that a run has for what its program keeps."""
    counts = [word for role, count in script.roles.items() for word in (f"--{role}", str(count))]
    python = ["--python", str(FOLDER / script.requirements)] if script.requirements else []
    options = [word for setting in settings for word in ("--set", setting)]
    arguments = shlex.split(script.arguments.replace("{folder}", "{model_dir}"))
    command = ["python", str(script.path), *arguments]
    return headway("launch", *counts, *python, *options, "--", *command, root=root, cwd=root, timeout=1000)


def launched(script: Script, root: Path, *settings: str) -> Run:
    done = launch(script, root, *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    run = load("last", root)
    assert run.state == "finished"
    return run


def losses(run: Run, task: str | None) -> list[float]:
    """What was heard of a task, or of all of them, in the order of steps."""
    table = run.table("steps")
    of_task = table["task"] == task if task else table["step"] >= 0
    order = np.argsort(table["step"][of_task], kind="stable")
    return [float(loss) for loss in table["loss"][of_task][order] if np.isfinite(loss)]


def assert_falls(found: list[float], at_least: int) -> None:
    """From the first fifth to the last."""
    assert len(found) >= at_least, found
    part = max(1, len(found) // 5)
    assert np.mean(found[-part:]) < 0.7 * np.mean(found[:part]), found


def test_between_graph_replication_by_placeholders(tmp_path: Path) -> None:
    run = launched(user_scripts.BETWEEN_GRAPH, tmp_path)
    # 100 lines each; the global step is read while the other worker goes on, so that it may be the same as before.
    assert all(90 <= len(losses(run, task)) <= 100 for task in ("worker/0", "worker/1"))
    assert_falls(losses(run, None), at_least=180)
    logs = [(run.path / "logs" / f"worker-{index}.log").read_text() for index in (0, 1)]
    printed = [int(step) for log in logs for step in re.findall(r"^step (\d+) loss", log, flags=re.MULTILINE)]
    assert run.summary()["steps"] == max(printed) >= 198  # it is read while the other worker goes on
    assert (run.folder.model_dir / "checkpoints" / "checkpoint").is_file()


def test_mirrored_workers_by_tf_config_and_tensorboard_files(tmp_path: Path) -> None:
    run = launched(user_scripts.MIRRORED, tmp_path)
    assert_falls(losses(run, "worker/0"), at_least=70)
    assert run.summary()["steps"] == 80


def test_a_coordinator_ends_its_workers_and_servers(tmp_path: Path) -> None:
    run = launched(user_scripts.PARAMETER_SERVER, tmp_path)
    assert_falls(losses(run, "chief/0"), at_least=4)
    assert run.summary()["steps"] == 100


def test_pytorchs_ddp_in_an_environment_of_its_own(tmp_path: Path) -> None:
    run = launched(user_scripts.DDP, tmp_path, "workload.report.steps=own")
    assert_falls(losses(run, "worker/0"), at_least=15)
    assert (run.folder.model_dir / "model.pt").is_file()


def test_an_estimator_on_the_last_tensorflow_that_has_it(tmp_path: Path) -> None:
    need(None if sys.version_info < (3, 12) else "Python 3.11: TensorFlow 2.15 has no wheel for a newer one")
    run = launched(user_scripts.ESTIMATOR, tmp_path)
    assert_falls(losses(run, "chief/0"), at_least=5)
    assert run.summary()["steps"] >= 600
    assert list((run.folder.model_dir / "model" / "eval").glob("events.out.tfevents.*"))


def test_keras_fit_fails_and_the_message_names_the_known_limit(tmp_path: Path) -> None:
    done = launch(user_scripts.KERAS_FIT, tmp_path, "restart.attempts=0")
    assert done.returncode == 6
    assert "Keras 3's fit() does not work under MultiWorkerMirroredStrategy" in done.stderr
    assert "Traceback" not in done.stderr


def test_benchmark_lines_are_heard_of(tmp_path: Path) -> None:
    run = launched(user_scripts.BENCHMARK_LINES, tmp_path, "workload.report.steps=own", "workload.batch_size=64")
    assert_falls(losses(run, "worker/0"), at_least=9)
    figures = run.summary()
    # E2 adds up what its workers say, `total images/sec`. The measured rate leaves the warm-up out.
    said = [task["examples_per_s"] for task in figures["reported"]]
    assert len(said) == 2
    assert figures["examples_per_s"] == pytest.approx(sum(said), rel=0.3)
