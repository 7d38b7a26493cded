"""Training tasks mostly wait for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import isnan

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts, Task
from headway.findings.lagging import larger_batch
from headway.findings.words import percent
from headway.units import format_seconds

SHARE = 0.25
ALL_REDUCE_IDLE = 0.35  # of the others' CPUs, beside one that is used up: collectives themselves take some waiting


def look(facts: Facts) -> Iterator[Finding]:
    if facts.strategy == "ps-sync":
        yield from _at_servers(facts)
    elif facts.strategy == "allreduce":
        yield from _in_collectives(facts)


def _at_servers(facts: Facts) -> Iterator[Finding]:
    t, spread = (facts.updates.get(name, np.zeros(0)) for name in ("t", "spread"))
    if len(t) < RULE.steps or t[-1] <= t[0]:
        return
    share = float(np.sum(spread[1:])) / float(t[-1] - t[0])
    if share < SHARE:
        return
    last, count = Counter(facts.last_of).most_common(1)[0]
    often = count / len(facts.last_of)
    batch = _batch_of(facts, [task for task in facts.training if task.name == last])
    who = f"{last} came last in {percent(often)} of them{batch}" if often >= 0.6 else "it was not always the same task"
    each = float(np.mean(spread))
    yield RULE.finding(
        facts.job,
        "waiting at the barrier",
        f"Updates waited for their last gradient {percent(share)} of the time, {format_seconds(each)} each; {who}.",
        "certain" if share >= 0.4 else "likely",
        Evidence("time between an update's first gradient and its last", share, "share"),
        Evidence("... in each update", each, "s"),
        Evidence("updates in which the same task came last", often, "share", last),
    )


def _in_collectives(facts: Facts) -> Iterator[Finding]:
    shares = {
        node.name: node.cpu_use for task in facts.training if (node := facts.node_of(task)) and not isnan(node.cpu_use)
    }
    if len(shares) < 2 or max(shares.values()) < 0.8:
        return
    full, *_ = sorted(shares, key=lambda name: -shares[name])
    idle = 1 - min(shares.values()) / max(shares.values())
    if idle < ALL_REDUCE_IDLE:
        return
    lazy = min(shares, key=lambda name: shares[name])
    yield RULE.finding(
        facts.job,
        "waiting in collectives",
        f"Training tasks wait for {full}: it used {percent(shares[full])} of its CPUs, {lazy} only "
        f"{percent(shares[lazy])}{_batch_of(facts, [task for task in facts.training if task.node == full])}.",
        "likely",
        Evidence("idle while another computes", idle, "share", lazy),
        Evidence("CPUs in use", shares[full], "share", full),
    )


def _batch_of(facts: Facts, awaited: list[Task]) -> str:
    """Why they are waited for, where it is their batch."""
    words = next((batch for task in awaited if (batch := larger_batch(facts, task))), None)
    return f", for {words}" if words else ""


RULE = Rule(
    name="barrier",
    title="Training tasks mostly wait for each other",
    means="A synchronous update takes a gradient of every task (or of the first few), so each is as slow as the "
    "slowest.",
    threshold=f"ps-sync: the time between an update's first and last gradient is {percent(SHARE)} of all time or more; "
    "tasks that are alike arrive within a tenth. allreduce: one node's CPUs are used up, and another's idle for "
    f"{percent(ALL_REDUCE_IDLE)} beside it.",
    advice=(
        Advice("use machines that take the same time for a step (site.nodes)", "site.nodes"),
        Advice("give slow tasks a smaller batch (cluster.ROLE.batch_size)", "cluster.ROLE.batch_size"),
        Advice("do not wait for the last gradients (strategy.aggregate)", "strategy.aggregate"),
        Advice(
            "evaluate in a task of its own where the chief evaluates often (cluster.evaluator: 1)", "cluster.evaluator"
        ),
        Advice("do not wait at all (strategy: ps-async)", "strategy.kind"),
        Advice("give each task as much work as its machine does in the same time"),
    ),
    needs="ps-sync; or allreduce on nodes whose CPUs are known.",
    look=look,
)
