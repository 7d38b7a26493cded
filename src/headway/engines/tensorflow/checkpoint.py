"""Checkpoints: checkpoints/step-N/ holds all variables at global step N. TensorFlow's own format, so any TensorFlow
program reads it (`tf.train.load_checkpoint(".../step-00000200/variables")`).

One is written to a hidden folder and renamed: a folder called step-N is complete. The chief writes from a snapshot
and restores by feeding values, so parameter servers need no access to files.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway import clock
from headway.engines.tensorflow.initial import Values
from headway.engines.tensorflow.trainer import Snapshot
from headway.record.files import to_json
from headway.record.reader import read_json

FORMAT = 1
PREFIX = "variables"
OLD = ".old"


def write(folder: Path, snapshot: Snapshot, keep: int) -> tuple[Path, int]:
    """Write a checkpoint, and remove all but the newest `keep`. Returns its path and size in bytes."""
    final = folder / f"step-{snapshot.step:08d}"
    temporary = folder / f".{final.name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    folder.mkdir(exist_ok=True)  # not with its parents: a run folder that was deleted is not made again
    temporary.mkdir()
    try:
        size = _fill(temporary, snapshot)
    except BaseException:  # half a checkpoint is of no use, and the disk may be full
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    old = folder / f".{final.name}{OLD}"
    if final.exists():  # the same step again, after a rollback; `repair` takes the old one back if we die here
        final.rename(old)
    temporary.rename(final)
    _to_disk(folder)
    shutil.rmtree(old, ignore_errors=True)
    for outdated in find(folder)[:-keep]:
        hidden = folder / f".{outdated.name}.tmp"  # renamed first: it must never look complete when half of it is gone
        outdated.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
    return final, size


def _fill(temporary: Path, snapshot: Snapshot) -> int:
    """The files of a checkpoint, safely on the disk. Returns their bytes."""
    names = sorted(snapshot.values)
    tf.raw_ops.SaveV2(
        prefix=str(temporary / PREFIX),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(snapshot.values[name]) for name in names],
    )
    facts = {
        "format": FORMAT,
        "step": snapshot.step,
        "generation": snapshot.generation,
        "t": clock.now(),
        "variables": [
            {"name": name, "shape": list(value.shape), "dtype": str(value.dtype)}
            for name, value in sorted(snapshot.values.items())
        ],
    }
    (temporary / "checkpoint.json").write_text(to_json(facts, indent=1), encoding="utf-8")
    size = 0
    for file in temporary.iterdir():
        size += file.stat().st_size
        _to_disk(file)
    return size


def repair(folder: Path) -> None:
    """For the chief, before it looks: take back what a writer took away who died before it put the new one there."""
    for old in folder.glob(f".step-*{OLD}"):
        name = folder / old.name.removeprefix(".").removesuffix(OLD)
        if not name.exists():
            old.rename(name)


def find(folder: Path) -> list[Path]:
    """Every complete checkpoint, oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / "checkpoint.json").is_file())


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    return next(reversed(find(folder)), None)


def facts(path: Path) -> dict[str, Any]:
    return read_json(path / "checkpoint.json", FORMAT)


def load(path: Path) -> Values:
    """All variables by name."""
    facts(path)  # a newer format is refused
    reader = tf.train.load_checkpoint(str(path / PREFIX))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def last_generation(events: Path, newest: Path | None) -> int:
    """The highest generation that this run is known to have had, in the chief's events or a checkpoint."""
    known = [int(facts(newest)["generation"])] if newest is not None else [0]
    if events.exists():
        with events.open("rb") as file:
            for line in file:
                # A quick look before parsing: nearly all lines are steps.
                if b'"kind": "initialized"' in line and line.endswith(b"}\n"):
                    known.append(int(json.loads(line)["generation"]))
    return max(known)


def _to_disk(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
