"""`headway query` reads the runs' tables and does nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.errors import HeadwayError, SpecError
from headway.launch.prepare import create_run
from headway.record.folder import RunFolder
from headway.record.query import query
from headway.record.run import Run
from headway.record.seal import seal
from headway.spec.load import parse_job

ROOT = Path(__file__).parents[2]
DOCUMENTED = re.compile(r'headway query "(select [^"]+)"')


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = create_run(parse_job({"workload": {"command": "true"}}), tmp_path_factory.mktemp("runs"))
    (folder.path / "secret.csv").write_text("a,b\n1,2\n")
    seal(folder)
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "   ",
        ";",
        "-- nothing",
        "select 1; select 2",
        "select 1; copy (select 1) to '{run}/run.json'",
        "copy (select 1) to '{run}/run.json'",
        "copy (select 1) to '{run}/tables/steps.parquet'",
        "explain analyze copy (select 1) to '{run}/tables/steps.parquet'",
        "EXPLAIN /* x */ ANALYZE copy (select 1) to '{run}/tables/steps.parquet'",
        "explain (analyze) copy (select 1) to '{run}/tables/steps.parquet'",
        "attach '{run}/new.duckdb'",
        "export database '{run}/tables'",
        "install httpfs",
        "load httpfs",
        "pragma version",
        "set threads = 1",
        "reset lock_configuration",
        "use memory",
        "call pragma_version()",
        "checkpoint",
        "create table x as select 1",
        "create or replace temp view steps as select 1",
        "insert into runs select * from runs",
        "with x as (select 1) insert into runs (run) select * from x",
        "update runs set name = 'x'",
        "delete from runs",
        "drop table runs",
        "prepare x as select 1",
        "begin transaction",
        "explain analyze insert into runs (run) values ('x')",
    ],
)
def test_anything_but_one_select_is_refused(run: RunFolder, sql: str) -> None:
    before = contents(run.path)
    with pytest.raises(HeadwayError, match=r"^query: "):
        query(sql.replace("{run}", str(run.path)), [Run(run)])
    assert contents(run.path) == before


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('/etc/passwd')",
        "select * from read_csv('{run}/secret.csv')",
        "select * from '{run}/secret.csv'",
        "select * from read_text('{run}/run.json')",
        "select * from read_blob('{run}/../*')",
        "select * from glob('/etc/*')",
        "select * from parquet_scan('https://example.org/x.parquet')",
        "select * from query('copy (select 1) to ''{run}/run.json''')",
        "select * from query_table('/etc/passwd')",
        "select * from enable_logging(storage := 'file', storage_config := {{'path': '{run}/log'}})",
        "select getenv('HOME')",
    ],
)
def test_a_select_reaches_no_other_file(run: RunFolder, sql: str) -> None:
    before = contents(run.path)
    text = sql.replace("{run}", str(run.path)).replace("{{", "{").replace("}}", "}")
    try:
        _, rows = query(text, [Run(run)])
    except HeadwayError as error:
        assert str(error).startswith("query: ")
    else:
        assert rows == [], rows  # a pattern that finds nothing
    assert contents(run.path) == before


def documented() -> list[str]:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.yaml"), *ROOT.glob("src/**/*.py")]
    return sorted({found for page in pages for found in DOCUMENTED.findall(page.read_text(encoding="utf-8"))})


def test_every_documented_query_works(run: RunFolder) -> None:
    assert len(documented()) >= 3
    for sql in documented():
        query(sql, [Run(run)])


@pytest.mark.parametrize(
    "sql",
    [
        "select run from runs;",
        "from runs select run",
        "with x as (select run from runs) select * from x",
        "(select run from runs) union all (select run from runs)",
        "values (1)",
        "describe steps",
        "summarize runs",
        "explain select * from steps",
        "explain analyze select * from steps",
        "select run from runs -- ; copy",
        "select ';' as semicolon",
    ],
)
def test_whatever_only_reads_is_allowed(run: RunFolder, sql: str) -> None:
    columns, rows = query(sql, [Run(run)])
    assert columns and rows


def test_a_query_that_takes_too_long_is_stopped_and_the_option_is_named(run: RunFolder) -> None:
    began = time.monotonic()
    with pytest.raises(HeadwayError, match=r"longer than 500 ms and was stopped; --seconds"):
        query("select count(*) from range(1000000) a, range(1000000) b where a.range % 7 = b.range % 11", [], 0.5)
    assert time.monotonic() - began < 10


def test_a_query_that_needs_too_much_memory_is_stopped_and_the_option_is_named() -> None:
    with pytest.raises(HeadwayError, match=r"more memory than 67\.1 MB; --memory"):
        query("select range as x, random() as y from range(100000000) order by y", [], 60, 64 * 2**20)


def test_rows_that_need_too_much_memory_in_python_are_refused_too() -> None:
    """DuckDB makes each of them when it is asked for, and needs little."""
    with pytest.raises(HeadwayError, match=r"more memory than 67\.1 MB; --memory"):
        query("select repeat('x', 10000) || range from range(900000)", [], 60, 64 * 2**20)


@pytest.mark.parametrize(
    "how", ["explain", "explain analyze", "explain (format json)", "EXPLAIN(ANALYZE, FORMAT json)", "explain (analyze)"]
)
def test_a_select_may_be_explained_in_every_form(how: str) -> None:
    assert query(f"{how} select 1", [])[1]
    assert query(f"{how} (select 1)", [])[1]
    with pytest.raises(SpecError, match="only SELECT and EXPLAIN of a SELECT"):
        query(f"{how} insert into runs (run) values ('x')", [])


def test_a_result_that_nobody_can_read_is_refused() -> None:
    with pytest.raises(HeadwayError, match="more than 1,000,000 rows"):
        query("select * from range(2000000)", [])


@pytest.mark.parametrize(
    "arguments", [("",), (";",), ("select 1", "--memory", "much"), ("select 1", "--memory", "1kB")]
)
def test_a_mistake_on_the_command_line_is_one_message(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headway", "query", *arguments, "--runs", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("headway: ")
    assert "Traceback" not in done.stderr
