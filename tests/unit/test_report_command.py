"""`headway report`: what it takes, what it refuses, and what it writes."""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway.cli import app
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.report.files import write_csv
from headway.report.page import page

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import Made, make_run, make_sweep


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A single machine, and two workers."""
    root = tmp_path_factory.mktemp("made")
    make_run(root, Made("alone", "single", 1, 0, 100))
    make_run(root, Made("two", workers=2, steps=100, seed=3))
    return root


def run_command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["report", *arguments])


@pytest.mark.parametrize("suffix", ["html", "md", "csv", "parquet", "ipynb"])
def test_the_suffix_says_the_form(made: Path, tmp_path: Path, suffix: str) -> None:
    done = run_command("two", "--runs", str(made), "-o", str(tmp_path / f"r.{suffix}"))
    assert done.exit_code == 0, done.output
    assert "1 run," in done.output
    assert (tmp_path / f"r.{suffix}").exists()


def test_mistakes_are_said_before_anything_is_read(made: Path, tmp_path: Path) -> None:
    for output, words in (("r.pdf", "suffix says the form"), ("no/folder/r.html", "there is no folder")):
        done = run_command(str(made), "-o", str(tmp_path / output))
        assert words in str(done.exception)
    done = run_command("nothing-like-it", "--runs", str(made), "-o", str(tmp_path / "r.md"))
    assert "no run 'nothing-like-it'" in str(done.exception)
    done = run_command(str(tmp_path), "-o", str(tmp_path / "r.md"))
    assert "neither a run" in str(done.exception)


def test_a_folder_stands_for_its_runs_and_its_sweeps(tmp_path: Path) -> None:
    make_run(tmp_path, Made("alone", "single", 1, 0, 60))
    sweep = make_sweep(tmp_path, repeats=1, steps=60, vary={"strategy": ["ps-async"], "cluster.worker": [1, 2]})
    broken = sweep.path.with_name("broken-sweep")
    broken.mkdir()
    (broken / "sweep.json").write_text("{")
    for folder, runs in ((tmp_path, 4), (tmp_path / "sweeps", 3)):
        done = run_command(str(folder), "-o", str(tmp_path / "r.md"))
        assert done.exit_code == 0, done.output
        assert f"{runs} runs" in done.output
        assert "Sweep made-sweep" in (tmp_path / "r.md").read_text()
        assert "broken-sweep" in done.stderr


def test_runs_of_one_name_are_told_apart_in_tables(made: Path, tmp_path: Path) -> None:
    first = RunFolder.all(made)[0]
    other = RunFolder(tmp_path / "elsewhere" / first.name)
    shutil.copytree(first.path, other.path)
    write_csv(page([Run(first), Run(other)]), tmp_path / "r.csv")
    for name in ("runs", "timeline", "curves", "events"):
        with (tmp_path / "r.csv" / f"{name}.csv").open(newline="") as file:
            assert {line["id"] for line in csv.DictReader(file)} == {"run-0", "run-1"}, name
    with (tmp_path / "r.csv" / "results-runs.csv").open(newline="") as file:
        assert [line["from_ids"] for line in csv.DictReader(file)] == ["run-0 run-1"]


def test_prices_are_of_the_nodes_that_a_run_has(made: Path, tmp_path: Path) -> None:
    """A single machine has no server, and costs something all the same."""
    prices = ("--price", "worker=0.90/h", "--price", "ps=0.05/h")
    done = run_command(str(made), *prices, "-o", str(tmp_path / "r.csv"))
    assert done.exit_code == 0, done.output
    with (tmp_path / "r.csv" / "cost-runs.csv").open(newline="") as file:
        costs = {line["configuration"]: float(line["price_per_h"]) for line in csv.DictReader(file)}
    assert costs["single"] == pytest.approx(0.9)
    assert costs["ps-async, 2 tasks, 1 server"] == pytest.approx(1.85)
    done = run_command(str(made), *prices, "--price", "chef=1/h", "-o", str(tmp_path / "r2.csv"))
    assert "no run has a node chef" in str(done.exception)
    done = run_command(str(made), "--price", "ps=1/h", "-o", str(tmp_path / "r3.csv"))
    assert "no run has all of its nodes priced by ps" in str(done.exception)
