"""Run folders of somebody who means no good, and damaged ones: what is in them is neither code nor markup, and one of
them does not hide the others."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headway.errors import FormatError
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.report.files import write_csv, write_parquet
from headway.report.html import html
from headway.report.markdown import markdown
from headway.report.notebook import notebook
from headway.report.page import page
from headway.report.write import write

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import Made, make_run


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return make_run(tmp_path_factory.mktemp("sealed"), Made("two", steps=60))


Copy = Callable[[str], RunFolder]


@pytest.fixture
def copied(sealed: RunFolder, tmp_path: Path) -> Copy:
    """The sealed run once more, to be spoilt."""

    def make(name: str) -> RunFolder:
        folder = RunFolder(tmp_path / name)
        shutil.copytree(sealed.path, folder.path)
        return folder

    return make


def change(file: Path, spoil: Callable[[dict[str, Any]], Any]) -> None:
    facts = json.loads(file.read_text())
    spoil(facts)
    file.write_text(json.dumps(facts))


# --- SQL -------------------------------------------------------------------------------------------------------
def test_a_key_of_a_stored_result_is_no_sql(copied: Copy, tmp_path: Path) -> None:
    folder, stolen = copied("evil"), tmp_path / "stolen.csv"
    key = f"x': 'VARCHAR'}})) to '{tmp_path}/first.parquet'; copy (select 1) to '{stolen}'; --"
    change(folder.path / "result.json", lambda figures: figures.update({key: 1, "It's": 2, "steps ": 3}))
    assert Run(folder).is_sealed
    found = page([Run(folder)])
    write_parquet(found, tmp_path / "r.parquet")
    write_csv(found, tmp_path / "r.csv")
    assert not stolen.exists()
    columns = [row[0] for row in duckdb.execute(f"describe from '{tmp_path}/r.parquet/runs.parquet'").fetchall()]
    assert "steps" in columns
    assert not {key, "It's", "steps "} & set(columns)
    assert key not in (tmp_path / "r.csv" / "runs.csv").read_text()


@pytest.mark.parametrize("place", ["batch_size", "count", "started"])
def test_what_goes_into_the_sql_of_figures_is_a_number(copied: Copy, tmp_path: Path, place: str) -> None:
    folder, stolen = copied("evil"), tmp_path / "stolen.csv"
    (folder.path / "result.json").unlink()  # so that figures are made again
    evil = f"1 from steps); copy (select 1) to '{stolen}'; --"

    def spoil(job: dict[str, Any]) -> None:
        resolved = job["resolved"]
        if place == "batch_size":
            resolved["workload"] |= {"command": ["x"], "report": {"steps": "global"}, "batch_size": evil}
        elif place == "count":
            resolved["strategy"]["kind"] = "allreduce"
            resolved["cluster"]["chief"]["count"], resolved["cluster"]["worker"]["count"] = evil, ""

    change(folder.job_file, spoil)
    if place == "started":
        change(folder.path / "run.json", lambda facts: facts["launches"][0].update(started=[evil]))
    with pytest.raises(FormatError, match=r"damaged|is no number"):
        Run(folder).summary()
    assert not stolen.exists()


# --- markup ----------------------------------------------------------------------------------------------------
EVIL = '"><img src=x onerror=alert(1)><script>alert(2)</script>'


def test_no_value_of_a_sealed_result_becomes_markup(copied: Copy) -> None:
    texts = copied("texts")

    def spoil(figures: dict[str, Any]) -> None:
        figures |= dict.fromkeys(("name", "state", "reason", "model", "dataset", "site"), EVIL)
        figures["tasks"][0]["task"] = EVIL
        figures["nodes"][0]["asked"] = {EVIL: {EVIL: EVIL}, "x": EVIL}

    change(texts.path / "result.json", spoil)
    found = page([Run(texts)])
    assert found["runs"][0]["problem"] is None
    text = html(found)
    assert "<img" not in text
    assert "<script>alert" not in text


@pytest.mark.parametrize("name", ["accuracy", "steps", "seconds", "examples_per_s", "num_training_tasks"])
def test_a_figure_that_is_no_number_is_damage_and_not_a_cell(copied: Copy, name: str) -> None:
    evil = copied("evil")
    estimate = {"value": EVIL, "low": 1, "high": 2, "num": 1}
    for value in (estimate, EVIL, [EVIL], True, 10**400):
        _figure(name, value)(evil)
        found = page([Run(evil)])
        assert f"result.json: {name}" in found["runs"][0]["problem"], value
        assert "<img" not in html(found)


# --- damage ----------------------------------------------------------------------------------------------------
def _cut_table(folder: RunFolder) -> None:
    (folder.tables / "steps.parquet").write_bytes(b"")


def _launch_without_time(folder: RunFolder) -> None:
    change(folder.path / "run.json", lambda facts: facts.update(launches=[{"started": "NaN"}]))


def _figure(name: str, value: Any) -> Callable[[RunFolder], None]:
    return lambda folder: change(folder.path / "result.json", lambda figures: figures.update({name: value}))


DAMAGE: dict[str, Callable[[RunFolder], None]] = {
    "a table of no bytes": _cut_table,
    "a launch without a time": _launch_without_time,
    "a job that is a list": lambda folder: change(folder.job_file, lambda job: job.update(resolved=[1])),
    "a choice without a reason": lambda folder: change(folder.job_file, lambda job: job.update(choices=[{"path": 1}])),
    "steps asked as text": _figure("asked_steps", "x"),
    "tasks as a number": _figure("tasks", 3),
    "a task that is none": _figure("tasks", [None]),
    "nodes as text": _figure("nodes", "all"),
    "an accuracy that is none": _figure("time_to_accuracy", {"high": {"seconds": 1}}),
    "use as a list": _figure("node_use", {"ps0": [1]}),
    "no strategy": _figure("strategy", None),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_one_damaged_run_does_not_hide_the_others(sealed: RunFolder, copied: Copy, what: str, tmp_path: Path) -> None:
    bad = copied("bad")
    DAMAGE[what](bad)
    found = page([Run(bad), Run(sealed)])
    assert [bool(run["problem"]) for run in found["runs"]] == [True, False]
    assert "cannot be read" in html(found)
    assert "damaged" in markdown(found)
    assert notebook(found)
    write_csv(found, tmp_path / "r.csv")


HALF = "half \ud800 a character"  # valid in JSON, and nothing that UTF-8 can write


@pytest.mark.parametrize("what", ["reason", "name", "damage", "environment", "choice", "path"])
def test_half_a_character_does_not_hide_the_others(sealed: RunFolder, copied: Copy, what: str, tmp_path: Path) -> None:
    odd = copied("odd-\udcff" if what == "path" else "odd")
    if what == "environment":
        change(odd.environment_file, lambda facts: facts.update(cpu=HALF, packages={HALF: HALF}))
    elif what == "choice":
        choice = {"path": HALF, "value": HALF, "reason": HALF}
        change(odd.job_file, lambda job: job.update(choices=[choice]))
    elif what == "damage":
        _figure("steps", HALF)(odd)
    elif what != "path":
        _figure(what, HALF)(odd)
    found = page([Run(odd), Run(sealed)])
    assert found["runs"][1]["problem"] is None
    for suffix in ("html", "md", "csv", "parquet", "ipynb"):
        write(found, tmp_path / f"r.{suffix}")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert sealed.name in text
    assert "\ufffd" in text or what == "damage"  # the message has it as JSON has it


def test_a_commit_that_is_none_is_not_known(copied: Copy) -> None:
    odd = copied("odd")
    change(odd.environment_file, lambda facts: facts.update(commit=[1], packages=[2], cpu={"a": 1}))
    found = page([Run(odd)])
    assert found["runs"][0]["problem"] is None
    assert found["runs"][0]["commit"] == {}
    assert html(found)


def test_a_run_cannot_call_itself_another(copied: Copy) -> None:
    liar = copied("liar")
    _figure("run", "somebody-else")(liar)
    assert page([Run(liar)])["every_run"]["rows"][0]["cells"]["run"] == "liar"
