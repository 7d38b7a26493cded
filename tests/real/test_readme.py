"""Every command of the README works as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from running import headway

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands(program: str) -> list[list[str]]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(f"{program} ")]


def test_the_readme_is_short_and_begins_with_its_two_commands() -> None:
    assert len(README.splitlines()) < 150
    assert commands("make") == [["demo"], ["test"]]
    assert README.index("make demo") < 600


def test_the_demo_is_the_example() -> None:
    shown = subprocess.run(["make", "-n", "demo"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert "headway run examples/mnist-async.yaml" in shown


@pytest.mark.real
@pytest.mark.timeout(480)
def test_the_commands_and_the_python_work_in_their_order(tmp_path: Path) -> None:
    listed = commands("headway")
    assert len(listed) >= 6
    for arguments in listed:
        done = headway(*arguments, root=tmp_path / "runs", cwd=PROJECT, timeout=200)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    (code,) = blocks("python")
    run = f"import os; os.environ['HEADWAY_RUNS'] = {str(tmp_path / 'runs')!r}\n{code}"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True, timeout=60)
    rate, seconds = map(float, done.stdout.split())
    assert rate > 1
    assert 0 < seconds < 1


def test_the_job_in_the_readme_is_the_example(tmp_path: Path) -> None:
    from headway.spec.load import load_job

    (text,) = blocks("yaml")
    (tmp_path / "job.yaml").write_text(text)
    assert load_job(tmp_path / "job.yaml") == load_job(PROJECT / "examples" / "mnist-async.yaml")
