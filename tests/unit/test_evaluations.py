"""The evaluations as sweeps: every example can be planned, in its local form and in full, and every conclusion names a
sweep, a function and settings that are there."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from headway.bench.plan import Plan, make_plan
from headway.metrics.conclusions import FUNCTIONS, judge
from headway.metrics.published import Conclusion, tables
from headway.spec.sweep import load_sweep

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


def test_every_sweep_of_an_evaluation_is_known_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("e[1-5]-*.yaml")} == {*TRIALS, *JOBS}


@pytest.mark.parametrize("name", TRIALS)
def test_a_sweep_has_its_trials(name: str) -> None:
    for full in (False, True):
        found = plan(name, full)
        assert found.grid == TRIALS[name][full]
        assert [trial.left_out for trial in found.trials if trial.left_out] == []


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
    if conclusion.not_testable:
        assert judge(conclusion, None).verdict == "not testable here"
        return
    assert conclusion.sweep in TRIALS
    arguments = dict(conclusion.test or {})
    function = FUNCTIONS[arguments.pop("function")]
    inspect.signature(function).bind([], **arguments)
    found = plan(conclusion.sweep or "")
    trials = [*found.trials, *(each for group in found.groups for each in (*group.candidates, *group.finals))]
    for side in ("when", "than"):  # there are trials on both sides
        wanted = arguments.get(side, {})
        assert any(
            all(
                {**trial.settings, "tasks": trial.tasks, "baseline": trial.is_baseline}.get(key) == value
                for key, value in wanted.items()
            )
            for trial in trials
        ), (table, wanted)
    if "factor" in arguments:
        assert any(trial.settings.get(arguments["factor"]) == arguments["value"] for trial in trials)
    assert judge(conclusion, None).verdict == "not measured yet"


@pytest.mark.parametrize("line", RESULTS.read_text(encoding="utf-8").splitlines(), ids=lambda line: line[:40])
def test_what_was_measured_are_trials_of_the_example_as_it_is_now(line: str) -> None:
    """Else a page would judge conclusions by an experiment that is no longer the one it names."""
    result = json.loads(line)
    found = plan(result["sweep"])
    planned = [*found.trials, *(each for group in found.groups for each in (*group.candidates, *group.finals))]
    settings = [json.loads(json.dumps(trial.settings)) for trial in planned]
    assert [trial["name"] for trial in result["trials"] if trial["settings"] not in settings] == []
