"""Reading a run: `headway.load("runs/mnist-async-...")`.

Everything here reads untrusted files: no code of a run folder is imported or executed.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from headway.record.folder import RunFolder, default_root
from headway.record.rates import RATES
from headway.record.tables import TABLES, connected, is_sealed, select_table


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
        resolved = self.folder.read(self.folder.job_file)["resolved"]
        assert isinstance(resolved, dict)
        return resolved

    @cached_property
    def choices(self) -> list[dict[str, Any]]:
        """Every value that Headway chose: path, value, reason."""
        return list(self.folder.read(self.folder.job_file)["choices"])

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
        with connected(self.folder) as connection:
            return dict(connection.execute(select_table(self.folder, name, connection)).fetchnumpy())

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A table's rows as dictionaries, in the order of time."""
        with connected(self.folder) as connection:
            cursor = connection.execute(select_table(self.folder, name, connection))
            columns = [column[0] for column in cursor.description or ()]
            return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]

    def summary(self) -> dict[str, Any]:
        """What came out, computed from the tables (see docs/formats.md for each figure)."""
        from headway.record.summary import summarize

        return summarize(self)


def load(run: str | Path, root: str | Path | None = None) -> Run:
    """A run by path, by name, by the beginning of its name, or `"last"`."""
    return Run(RunFolder.find(Path(root) if root else default_root(), str(run)))


def load_all(root: str | Path | None = None) -> list[Run]:
    """Every run, oldest first."""
    return [Run(folder) for folder in RunFolder.all(Path(root) if root else default_root())]
