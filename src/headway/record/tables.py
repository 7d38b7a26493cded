"""The events of a run folder as tables. JSON lines are the truth; Parquet is made from them, and can be made again.

A table's columns are part of the format (docs/formats.md). A new column is filled with NULL for older runs.
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
    paths = sorted(folder.events_folder.glob("*.jsonl"))
    with tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        readable = [_readable(connection, path, Path(scratch)) for path in paths]
        yield select_rows(kinds, columns, [(who_wrote(path), file) for path, file in zip(paths, readable, strict=True)])


def select_rows(kinds: tuple[str, ...], columns: dict[str, Any], files: list[tuple[str, Path]]) -> str:
    structure = quoted(json.dumps(columns))
    if kinds:
        wanted, rest = f"json->>'$.kind' in ({', '.join(map(quoted, kinds))})", ""
    else:
        others = ", ".join(quoted(kind) for taken, _ in TABLES.values() for kind in taken)
        wanted, rest = f"json->>'$.kind' not in ({others})", ", json::varchar as data"
    parts = [
        f"select {quoted(who)} as task, unnest(json_transform(json, {structure})){rest} "
        f"from read_ndjson_objects({quoted(path)}) where {wanted}"
        for who, path in files
    ]
    if not parts:  # no event was written: the columns, without a row
        parts = [
            f"select '' as task, unnest(json_transform('{{}}', {structure})){', null as data' if rest else ''} limit 0"
        ]
    return " union all ".join(parts)


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
    columns = TABLES[table][1]
    if is_sealed(folder):
        path = folder.tables / f"{table}.parquet"
        found = {row[0] for row in connection.execute(f"describe select * from {quoted(path)}").fetchall()}
        missing = "".join(f", null as {column}" for column in columns if column not in found)
        return f"select *{missing} from {quoted(path)}"
    name = f'"{table} of {folder.name}"'
    with rows_of_events(connection, folder, table) as rows:
        connection.execute(f"create or replace temp table {name} as select * from ({rows}) order by t, task")
    return f"select * from {name}"
