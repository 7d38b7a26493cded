"""What `headway init model` writes works: its test, and its job in every strategy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import headway

import headway as api

pytestmark = [pytest.mark.real, pytest.mark.system]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    assert headway("init", "model", str(folder), root=folder / "runs").returncode == 0
    return folder


def test_the_written_test_passes_and_can_fail(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_model.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    broken = folder / "broken"
    broken.mkdir()
    model = (folder / "my_model.py").read_text().replace("layers.relu(", "0 * (")
    (broken / "my_model.py").write_text(model)
    (broken / "test_my_model.py").write_text((folder / "test_my_model.py").read_text())
    done = subprocess.run(command, cwd=broken, capture_output=True, text=True, check=False, timeout=120)
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.parametrize("strategy", ["ps-async", "ps-sync", "allreduce"])
def test_the_written_job_trains(folder: Path, strategy: str) -> None:
    command = [sys.executable, "-m", "headway", "run", "my_model.yaml", f"strategy={strategy}", "--runs", "runs"]
    # As for the script `headway`, and unlike `python -m`, the present folder is not among Python's by itself.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = api.load("last", folder / "runs").summary()
    assert (figures["state"], figures["model"], figures["strategy"]) == ("finished", "my_model:build", strategy)
    assert figures["accuracy"] > 0.5, "one of ten classes by chance"
    assert (api.load("last", folder / "runs").folder.model / "saved_model.pb").exists()
    shown = headway("show", "last", root=folder / "runs").stdout
    assert "my_model:build" in shown
    assert f"workload.code: {folder}" in shown


def test_code_that_fails_in_a_task_is_told(folder: Path) -> None:
    broken = (folder / "my_model.py").read_text().replace("x = layers.dropout", "x = layers.dropuot")
    (folder / "misspelt.py").write_text(broken)
    overrides = ["workload.model=misspelt:build", "strategy=single", "restart.attempts=0"]
    done = headway("run", "my_model.yaml", *overrides, root=folder / "runs", cwd=folder)
    assert done.returncode == 6
    assert "has no attribute 'dropuot'" in done.stderr + done.stdout
    log = headway("logs", "last", root=folder / "runs").stdout
    assert f"{folder / 'misspelt.py'}" in log
