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

from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.report.files import write_csv, write_parquet
from headway.report.page import page

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
    with pytest.raises((ValueError, TypeError)):
        Run(folder).summary()
    assert not stolen.exists()
