"""SQL over many runs: every table of every run, with the run's name, and a table `runs` of their figures.

A query only reads, and only the runs' tables: it is one SELECT (or EXPLAIN of one), DuckDB may open no file but their
Parquet files, and memory, time and rows have limits.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headway.errors import FormatError, HeadwayError, SpecError
from headway.record.rates import RATES, rates
from headway.record.run import Run
from headway.record.seal import result
from headway.record.shapes import RUN_COLUMNS
from headway.record.tables import TABLES, no_rows, quoted, select_table
from headway.spec.secrets import without_secrets
from headway.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import duckdb

DEFAULT_SECONDS = 60.0
DEFAULT_MEMORY = 2 * 2**30
MOST_ROWS = 1_000_000
ROWS_AT_ONCE = 10_000
_EXPLAIN = re.compile(
    r"explain\b\s*(?:analyze\b\s*)?(?:\((?:\s*,?\s*(?:analyze|format\s+\w+))+\s*\))?(?P<explained>.*)",
    re.IGNORECASE | re.DOTALL,
)


def query(
    sql: str,
    runs: Sequence[Run],
    seconds: float = DEFAULT_SECONDS,
    memory: int = DEFAULT_MEMORY,
    left_out: Callable[[HeadwayError], None] | None = None,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """(columns, rows) of one SELECT or EXPLAIN over the runs' tables. `seconds`, `memory`: what it may use. `left_out`
    receives what is wrong with each damaged run, and the query goes on without it; else that is an error."""
    import duckdb

    with duckdb.connect() as connection:
        _check(sql, connection)
    if left_out is not None:
        runs = [run for run in runs if _has_figures(run, left_out)]

    with duckdb.connect() as connection:
        connection.execute(f"set memory_limit = '{memory}B'")
        connection.execute("set temp_directory = ''")  # where memory is not enough it writes no files
        try:
            with _interrupted_after(seconds, connection):
                _make_tables(connection, runs)
                _lock(connection, runs)
                return _rows(connection, sql, memory)
        except duckdb.InterruptException:
            raise HeadwayError(
                f"query: it took longer than {format_seconds(seconds)} and was stopped; --seconds allows more"
            ) from None
        except (duckdb.OutOfMemoryException, MemoryError):
            raise HeadwayError(
                f"query: it needs more memory than {format_bytes(memory)}; --memory allows more"
            ) from None
        except (FormatError, duckdb.Error) as error:
            damage = (FormatError, duckdb.IOException, duckdb.InvalidInputException)
            if left_out is not None and isinstance(error, damage):
                whole = [run for run in runs if _has_tables(run, left_out)]
                if len(whole) < len(runs):
                    return query(sql, whole, seconds, memory, left_out)
            if isinstance(error, FormatError):
                raise
            raise HeadwayError(f"query: {str(error).strip()}\n{_tables_in_words()}") from None


def _has_figures(run: Run, left_out: Callable[[HeadwayError], None]) -> bool:
    try:
        result(run)
        return True
    except HeadwayError as error:
        left_out(error)
        return False


def _has_tables(run: Run, left_out: Callable[[HeadwayError], None]) -> bool:
    """Whether each of them can be read to its end."""
    try:
        for table in TABLES:
            run.table(table)
        return True
    except HeadwayError as error:
        left_out(error)
        return False


def _check(sql: str, connection: duckdb.DuckDBPyConnection) -> None:
    """SpecError unless it is one statement that only reads."""
    import duckdb

    try:
        statements = connection.extract_statements(sql)
    except (duckdb.Error, UnicodeError) as error:
        raise HeadwayError(f"query: {str(error).strip()}\n{_tables_in_words()}") from None
    if not statements:
        raise SpecError(
            f'query: no SQL; for example: headway query "select run, steps from runs"\n{_tables_in_words()}'
        )
    if len(statements) > 1:
        raise SpecError(f"query: {len(statements)} statements; give exactly one SELECT")
    (statement,) = statements
    if statement.type == duckdb.StatementType.SELECT:
        return
    if statement.type == duckdb.StatementType.EXPLAIN and (found := _EXPLAIN.match(statement.query)):
        _check(found["explained"], connection)  # EXPLAIN ANALYZE does what it explains
        return
    kind = statement.type.name
    raise SpecError(
        f"query: only SELECT and EXPLAIN of a SELECT are allowed, because a query never changes a run; got {kind}"
    )


def _make_tables(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    import duckdb

    for table in TABLES:
        parts = [
            f"select {quoted(run.name)} as run, * from ({select_table(run.folder, table, connection)})" for run in runs
        ]
        rows = " union all ".join(parts) or f"select ''::varchar as run, * from {no_rows(table)}"
        try:
            connection.execute(f"create temp view {table} as {rows}")
        except (duckdb.InterruptException, duckdb.OutOfMemoryException):
            raise
        except duckdb.Error:
            for run in runs:
                run.table(table)  # whose it is that cannot be read says so
            raise
    for name, shape in RATES.items():
        connection.execute(f"create temp view {name} as {rates(name, f'select * from {shape.base}', 'run')}")
    connection.execute(f"create table runs ({', '.join(f'{name} {kind}' for name, kind in RUN_COLUMNS.items())})")
    for run in runs:
        figures = without_secrets(result(run))
        marks = ", ".join("?" for _ in RUN_COLUMNS)
        connection.execute(f"insert into runs values ({marks})", [figures.get(name) for name in RUN_COLUMNS])


def _lock(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """From here on only the files that the tables are read from can be opened."""
    files = ", ".join(quoted(run.folder.tables / f"{table}.parquet") for run in runs for table in TABLES)
    connection.execute(f"set allowed_paths = [{files}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, memory: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """DuckDB's limit does not hold for what Python makes of its rows: their values are counted here."""
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description or ()]
    rows: list[tuple[Any, ...]] = []
    size = 0
    while some := cursor.fetchmany(ROWS_AT_ONCE):
        rows += some
        size += sum(sys.getsizeof(value) for row in some for value in (row, *row))
        if size > memory:
            raise MemoryError
        if len(rows) > MOST_ROWS:
            raise HeadwayError(
                f"query: more than {MOST_ROWS:,} rows; ask for fewer (limit, group by), or read "
                "<run>/tables/*.parquet with DuckDB or pandas"
            )
    return names, rows


@contextmanager
def _interrupted_after(seconds: float, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Again and again: an interrupt reaches only the statement that runs just then."""
    over = threading.Event()
    deadline = time.monotonic() + seconds

    def watch() -> None:
        while not over.wait(max(0.05, deadline - time.monotonic())):
            connection.interrupt()

    watcher = threading.Thread(target=watch, name="query limit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _tables_in_words() -> str:
    return f"Tables: runs, {', '.join([*TABLES, *RATES])} (columns: docs/formats.md)"
