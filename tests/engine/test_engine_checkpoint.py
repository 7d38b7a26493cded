"""Checkpoints: complete or not there, and never fewer than one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.engines.tensorflow import checkpoint
from headway.engines.tensorflow.initial import Values
from headway.engines.tensorflow.trainer import Snapshot
from headway.errors import FormatError


def snapshot(step: int, value: float = 0.5, generation: int = 1) -> Snapshot:
    values: Values = {
        "layer/weights": np.full([2, 3], value, np.float32),
        "layer/bias": np.full([3], value, np.float32),
        "global_step": np.array(step, np.int64),
    }
    return Snapshot(step, generation, values)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_are_kept_and_values_come_back_exactly(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    for step in (5, 40, 200, 1000):
        path, size = checkpoint.write(tmp_path, snapshot(step, value=step / 3), keep=2)
        assert path.name == f"step-{step:08d}"
        assert size == sum(file.stat().st_size for file in path.iterdir())
    assert names(tmp_path) == ["step-00000200", "step-00001000"]
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    assert newest.name == "step-00001000"
    values = checkpoint.load(newest)
    for name, value in snapshot(1000, value=1000 / 3).values.items():
        np.testing.assert_array_equal(values[name], value)
        assert values[name].dtype == value.dtype
    assert checkpoint.facts(newest)["step"] == 1000


def test_an_unfinished_one_does_not_count(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, snapshot(5), keep=1)
    (tmp_path / ".step-00000010.tmp").mkdir()
    (tmp_path / "step-00000020").mkdir()  # no checkpoint.json: not ours
    found = checkpoint.find(tmp_path)
    assert [path.name for path in found] == ["step-00000005"]


def test_the_same_step_again_replaces_the_old_one(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, snapshot(5, value=1.0), keep=1)
    path, _ = checkpoint.write(tmp_path, snapshot(5, value=2.0, generation=2), keep=1)
    assert names(tmp_path) == ["step-00000005"]
    assert checkpoint.load(path)["layer/bias"][0] == 2.0
    assert checkpoint.facts(path)["generation"] == 2


def test_a_death_in_mid_replacement_loses_nothing(tmp_path: Path) -> None:
    path, _ = checkpoint.write(tmp_path, snapshot(5), keep=1)
    path.rename(tmp_path / ".step-00000005.old")  # what a writer that died between two renames leaves
    assert checkpoint.latest(tmp_path) is None  # a reader touches nothing: the writer may be alive
    checkpoint.repair(tmp_path)
    assert checkpoint.latest(tmp_path) == path
    assert checkpoint.load(path)["global_step"] == 5


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path, _ = checkpoint.write(tmp_path, snapshot(5), keep=1)
    (path / "checkpoint.json").write_text('{"format": 99}')
    with pytest.raises(FormatError, match="newer Headway"):
        checkpoint.load(path)


def test_a_new_generation_follows_all_that_are_known(tmp_path: Path) -> None:
    events = tmp_path / "chief-0.jsonl"
    assert checkpoint.last_generation(events, None) == 0
    path, _ = checkpoint.write(tmp_path, snapshot(5, generation=3), keep=1)
    assert checkpoint.last_generation(events, path) == 3
    whole = '{"t": 1.0, "kind": "initialized", "generation": 4}\n{"t": 2.0, "kind": "step"}\n'
    events.write_text(whole + '{"t": 3.0, "kind": "initialized", "gen')
    assert checkpoint.last_generation(events, path) == 4
