"""The events of a run folder as tables. JSON lines are the truth; Parquet is made from them, and can be made again.

Tables and columns are part of the format (docs/formats.md). To add one, add it to TABLES. Runs that were sealed before
give NULL in a new column; a new table is made from their events. A kind of event never moves to another table.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.record.files import read_events, to_json, write_atomically
from headway.record.folder import FORMAT, RunFolder

if TYPE_CHECKING:
    import duckdb

# table -> (kinds of event it holds, column -> type as json_transform takes it). `events` holds all other kinds.
TABLES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "steps": (
        ("step",),
        {
            "t": "DOUBLE",
            "attempt": "INTEGER",
            "generation": "INTEGER",
            "step": "BIGINT",
            "own_step": "BIGINT",
            "num_steps": "INTEGER",
            "seconds": "DOUBLE",
            "input_seconds": "DOUBLE",
            "loss": "DOUBLE",
            "staleness": ["BIGINT"],
            "examples": "BIGINT",
            "warmup": "BOOLEAN",
            "accepted": "INTEGER",
            "penalty": "DOUBLE",
        },
    ),
    "updates": (
        ("update",),
        {
            "t": "DOUBLE",
            "attempt": "INTEGER",
            "generation": "INTEGER",
            "step": "BIGINT",
            "tasks": ["VARCHAR"],
            "examples": "BIGINT",
            "dropped": ["VARCHAR"],
            "spread": "DOUBLE",
        },
    ),
    "evaluations": (
        ("evaluation",),
        {
            "t": "DOUBLE",
            "attempt": "INTEGER",
            "step": "BIGINT",
            "accuracy": "DOUBLE",
            "loss": "DOUBLE",
            "num_examples": "BIGINT",
            "seconds": "DOUBLE",
        },
    ),
    "checkpoints": (
        ("checkpoint",),
        {
            "t": "DOUBLE",
            "attempt": "INTEGER",
            "step": "BIGINT",
            "path": "VARCHAR",
            "bytes": "BIGINT",
            "seconds": "DOUBLE",
        },
    ),
    "events": ((), {"t": "DOUBLE", "kind": "VARCHAR", "attempt": "INTEGER", "launch": "INTEGER"}),
}


def quoted(text: str | Path) -> str:
    """An SQL string."""
    return "'" + str(text).replace("'", "''") + "'"


def who_wrote(path: Path) -> str:
    """events/worker-0.jsonl -> worker/0; events/launcher.jsonl -> launcher."""
    role, dash, index = path.stem.rpartition("-")
    return f"{role}/{index}" if dash and index.isdigit() else path.stem


def is_sealed(folder: RunFolder) -> bool:
    """Whether the Parquet tables hold everything that the events do."""
    try:
        sealed = folder.read(folder.tables / "sealed.json")
    except FileNotFoundError:
        return False
    return bool(sealed["sizes"] == _sizes(folder))


def write_tables(folder: RunFolder) -> dict[str, int]:
    """Events to Parquet, each file whole or not at all. Returns the sizes of the event files that they hold."""
    import duckdb

    folder.tables.mkdir(exist_ok=True)
    sizes = _sizes(folder)
    with duckdb.connect() as connection:
        for table in TABLES:
            final = folder.tables / f"{table}.parquet"
            temporary = final.with_suffix(".tmp")
            with rows_of_events(connection, folder, table) as rows:
                ordered = f"select * from ({rows}) order by t, task"
                connection.execute(f"copy ({ordered}) to {quoted(temporary)} (format parquet, compression zstd)")
            temporary.replace(final)
    return sizes


def mark_sealed(folder: RunFolder, sizes: dict[str, int]) -> None:
    """Last of all: from now on readers take the tables (and result.json) for the events."""
    write_atomically(folder.tables / "sealed.json", to_json({"format": FORMAT, "sizes": sizes}))


def _sizes(folder: RunFolder) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.events_folder.glob("*.jsonl"))}


@contextmanager
def rows_of_events(connection: duckdb.DuckDBPyConnection, folder: RunFolder, table: str) -> Iterator[str]:
    """SQL that selects a table's rows from the JSON lines, valid inside the `with`."""
    kinds, columns = TABLES[table]
    if kinds:
        wanted, rest = f"json->>'$.kind' in ({', '.join(map(quoted, kinds))})", ""
    else:
        others = ", ".join(quoted(kind) for taken, _ in TABLES.values() for kind in taken)
        wanted, rest = f"json->>'$.kind' not in ({others})", ", json::varchar as data"
    paths = sorted(folder.events_folder.glob("*.jsonl"))
    with tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        parts = [
            f"select {quoted(who_wrote(path))} as task, unnest(json_transform(json, {_structure(columns)})){rest} "
            f"from read_ndjson_objects({quoted(_readable(connection, path, Path(scratch)))}) where {wanted}"
            for path in paths
        ]
        yield " union all ".join(parts) or no_rows(table)


def no_rows(table: str) -> str:
    """SQL for a table's columns, with their types, and no row."""
    kinds, columns = TABLES[table]
    rest = "" if kinds else ", ''::varchar as data"
    return f"(select '' as task, unnest(json_transform('{{}}', {_structure(columns)})){rest} limit 0)"


def _structure(columns: dict[str, Any]) -> str:
    return quoted(json.dumps(columns))


def _readable(connection: duckdb.DuckDBPyConnection, path: Path, scratch: Path) -> Path:
    """The file itself, or a copy without the torn lines that DuckDB would stumble over; FormatError on damage."""
    import duckdb

    whole = path.stat().st_size == 0 or path.read_bytes().endswith(b"\n")
    if whole:
        try:
            connection.execute(
                f"select count(*) from read_ndjson_objects({quoted(path)}) where json_valid(json::varchar)"
            ).fetchone()
            return path
        except duckdb.Error:
            pass  # torn in the middle, or damaged: the slow way tells which
    copy = scratch / path.name
    with copy.open("w", encoding="utf-8") as file:
        for event in read_events(path):
            file.write(to_json(event) + "\n")
    return copy


def select_table(folder: RunFolder, table: str, connection: duckdb.DuckDBPyConnection) -> str:
    """SQL for a table of a run: from Parquet when it is sealed, else from a table that is made here from the events."""
    kinds, columns = TABLES[table]
    names = ", ".join(["task", *columns, *([] if kinds else ["data"])])
    path = folder.tables / f"{table}.parquet"
    if is_sealed(folder) and path.exists():  # else it was sealed before there was such a table
        return f"select {names} from (from {quoted(path)} union all by name {no_rows(table)})"
    name = f'"{table} of {folder.name}"'
    with rows_of_events(connection, folder, table) as rows:
        connection.execute(f"create or replace temp table {name} as select {names} from ({rows}) order by t, task")
    return f"select * from {name}"
