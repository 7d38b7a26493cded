"""What users see of sweeps: plans, tables, comparisons and refusals."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from test_sweep_folder import record, sweep_file
from typer.testing import CliRunner

from headway.bench.conduct import prepare
from headway.bench.folder import SweepFolder
from headway.bench.search import choice_text
from headway.cli import app
from headway.cli.bench import Show
from headway.cli.sweeps import interval_text, print_csv
from headway.errors import NotFound, SiteError, SpecError
from headway.metrics.estimate import estimate
from headway.spec.sweep import load_sweep


def says(root: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--runs", str(root)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def measured(tmp_path: Path) -> SweepFolder:
    sweep = prepare(load_sweep(sweep_file(tmp_path)), tmp_path)
    for repeat, seconds in enumerate((0.1, 0.125)):
        record(sweep, "batch-size-10", seconds, repeat, marks=["loaded"] if repeat else [])
    events = sweep.writer()
    events.write("ended", trial="batch-size-20", repeat=0, run="", state="failed", reason="out of memory", seconds=1.0)
    events.write("finished")
    events.close()
    return sweep


def test_a_dry_run_shows_every_trial_and_why_some_are_left_out_and_makes_nothing(tmp_path: Path) -> None:
    path = sweep_file(tmp_path, vary={"cluster.training": [1, 4]}, set={"strategy": "allreduce"}, quota={"vcpus": 2})
    shown = says(tmp_path, "bench", str(path), "--dry-run")
    assert "2 trials, 3 runs of each, 10 measured steps of each task" in shown
    assert "quota: it needs 4 vCPUs, and at most 2 may be used" in shown
    assert json.loads(says(tmp_path, "bench", str(path), "--dry-run", "-o", "json"))["trials"][0]["tasks"] == 1
    table = list(csv.DictReader(io.StringIO(says(tmp_path, "bench", str(path), "--dry-run", "-o", "csv"))))
    assert [(row["key"], row["tasks"]) for row in table] == [("training-1", "1"), ("training-4", "4")]
    assert not (tmp_path / "sweeps").exists()


def test_what_is_left_out_is_said_with_its_reason_before_anything_starts(tmp_path: Path) -> None:
    vary = {"cluster.training": [1, 4, 5]}
    path = sweep_file(tmp_path, vary=vary, set={"strategy": "allreduce"}, quota={"tasks": 3})
    stream = io.StringIO()
    Show(stream).begin(prepare(load_sweep(path), tmp_path))
    assert stream.getvalue().splitlines()[1:] == [
        "left out   training-4: quota: it has 4 tasks, and at most 3 may be used",
        "left out   training-5: quota: it has 5 tasks, and at most 3 may be used",
    ]


def test_candidates_of_a_search_that_are_left_out_are_said_too(tmp_path: Path) -> None:
    job = {
        "workload": {"model": "softmax", "dataset": "synthetic"},
        "strategy": "ps-async",
        "cluster": {"training": 2, "ps": 1},
    }
    path = sweep_file(tmp_path, job=job, vary={"cluster.ps": {"best_of": [1, 9]}}, quota={"tasks": 4})
    stream = io.StringIO()
    Show(stream).begin(prepare(load_sweep(path), tmp_path))
    assert "left out   ps-9: quota: it has 11 tasks, and at most 4 may be used" in stream.getvalue()


def test_a_dry_run_of_a_search_says_what_it_chooses_from(tmp_path: Path) -> None:
    job = {
        "workload": {"model": "softmax", "dataset": "mnist"},
        "strategy": "ps-async",
        "cluster": {"training": 2, "ps": 1},
    }
    path = sweep_file(tmp_path, job=job, vary={"cluster.ps": {"best_of": [1, 2]}})
    shown = says(tmp_path, "bench", str(path), "--dry-run")
    assert "the best cluster.ps of 1, 2 on synthetic data, then the best on real data" in shown


def test_a_dry_run_of_what_goes_on_shows_what_is_open_and_starts_nothing(measured: SweepFolder, tmp_path: Path) -> None:
    before = measured.trials_file.read_text()
    shown = says(tmp_path, "bench", "--resume", "last", "--dry-run")
    assert "open are 2 trials, 5 runs in all" in shown
    assert "2 runs without a mark are missing" in shown
    found = json.loads(says(tmp_path, "bench", "--resume", "last", "--dry-run", "-o", "json"))
    assert [(each["trial"], each["made"], each["open"]) for each in found["trials"]] == [
        ("batch-size-10", 2, 2),
        ("batch-size-20", 1, 3),
    ]
    assert measured.trials_file.read_text() == before
    with pytest.raises(SpecError, match=r"--parallel 2: .* was begun with 1"):
        says(tmp_path, "bench", "--resume", "last", "--parallel", "2", "--dry-run")


def test_a_sweep_is_shown_with_interval_doubts_and_failures(measured: SweepFolder, tmp_path: Path) -> None:
    shown = says(tmp_path, "sweeps", "show", "last")
    line = next(line for line in shown.splitlines() if line.startswith("batch_size 10"))
    assert "80 to 100" in line
    assert "loaded 1 of 2" in line
    assert "failed     batch_size 20: out of memory" in shown
    assert measured.name in says(tmp_path, "sweeps")
    assert says(tmp_path, "sweeps", "path", "last").strip() == str(measured.path)


def footer(root: Path, *arguments: str) -> str:
    return says(root, "sweeps", "show", "last", *arguments).split("\n\n")[-1]


def test_the_footer_says_what_intervals_are_and_how_sure(measured: SweepFolder, tmp_path: Path) -> None:
    said = footer(tmp_path)
    assert "median of the runs, with a 95 % bootstrap interval" in said
    assert "missing: runs until the 95 % interval of examples/s is within +/- 5 %" in said
    assert "of 2 runs such an interval is sure to 50% at most" in said
    other = footer(tmp_path, "--figure", "steps_per_s")
    assert other.startswith("steps/s: median")
    assert "interval of examples/s is within" in other  # for that one runs are repeated
    for repeat in range(2, 7):
        record(measured, "batch-size-10", 0.1, repeat)
    assert "sure to" not in footer(tmp_path)


@pytest.mark.parametrize(
    ("statistic", "footer_says", "row_says"),
    [
        ("mean", "mean of the runs, +/- its standard error", "+/- 10 (jitter"),
        ("mlperf", "mean without the best and the worst run", "not known"),
    ],
)
def test_an_interval_is_what_the_footer_says_and_none_where_it_is_not_known(
    tmp_path: Path, statistic: str, footer_says: str, row_says: str
) -> None:
    path = sweep_file(tmp_path, measure={"repeats": 3, "steps": 10, "statistic": statistic})
    sweep = prepare(load_sweep(path), tmp_path)
    for repeat, seconds in enumerate((0.1, 0.125)):
        record(sweep, "batch-size-10", seconds, repeat)
    shown = says(tmp_path, "sweeps", "show", "last")
    assert footer_says in shown
    assert "sure to" not in shown
    assert row_says in next(line for line in shown.splitlines() if line.startswith("batch_size 10"))


def test_estimates_without_an_interval_say_so() -> None:
    assert interval_text(estimate([100.0])) == "100 (one run)"
    assert interval_text(estimate([100.0, 101.0, 102.0], "mlperf")) == "101 (interval not known)"
    event = {"group": "ps", "path": "cluster.ps", "value": 1, "tried": [1, 2], "skipped": [], "may_lose": None}
    assert "with so few runs of each" in choice_text(event)


def test_rows_of_a_table_for_programs_may_have_other_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_csv([{"name": "a", "why": "A has none"}, {"name": "b", "ratio_value": 2.0}])
    assert capsys.readouterr().out == "name,why,ratio_value\na,A has none,\nb,,2.0\n"


def test_programs_get_the_same_as_json_and_csv(measured: SweepFolder, tmp_path: Path) -> None:
    value = json.loads(says(tmp_path, "sweeps", "show", measured.name, "-o", "json"))
    (first, second) = value["trials"]
    assert first["samples"] == [pytest.approx(100), pytest.approx(80)]
    assert (first["value"], first["runs"], first["missing"]) == (pytest.approx(90), 2, 2)
    assert (second["state"], second["reason"]) == ("failed", "out of memory")
    table = list(csv.DictReader(io.StringIO(says(tmp_path, "sweeps", "show", measured.name, "-o", "csv"))))
    assert float(table[0]["value"]) == pytest.approx(90)
    assert json.loads(table[0]["settings"]) == {"workload.batch_size": 10}
    (listed,) = json.loads(says(tmp_path, "sweeps", "-o", "json"))
    assert (listed["sweep"], listed["done"], listed["failed"]) == (measured.name, 1, 1)


def test_a_comparison_is_in_words_and_names_doubtful_runs(measured: SweepFolder, tmp_path: Path) -> None:
    shown = says(tmp_path, "compare", measured.name, measured.name)
    assert "no clear difference" in shown
    assert "A: runs that are marked had to be taken in 1 of 1 trial (loaded)" in shown


def test_mistakes_are_refused_with_one_message(measured: SweepFolder, tmp_path: Path) -> None:
    path = str(sweep_file(tmp_path))
    with pytest.raises(SiteError, match="each trial needs cores of its own"):
        says(tmp_path, "bench", path, "--parallel", "100000")
    with pytest.raises(SpecError, match="--budget 'soon'"):
        says(tmp_path, "bench", path, "--budget", "soon")
    with pytest.raises(SpecError, match="which sweep"):
        says(tmp_path, "bench")
    with pytest.raises(SpecError, match="give no file"):
        says(tmp_path, "bench", path, "--resume", measured.name)
    with pytest.raises(NotFound, match="no sweep 'other'"):
        says(tmp_path, "bench", "--resume", "other")
