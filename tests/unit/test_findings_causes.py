"""Findings name the right cause (the batch or the machine, a bottleneck or an idle node) and the right time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from made_up import GBIT, START, healthy, node, server, synchronous, task, times
from test_findings import CONDITIONS, WORKERS, the, trouble

from headway.findings import Finding
from headway.findings.apply import of_facts
from headway.findings.facts import Array, Facts, Node

PASSED = times() - START


# --- credits -------------------------------------------------------------------------------------------------
def burstable(credits: Array, allowed: Any = None) -> Facts:
    series = {"credits": credits} | ({} if allowed is None else {"cpus_allowed": allowed})
    return healthy(nodes=(node("ps0", "ps/0", cpus=0.5, used=0.1, series=series), *WORKERS))


def test_credits_run_out_when_the_node_slows_down_and_not_before() -> None:
    """A credit is 60 CPU seconds: a hundredth of it lasts for seconds, in which the node is as fast as before."""
    left = np.clip(0.02 - 0.001 * PASSED, 0, None)  # below a hundredth after 10 s, nothing after 20 s
    found = the("credits", burstable(left, np.where(left > 0, 0.5, 0.1)))
    assert found.certainty == "certain"
    assert "ran out after 20" in found.text
    assert "0.1 CPUs instead of 0.5 CPUs" in found.text
    assert found.evidence[0].start == pytest.approx(START + 20, abs=0.5)


def test_a_little_that_is_left_has_not_run_out() -> None:
    left = 0.035 - 0.001 * PASSED  # 0.005 at the end
    found = the("credits", burstable(left, 0.5))
    assert found.certainty == "likely"
    assert "0.005 left: after 5.0 s more" in found.text
    assert "may use without" not in str(found.evidence)


def test_credits_of_nothing_count_where_what_was_allowed_is_not_recorded() -> None:
    assert "ran out after 15" in the("credits", burstable(np.clip(0.15 - 0.01 * PASSED, 0, None))).text


def test_a_node_that_earns_all_that_it_can_use_does_not_slow_down_without_credits() -> None:
    assert "credits" not in trouble(burstable(np.zeros(len(PASSED)), 0.5))


@pytest.mark.parametrize("allowed", [None, 0.1], ids=["from the start", "later"])
def test_credits_run_out_on_a_node_whose_cpus_were_not_asked_for(allowed: float | None) -> None:
    left = np.clip(0.02 - 0.001 * PASSED, 0, None) if allowed else np.zeros(len(PASSED))
    series = {"credits": left, "cpus_allowed": np.where(left > 0, 1.0, 0.1)}
    facts = healthy(nodes=(node("ps0", "ps/0", cpus=None, used=0.1, series=series), *WORKERS))
    assert the("credits", facts).certainty == "certain"


# --- the batch, or the machine -------------------------------------------------------------------------------
CHIEF = node("worker0", "worker/0", used=0.39)


def with_batches(first: float, second: float, *, steps: tuple[float, float], nodes: tuple[Node, ...]) -> Facts:
    tasks = (task("worker/0", "worker0", steps[0], batch=first), task("worker/1", "worker1", steps[1], batch=second))
    return healthy(tasks=(*tasks, server()), nodes=(node("ps0", "ps/0", used=0.2), *nodes))


def test_a_larger_batch_of_ps_async_takes_longer_and_is_not_behind() -> None:
    alike = with_batches(100, 20, steps=(0.5, 0.1), nodes=(CHIEF, WORKERS[1]))
    assert trouble(alike) & {"straggler", "chief_undersized"} == set()
    alike = with_batches(20, 100, steps=(0.1, 0.5), nodes=WORKERS)
    assert trouble(alike) & {"straggler", "chief_undersized"} == set()


def test_a_smaller_batch_of_ps_async_has_the_freshest_gradients_and_is_not_behind() -> None:
    """A part of each step is the same for any batch: 150 ms for 100, 60 ms for 10."""
    assert "straggler" not in trouble(with_batches(100, 10, steps=(0.15, 0.06), nodes=WORKERS))


def test_a_task_of_ps_async_that_needs_longer_for_its_step_and_for_an_example_is_behind() -> None:
    found = the("straggler", with_batches(100, 50, steps=(0.2, 0.4), nodes=WORKERS))
    assert "worker/1 is slower than the other training tasks: 400 ms a step, 2.0 times the others' 200 ms" in found.text


def with_late_chief(first: float, second: float, *nodes: Node) -> Facts:
    tasks = (task("worker/0", "worker0", batch=first), task("worker/1", "worker1", batch=second))
    both = (node("ps0", "ps/0", used=0.2), *nodes)
    return synchronous(late=0.12, last="worker/0", tasks=(*tasks, server()), nodes=both)


def test_a_chief_with_a_larger_batch_on_a_machine_like_the_others_is_not_undersized() -> None:
    """Chief and worker on equal machines, batches of 100 and 20: it was told to get a machine as large as theirs."""
    facts = with_late_chief(100, 20, CHIEF, WORKERS[1])
    assert "chief_undersized" not in trouble(facts)
    found = the("straggler", facts)
    assert found.resource == "worker/0"
    assert "its batch is 100, the others' 20" in found.text
    assert "machine is like the others'" in found.advice
    assert "worker/0 came last in 100 % of them, for its batch is 100, the others' 20" in the("barrier", facts).text


@pytest.mark.parametrize(
    "small",
    [node("worker0", "worker/0", cpus=0.2, used=0.2), node("worker0", "worker/0", "ps/0", used=0.39)],
    ids=["fewer CPUs", "more tasks"],
)
def test_a_chief_on_less_of_a_machine_is_undersized_and_no_straggler_besides(small: Node) -> None:
    facts = with_late_chief(100, 100, small, WORKERS[1])
    assert trouble(facts) & {"straggler", "chief_undersized"} == {"chief_undersized"}
    assert "batch" not in the("chief_undersized", facts).text
    both = with_late_chief(100, 20, small, WORKERS[1])
    assert "Besides, its batch is 100, the others' 20." in the("chief_undersized", both).text


def test_who_has_no_limit_has_more_than_the_chief() -> None:
    """Only the chief's CPUs are asked for: the others may use the whole machine."""
    small = node("worker0", "worker/0", cpus=0.2, used=0.2)
    facts = with_late_chief(100, 100, small, node("worker1", "worker/1", cpus=None))
    assert trouble(facts) & {"straggler", "chief_undersized"} == {"chief_undersized"}


def test_who_is_waited_for_in_collectives_for_its_batch_is_said() -> None:
    tasks = (task("worker/0", "worker0", batch=100), task("worker/1", "worker1", batch=20))
    nodes = (node("worker0", "worker/0", used=0.39), node("worker1", "worker/1", used=0.1))
    facts = healthy(strategy="allreduce", nodes=nodes, tasks=tasks, staleness=np.zeros(0), server_bytes={})
    assert "for its batch is 100, the others' 20" in the("barrier", facts).text
    assert "its batch is 100" in the("straggler", facts).text


# --- idle, or waiting ----------------------------------------------------------------------------------------
def oversized(facts: Facts) -> list[Finding]:
    return [one for one in of_facts(facts) if one.rule == "oversized"]


IDLE = (node("worker0", "worker/0", used=0.1), node("worker1", "worker/1", used=0.1))


def test_an_idle_training_node_is_larger_than_needed() -> None:
    (found,) = oversized(healthy(nodes=(node("ps0", "ps/0", used=0.3), *IDLE)))
    assert (found.certainty, found.trouble) == ("likely", False)
    assert "would do." in found.text


def test_a_training_node_that_computes_in_bursts_at_its_quota_is_not_called_too_large() -> None:
    bursts = tuple(dataclasses.replace(one, series={**one.series, "throttled": 0.1 * one.t**0}) for one in IDLE)
    assert oversized(healthy(nodes=(node("ps0", "ps/0", used=0.3), *bursts))) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nodes": (node("ps0", "ps/0", cpus=0.2, used=0.19), *IDLE)}, "the CPU of ps0"),
        (
            {
                "nodes": (IDLE[0], node("worker1", "worker/1", used=0.1, disk_read=2e6, series={"disk_read": 1.9e6})),
                "tasks": (task("worker/0", "worker0"), task("worker/1", "worker1", input_seconds=0.1)),
            },
            "the disk of worker1",
        ),
    ],
    ids=["CPU", "disk"],
)
def test_what_waits_for_a_bottleneck_may_be_smaller_only_as_long_as_that_stays(
    changes: dict[str, Any], said: str
) -> None:
    found = oversized(healthy(**changes))
    assert {one.certainty for one in found} == {"possible"}
    assert all(f"as long as training waits for {said}" in one.text for one in found)
    assert all(f"See the finding about {said} first" in one.advice for one in found)


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": (node("ps0", "ps/0", used=0.3, rate=GBIT / 10, series={"sent": 11e6}), *IDLE)},
        {"nodes": (node("ps0", "ps/0", used=0.3), *IDLE), "fabric": 2.5e6},
    ],
    ids=["link", "fabric"],
)
def test_nothing_is_said_of_machine_and_model_where_the_network_is_full(changes: dict[str, Any]) -> None:
    short = (task("worker/0", "worker0", 0.005), task("worker/1", "worker1", 0.005))
    facts = healthy(**changes, tasks=short)
    assert {one.rule for one in of_facts(facts)} & {"oversized", "too_small"} == set()
    quick = dataclasses.replace(facts, nodes=tuple(dataclasses.replace(one, rate=GBIT) for one in facts.nodes))
    assert {one.rule for one in of_facts(dataclasses.replace(quick, fabric=None))} >= {"oversized", "too_small"}


def test_a_chief_that_waits_for_a_slow_worker_is_larger_than_needed_as_long_as_it_does() -> None:
    nodes = (node("ps0", "ps/0", used=0.3), node("chief0", "worker/0", cpus=0.9, used=0.3), WORKERS[1])
    (found,) = oversized(synchronous(late=0.12, last="worker/1", nodes=nodes))
    assert found.resource == "CPU of chief0"
    assert "as long as training waits for the slowest task" in found.text


# --- what is not known ---------------------------------------------------------------------------------------
ALL_REDUCE = healthy(strategy="allreduce", nodes=WORKERS, staleness=np.zeros(0), server_bytes={})


@pytest.mark.parametrize("facts", [*CONDITIONS.values(), ALL_REDUCE], ids=[*CONDITIONS, "allreduce"])
def test_nothing_that_is_said_is_no_number(facts: Facts) -> None:
    """Machines whose size is known, and that count nothing: nothing at all, and of one node."""
    nodes = facts.nodes
    for kept in (nodes[:0], nodes[:1], nodes[1:]):
        bare = tuple(one if one in kept else dataclasses.replace(one, series={}) for one in nodes)
        for one in of_facts(dataclasses.replace(facts, nodes=bare)):
            said = f"{one.text} {one.advice} {one.resource} {one.evidence}"
            assert "nan" not in said.split(" ")
            assert "nan" not in one.text


# --- words ---------------------------------------------------------------------------------------------------
def test_a_wait_for_input_is_told_with_the_mean_step() -> None:
    """A few steps that wait long: the median step is shorter than the mean wait."""
    lengths = [0.02] * 200 + [0.4] * 60
    slow = task("worker/0", "worker0", lengths)
    waits = np.where(slow.get("seconds") > 0.1, 0.39, 0.01)
    found = the(
        "input_bound", healthy(tasks=(dataclasses.replace(slow, steps={**slow.steps, "input_seconds": waits}),))
    )
    assert "97.7 ms in each step of 108 ms" in found.text


def test_what_hardly_moved_is_not_said_to_have_moved() -> None:
    late = times() >= START + 18
    hardly = node("ps0", "ps/0", used=np.where(late, 0.006, 0.014), series={"received": np.where(late, 10e3, 50e3)})
    found = the("throughput_change", dataclasses.replace(CONDITIONS["throughput_change"], nodes=(hardly, *WORKERS)))
    assert "No metric of any node moved with it" in found.text


def test_on_a_dilated_host_little_is_much() -> None:
    late = times() >= START + 18
    slowed = np.where(late, 0.004, 0.02)
    small = node("ps0", "ps/0", cpus=0.02, used=slowed, series={"cpus_allowed": slowed})
    found = the("throughput_change", dataclasses.replace(CONDITIONS["throughput_change"], nodes=(small, *WORKERS)))
    assert "CPUs allowed of ps0" in found.text or "CPUs it may use" in found.text


def on_one_machine(count: int, *threads: int) -> Facts:
    names = [f"worker/{number}" for number in range(count)]
    tasks = tuple(task(name, "local", threads=each) for name, each in zip(names, threads, strict=True))
    return healthy(site="local", nodes=(node("local", *names, cpus=None, rate=None, cores=2),), tasks=tasks)


def test_many_tasks_with_one_thread_each_have_no_threads_to_spare() -> None:
    assert "too_many_threads" not in trouble(on_one_machine(8, *[1] * 8))  # as many as tasks: what is left out gives
    assert "too_many_threads" in trouble(on_one_machine(2, 4, 4))
