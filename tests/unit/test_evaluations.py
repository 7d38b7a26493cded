"""The evaluations as sweeps: every example can be planned, in its local form and in full, and every conclusion names a
sweep, a function and settings that are there."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.bench.conduct import prepare
from headway.bench.figures import check_figure
from headway.bench.folder import SweepFolder
from headway.bench.plan import Plan, Planned, make_plan
from headway.metrics.conclusions import FUNCTIONS, judge
from headway.metrics.factors import Measured
from headway.metrics.published import Conclusion, tables
from headway.spec.load import parse_job
from headway.spec.machines import machine
from headway.spec.resolve import resolve
from headway.spec.sweep import load_sweep

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from evaluations import asked_by, example_of, newest

EXAMPLES = Path(__file__).parents[2] / "examples"
RESULTS = EXAMPLES.parent / "benchmarks" / "results" / "evaluations.jsonl"
# Trials (searched ones: all candidates, and the best on real data), and of the original method.
TRIALS = {
    "e1-accuracy": (2, 6),
    "e1-scaling": (6, 6),
    "e1-servers": (2, 2),
    "e1-tuning": (4, 4),
    "e2-devices": (2, 2),
    "e2-network": (6, 6),
    "e2-scaling": (11, 61),
    "e3-accuracy": (2, 4),
    "e3-alexnet": (6, 9),
    "e3-batch": (6, 6),
    "e3-softmax": (5, 5),
    "e4-autoencoder": (16, 16),  # the grid of 12, and a single machine for each size and data
    "e4-transformer": (16, 16),
    "e5-cluster": (4, 4),
    "e5-credits": (1, 1),
    "e5-modes": (2, 2),
}
JOBS = {"e1-emulated", "e4-layouts"}
CONCLUSIONS = [(table.name, each) for table in tables().values() for each in table.conclusions]


def plan(name: str, full: bool = False) -> Plan:
    return make_plan(load_sweep(EXAMPLES / f"{name}.yaml", full=full), num_cores=2)


def planned(found: Plan) -> list[Planned]:
    """Every trial that there may be."""
    return [*found.trials, *(each for group in found.groups for each in (*group.candidates, *group.finals))]


def test_every_sweep_of_an_evaluation_is_known_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("e[1-5]-*.yaml")} == {*TRIALS, *JOBS}


@pytest.mark.parametrize("name", TRIALS)
def test_a_sweep_has_its_trials(name: str) -> None:
    for full in (False, True):
        found = plan(name, full)
        assert found.grid == TRIALS[name][full]
        assert [trial.left_out for trial in found.trials if trial.left_out] == []


@pytest.mark.parametrize("name", TRIALS)
def test_the_original_method_runs_on_the_original_machines(name: str) -> None:
    """Numbers of the local form win over a type's: none of them may be left."""
    for trial in planned(plan(name, full=True)):
        site = resolve(parse_job(trial.job), num_cores=2, core_speed=1.0).job.site
        for kind, node in site.nodes.items() if site.kind == "emulated" else ():
            if node.type is None:
                assert name.startswith("e4-")  # of E4's machines only this is known
                assert (node.cpus, node.memory) == (8, 16 * 2**30)
                continue
            known = machine(node.type)
            assert node.memory == known.memory
            assert node.cpus == known.cpus or node.speed
            assert node.rate == known.network or f"site.nodes.{kind}.rate" in trial.settings


@pytest.mark.parametrize("name", TRIALS)
def test_a_sweep_names_its_published_table(name: str) -> None:
    published = load_sweep(EXAMPLES / f"{name}.yaml").sweep.published_tables
    assert published
    assert set(published) <= set(tables())


def test_every_table_names_a_sweep_that_is_there() -> None:
    assert {table.sweep for table in tables().values() if table.sweep} <= set(TRIALS)


@pytest.mark.parametrize(
    ("table", "conclusion"), CONCLUSIONS, ids=[f"{name}:{each.name}" for name, each in CONCLUSIONS]
)
def test_a_conclusion_can_be_judged_from_its_sweep(table: str, conclusion: Conclusion) -> None:
    if conclusion.test is None:
        wanted = "not testable here" if conclusion.not_testable else "contradictory in the source"
        assert judge(conclusion, None).verdict == wanted
        return
    assert conclusion.sweep in TRIALS
    assert judge(conclusion, None).verdict == "not measured yet"
    for is_full in (False, True):
        arguments = {**(conclusion.test or {}), **(conclusion.full if is_full else {})}
        function, only = FUNCTIONS[arguments.pop("function")], arguments.pop("only", {})
        inspect.signature(function).bind([], **arguments)
        for part in arguments["figure"].split(" / "):
            check_figure(part, conclusion.name)
        arguments["only"] = only
        check_trials(arguments, planned(plan(conclusion.sweep or "", is_full)), table)


def check_trials(arguments: dict[str, Any], trials: list[Planned], table: str) -> None:
    """There are such as the conclusion compares."""
    measured = [Measured(each.settings, each.tasks, each.is_baseline, each.data, ()) for each in trials]
    for side in ("when", "than"):
        wanted = arguments.get(side, {})
        assert any(one.matches(wanted) and one.matches(arguments["only"]) for one in measured), (table, wanted)
    if "value" in arguments:
        assert any(trial.settings.get(arguments["factor"]) == arguments["value"] for trial in trials)


@pytest.mark.parametrize("line", RESULTS.read_text(encoding="utf-8").splitlines(), ids=lambda line: line[:40])
def test_what_was_measured_is_the_example_as_it_is_now(line: str) -> None:
    """Else a page would judge conclusions by an experiment that is no longer the one it names."""
    result = json.loads(line)
    assert result["asked"] == asked_by(example_of(result["sweep"]))
    settings = [json.loads(json.dumps(trial.settings)) for trial in planned(plan(result["sweep"]))]
    assert [trial["name"] for trial in result["trials"] if trial["settings"] not in settings] == []


def test_results_of_an_older_form_are_not_collected(tmp_path: Path) -> None:
    example = tmp_path / "e3-batch.yaml"
    text = example_of("e3-batch").read_text(encoding="utf-8")
    for batch in (100, 64):  # the second one is another experiment, of the same name
        example.write_text(text.replace("batch_size: 100", f"batch_size: {batch}"), encoding="utf-8")
        prepare(load_sweep(example), tmp_path)
    older, other = SweepFolder.all(tmp_path)
    assert older.spec.name == other.spec.name == "e3-batch"
    found = newest(example_of("e3-batch"), tmp_path)
    assert found is not None
    assert found.name == older.name
