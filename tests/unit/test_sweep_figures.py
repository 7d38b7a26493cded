"""Names of figures: known before anything starts, dotted ones too, and the same wherever one is asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from test_sweep_cli import says
from test_sweep_folder import make_run, record, sweep_file

from headway.bench.compare import run_samples
from headway.bench.conduct import prepare
from headway.bench.figures import NO_OUTCOME, NUMBERS, PARTS, check_figure, why_missing
from headway.bench.folder import SweepFolder, samples
from headway.bench.judge import Machine, judged
from headway.errors import SpecError
from headway.metrics.lookup import DERIVED, OF_SETTINGS
from headway.record.run import Run
from headway.spec.sweep import load_sweep

METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    return prepare(load_sweep(sweep_file(tmp_path)), tmp_path)


def test_every_name_in_a_runs_summary_is_known(sweep: SweepFolder) -> None:
    names = [*NUMBERS, *PARTS, *NO_OUTCOME]
    summary = Run(make_run(sweep, "batch-size-10", 0.1)).summary()
    assert sorted(names) == sorted(summary)
    for name, value in summary.items():
        if name in NUMBERS:
            assert value is None or isinstance(value, (int, float))
        if name in PARTS:
            assert value is None or isinstance(value, (dict, list))


def defined() -> set[str]:
    """Figures that begin a row of a table in docs/metrics.md: with a formula, and with what they are not."""
    rows = [line.split(" | ") for line in METRICS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    whole = [cells for cells in rows if len(cells) > 2 and all(cell.strip(" |") for cell in cells)]
    return {name for cells in whole for name in re.findall(r"`(\w+)`", cells[0])}


@pytest.mark.parametrize("name", [*NUMBERS, *DERIVED, *OF_SETTINGS])
def test_every_figure_is_defined_in_the_documentation(name: str) -> None:
    assert name in defined()


def test_seconds_of_an_epoch_are_of_the_data_that_the_job_asked(tmp_path: Path) -> None:
    sizes = {"workload.dataset.size": [1000, 3000]}
    sweep = prepare(load_sweep(sweep_file(tmp_path, vary=sizes, measure={"figure": "seconds_per_epoch"})), tmp_path)
    for size in (1000, 3000):
        record(sweep, f"size-{size}", 0.1)  # 100 examples in a step: 1,000 in a second
        trial = sweep.trial(f"size-{size}")
        assert samples(trial, "seconds_per_epoch") == [pytest.approx(size / 1000)]
        run = Run(trial.runs[0].folder)
        assert run_samples(run, "seconds_per_epoch") == [pytest.approx(size / 1000)]
        assert judged(run, "seconds_per_epoch", Machine())["value"] == pytest.approx(size / 1000)


@pytest.mark.parametrize(
    "name", ["accuracy", "cpus_per_node", "time_to_accuracy.0.9", "role_use.ps.rss.max", "task_usage.worker/0.cpus"]
)
def test_figures_are_known_by_name_and_by_dotted_name(name: str) -> None:
    check_figure(name, "measure.figure")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("example_per_s", "did you mean examples_per_s"),
        ("role_user.ps.rss.max", "did you mean role_use"),
        ("role_use", "several numbers; name one of them, such as role_use.ps.rss.max"),
        ("strategy", "no figure 'strategy'"),
        ("accuracy.final", "no figure 'accuracy.final'"),
    ],
)
def test_a_figure_that_no_run_has_is_refused_before_anything_starts(tmp_path: Path, name: str, message: str) -> None:
    loaded = load_sweep(sweep_file(tmp_path, measure={"figure": name}))
    with pytest.raises(SpecError, match=message):
        prepare(loaded, tmp_path)
    assert not (tmp_path / "sweeps").exists()
    with pytest.raises(SpecError, match=message):
        says(tmp_path, "sweeps", "show", "last", "--figure", name)


def test_a_published_table_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"published: no published table 'e1-scalng'; did you mean e1-scaling"):
        prepare(load_sweep(sweep_file(tmp_path, published="e1-scalng")), tmp_path)


def test_a_dotted_figure_is_the_same_for_sweeps_runs_and_tables(sweep: SweepFolder, tmp_path: Path) -> None:
    record(sweep, "batch-size-10", 0.1)
    trial = sweep.trial("batch-size-10")
    run = Run(trial.runs[0].folder)
    assert samples(trial, "step_seconds.median") == [pytest.approx(0.1)]
    assert run_samples(run, "step_seconds.median") == [pytest.approx(0.1)]
    assert judged(run, "step_seconds.median", Machine())["value"] == pytest.approx(0.1)
    assert samples(trial, "step_seconds.p101") == []
    assert "0.1" in says(tmp_path, "sweeps", "show", "last", "--figure", "step_seconds.median")
    with pytest.raises(SpecError, match="--figure: no figure"):
        says(tmp_path, "compare", sweep.name, sweep.name, "--figure", "example_per_s")


def test_a_run_without_that_figure_says_what_it_has_instead(sweep: SweepFolder) -> None:
    figures: dict[str, Any] = {
        "role_use": {"chief": {"rss": {"max": 1}}},
        "task_usage": [{"task": "chief/0"}],
        "loss": 1,
    }
    assert why_missing(figures, "role_use.ps.rss.max") == "it gave no role_use.ps.rss.max: role_use has chief"
    assert why_missing(figures, "task_usage.ps/0.cpus").endswith("task_usage has chief/0")
    run = Run(make_run(sweep, "batch-size-10", 0.1))
    assert judged(run, "accuracy", Machine()) == {"state": "failed", "reason": "it gave no accuracy"}
