"""Reading a run: `headway.load("runs/mnist-async-...")`.

Everything here reads untrusted files: no code of a run folder is imported or executed.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import FormatError
from headway.record.folder import RunFolder, default_root
from headway.record.rates import RATES
from headway.record.reader import ANYTHING, NUMBER, TEXT, fits, reading
from headway.record.tables import TABLES, connected, is_sealed, select_table

# The resolved job, as far as figures are made with it; of `batch_size` and `stop` also None is an answer.
_ROLE = {"count": NUMBER, ...: ANYTHING}
JOB = {
    "workload": {"command": [TEXT], "model": {"name": TEXT}, "dataset": {"name": TEXT}, "stop": {}, "report": {}},
    "strategy": {"kind": TEXT},
    "cluster": {"chief": _ROLE, "worker": _ROLE, "ps": _ROLE, "evaluator": _ROLE},
    "site": {"kind": TEXT, "dilation": NUMBER},
}
NEEDED = ("workload", "strategy.kind", "site.kind", "cluster.chief.count", "cluster.worker.count", "cluster.ps.count")


class Run:
    """One run folder, finished, running or broken off."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.state})"

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def facts(self) -> dict[str, Any]:
        """run.json: state, reason, times, launches."""
        return self.folder.facts()

    @property
    def state(self) -> str:
        """created, preparing, starting, running, stopping, finished, stopped, failed, interrupted, or unknown."""
        return str(self.facts["state"])

    @cached_property
    def job(self) -> dict[str, Any]:
        """The job as it was resolved."""
        resolved = self._job_file.get("resolved")
        fits(resolved, JOB, f"{self.folder.job_file}: resolved")
        for path in NEEDED:
            value: Any = {"resolved": resolved}
            for key in ("resolved", *path.split(".")):
                value = value.get(key) if isinstance(value, dict) else None
            if value is None:
                raise FormatError(f"{self.folder.job_file}: damaged: resolved.{path} is not there")
        return dict(resolved or {})

    @cached_property
    def choices(self) -> list[dict[str, Any]]:
        """Every value that Headway chose: path, value, reason."""
        choices = self._job_file.get("choices")
        fits(choices, [{"path": TEXT, "reason": TEXT, ...: ANYTHING}], f"{self.folder.job_file}: choices")
        return [{"path": "", "value": None, "reason": "", **choice} for choice in choices or ()]

    @cached_property
    def _job_file(self) -> dict[str, Any]:
        return self.folder.read(self.folder.job_file)

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self.folder.read(self.folder.environment_file)

    @property
    def is_sealed(self) -> bool:
        return is_sealed(self.folder)

    @property
    def tables(self) -> list[str]:
        return [*TABLES, *RATES]

    def table(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """A table's columns as NumPy arrays (masked where a value is missing)."""
        with reading(self.name), connected(self.folder) as connection:
            return dict(connection.execute(select_table(self.folder, name, connection)).fetchnumpy())

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A table's rows as dictionaries, in the order of time."""
        with reading(self.name), connected(self.folder) as connection:
            cursor = connection.execute(select_table(self.folder, name, connection))
            columns = [column[0] for column in cursor.description or ()]
            return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]

    def summary(self) -> dict[str, Any]:
        """What came out, computed from the tables (see docs/formats.md for each figure)."""
        from headway.record.summary import summarize

        with reading(self.name):
            return summarize(self)


def load(run: str | Path, root: str | Path | None = None) -> Run:
    """A run by path, by name, by the beginning of its name, or `"last"`."""
    return Run(RunFolder.find(Path(root) if root else default_root(), str(run)))


def load_all(root: str | Path | None = None) -> list[Run]:
    """Every run, oldest first."""
    return [Run(folder) for folder in RunFolder.all(Path(root) if root else default_root())]
