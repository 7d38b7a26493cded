"""Findings of a sweep's folder: what its trials say together, and what was found in their runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_sweep_folder import record, sweep_file
from typer.testing import CliRunner

from headway.bench.conduct import prepare
from headway.bench.folder import SweepFolder
from headway.cli import app
from headway.cli.findings import in_common
from headway.findings import Finding, evidence, of_sweep
from headway.findings.facts import Facts
from headway.findings.sweeps import read_sweep
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.report.found import no_trouble
from headway.report.markdown import markdown
from headway.report.page import page
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
    first, second = read_sweep(sweep.name, sweep.trials(), lambda _: True).trials
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


# --- losses ------------------------------------------------------------------------------------------------------
def no_faster(folder: Path, **fields: Any) -> SweepFolder:
    """Two tasks that are no faster than the single machine, and nothing recorded that says why."""
    asked = sweep_file(folder, job=JOB, vary={"cluster.training": [2]}, baseline={"strategy": "single"})
    made = prepare(load_sweep(asked), folder)
    for trial in made.trials():
        for repeat in (0, 1):
            record(made, trial.key, 0.2 + 0.001 * repeat, repeat, steps={"input_seconds": 0.0}, **fields)
    return made


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    return no_faster(tmp_path_factory.mktemp("slow"))


LOSS = "The loss is not explained: no rule found what its runs waited for."


@pytest.mark.parametrize("command", [["findings"], ["sweeps", "show"]])
def test_a_loss_that_nothing_explains_is_said_by_every_command_about_a_sweep(
    slow: SweepFolder, command: list[str]
) -> None:
    shown = CliRunner().invoke(app, [*command, slow.name], env={"HEADWAY_RUNS": str(slow.path.parents[1])})
    assert shown.exit_code == 0, shown.output
    assert LOSS in " ".join(shown.output.split())
    assert "training 2 is 1 times as fast as" in " ".join(shown.output.split())


def test_a_report_says_so_too_of_a_sweep_and_of_the_same_runs_one_by_one(slow: SweepFolder) -> None:
    runs = [Run(each.folder) for trial in slow.trials() for each in trial.runs]
    for made in (page([], [slow]), page(runs)):
        assert no_trouble(made) is None
        (found,) = [one for one in made["findings"] if one["rule"] == "unexplained"]
        assert LOSS in found["cases"][0]["text"]
        assert LOSS in markdown(made).replace("\\", "")


def test_a_sweep_is_shown_with_every_run_read_once(slow: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its summary, and of runs that fall short of ideal also the samples: the baseline's are not looked at."""
    summaries: list[str] = []
    asked: list[str] = []
    read_json, read_facts = RunFolder.read, evidence.read

    def noted(folder: RunFolder, file: Path) -> dict[str, Any]:
        if file.name == "result.json":
            summaries.append(folder.name)
        return read_json(folder, file)

    def looked(run: Run, *more: Any) -> Facts:
        asked.append(run.name)
        return read_facts(run, *more)

    monkeypatch.setattr(RunFolder, "read", noted)
    monkeypatch.setattr(evidence, "read", looked)
    shown = CliRunner().invoke(app, ["sweeps", "show", slow.name], env={"HEADWAY_RUNS": str(slow.path.parents[1])})
    assert LOSS in " ".join(shown.output.split())
    names = {trial.is_baseline: [run.folder.name for run in trial.runs] for trial in slow.trials()}
    assert sorted(summaries) == sorted(names[True] + names[False])
    assert sorted(asked) == sorted(names[False])


def test_a_finding_in_a_run_explains_its_loss(slow: SweepFolder) -> None:
    assert [one.rule for one in of_sweep(slow, lambda _: False)] == ["unexplained"]
    assert of_sweep(slow, lambda _: True) == []


def test_nothing_is_certain_of_a_sweep_beside_other_work(slow: SweepFolder, tmp_path: Path) -> None:
    assert {one.certainty for one in of_sweep(slow, lambda _: False)} == {"certain"}
    loaded = no_faster(tmp_path, marks=["loaded"])
    assert {one.certainty for one in of_sweep(loaded, lambda _: False)} == {"possible"}
