"""A training through `headway run`, and what its record says."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headway.record.folder import RunFolder
from headway.record.run import Run

T = TypeVar("T")


def figures_of(job: dict[str, Any]) -> dict[str, Any]:
    return read_of(job, Run.summary)


def read_of(job: dict[str, Any], read: Callable[[Run], T]) -> T:
    """What `read` finds in the record of this training, which is removed then."""
    with tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        file = Path(scratch) / "job.yaml"
        file.write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-m", "headway", "run", str(file), "--runs", scratch]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [folder] = RunFolder.all(Path(scratch))
        return read(Run(folder))
