"""SQL over many runs: every table of every run, with the run's name, and a table `runs` of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.record.rates import RATES, rates
from headway.record.run import Run
from headway.record.seal import result
from headway.record.tables import TABLES, no_rows, quoted, select_table

RUN_COLUMNS = {
    "run": "VARCHAR",
    "name": "VARCHAR",
    "state": "VARCHAR",
    "strategy": "VARCHAR",
    "aggregate": "INTEGER",
    "replication": "VARCHAR",
    "placement": "VARCHAR",
    "pull_ahead": "INTEGER",
    "exchange": "VARCHAR",
    "transfer": "VARCHAR",
    "command": "VARCHAR",
    "model": "VARCHAR",
    "dataset": "VARCHAR",
    "batch_size": "INTEGER",
    "global_batch_size": "INTEGER",
    "site": "VARCHAR",
    "dilation": "DOUBLE",
    "num_training_tasks": "INTEGER",
    "num_ps": "INTEGER",
    "asked_steps": "BIGINT",
    "steps": "BIGINT",
    "steps_per_s": "DOUBLE",
    "task_steps_per_s": "DOUBLE",
    "examples_per_s": "DOUBLE",
    "window_seconds": "DOUBLE",
    "updates": "BIGINT",
    "asked_batch": "BIGINT",
    "effective_batch": "DOUBLE",
    "effective_batch_min": "BIGINT",
    "effective_batch_max": "BIGINT",
    "dropped": "BIGINT",
    "accuracy": "DOUBLE",
    "loss": "DOUBLE",
    "train_loss": "DOUBLE",
    "penalty": "DOUBLE",
    "seconds": "DOUBLE",
    "training_seconds": "DOUBLE",
    "time_to_train": "DOUBLE",
    "communication_share": "DOUBLE",
    "bytes_per_step": "DOUBLE",
    "variable_bytes": "BIGINT",
    "restarts": "INTEGER",
    "rollbacks": "INTEGER",
    "steps_lost": "BIGINT",
    "created": "DOUBLE",
    "path": "VARCHAR",
}


def query(sql: str, runs: Sequence[Run]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """(columns, rows). The SQL sees the runs' tables and may read nothing else."""
    import duckdb

    with duckdb.connect() as connection:
        for table in TABLES:
            parts = [
                f"select {quoted(run.name)} as run, * from ({select_table(run.folder, table, connection)})"
                for run in runs
            ]
            rows = " union all ".join(parts) or f"select ''::varchar as run, * from {no_rows(table)}"
            try:
                connection.execute(f"create temp view {table} as {rows}")
            except duckdb.Error:
                for run in runs:
                    run.table(table)  # whose it is that cannot be read says so
                raise
        for name, shape in RATES.items():
            connection.execute(f"create temp view {name} as {rates(name, f'select * from {shape.base}', 'run')}")
        connection.execute(f"create table runs ({', '.join(f'{name} {kind}' for name, kind in RUN_COLUMNS.items())})")
        for run in runs:
            figures = result(run)
            marks = ", ".join("?" for _ in RUN_COLUMNS)
            connection.execute(f"insert into runs values ({marks})", [figures.get(name) for name in RUN_COLUMNS])
        folders = ", ".join(quoted(f"{Path(run.path)}/") for run in runs)
        connection.execute(f"set allowed_directories = [{folders}]")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        try:
            cursor = connection.execute(sql)
            names_of = [column[0] for column in cursor.description or ()]
            return names_of, cursor.fetchall()
        except duckdb.Error as error:
            raise HeadwayError(
                f"query: {str(error).strip()}\nTables: runs, {', '.join([*TABLES, *RATES])} (columns: docs/formats.md)"
            ) from None
