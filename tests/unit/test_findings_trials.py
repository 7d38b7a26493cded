"""What the rules find in made-up sweeps: trials are compared only where they are the same work."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from headway.findings.apply import of_trials
from headway.findings.sweeps import SweepFacts, TrialFacts, trial_facts


def trial(name: str, rate: float, **more: Any) -> TrialFacts:
    return TrialFacts(name, samples=(rate, rate * 1.01, rate * 0.99), **{"strategy": "ps-async", "tasks": 2, **more})


def with_servers(*rates: float) -> SweepFacts:
    counted = enumerate(rates, start=1)
    return SweepFacts("s", tuple(trial(f"ps{n}", rate, num_ps=n, settings={"cluster.ps": n}) for n, rate in counted))


def test_one_server_is_enough_or_too_few() -> None:
    (enough,) = of_trials(with_servers(100, 102, 101))
    assert (enough.trouble, enough.title) == (False, "One server is enough")
    (few,) = of_trials(with_servers(100, 170, 160))
    assert (few.trouble, few.certainty) == (True, "certain")
    assert "2 are 70 % faster" in few.text
    assert of_trials(with_servers(100, 107)) == []


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ({"strategy": "ps-async", "tasks": 1}, "ps-async with one training task"),
        ({"strategy": "single", "tasks": 1, "node_cpus": 0.8}, "0.8 CPUs"),
        ({"strategy": "single", "tasks": 1, "batch_size": 50}, "batch is 50"),
    ],
)
def test_a_baseline_that_is_not_what_it_is_called(base: dict[str, Any], said: str) -> None:
    others = trial("two", 180, node_cpus=0.4, batch_size=100)
    first = trial("one", 100, is_baseline=True, **{"node_cpus": 0.4, "batch_size": 100, **base})
    (found,) = [one for one in of_trials(SweepFacts("s", (first, others))) if one.rule == "baseline"]
    assert said in found.text


def test_a_true_baseline_is_not_complained_of() -> None:
    base = trial("one", 100, is_baseline=True, strategy="single", tasks=1, node_cpus=0.4)
    assert of_trials(SweepFacts("s", (base, trial("two", 180, node_cpus=0.4)))) == []


def machines(base: dict[str, Any], **more: Any) -> SweepFacts:
    """Two sizes of machines are varied; `base`: settings of the baseline of the small ones."""
    path = "site.nodes.worker.cpus"
    alone = {"is_baseline": True, "strategy": "single", "tasks": 1}
    trials = [trial(f"two of {size}", 400 * size, node_cpus=size, settings={path: size}) for size in (0.4, 0.8)]
    bases = [trial("one of 0.4", 100, node_cpus=0.4, settings=base, **alone)]
    bases += [trial("one of 0.8", 200, node_cpus=0.8, settings={path: 0.8}, **alone)] if base else []
    return SweepFacts("s", (*bases, *trials))


@pytest.mark.parametrize("base", [{"site.nodes.worker.cpus": 0.4}, {}], ids=["one of each size", "names no machine"])
def test_where_machines_are_varied_a_baseline_is_compared_with_those_of_its_own_kind(base: dict[str, Any]) -> None:
    assert of_trials(machines(base)) == []


def test_a_baseline_on_another_machine_than_the_one_that_is_varied_nowhere_is_misnamed() -> None:
    base = trial("one", 100, is_baseline=True, strategy="single", tasks=1, node_cpus=0.8, settings={"strategy": "x"})
    (found,) = of_trials(SweepFacts("s", (base, trial("two", 180, node_cpus=0.4, settings={"cluster.training": 2}))))
    assert (found.rule, found.certainty) == ("baseline", "certain")


# --- a model that is too small -------------------------------------------------------------------------------
ALONE = trial("one", 500, is_baseline=True, strategy="single", tasks=1)


def too_small(*others: TrialFacts) -> list[str]:
    return [one.certainty for one in of_trials(SweepFacts("s", (ALONE, *others))) if one.rule == "too_small"]


def test_a_single_machine_that_wins_shows_a_model_too_small_to_distribute() -> None:
    assert too_small(trial("two", 180), trial("three", 150, tasks=3)) == ["certain"]
    assert too_small(trial("two", 180)) == ["likely"]  # of one size alone little is known


@pytest.mark.parametrize(
    "unlike",
    [{"tasks": 1}, {"batch_size": 10}, {"settings": {"workload.model.size": 9}}, {"workload": {"model": "larger"}}],
    ids=["one task with a server", "batch", "settings", "workload"],
)
def test_one_task_with_a_server_or_other_work_says_nothing_of_the_model(unlike: dict[str, Any]) -> None:
    """A server costs one task something always; and the single machine is compared with its own work."""
    base = dataclasses.replace(ALONE, settings={"workload.model.size": 1})
    others = trial("a", 180, **unlike), trial("b", 150, **{"tasks": 3, **unlike})
    found = of_trials(SweepFacts("s", (base, *others)))
    assert [one.rule for one in found if one.rule == "too_small"] == []


def test_beside_a_machine_of_twice_their_size_two_small_ones_are_not_compared() -> None:
    large = dataclasses.replace(ALONE, node_cpus=0.8)
    found = of_trials(SweepFacts("s", (large, trial("two", 180, node_cpus=0.4), trial("three", 150, node_cpus=0.4))))
    assert [one.rule for one in found] == ["baseline"]


@pytest.mark.parametrize(("full", "said"), [(0.9, []), (0.5, ["likely"]), (None, ["likely"])])
def test_where_the_fabric_is_full_nothing_is_said_of_the_model(full: float | None, said: list[str]) -> None:
    """As of a single run: none of the links is full, but all together wait for what is between them."""
    nodes = [{"node": "worker0", "limits": {"rate": 1e8}, "sent": 3e7, "received": 3e7, "full": {"outwards": 0.0}}]
    figures = {"strategy": "ps-async", "examples_per_s": 180.0, "nodes": nodes, "fabric_full": full}
    known = trial_facts("two", [figures])
    assert known.waits_for_network is (not said)
    assert too_small(trial("two", 180, waits_for_network=known.waits_for_network)) == said


# --- a loss that is not explained ----------------------------------------------------------------------------
@pytest.mark.parametrize(("site", "is_said"), [("local", True), ("emulated", False)])
def test_a_loss_on_one_machine_may_come_of_cores_that_tasks_share(site: str, is_said: bool) -> None:
    short = trial("two", 400, site=site, is_explained=False)
    (found,) = [one for one in of_trials(SweepFacts("s", (ALONE, short))) if one.rule == "unexplained"]
    assert ("share this machine's cores, which may be why" in found.text) is is_said


# --- staleness -----------------------------------------------------------------------------------------------
RATE = "workload.optimizer.learning_rate"
FRESH = trial("sync", 100, strategy="ps-sync", accuracy=0.97, steps=250, asked_batch=200, settings={RATE: 0.1})
STALE = trial("async", 180, accuracy=0.91, staleness=2.5, steps=500, asked_batch=100, settings={RATE: 0.1})


def test_accuracy_lost_to_staleness_shows_in_a_sweep() -> None:
    """On as many examples: a step of ps-sync has those of both tasks."""
    (found,) = of_trials(SweepFacts("s", (FRESH, STALE)))
    assert (found.rule, found.certainty) == ("staleness", "likely")
    assert "6.0 points" in found.text


@pytest.mark.parametrize(
    "unlike",
    [
        {"steps": 500},  # as many steps are twice the examples
        {"steps": None},  # it ends after some time: which has seen more is not said
        {"asked_batch": None},
        {"settings": {RATE: 0.01}},
        {"settings": {RATE: 0.1, "workload.model.size": 2}},
        {"workload": {"model": "larger"}},
        {"batch_size": 50},
        {"strategy": "ps-async"},
    ],
    ids=repr,
)
def test_accuracy_of_other_work_is_not_lost_to_staleness(unlike: dict[str, Any]) -> None:
    assert of_trials(SweepFacts("s", (dataclasses.replace(FRESH, **unlike), STALE))) == []
