"""What a sweep decides between its runs: who is next, what a budget leaves out, what a search needs. No run is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_sweep_folder import sweep_file

from headway.bench.conduct import _Conductor, fits, prepare
from headway.bench.folder import SweepFolder, Trial
from headway.bench.lanes import Alone
from headway.bench.making import Order
from headway.cli.bench import budget_lines
from headway.metrics.estimate import Estimate
from headway.spec.sweep import load_sweep

SEARCH: dict[str, Any] = {
    "job": {
        "workload": {"model": "softmax", "dataset": "mnist"},
        "strategy": "ps-async",
        "cluster": {"training": 2, "ps": 1},
    },
    "vary": {"cluster.ps": {"best_of": [1, 2, 3]}},
    "measure": {"repeats": 1, "steps": 10},
}


class Told:
    """Keeps what a user would see."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.left: list[float] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def running(self, trial: Trial, number: int, total: int, repeat: int, left: float) -> None:
        del trial, number, total, repeat
        self.left.append(left)

    def ended(self, trial: Trial, event: dict[str, Any], found: Estimate | None, left: float) -> None: ...
    def chosen(self, event: dict[str, Any]) -> None: ...


class Session:
    """A session of a sweep whose runs are made up: each has a value and takes so many seconds."""

    def __init__(self, sweep: SweepFolder, budget: float | None = None) -> None:
        self.sweep, self.told = sweep, Told()
        self.conductor = _Conductor(sweep, self.told, budget, Alone())
        self.conductor.events.write("begun", budget=budget)

    def next(self) -> str | None:
        trial = self.conductor._next()
        return trial.key if trial else None

    def begin(self) -> str | None:
        """Of several at once: the next one is under way from now on."""
        trial = self.conductor._next()
        if trial is None:
            return None
        repeat = self.conductor._repeat(trial)
        self.conductor.under_way.append(Order(trial.key, repeat, trial.job, "examples_per_s", ""))
        return f"{trial.key} {repeat}"

    def end(self, key: str, value: float = 100.0, seconds: float = 10.0) -> None:
        fields: dict[str, Any] = {"run": f"{key}-{len(self.sweep.trial(key).runs)}", "state": "finished", "marks": []}
        repeat = len(self.sweep.trial(key).runs)
        self.conductor.events.write("ended", trial=key, repeat=repeat, value=value, seconds=seconds, **fields)


def new_sweep(root: Path, **changes: Any) -> SweepFolder:
    return prepare(load_sweep(sweep_file(root, **changes)), root)


def test_a_budget_goes_to_runs_that_still_fit_and_each_reason_has_its_own_time(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path)
    session = Session(sweep, budget=60.0)
    session.end("batch-size-10", seconds=1000.0)
    for _ in range(2):
        session.end("batch-size-20", seconds=30.0)
    assert session.next() == "batch-size-20"  # the other one has had fewer runs, and would take too long
    assert session.told.left[0] <= 60.0
    session.end("batch-size-20", seconds=30.0)
    assert session.next() is None
    reason = sweep.trial("batch-size-10").reason
    assert reason is not None
    assert reason.startswith("budget 1 min 00 s: 2 more runs; a run takes about 16 min 40 s")
    assert sweep.trial("batch-size-20").reason is None


def test_a_search_without_its_end_is_recorded(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path, **SEARCH)
    session = Session(sweep, budget=1.0)
    assert session.next() is None  # a run is guessed to take longer
    (event,) = sweep.not_found
    assert (event["group"], event["path"]) == ("ps", "cluster.ps")
    assert "was not found within the budget" in session.told.lines[0]
    Session(sweep)
    assert sweep.not_found == []


def test_what_is_left_of_a_search_that_has_chosen_is_its_best_on_real_data(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path, **SEARCH)
    assert fits(sweep, 1e6).wanted == 4
    session = Session(sweep)
    for expected, value in (("ps-2-synthetic", 90.0), ("ps-1-synthetic", 100.0)):
        assert session.next() == expected
        session.end(expected, value)
    assert session.next() == "ps-1-real"
    assert fits(sweep, 1e6).wanted == 1  # the third candidate is not wanted any more


def test_a_baseline_that_is_the_best_is_chosen_and_not_run_twice(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path, **SEARCH, baseline={"cluster.ps": 1})
    session = Session(sweep)
    session.end("ps-1-real", value=80.0)
    made = ["ps-1-real"]
    while (key := session.next()) is not None:
        made.append(key)
        session.end(key, value={"ps-1-synthetic": 100.0, "ps-2-synthetic": 90.0}.get(key, 80.0))
    assert sorted(made) == ["ps-1-real", "ps-1-synthetic", "ps-2-synthetic"]
    assert [(event["value"], event["best"]) for event in sweep.choices] == [(1, "ps-1-synthetic")]
    assert all(trial.state == "done" for trial in sweep.trials())


def test_what_is_under_way_counts_as_made_and_no_two_runs_have_one_seed(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path)  # two trials, three repeats
    session = Session(sweep)
    begun = [session.begin() for _ in range(7)]
    assert begun[6] is None  # whether there is need of more follows from what is under way
    assert sorted(map(str, begun[:6])) == [f"batch-size-{size} {repeat}" for size in (10, 20) for repeat in range(3)]
    assert {str(each).rpartition(" ")[2] for each in begun[:2]} == {"0"}  # trials take turns, here too


def test_a_candidate_that_is_under_way_is_not_judged_yet(tmp_path: Path) -> None:
    session = Session(new_sweep(tmp_path, **SEARCH))
    assert session.begin() == "ps-2-synthetic 0"
    assert session.begin() is None
    assert session.sweep.choices == []


def test_a_budget_leaves_nothing_out_while_runs_are_under_way(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path)
    session = Session(sweep, budget=40.0)
    session.begin()
    session.end("batch-size-20", seconds=1000.0)
    session.end("batch-size-10", seconds=1000.0)
    assert session.begin() is None
    assert [trial.state for trial in sweep.trials()] == ["done", "done"]
    assert [event for event in sweep.events() if event["kind"] == "left_out"] == []
    session.conductor.under_way.clear()
    assert session.begin() is None
    assert [event["trial"] for event in sweep.events() if event["kind"] == "left_out"] != []


@pytest.mark.parametrize(("budget", "who"), [(20.0, "no run at all: batch-size-"), (40.0, "fewer runs than asked: ")])
def test_a_budget_says_beforehand_who_gets_less_and_that_it_guesses(tmp_path: Path, budget: float, who: str) -> None:
    sweep = new_sweep(tmp_path)
    first, *rest = budget_lines(fits(sweep, budget), budget)
    assert "of 6 runs will fit; a run is guessed to take 15.0 s" in first
    assert any(who in line for line in rest)
    assert budget_lines(fits(sweep, 1000.0), 1000.0)[0].startswith("budget 16 min 40 s: all of 6 runs will fit")


def test_a_run_may_be_a_little_longer_than_the_budget_and_not_much(tmp_path: Path) -> None:
    session = Session(new_sweep(tmp_path), budget=100.0)
    assert session.conductor._limit() == pytest.approx(130.0, abs=1.0)
    assert Session(session.sweep, budget=1000.0).conductor._limit() == pytest.approx(1100.0, abs=1.0)
    assert Session(session.sweep).conductor._limit() is None


def test_a_run_that_was_stopped_for_the_budget_is_left_out_with_its_time_and_ends_nothing(tmp_path: Path) -> None:
    session = Session(new_sweep(tmp_path), budget=100.0)
    key = session.next()
    assert key is not None
    order = Order(key, 0, {}, "examples_per_s", "")
    session.conductor.under_way.append(order)
    session.conductor._ended(order, {"run": "a", "state": "interrupted", "is_cut": True, "seconds": 110.0})
    assert not session.conductor._is_stopping
    session.conductor.began -= 110.0
    assert session.next() is None
    (reason,) = [
        event["reason"] for event in session.sweep.events() if event.get("trial") == key and event["kind"] == "left_out"
    ]
    assert "its run was stopped; a run takes more than 1 min 50 s" in reason


def test_a_signal_that_comes_when_the_run_has_its_end_already_ends_the_sweep(tmp_path: Path) -> None:
    session = Session(new_sweep(tmp_path))
    key = session.next()
    assert key is not None
    order = Order(key, 0, {}, "examples_per_s", "")
    session.conductor.under_way.append(order)
    session.conductor._heard(order, {"kind": "stop_asked"})
    ended = {"run": "a", "state": "finished", "reason": "measured", "seconds": 9.0, "value": 5.0, "marks": []}
    session.conductor._heard(order, {"kind": "ended", **ended})
    assert session.conductor._is_stopping
    assert [run.value for run in session.sweep.trial(key).runs] == [5.0]  # it counts all the same


def test_the_best_on_real_data_is_planned_before_the_choice_is_told(tmp_path: Path) -> None:
    """Who was killed in between never had it run."""
    session = Session(new_sweep(tmp_path, **SEARCH))
    while (key := session.next()) is not None and "synthetic" in key:
        session.end(key, 100.0 if "ps-1" in key else 50.0)
    kinds = [event["kind"] for event in session.sweep.events()]
    assert kinds.index("chosen") == kinds.index("planned", kinds.index("chosen") - 1) + 1
