"""Sealing: when a run has ended, its events become Parquet tables and its figures a small file.

Both are made from the JSON lines, which stay; a run that was killed before it was sealed loses nothing.
"""

from __future__ import annotations

from typing import Any

from headway.record.files import to_json, write_atomically
from headway.record.folder import ENDED, FORMAT, RunFolder
from headway.record.run import Run
from headway.record.shapes import checked
from headway.record.storage import writing
from headway.record.summary import FIGURES
from headway.record.tables import is_sealed, mark_sealed, write_tables


def seal(folder: RunFolder) -> None:
    """StorageError where the disk does not take it: then the tables are read from the events, as before."""
    with writing(folder.path):
        (folder.tables / "sealed.json").unlink(missing_ok=True)  # of an earlier launch
        sizes = write_tables(folder)
        summary = Run(folder).summary()
        write_atomically(
            folder.path / "result.json", to_json({"format": FORMAT, "figures": FIGURES, **summary}, indent=1)
        )
        mark_sealed(folder, sizes)


def result(run: Run) -> dict[str, Any]:
    """The summary: as it was sealed, or computed now, for a run that is alive or was broken off, or where the stored
    figures are of another kind than today's."""
    facts = run.facts
    if facts["state"] in ENDED and is_sealed(run.folder) and run.folder.reader.exists("result.json"):
        stored = run.folder.read(run.path / "result.json")
        if stored.pop("figures", None) == FIGURES:
            checked(stored, str(run.path / "result.json"))
            return {key: value for key, value in stored.items() if key != "format"} | {"path": str(run.path)}
    return run.summary()
