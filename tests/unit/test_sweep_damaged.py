"""A sweep of which something is missing or damaged is named by every command, and hides no other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_sweep_folder import record, sweep_file
from typer.testing import CliRunner

from headway.bench.conduct import prepare
from headway.bench.folder import SweepFolder
from headway.cli import app
from headway.errors import FormatError
from headway.record.reader import read_json
from headway.record.tables import is_sealed
from headway.spec.sweep import load_sweep


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    """Two runs of one trial."""
    root = tmp_path_factory.mktemp("made")
    sweep = prepare(load_sweep(sweep_file(root, vary={"workload.batch_size": [10]})), root)
    for repeat in range(2):
        record(sweep, "batch-size-10", 0.1, repeat)
    return sweep


@pytest.fixture
def measured(made: SweepFolder, tmp_path: Path) -> SweepFolder:
    """A copy, to be damaged."""
    return SweepFolder(shutil.copytree(made.path, tmp_path / "sweeps" / made.name))


def change(sweep: SweepFolder, /, **facts: Any) -> None:
    """What sweep.json says; None: nothing."""
    kept = {**sweep.facts, **facts}
    sweep.file.write_text(json.dumps({name: value for name, value in kept.items() if value is not None}))


def lose_a_field(sweep: SweepFolder) -> None:
    with sweep.trials_file.open("a") as file:
        file.write(json.dumps({"t": 1.0, "kind": "ended", "trial": "batch-size-10", "state": "finished"}) + "\n")


DAMAGE: dict[str, tuple[Callable[[SweepFolder], None], str]] = {
    "no plan": (lambda sweep: change(sweep, plan=None), "sweep.json: damaged (it has no `plan`"),
    "no sweep": (lambda sweep: change(sweep, sweep=None), "sweep.json: damaged (it has no `sweep`"),
    "a trial without settings": (lambda sweep: change(sweep, plan=[{"key": "x"}]), "is damaged (KeyError: "),
    "a plan of numbers": (lambda sweep: change(sweep, plan=[1, 2]), "is damaged (TypeError: "),
    "an event without its run": (lose_a_field, "is damaged (KeyError: 'run')"),
}


def failure(*arguments: str) -> FormatError:
    """Of a command that must end with a message of ours."""
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, FormatError), repr(error)
    assert error.exit_code == 7
    return error


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_sweep_is_named_by_every_command(measured: SweepFolder, tmp_path: Path, what: str) -> None:
    damage, words = DAMAGE[what]
    damage(measured)
    runs = ("--runs", str(tmp_path))
    for command in (
        ("compare", measured.name, measured.name),
        ("sweeps", "show", measured.name),
        ("report", measured.name, "-o", str(tmp_path / "r.md")),
        ("report", str(measured.path), "-o", str(tmp_path / "r.md")),
    ):
        said = str(failure(*command, *runs))
        assert words in said
        assert measured.name in said


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_sweep_hides_no_other(measured: SweepFolder, tmp_path: Path, what: str) -> None:
    other = prepare(load_sweep(sweep_file(tmp_path)), tmp_path)
    DAMAGE[what][0](measured)
    listed = CliRunner().invoke(app, ["sweeps", "--runs", str(tmp_path), "-o", "json"])
    assert listed.exit_code == 0, repr(listed.exception)
    assert [each["sweep"] for each in json.loads(listed.stdout)] == [other.name]
    assert measured.name in listed.stderr


def test_a_sweep_that_says_no_time_is_listed_all_the_same(measured: SweepFolder, tmp_path: Path) -> None:
    change(measured, created="yesterday")
    listed = CliRunner().invoke(app, ["sweeps", "--runs", str(tmp_path)])
    assert listed.exit_code == 0, repr(listed.exception)
    assert measured.name in listed.stdout


@pytest.mark.parametrize(
    ("lost", "number"),
    [(None, 0), (None, 1), ("environment.json", 0), ("environment.json", 1), ("job.json", 0)],
)
def test_a_comparison_with_a_run_that_was_deleted_names_it(
    measured: SweepFolder, tmp_path: Path, lost: str | None, number: int
) -> None:
    run = measured.trials()[0].runs[number].folder
    if lost:
        (run.path / lost).unlink()
    else:
        shutil.rmtree(run.path)
    said = str(failure("compare", measured.name, measured.name, "--runs", str(tmp_path)))
    assert run.name in said
    assert "missing" in said


def test_a_report_of_a_sweep_with_a_deleted_run_has_the_others(measured: SweepFolder, tmp_path: Path) -> None:
    gone, kept = (each.folder for each in measured.trials()[0].runs)
    shutil.rmtree(gone.path)
    done = CliRunner().invoke(app, ["report", measured.name, "-o", str(tmp_path / "r.md"), "--runs", str(tmp_path)])
    assert done.exit_code == 0, repr(done.exception)
    assert f"{gone.name}: " in done.stderr
    assert kept.name in (tmp_path / "r.md").read_text()


def test_a_file_that_may_not_be_there_yet_is_no_damage_to_who_expects_that(
    measured: SweepFolder, tmp_path: Path
) -> None:
    run = measured.trials()[0].runs[0].folder
    assert is_sealed(run)
    (run.tables / "sealed.json").unlink()
    assert not is_sealed(run)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "nothing.json", 1)
