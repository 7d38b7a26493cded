"""What holds of every finding, whatever the run: rules are asked about thousands of runs that never were.

A rule that breaks one of these is wrong without anybody having to know what it should have said: nothing is certain
beside other work, no advice names a setting that the job does not have, no share is above one, and nobody calls a
machine too large or a model too small while a link is full.
"""

from __future__ import annotations

import dataclasses
import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up import GBIT, SECONDS, START, healthy, node, server, synchronous, task, times
from test_findings import CONDITIONS

from headway.errors import SpecError
from headway.findings import Finding, rules
from headway.findings.advice import SETTINGS, Advice, JobKind, Setting
from headway.findings.apply import of_facts, of_trials
from headway.findings.facts import FULL_LINK, Facts
from headway.findings.sweeps import SweepFacts, TrialFacts, short_of_ideal
from headway.spec.job import Job, Strategy
from headway.spec.load import parse_job

KINDS = ("single", "ps-async", "ps-sync", "allreduce")
OF_SPEED = {rule.name for rule in rules() if rule.is_of_speed}
# How a text mentions a setting; others by their path.
MENTIONS: dict[Setting, str] = {
    "layout": r"\blayout\b",
    "strategy.kind": r"strategy:|strategy single",
    "strategy.aggregate": r"\baggregate\b",
    "strategy.placement": r"\bplacement\b",
    "strategy.pull_ahead": r"pull_ahead|pull ahead",
    "strategy.transfer": r"\btransfer\b|bfloat16",
    "cluster.ps": r"cluster\.ps|add a server",
    "cluster.evaluator": r"evaluator",
    "workload.dataset": r"workload\.dataset|data convert",
}


def mentioned(text: str) -> set[str]:
    patterns = {one: MENTIONS.get(one, re.escape(one).replace("ROLE", r"\w+")) for one in SETTINGS}
    return {one for one, pattern in patterns.items() if re.search(pattern, text)}


def noisy(facts: Facts) -> Facts:
    """The same, while others use the whole machine."""
    loud = {"machine_cpus": 2.0, **({"cpus": 2.0} if facts.site == "local" else {})}
    nodes = tuple(
        dataclasses.replace(
            one, series={**one.series, **{name: np.full(len(one.t), value) for name, value in loud.items()}}
        )
        for one in facts.nodes
    )
    return dataclasses.replace(facts, nodes=nodes, cores=2)


def check(found: list[Finding], job: JobKind | None, is_noisy: bool) -> None:
    for one in found:
        if is_noisy:
            assert one.certainty != "certain", one
            assert one.certainty == "possible" or one.rule not in OF_SPEED, one
        if job is not None:
            assert [name for name in one.settings if not job.has(name)] == [], one
        assert mentioned(one.advice) <= {*one.settings}, one
        assert one.advice[:1].isupper(), one
        assert one.advice.endswith("."), one
        assert not re.search(r"\b(nan|inf)\b", f"{one.text} {one.resource}"), one
        if one.rule != "server_count":  # which says by how much more servers are faster
            assert all(float(value) <= 100 for value in re.findall(r"([\d.]+) %", one.text)), one
        assert all(0 <= each.value <= 1 for each in one.evidence if each.unit == "share"), one


def check_run(facts: Facts) -> set[str]:
    found = of_facts(facts)
    said = {one.rule for one in found}
    check(found, facts.job, "noisy_machine" in said)
    if any(one.link_use >= FULL_LINK for one in facts.nodes):
        assert not said & {"too_small", "oversized"}
        if facts.num_steps >= 10 and facts.seconds >= 5:
            assert "network" in said
    assert "memory_grows" not in said or facts.seconds >= 120
    return said


# --- exhaustive: every condition in every kind of job -------------------------------------------------------------
IDLE = node("ps0", "ps/0", cpus=0.5, used=0.05, rate=GBIT / 10, series={"received": 5e6, "sent": 5e6})
ALL: dict[str, Facts] = {
    **CONDITIONS,
    "idle server": healthy(nodes=(IDLE, *healthy().nodes[1:])),
    "synchronous straggler": synchronous(late=0.12, last="worker/1"),
    "more than all CPUs": healthy(
        strategy="allreduce",
        nodes=(node("worker0", "worker/0", used=0.1), node("worker1", "worker/1", cpus=0.4, used=0.43)),
    ),
    "all-reduce on slow links": healthy(
        strategy="allreduce",
        nodes=tuple(
            node(f"worker{number}", f"worker/{number}", used=0.05, rate=12.5e6, series={"received": 1e7, "sent": 1e7})
            for number in range(4)
        ),
        tasks=tuple(task(f"worker/{number}", f"worker{number}", 1.2) for number in range(4)),
        server_bytes={},
        staleness=np.zeros(0),
    ),
}


@pytest.mark.parametrize("name", ALL)
def test_every_condition_in_every_kind_of_job(name: str) -> None:
    for kind, site, is_program, is_noisy in product(KINDS, ("emulated", "local"), (False, True), (False, True)):
        facts = dataclasses.replace(ALL[name], strategy=kind, site=site, is_program=is_program)
        said = check_run(noisy(facts) if is_noisy else facts)
        assert ("noisy_machine" in said) == is_noisy or name == "noisy_machine" or site == "local"


def test_that_is_every_rule_and_certain_ones_too() -> None:
    """Else the tests above would hold of rules that say nothing."""
    found = [one for facts in ALL.values() for one in of_facts(facts)]
    assert {one.rule for one in found} == {rule.name for rule in rules() if rule.look}
    assert {one.certainty for one in found} == {"certain", "likely", "possible"}


def test_a_full_link_of_an_all_reduce_is_named_and_only_what_the_job_has_is_advised() -> None:
    facts = ALL["all-reduce on slow links"]
    (found,) = [one for one in of_facts(facts) if one.trouble]
    assert found.rule == "network"
    assert found.title == "A node's network is saturated"
    assert found.resource == "network of worker0, worker1 and 2 more"
    assert "The network of worker0 (worker/0) was full 100 % of the time" in found.text
    assert found.settings == ("site.nodes", "strategy.transfer")
    (of_program,) = [one for one in of_facts(dataclasses.replace(facts, is_program=True)) if one.trouble]
    assert of_program.settings == ("site.nodes",)
    (halved,) = [one for one in of_facts(dataclasses.replace(facts, transfer="bfloat16")) if one.trouble]
    assert halved.settings == ("site.nodes",)  # it has that already


# --- any run ------------------------------------------------------------------------------------------------------
def series(low: float, high: float) -> st.SearchStrategy[Any]:
    """A level, one that changes in the middle, one that rises all the time, or bursts."""
    count = len(times())
    level = st.floats(low, high)
    return st.one_of(
        level,
        st.tuples(level, level).map(lambda pair: np.where(np.arange(count) < count // 2, *pair)),
        st.tuples(level, level).map(lambda pair: np.linspace(*pair, count)),
        st.tuples(level, level).map(lambda pair: np.where(np.arange(count) % 4 < 3, *pair)),
    )


@st.composite
def any_node(draw: st.DrawFn, name: str, tasks: tuple[str, ...]) -> Any:
    cpus = draw(st.one_of(st.none(), st.floats(0.05, 2)))
    rate = draw(st.one_of(st.none(), st.sampled_from([12.5e6, GBIT])))
    traffic = {way: draw(series(0, 1.02)) * (rate or GBIT) for way in ("received", "sent")}
    optional = {
        "throttled": series(0, 2),
        "credits": series(0, 2),
        "memory": series(1e8, 2e9),
        "disk_read": series(0, 3e6),
        "loopback_sent": series(0, 4e7),
        "io_pressure": series(0, 1),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(optional))))
    more = {key: draw(optional[key]) for key in sorted(chosen)}
    return node(
        name,
        *tasks,
        cpus=cpus,
        used=draw(series(0, 1.05)) * (cpus or 1.0),
        rate=rate,
        disk_read=draw(st.sampled_from([None, 2e6])),
        oom_kills=draw(st.sampled_from([0, 0, 0, 1])),
        series={**traffic, **more, "machine_cpus": draw(series(0.2, 2.0)), "steal": draw(series(0, 0.2))},
    )


@st.composite
def any_task(draw: st.DrawFn, name: str) -> Any:
    step = draw(st.sampled_from([0.004, 0.05, 0.2, 0.6]))
    lengths = np.full(round(SECONDS / step), step)
    if draw(st.booleans()):  # a pause, or a rate that is another one later
        lengths = lengths[: max(12, len(lengths) // 2)].copy()
        lengths[draw(st.integers(0, len(lengths) - 1)) :][: draw(st.sampled_from([1, 1000]))] *= draw(
            st.sampled_from([0.3, 3, 30, 1000])
        )
    waited = draw(st.floats(0, 1)) * float(np.min(lengths))
    return task(
        name,
        name.replace("/", ""),
        lengths,
        input_seconds=waited,
        threads=draw(st.sampled_from([1, 2, 16])),
        batch=draw(st.sampled_from([10, 100])),
        rss=draw(series(1e8, 1.9e9)),
        loss=draw(st.sampled_from([1.0, np.nan])) * np.geomspace(1, draw(st.sampled_from([0.1, 10])), len(lengths)),
    )


@st.composite
def any_run(draw: st.DrawFn) -> Facts:
    kind = draw(st.sampled_from(KINDS))
    workers = [f"worker/{number}" for number in range(1 if kind == "single" else draw(st.integers(1, 3)))]
    has_servers = kind.startswith("ps-")
    beside = has_servers and draw(st.booleans())
    nodes = [
        draw(any_node(name.replace("/", ""), (name, *(("ps/0",) if beside and name == workers[0] else ()))))
        for name in workers
    ]
    nodes += [draw(any_node("ps0", ("ps/0",)))] if has_servers and not beside else []
    tasks = [draw(any_task(name)) for name in workers]
    tasks += [server()] if has_servers else []
    late = draw(st.floats(0, 0.24))
    updates = {"t": START + np.arange(0.25, SECONDS, 0.25), "spread": np.full(119, late)}
    held = {"ps/0": 12e6, **({"ps/1": draw(st.floats(0, 2e7))} if draw(st.booleans()) else {})}
    return healthy(
        strategy=kind,
        site=draw(st.sampled_from(["emulated", "emulated", "local"])),
        is_program=draw(st.booleans()),
        nodes=tuple(nodes),
        tasks=tuple(tasks),
        end=max(float(one.get("t")[-1]) for one in tasks if one.trains),
        fabric=draw(st.sampled_from([None, 12.5e6])),
        updates=updates if kind == "ps-sync" else {},
        last_of=tuple(draw(st.sampled_from(workers)) for _ in range(119)) if kind == "ps-sync" else (),
        staleness=np.full(100, draw(st.floats(0, 4))) if kind == "ps-async" else np.zeros(0),
        server_bytes=held if has_servers else {},
    )


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(any_run())
def test_of_any_run_nothing_false_is_claimed(facts: Facts) -> None:
    check_run(facts)
    check_run(noisy(facts))


# --- any sweep ----------------------------------------------------------------------------------------------------
@st.composite
def any_trial(draw: st.DrawFn, number: int, tasks: int, is_baseline: bool) -> TrialFacts:
    rate = draw(st.floats(1, 1000))
    kind = draw(st.sampled_from(KINDS[1:])) if tasks > 1 else "single"
    return TrialFacts(
        name=f"trial{number}",
        settings={"cluster.training": tasks},
        strategy=kind,
        tasks=tasks,
        num_ps=draw(st.integers(1, 2)) if kind.startswith("ps-") else 0,
        is_baseline=is_baseline,
        batch_size=draw(st.sampled_from([10, 20])),
        steps=100,
        asked_batch=10,
        samples=tuple(rate * (1 + 0.01 * repeat) for repeat in range(draw(st.integers(1, 3)))),
        accuracy=draw(st.floats(0, 1)),
        staleness=draw(st.floats(0, 3)),
        node_cpus=draw(st.sampled_from([None, 0.4, 0.8])),
        site=draw(st.sampled_from(["local", "emulated"])),
        is_program=draw(st.booleans()),
        waits_for_network=draw(st.booleans()),
        is_noisy=draw(st.booleans()),
        is_explained=draw(st.sampled_from([None, True, False])),
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(2, 4), min_size=1, max_size=4).flatmap(
    lambda sizes: st.tuples(any_trial(0, 1, True), *(any_trial(one + 1, size, False) for one, size in enumerate(sizes)))
))  # fmt: skip
def test_of_any_sweep_nothing_false_is_claimed(trials: tuple[TrialFacts, ...]) -> None:
    sweep = SweepFacts("a-sweep", trials)
    found = of_trials(sweep)
    check(found, None, any(trial.is_noisy for trial in trials))
    for one in found:
        assert any(all(trial.job.has(name) for name in one.settings) for trial in trials), one
    if all(trial.waits_for_network for trial in trials[1:]):
        assert "too_small" not in {one.rule for one in found}
    short = {trial.name for trial, _ in short_of_ideal(sweep) if trial.is_explained is False}
    said = {one.resource.removeprefix("speed-up of ") for one in found if one.rule == "unexplained"}
    assert said == short


def a_sweep(rate: float, **changes: Any) -> list[Finding]:
    alone = TrialFacts("alone", {}, "single", samples=(100.0, 101.0, 99.0), is_baseline=True, node_cpus=0.4)
    two = TrialFacts("two", {}, "allreduce", 2, samples=(rate, rate * 1.01), node_cpus=0.4)
    return of_trials(SweepFacts("a-sweep", (alone, dataclasses.replace(two, **changes))))


def test_a_loss_that_no_rule_explains_is_said() -> None:
    (found,) = a_sweep(150, is_explained=False)
    assert found.trouble
    assert found.certainty == "certain"
    assert "two is 1.51 times as fast as alone, 75 % of ideal for 2 training tasks" in found.text
    assert a_sweep(150, is_explained=True) == []
    assert a_sweep(150, is_explained=None) == []  # nobody has asked
    assert a_sweep(185, is_explained=False) == []  # 0.93 of ideal
    assert [one.certainty for one in a_sweep(150, is_explained=False, is_noisy=True)] == ["possible"]


def test_a_model_is_not_too_small_where_a_link_was_full() -> None:
    assert [one.rule for one in a_sweep(50)] == ["too_small"]
    assert a_sweep(50, waits_for_network=True) == []


# --- settings ------------------------------------------------------------------------------------------------------
def test_every_setting_is_one_of_a_job() -> None:
    for path in SETTINGS:
        place: Any = Job.model_json_schema()
        whole = place
        for name in path.replace("ROLE", "worker").split("."):
            while "$ref" in place or "anyOf" in place or "oneOf" in place:
                options = place.get("anyOf") or place.get("oneOf") or [place]
                options = [whole["$defs"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in options]
                place = next(one for one in options if name in one.get("properties", {}))
            assert name in place["properties"], path
            place = place["properties"][name]


OTHER_VALUES: dict[Setting, Any] = {
    "strategy.aggregate": 1,
    "strategy.pull_ahead": 1,
    "strategy.transfer": "bfloat16",
}


@pytest.mark.parametrize(("setting", "kind"), list(product(OTHER_VALUES, KINDS)))
def test_a_strategy_has_the_settings_that_a_job_may_give_it(setting: Setting, kind: Any) -> None:
    asked = {"kind": kind, setting.rpartition(".")[2]: OTHER_VALUES[setting]}
    try:
        Strategy.model_validate(asked)
        is_allowed = True
    except ValueError:
        is_allowed = False
    assert JobKind(kind).has(setting) == is_allowed


def test_a_program_has_no_model_data_or_optimizer_and_no_say_in_its_strategy() -> None:
    program = JobKind("ps-sync", "emulated", is_program=True, has_servers=True)
    has = {one for one in SETTINGS if program.has(one)}
    assert has == {"cluster.ROLE.threads", "cluster.ps", "layout", "measure.warmup", "site.fabric", "site.nodes"}
    for path in ("workload.optimizer.learning_rate", "workload.dataset.name"):
        asked: dict[str, Any] = {"workload": {"command": "python train.py"}}
        parent, _, name = path.removeprefix("workload.").partition(".")
        asked["workload"][parent] = {name: 1}
        with pytest.raises(SpecError):
            parse_job(asked, origin="a test")


def advice_of_rules() -> list[tuple[str, Advice]]:
    return [(rule.name, one) for rule in rules() for one in rule.advice]


@pytest.mark.parametrize(("rule", "advice"), advice_of_rules(), ids=lambda one: one if isinstance(one, str) else "")
def test_advice_carries_the_setting_that_it_names(rule: str, advice: Advice) -> None:
    assert mentioned(advice.text) <= {advice.setting}
    assert advice.text[0].islower() or advice.text.startswith("PW")
    assert not advice.text.endswith(".")
