"""What the rules find in made-up runs, and that they say nothing of healthy, short and unknown ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from made_up import GBIT, SECONDS, START, healthy, node, server, synchronous, task, times

from headway.findings import Finding, rules
from headway.findings.apply import of_facts
from headway.findings.facts import Facts
from headway.findings.words import amount, cpus, percent, quantity

WORKERS = (node("worker0", "worker/0"), node("worker1", "worker/1"))
LATE = times() >= START + 18


def trouble(facts: Facts) -> set[str]:
    return {finding.rule for finding in of_facts(facts) if finding.trouble}


def the(rule: str, facts: Facts) -> Finding:
    (found,) = [finding for finding in of_facts(facts) if finding.rule == rule]
    return found


CONDITIONS: dict[str, Facts] = {
    "network": healthy(
        nodes=(node("ps0", "ps/0", used=0.05, rate=GBIT / 10, series={"received": 10e6, "sent": 9e6}), *WORKERS)
    ),
    "server_cpu": healthy(nodes=(node("ps0", "ps/0", cpus=0.2, used=0.19, series={"throttled": 0.3}), *WORKERS)),
    "fabric": healthy(fabric=2.5e6),
    "chief_undersized": healthy(
        nodes=(node("ps0", "ps/0", used=0.2), node("worker0", "worker/0", cpus=0.2, used=0.2), WORKERS[1]),
        tasks=(task("worker/0", "worker0", 0.5), task("worker/1", "worker1"), server()),
    ),
    "straggler": healthy(tasks=(task("worker/0", "worker0"), task("worker/1", "worker1", 0.4), server())),
    "barrier": synchronous(late=0.1),
    "input_bound": healthy(tasks=(task("worker/0", "worker0", input_seconds=0.08), task("worker/1", "worker1"))),
    "storage": healthy(
        nodes=(node("ps0", "ps/0", used=0.2), node("worker0", "worker/0", disk_read=2e6, series={"disk_read": 1.9e6})),
        tasks=(task("worker/0", "worker0", input_seconds=0.08),),
    ),
    "throughput_change": healthy(
        tasks=(
            task("worker/0", "worker0", [0.2] * 90 + [0.4] * 30),
            task("worker/1", "worker1", [0.2] * 90 + [0.4] * 30),
        )
    ),
    "credits": healthy(
        nodes=(node("ps0", "ps/0", used=0.1, series={"credits": np.clip(1 - (times() - START) / 15, 0, 1)}), *WORKERS)
    ),
    "memory_grows": healthy(
        end=START + 200,
        tasks=(
            task("worker/0", "worker0", rss=5e8 + 1e6 * (times(200) - START), seconds=200),
            task("worker/1", "worker1", seconds=200),
        ),
    ),
    "memory_limit": healthy(
        nodes=(node("worker0", "worker/0", memory_limit=7e8, series={"memory": 6.6e8}), WORKERS[1]),
    ),
    "too_many_threads": healthy(
        nodes=(node("worker0", "worker/0", used=0.39), WORKERS[1]),
        tasks=(task("worker/0", "worker0", threads=8), task("worker/1", "worker1")),
    ),
    "unbalanced": healthy(server_bytes={"ps/0": 12.9e6, "ps/1": 0.2e6}),
    "loopback": healthy(
        nodes=(
            node("worker0", "ps/0", "worker/0", used=0.39, series={"loopback_sent": 20e6, "sent": 8e6}),
            node("worker1", "worker/1", used=0.15),
        )
    ),
    "too_small": healthy(tasks=(task("worker/0", "worker0", 0.005), task("worker/1", "worker1", 0.005))),
    "staleness": healthy(
        tasks=(
            task("worker/0", "worker0", loss=np.concatenate([np.linspace(2, 1, 75), np.linspace(1, 5, 75)])),
            task("worker/1", "worker1"),
        )[:1]
    ),
    "noisy_machine": healthy(nodes=(node("ps0", "ps/0", used=0.2, series={"machine_cpus": 2.0}), *WORKERS)),
    "warmup": healthy(
        tasks=(task("worker/0", "worker0", [2.0, 1.0] + [0.2] * 130), task("worker/1", "worker1")),
    ),
}
OF_SWEEPS = {"server_count", "baseline", "unexplained"}
NO_TROUBLE = {"servers_beside", "oversized"}


@pytest.mark.parametrize("rule", sorted(CONDITIONS))
def test_a_condition_is_found_as_trouble_with_its_figures(rule: str) -> None:
    (found, *_) = [one for one in of_facts(CONDITIONS[rule]) if one.rule == rule]
    assert found.trouble
    assert found.run == "a-run"
    assert found.evidence
    assert found.advice
    assert any(character.isdigit() for character in found.text)
    assert "e+" not in found.text
    assert "nan" not in found.text.lower().replace("finance", "")


def test_every_rule_is_tried() -> None:
    assert {rule.name for rule in rules()} == {*CONDITIONS} | OF_SWEEPS | NO_TROUBLE


@pytest.mark.parametrize(
    "facts",
    [
        healthy(),
        synchronous(),
        healthy(strategy="single", nodes=WORKERS[:1], tasks=(task("worker/0", "worker0"),), staleness=np.zeros(0)),
        healthy(strategy="allreduce", nodes=WORKERS, staleness=np.zeros(0), server_bytes={}),
        healthy(site="local", nodes=(node("local", "worker/0", "worker/1", "ps/0", cpus=None, rate=None, cores=2),)),
    ],
    ids=["ps-async", "ps-sync", "single", "allreduce", "local"],
)
def test_a_healthy_run_has_no_trouble(facts: Facts) -> None:
    assert trouble(facts) == set()


@pytest.mark.parametrize("rule", sorted({*CONDITIONS} - {"unbalanced", "memory_limit"}))
def test_nothing_is_said_of_a_run_of_a_second(rule: str) -> None:
    short = CONDITIONS[rule]
    short = dataclasses.replace(
        short,
        end=START + 0.9,
        tasks=tuple(
            dataclasses.replace(one, steps={key: values[:4] for key, values in one.steps.items()})
            for one in short.tasks
        ),
    )
    assert trouble(short) == set()


@pytest.mark.parametrize("rule", sorted(CONDITIONS))
def test_without_samples_rules_are_silent_or_have_other_evidence(rule: str) -> None:
    """Old records, and machines that count nothing."""
    facts = CONDITIONS[rule]
    bare = dataclasses.replace(
        facts,
        nodes=tuple(
            dataclasses.replace(each, series={}, cpus=None, rate=None, memory_limit=None) for each in facts.nodes
        ),
        tasks=tuple(dataclasses.replace(each, usage={}) for each in facts.tasks),
    )
    of_steps = {"straggler", "barrier", "input_bound", "throughput_change", "warmup", "staleness", "unbalanced"}
    assert trouble(bare) <= of_steps | {"too_many_threads"}


def test_on_a_noisy_machine_findings_about_speed_are_only_possible() -> None:
    noisy = node("worker9", used=0.2, series={"machine_cpus": 2.0})
    quiet, loud = CONDITIONS["server_cpu"], CONDITIONS["server_cpu"]
    loud = dataclasses.replace(loud, nodes=(*loud.nodes[:1], noisy, *loud.nodes[1:]))
    loud = dataclasses.replace(
        loud,
        nodes=tuple(
            dataclasses.replace(each, series={**each.series, "machine_cpus": noisy.series["machine_cpus"]})
            for each in loud.nodes
        ),
    )
    assert the("server_cpu", quiet).certainty == "certain"
    assert the("server_cpu", loud).certainty == "possible"
    assert the("noisy_machine", loud).certainty != "possible"


def test_trouble_comes_first_and_the_surest_of_it() -> None:
    idle = node("worker1", "worker/1", used=0.05)
    found = of_facts(dataclasses.replace(CONDITIONS["server_cpu"], nodes=(*CONDITIONS["server_cpu"].nodes[:1], idle)))
    kinds = [(one.trouble, one.certainty) for one in found]
    assert kinds == sorted(kinds, key=lambda kind: (not kind[0], ("certain", "likely", "possible").index(kind[1])))
    assert {True, False} == {one.trouble for one in found}


# --- single rules --------------------------------------------------------------------------------------------
def test_a_change_is_dated_and_names_what_moved_with_it() -> None:
    slow = CONDITIONS["throughput_change"]
    falling = node("ps0", "ps/0", used=np.where(LATE, 0.05, 0.2), series={"credits": np.where(LATE, 0.0, 1.0)})
    found = the("throughput_change", dataclasses.replace(slow, nodes=(falling, *WORKERS)))
    assert "after 18" in found.text
    assert "1,000 to 500 examples/s (-50%)" in found.text
    assert "CPU in use of ps0, 0.2 CPUs to 0.05 CPUs" in found.text
    assert found.evidence[1].start == pytest.approx(START + 18, abs=1)


def test_a_drift_has_no_date() -> None:
    lengths = np.linspace(0.15, 0.45, 100)
    lengths *= SECONDS / lengths.sum()
    found = the("throughput_change", healthy(tasks=(task("worker/0", "worker0", lengths),)))
    assert "little by little" in found.text


@pytest.mark.parametrize(
    "lengths",
    [
        [1.0] * 3 + [0.2] * 135,  # only in the first seconds
        ([0.2] * 10 + [0.4] * 5) * 7 + [0.2] * 10,  # a wave that comes and goes
        [0.2] * 60 + [0.22] * 82,  # too little
    ],
    ids=["first seconds", "wave", "little"],
)
def test_what_is_no_change_of_throughput(lengths: list[float]) -> None:
    assert "throughput_change" not in trouble(healthy(tasks=(task("worker/0", "worker0", lengths),)))


@pytest.mark.parametrize(
    "lengths",
    [
        [12.0] + [0.05] * 360,  # before the first steps: "+46653 %" stood here
        [0.05] * 200 + [14.0] + [0.05] * 120,
        [0.05] * 320 + [14.0],  # until the end
        [6.0] + [0.05] * 160 + [7.0] + [0.05] * 160,
        [0.2] * 3 + [15.0] + [0.2] * 70,  # with a few steps before it: those are no rate of their own
    ],
    ids=["at the beginning", "in the middle", "at the end", "two", "after few steps"],
)
def test_a_pause_is_no_rate(lengths: list[float]) -> None:
    """A suspended machine, a program that was stopped: both tasks stand still, and nobody says so."""
    tasks = tuple(task(f"worker/{number}", f"worker{number}", lengths) for number in range(2))
    facts = healthy(tasks=tasks, end=START + sum(lengths))
    assert "throughput_change" not in trouble(facts)


def test_a_change_beside_a_pause_is_found_with_its_own_rates() -> None:
    lengths = [0.1] * 100 + [12.0] + [0.2] * 60
    found = the("throughput_change", healthy(tasks=(task("worker/0", "worker0", lengths),), end=START + 34))
    assert "from 1,000 to 500 examples/s (-50%)" in found.text


def test_one_task_that_stands_still_changes_the_throughput_of_all() -> None:
    stands = task("worker/1", "worker1", [0.05] * 300 + [15.0])
    facts = healthy(tasks=(task("worker/0", "worker0", 0.05), stands))
    assert "from 4,000 to 2" in the("throughput_change", facts).text


def test_a_rate_that_is_many_times_as_high_is_said_in_times() -> None:
    lengths = [1.0] * 16 + [0.05] * 280
    facts = healthy(tasks=(task("worker/0", "worker0", lengths),))
    assert "(20 times as much)" in the("throughput_change", facts).text


def test_an_evaluation_is_no_change_of_throughput() -> None:
    lengths = [0.2] * 60 + [9.0] + [0.2] * 45
    tasks = (task("worker/0", "worker0", lengths),)
    assert "throughput_change" not in trouble(healthy(tasks=tasks, pauses=((START + 12, START + 21, "evaluation"),)))


def test_a_small_wait_for_input_is_none_however_large_its_share() -> None:
    quick = (task("worker/0", "worker0", 0.004, input_seconds=0.002, seconds=SECONDS),)
    assert "input_bound" not in trouble(healthy(tasks=quick))


def test_storage_is_ruled_out_where_the_disk_is_idle() -> None:
    facts = healthy(
        nodes=(node("worker0", "worker/0", used=0.39, disk_read=100e6, series={"disk_read": 2e6}),),
        tasks=(task("worker/0", "worker0", input_seconds=0.08),),
    )
    found = the("storage", facts)
    assert not found.trouble
    assert "Storage is not why" in found.text


def test_the_task_that_comes_last_is_the_straggler_of_a_synchronous_run() -> None:
    found = the("straggler", synchronous(late=0.12, last="worker/1"))
    assert found.resource == "worker/1"
    assert "straggler" not in trouble(synchronous(late=0.12))  # now this one, now that


def test_who_gets_the_smaller_share_of_a_busy_server_is_no_straggler() -> None:
    """Two equal workers shared a link that was full half of the time, and one had 1.4 times the other's step time."""
    tasks = (task("worker/0", "worker0"), task("worker/1", "worker1", 0.3), server())
    half_full = {"received": np.where(np.arange(len(times())) % 2, 0.95 * GBIT, 0.0)}
    busy = node("ps0", "ps/0", used=0.2, series=half_full)
    assert "straggler" not in trouble(healthy(tasks=tasks, nodes=(busy, *WORKERS)))
    assert "straggler" in trouble(healthy(tasks=tasks))  # nothing is busy: it is the task
    weaker = node("worker1", "worker/1", rate=GBIT / 4)
    assert "straggler" in trouble(healthy(tasks=tasks, nodes=(busy, WORKERS[0], weaker)))
    short = node("worker1", "worker/1", used=0.4)
    assert "straggler" in trouble(healthy(tasks=tasks, nodes=(busy, WORKERS[0], short)))
    hungry = (tasks[0], task("worker/1", "worker1", 0.3, input_seconds=0.1), server())
    assert "straggler" in trouble(healthy(tasks=hungry, nodes=(busy, *WORKERS)))


def test_in_all_reduce_the_one_that_computes_while_others_idle_is_the_straggler() -> None:
    nodes = (node("worker0", "worker/0", used=0.2), node("worker1", "worker/1", cpus=0.2, used=0.2))
    facts = healthy(strategy="allreduce", nodes=nodes, staleness=np.zeros(0), server_bytes={})
    assert the("straggler", facts).resource == "worker/1"
    assert "barrier" in trouble(facts)


def test_credits_that_will_last_are_no_trouble() -> None:
    slowly = node("ps0", "ps/0", used=0.1, series={"credits": 10 - (times() - START) / 60})
    assert "credits" not in trouble(healthy(nodes=(slowly, *WORKERS)))
    soon = node("ps0", "ps/0", used=0.1, series={"credits": 2 - (times() - START) / 20})
    assert the("credits", healthy(nodes=(soon, *WORKERS))).certainty == "likely"


@pytest.mark.parametrize(
    "rss",
    [
        5e8 + 1e8 * (1 - np.exp(-(times() - START) / 3)),  # fills up and stops
        5e8 + 1e8 * (times() > START + 15),  # one jump
        5e8 + 2e5 * (times() - START),  # too little
    ],
    ids=["fills up", "jump", "little"],
)
def test_memory_that_stops_growing_is_no_trouble(rss: Any) -> None:
    assert "memory_grows" not in trouble(healthy(tasks=(task("worker/0", "worker0", rss=rss),)))


def test_files_in_memory_are_not_memory_near_its_limit() -> None:
    full_of_files = node("worker0", "worker/0", memory_limit=2e9, series={"memory": 1.95e9})
    assert "memory_limit" not in trouble(healthy(nodes=(full_of_files,)))


def test_a_killed_task_is_said_of_a_run_without_a_step() -> None:
    facts = Facts(run="a-run", nodes=(dataclasses.replace(WORKERS[0], series={}, oom_kills=1),))
    assert the("memory_limit", facts).certainty == "certain"


def test_a_loss_that_is_no_number_beside_staleness_is_said() -> None:
    loss = np.concatenate([np.linspace(2, 1, 75), np.full(75, np.nan)])
    assert "no number" in the("staleness", healthy(tasks=(task("worker/0", "worker0", loss=loss),))).text


def test_an_idle_machine_and_a_layout_to_try_are_good_to_know() -> None:
    idle = node("ps0", "ps/0", cpus=0.5, used=0.05, rate=GBIT / 10, series={"received": 5e6, "sent": 5e6})
    found = {one.rule: one for one in of_facts(healthy(nodes=(idle, *WORKERS)))}
    assert {*found} == {"oversized", "servers_beside"}
    assert not any(one.trouble for one in found.values())
    assert "0.1 CPUs would do" in found["oversized"].text
    assert "PW-PW" in found["servers_beside"].advice


# --- words ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (percent(0.974), "97 %"),
        (cpus(1.0), "1 CPU"),
        (cpus(0.25), "0.25 CPUs"),
        (quantity(1234.5), "1,234"),
        (quantity(12.345), "12.3"),
        (quantity(0.01234), "0.0123"),
        (amount(0.5, "share"), "50 %"),
        (amount(12.5e6, "B/s"), "100 Mbit/s"),
        (amount(1500.0, "1/s"), "1,500/s"),
        (amount(3.0, "steps"), "3 steps"),
    ],
)
def test_numbers_read_well(said: str, wanted: str) -> None:
    assert said == wanted


def test_the_rules_are_a_function_whatever_was_imported_before() -> None:
    import headway.findings
    from headway.findings.catalogue import RULES

    assert headway.findings.rules() == list(RULES)
