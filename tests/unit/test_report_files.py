"""Reports for other programs: the same files with the same columns whatever there is to say, an older report replaced
whole or not at all, and nothing of anybody else touched."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from headway.cli import app
from headway.errors import HeadwayError, SpecError
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.record.seal import result
from headway.report import files
from headway.report.files import COLUMNS, tables, write_csv, write_parquet
from headway.report.folders import MARK
from headway.report.notebook import notebook
from headway.report.page import Page, page
from headway.report.write import check_form, write

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import Made, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(make_run(tmp_path_factory.mktemp("runs"), Made("alone", "single", 1, 0, 60)))


@pytest.fixture(scope="module")
def of_run(run: Run) -> Page:
    return page([run])


@pytest.fixture
def without_samples(run: Run, tmp_path: Path) -> Run:
    """It was broken off before anything happened."""
    folder = RunFolder(tmp_path / "broken-off")
    shutil.copytree(run.path, folder.path)
    shutil.rmtree(folder.tables)
    for inside in (folder.events_folder, folder.metrics_folder):
        for file in inside.glob("*.jsonl"):
            file.write_text("")
    return Run(folder)


@pytest.fixture
def damaged(run: Run, tmp_path: Path) -> Run:
    folder = RunFolder(tmp_path / "damaged")
    shutil.copytree(run.path, folder.path)
    folder.job_file.write_text("{")
    return Run(folder)


# --- what is in them -----------------------------------------------------------------------------------------------
def nothing_found(of_run: Page) -> Page:
    return {**of_run, "findings": []}


def columns_of(file: Path) -> dict[str, str]:
    return {name: kind for name, kind, *_ in duckdb.execute(f"describe from '{file}'").fetchall()}


def test_a_healthy_run_has_a_file_of_findings_with_its_columns_and_no_rows(of_run: Page, tmp_path: Path) -> None:
    write_csv(nothing_found(of_run), tmp_path / "r.csv")
    write_parquet(nothing_found(of_run), tmp_path / "r.parquet")
    with (tmp_path / "r.csv" / "findings.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [list(COLUMNS["findings"])]
    stored = tmp_path / "r.parquet" / "findings.parquet"
    assert columns_of(stored) == COLUMNS["findings"]
    assert duckdb.execute(f"from '{stored}'").fetchall() == []


def test_the_five_tables_have_the_same_columns_in_every_report(
    run: Run, without_samples: Run, damaged: Run, tmp_path: Path
) -> None:
    for number, runs in enumerate(([run], [without_samples], [damaged], [run, without_samples, damaged])):
        found, folder = page(runs), tmp_path / f"{number}.parquet"
        write_parquet(found, folder)
        write_csv(found, tmp_path / f"{number}.csv")
        for name, columns in COLUMNS.items():
            assert columns_of(folder / f"{name}.parquet") == columns, (number, name)
            header = (tmp_path / f"{number}.csv" / f"{name}.csv").read_text().splitlines()[0]
            assert header == ",".join(columns)
        assert {path.stem for path in folder.glob("*.parquet")} == {
            path.stem for path in (tmp_path / f"{number}.csv").glob("*.csv")
        }


def test_every_figure_of_a_run_that_is_one_value_has_its_column(run: Run) -> None:
    plain = {name for name, value in result(run).items() if isinstance(value, (str, int, float, bool))}
    assert plain - set(COLUMNS["runs"]) == set()


def test_a_value_of_another_type_than_its_column_is_not_known(of_run: Page, tmp_path: Path) -> None:
    (of_it,) = of_run["runs"]
    odd = {"first_step": "x", "bad_records": 10**400, "evaluated_step": 1.5, "rate_change": [1], "layout": {"a": 1}}
    figures = {**of_it["figures"], **odd}
    write_parquet({**of_run, "runs": [{**of_it, "figures": figures}]}, tmp_path / "r.parquet")
    names = ", ".join(odd)
    (row,) = duckdb.execute(f"select {names} from '{tmp_path}/r.parquet/runs.parquet'").fetchall()
    assert row == (None,) * 5


# --- what was there before -----------------------------------------------------------------------------------------
WAYS: dict[str, Callable[[Page, Path], None]] = {"csv": write_csv, "parquet": write_parquet}


@pytest.fixture(params=list(WAYS))
def written(request: pytest.FixtureRequest, of_run: Page, tmp_path: Path) -> tuple[Callable[[Page, Path], None], Path]:
    """A report, and how it is written."""
    way, folder = WAYS[request.param], tmp_path / f"r.{request.param}"
    way(of_run, folder)
    return way, folder


Written = tuple[Callable[[Page, Path], None], Path]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_older_report_is_replaced_and_what_it_had_more_is_gone(written: Written, of_run: Page) -> None:
    way, folder = written
    way({**of_run, "collections": [], "title": "new"}, folder)
    assert json.loads((folder / MARK).read_text())["title"] == "new"
    assert not list(folder.glob("results-*"))
    assert sorted(json.loads((folder / MARK).read_text())["files"]) == sorted(content(folder))
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_file_of_the_users_in_a_report_of_ours_is_never_deleted(written: Written, of_run: Page) -> None:
    way, folder = written
    (folder / "thesis.txt").write_text("years")
    before = content(folder)
    with pytest.raises(SpecError, match=r"not all in it is the report's \(thesis.txt\)"):
        way(of_run, folder)
    assert content(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_mark_cannot_name_files_elsewhere(written: Written, of_run: Page) -> None:
    way, folder = written
    thesis = folder.parent / "thesis.txt"
    thesis.write_text("years")
    mark = json.loads((folder / MARK).read_text())
    (folder / MARK).write_text(json.dumps({**mark, "files": [*mark["files"], "../thesis.txt", str(thesis)]}))
    way(of_run, folder)
    assert thesis.read_text() == "years"


def test_where_a_report_cannot_be_written_the_old_one_stays_and_nothing_else_is_left(
    written: Written, of_run: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    way, folder = written
    before = content(folder)
    whole = files.tables

    def full(page: Page) -> Iterator[files.Table]:
        yield next(whole(page))
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(files, "tables", full)
    with pytest.raises(OSError, match="No space left"):
        way(of_run, folder)
    with pytest.raises(HeadwayError, match=r"cannot be written \(No space left on device\)"):
        write(of_run, folder)
    assert content(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_link_stays_one_and_the_folder_that_it_leads_to_is_replaced(written: Written, of_run: Page) -> None:
    way, folder = written
    link = folder.with_name(f"link{folder.suffix}")
    link.symlink_to(folder)
    way({**of_run, "title": "new"}, link)
    assert link.is_symlink()
    assert json.loads((folder / MARK).read_text())["title"] == "new"


def test_what_the_database_cannot_do_is_a_message(
    of_run: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COLUMNS["runs"], "steps", "NO_SUCH_TYPE")
    with pytest.raises(HeadwayError, match=r"r.parquet: cannot be written as Parquet \(.*NO_SUCH_TYPE"):
        write(of_run, tmp_path / "r.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["html", "md", "ipynb"])
def test_a_folder_in_the_place_of_a_file_is_said_before_the_work(run: Run, tmp_path: Path, suffix: str) -> None:
    place = tmp_path / f"report.{suffix}"
    place.mkdir()
    done = CliRunner().invoke(app, ["report", "no-such-run", "--runs", str(tmp_path), "-o", str(place)])
    assert "is a folder" in str(done.exception)
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_must_not_be_written_over_is_said_before_the_work(tmp_path: Path, suffix: str) -> None:
    place = tmp_path / f"mine.{suffix}"
    place.mkdir()
    with pytest.raises(SpecError, match="no report of ours"):
        check_form(place)
    place.rmdir()
    place.write_text("1,2,3\n")
    with pytest.raises(SpecError, match="no report of ours"):
        check_form(place)
    assert place.read_text() == "1,2,3\n"


# --- the notebook --------------------------------------------------------------------------------------------------
def executed(found: Page) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for cell in json.loads(notebook(found))["cells"]:
        if cell["cell_type"] == "code":  # .show() would open a browser
            exec("".join(cell["source"]).replace("show(chart).show()", "show(chart)"), names)  # noqa: S102
    return names


def test_the_notebook_draws_the_first_run_that_has_samples(run: Run, without_samples: Run) -> None:
    names = executed(page([without_samples, run]))
    assert names["run"]["run"] == run.name
    assert names["figure"].data


def test_the_notebook_says_that_there_is_no_time_line(
    without_samples: Run, damaged: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for runs in ([without_samples], [damaged]):
        assert executed(page(runs))["figure"] is None
        assert "no run has samples" in capsys.readouterr().out


def test_the_notebook_has_every_table(of_run: Page) -> None:
    assert list(executed(of_run)["tables"]) == [table.name for table in tables(of_run)]
