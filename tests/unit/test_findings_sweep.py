"""Findings of a sweep's folder: what its trials say together, and what was found in their runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_sweep_folder import record, sweep_file
from typer.testing import CliRunner

from headway.bench.conduct import prepare
from headway.bench.folder import SweepFolder
from headway.cli import app
from headway.cli.findings import in_common
from headway.findings import Finding, of_sweep
from headway.findings.sweeps import read_sweep
from headway.spec.sweep import load_sweep

JOB = {
    "workload": {"model": "softmax", "dataset": "synthetic", "batch_size": 100},
    "strategy": "ps-async",
    "cluster": {"training": 1, "ps": 1},
}


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    """One and two servers, and no difference between them."""
    asked = sweep_file(tmp_path, job=JOB, vary={"cluster.ps": [1, 2]})
    made = prepare(load_sweep(asked), tmp_path)
    for trial in made.trials():
        for repeat in (0, 1):
            record(made, trial.key, 0.2 + 0.001 * repeat, repeat)
    return made


def test_trials_are_read_with_their_settings_and_rates(sweep: SweepFolder) -> None:
    (found,) = [one for one in of_sweep(sweep) if one.rule == "server_count"]
    assert found.title == "One server is enough"
    assert found.run == sweep.name
    assert "1: 49" in found.text


def test_trials_are_read_with_the_work_that_they_are(sweep: SweepFolder) -> None:
    """By which it is known whether two of them may be compared."""
    first, second = read_sweep(sweep).trials
    assert first.workload["batch_size"] == first.asked_batch == 100
    assert "stop" not in first.workload
    assert first.is_same_work(second)


def test_the_command_takes_a_sweep(sweep: SweepFolder) -> None:
    shown = CliRunner().invoke(app, ["findings", sweep.name], env={"HEADWAY_RUNS": str(sweep.path.parents[1])})
    assert shown.exit_code == 0, shown.output
    assert "One server is enough" in shown.output


def test_findings_of_several_runs_are_told_once_with_their_number() -> None:
    def one(run: str, rule: str, certainty: str) -> Finding:
        return Finding(rule, rule, "r", f"{rule} here", certainty, True, "", (), run)  # type: ignore[arg-type]

    found = in_common([[one("a", "fabric", "possible")], [one("b", "fabric", "certain")], []])
    assert [each.text for each in found] == ["In 2 of 3 runs; in b: fabric here"]
