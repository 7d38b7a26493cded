"""The evaluations' sweeps on disk: which one counts, which one goes on, and what is said of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from test_sweep_compare import committed
from test_sweep_folder import record, sweep_file

from headway.bench.conduct import prepare
from headway.bench.folder import SweepFolder
from headway.spec.sweep import load_sweep

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import evaluations


def begun(root: Path, created: float) -> SweepFolder:
    """A sweep that was begun then."""
    sweep = prepare(load_sweep(sweep_file(root)), root)
    sweep.file.write_text(json.dumps({**sweep.facts, "created": created}))
    return SweepFolder(sweep.path)


def test_the_newest_is_the_one_that_was_begun_last_whatever_was_touched_since(tmp_path: Path) -> None:
    older, newer = begun(tmp_path, 1_700_000_000.0), begun(tmp_path, 1_750_000_000.0)
    os.utime(older.path, (2e9, 2e9))
    found = evaluations.newest(tmp_path / "small.yaml", tmp_path)
    assert found is not None
    assert found.path == newer.path
    assert evaluations.collected(found)["day"] == "2025-06-15"


def test_a_sweep_that_cannot_be_read_is_left_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, *damaged = (begun(tmp_path, 1_700_000_000.0 + number) for number in range(4))
    damaged[0].file.write_text("{")
    damaged[1].file.write_text('{"format": 1, "created": 2e9}')
    damaged[2].trials_file.write_text("rubbish\nrubbish\n")
    found = evaluations.newest(tmp_path / "small.yaml", tmp_path)
    assert found is not None
    assert found.path == good.path
    assert capsys.readouterr().err.count("left aside: small-") == 3


def test_a_sweep_of_another_form_of_the_example_is_none_of_it(tmp_path: Path) -> None:
    sweep = begun(tmp_path, 1_700_000_000.0)

    def is_known(**changes: Any) -> bool:
        found = evaluations.newest(sweep_file(tmp_path, **changes), tmp_path)
        return found is not None and found.path == sweep.path

    assert is_known()
    assert is_known(full={"measure": {"repeats": 9}})  # the local form is the same
    assert not is_known(vary={"workload.batch_size": [10, 30]})
    assert not is_known(measure={"repeats": 4, "steps": 10})
    assert not is_known(job={"workload": {"model": "mnist_cnn", "dataset": "synthetic"}})


def test_all_commits_of_the_runs_that_count_are_collected(tmp_path: Path) -> None:
    sweep = begun(tmp_path, 1_700_000_000.0)
    for repeat, marks in enumerate(([], [], ["loaded"])):
        record(sweep, "batch-size-10", 0.1, repeat, marks=marks)
    committed(sweep, "a", "b", "c")
    assert evaluations.collected(sweep)["commit"] == "aaaaaaa, bbbbbbb"
