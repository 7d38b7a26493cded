"""The events of a run folder as tables. JSON lines are the truth; Parquet is made from them, and can be made again.

Tables and columns are part of the format (docs/formats.md). To add one, add it to TABLES. Runs that were sealed before
give NULL in a new column; a new table is made from their events. A kind of event never moves to another table.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import FormatError
from headway.record.clocks import Clocks
from headway.record.files import to_json, write_atomically
from headway.record.folder import FORMAT, RunFolder
from headway.record.rates import RATES, rates
from headway.record.sources import merged

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Table:
    kinds: tuple[str, ...]
    """The kinds of event that it holds; none: all that no other table of the folder does."""
    columns: dict[str, Any]
    """Column -> type, as json_transform takes it."""
    folder: str = "events"
    """Where its events are."""
    who: str = "task"
    """What the file's name says, as a column."""
    merged: Callable[[str], str] | None = None
    """SQL for its rows, of SQL for one row of each event; None: they are the same."""

    @property
    def names(self) -> list[str]:
        return [self.who, *self.columns, *([] if self.kinds else ["data"])]


_COUNTED = {
    name: "BIGINT"
    for where in ("loopback_", "")
    for name in (f"{where}received_bytes", f"{where}received_packets", f"{where}sent_bytes", f"{where}sent_packets")
}

TABLES: dict[str, Table] = {
    "steps": Table(
        ("step", "told"),
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
            "source": "VARCHAR",
        },
        merged=merged,
    ),
    "updates": Table(
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
    "evaluations": Table(
        ("evaluation",),
        {
            "t": "DOUBLE",
            "attempt": "INTEGER",
            "step": "BIGINT",
            "accuracy": "DOUBLE",
            "loss": "DOUBLE",
            "num_examples": "BIGINT",
            "seconds": "DOUBLE",
            "generation": "INTEGER",
        },
    ),
    "checkpoints": Table(
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
    "events": Table((), {"t": "DOUBLE", "kind": "VARCHAR", "attempt": "INTEGER", "launch": "INTEGER"}),
    "node_samples": Table(
        ("node_sample",),
        {
            "t": "DOUBLE",
            "sampler": "DOUBLE",
            "cpu_seconds": "DOUBLE",
            "throttled_seconds": "DOUBLE",
            "memory": "BIGINT",
            "memory_limit": "BIGINT",
            "oom_kills": "BIGINT",
            **_COUNTED,
            "disk_read_bytes": "BIGINT",
            "disk_written_bytes": "BIGINT",
            "context_switches": "BIGINT",
            "cpu_pressure_seconds": "DOUBLE",
            "memory_pressure_seconds": "DOUBLE",
            "io_pressure_seconds": "DOUBLE",
            "credits": "DOUBLE",
            "cpus": "DOUBLE",
            "machine_cpu_seconds": "DOUBLE",
            "steal_seconds": "DOUBLE",
        },
        folder="metrics",
        who="node",
    ),
    "task_samples": Table(
        ("task_sample",),
        {
            "t": "DOUBLE",
            "task": "VARCHAR",
            "attempt": "INTEGER",
            "sampler": "DOUBLE",
            "cpu_seconds": "DOUBLE",
            "rss": "BIGINT",
            "threads": "INTEGER",
            "disk_read_bytes": "BIGINT",
            "disk_written_bytes": "BIGINT",
            "context_switches": "BIGINT",
            "loopback_received_bytes": "BIGINT",
            "loopback_sent_bytes": "BIGINT",
            "received_bytes": "BIGINT",
            "sent_bytes": "BIGINT",
            "retransmitted": "BIGINT",
            "memory": "BIGINT",
        },
        folder="metrics",
        who="node",
    ),
    "gpu_samples": Table(
        ("gpu_sample",),
        {
            "t": "DOUBLE",
            "sampler": "DOUBLE",
            "gpu": "INTEGER",
            "busy": "DOUBLE",
            "memory": "BIGINT",
            "memory_limit": "BIGINT",
            "watts": "DOUBLE",
        },
        folder="metrics",
        who="node",
    ),
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
    return bool(sealed.get("sizes") == _sizes(folder))


def write_tables(folder: RunFolder) -> dict[str, int]:
    """Events to Parquet, each file whole or not at all. Returns the sizes of the event files that they hold."""
    import duckdb

    folder.tables.mkdir(exist_ok=True)
    sizes = _sizes(folder)
    with duckdb.connect() as connection:
        for table, shape in TABLES.items():
            final = folder.tables / f"{table}.parquet"
            temporary = final.with_suffix(".tmp")
            try:
                with rows_of_events(connection, folder, table) as rows:
                    ordered = f"select * from ({rows}) order by t, {shape.who}"
                    connection.execute(f"copy ({ordered}) to {quoted(temporary)} (format parquet, compression zstd)")
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            temporary.replace(final)
    return sizes


def mark_sealed(folder: RunFolder, sizes: dict[str, int]) -> None:
    """Last of all: from now on readers take the tables (and result.json) for the events."""
    write_atomically(folder.tables / "sealed.json", to_json({"format": FORMAT, "sizes": sizes}))


def _sizes(folder: RunFolder) -> dict[str, int]:
    paths = [path for inner in ("events", "metrics") for path in folder.reader.files(inner, ".jsonl")]
    return {f"{path.parent.name}/{path.name}": path.lstat().st_size for path in paths}


@contextmanager
def rows_of_events(connection: duckdb.DuckDBPyConnection, folder: RunFolder, table: str) -> Iterator[str]:
    """SQL that selects a table's rows from the JSON lines, valid inside the `with`."""
    shape = TABLES[table]
    if shape.kinds:
        wanted, rest = f"json->>'$.kind' in ({', '.join(map(quoted, shape.kinds))})", ""
    else:
        others = ", ".join(quoted(kind) for other in TABLES.values() for kind in other.kinds)
        wanted, rest = f"json->>'$.kind' not in ({others})", ", json::varchar as data"
    paths = folder.reader.files(shape.folder, ".jsonl")
    clocks = Clocks(folder) if paths else None
    with tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        parts = []
        for path in paths:
            rows = (
                f"select {quoted(who_wrote(path))} as {shape.who}, "
                f"unnest(json_transform(json, {_structure(shape.columns)})){rest} "
                f"from read_ndjson_objects({quoted(_readable(connection, folder, path, Path(scratch)))}) where {wanted}"
            )
            parts.append(clocks.corrected(rows, who_wrote(path)) if clocks else rows)
        rows = " union all ".join(parts) or no_rows(table)
        yield shape.merged(rows) if shape.merged else rows


def no_rows(table: str) -> str:
    """SQL for a table's columns, with their types, and no row."""
    shape = TABLES[table]
    rest = "" if shape.kinds else ", ''::varchar as data"
    structure = _structure(shape.columns)
    return f"(select '' as {shape.who}, unnest(json_transform('{{}}', {structure})){rest} limit 0)"


def _structure(columns: dict[str, Any]) -> str:
    return quoted(json.dumps(columns))


def _readable(connection: duckdb.DuckDBPyConnection, folder: RunFolder, path: Path, scratch: Path) -> Path:
    """The file itself, or a copy without the torn lines that DuckDB would stumble over; FormatError on damage."""
    import duckdb

    if _is_whole(folder, path):
        try:
            connection.execute(
                f"select count(*) from read_ndjson_objects({quoted(path)}) where json_valid(json::varchar)"
            ).fetchone()
            return path
        except duckdb.Error:
            pass  # torn in the middle, or damaged: the slow way tells which
    copy = scratch / path.name
    with copy.open("w", encoding="utf-8") as file:
        for event in folder.reader.lines(path):
            file.write(to_json(event) + "\n")
    return copy


def _is_whole(folder: RunFolder, path: Path) -> bool:
    """Whether its last line has an end."""
    with folder.reader.open(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read(1) in (b"", b"\n")


@contextmanager
def connected(folder: RunFolder) -> Iterator[duckdb.DuckDBPyConnection]:
    """To read a run's tables; FormatError where they are damaged."""
    import duckdb

    try:
        with duckdb.connect() as connection:
            yield connection
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        what = f"{folder.name}: its record is damaged ({str(error).strip().splitlines()[0]})"
        sealed = folder.tables / "sealed.json"
        hint = f". Tables are made of the run's events: without the file {sealed} they are read from those"
        raise FormatError(what + hint * sealed.exists()) from error


def select_table(folder: RunFolder, table: str, connection: duckdb.DuckDBPyConnection) -> str:
    """SQL for a table of a run: from Parquet when it is sealed, else from a table that is made here from the events."""
    if table in RATES:
        base = select_table(folder, RATES[table].base, connection)
        return rates(table, base)
    names = ", ".join(TABLES[table].names)
    path = folder.tables / f"{table}.parquet"
    if is_sealed(folder) and folder.reader.exists(path):  # else it was sealed before there was such a table
        sealed = quoted(folder.reader.checked(path))
        return f"select {names} from (from read_parquet({sealed}) union all by name {no_rows(table)})"
    name = f'"{table} of {folder.name}"'
    order = f"order by t, {TABLES[table].who}"
    with rows_of_events(connection, folder, table) as rows:
        connection.execute(f"create or replace temp table {name} as select {names} from ({rows}) {order}")
    return f"select * from {name}"
