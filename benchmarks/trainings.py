"""A training through `headway run`, and the figures of its record."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from headway.record.folder import RunFolder
from headway.record.run import Run


def figures_of(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        file = Path(scratch) / "job.yaml"
        file.write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-m", "headway", "run", str(file), "--runs", scratch]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [folder] = RunFolder.all(Path(scratch))
        return Run(folder).summary()
