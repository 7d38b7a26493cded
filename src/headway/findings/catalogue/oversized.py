"""A role's machine is larger than it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.catalogue import barrier, credits, input_bound, server_cpu, storage
from headway.findings.facts import Facts, Node, percentile
from headway.findings.words import cpus, percent

USED = 0.5  # half of it: the next smaller machine of most clouds would do
SHORT = 0.2  # of the time all that it may use is in use: without credits it would need more
ROOM = 1.25  # what is recommended has this much more than was used in nearly all of the time
THROTTLED = 0.05  # of a training node's CPUs, wanted and not got: in its bursts it uses all that it has
# What training waits for, the most telling first. None of them needs a longer run than this rule.
BOTTLENECKS = (storage, input_bound, server_cpu, credits, barrier)


def look(facts: Facts) -> Iterator[Finding]:
    if facts.waits_for_network:
        return  # who waits for the network looks idle, whatever its machine
    kinds: dict[str, list[Node]] = {}
    for node in facts.nodes:
        if node.cpus and len(node.t):
            kinds.setdefault(node.name.rstrip("0123456789"), []).append(node)
    waited_for = _waited_for(facts)
    for kind, nodes in kinds.items():
        peak = max(percentile(node.get("cpus"), 95) for node in nodes)
        have = min(node.cpus for node in nodes if node.cpus)
        if not peak <= USED * have or max(node.cpu_full for node in nodes) >= SHORT:
            continue
        if any(node.trains and node.mean("throttled") >= THROTTLED * have for node in nodes):
            continue
        enough = math.ceil(peak * ROOM * 20) / 20
        names = f"{len(nodes)} nodes {kind}" if len(nodes) > 1 else nodes[0].name
        yield RULE.finding(
            facts.job,
            f"CPU of {names}",
            f"{names} used at most {cpus(peak)} of {cpus(have)} in 95 % of the time: {cpus(enough)} would do"
            + (f" as long as training waits for {waited_for}; without that it may need more." if waited_for else "."),
            "possible" if waited_for else "likely",
            Evidence("CPUs in use, 95th percentile", peak, "CPUs", nodes[0].name),
            Evidence("CPUs it has", have, "CPUs", nodes[0].name),
            trouble=False,
            advice=(Advice(f"see the finding about {waited_for} first; then measure again"),) if waited_for else None,
        )


def _waited_for(facts: Facts) -> str | None:
    """What holds training up, where another finding says so: who waits for it looks idle."""
    found = (one for rule in BOTTLENECKS for one in rule.look(facts) if one.trouble and _has_happened(one))
    named = ("slowest task" if one.rule == barrier.RULE.name else one.resource for one in found)
    return next((f"the {name}" for name in named), None)


def _has_happened(finding: Finding) -> bool:
    return finding.rule != credits.RULE.name or finding.certainty == "certain"


RULE = Rule(
    name="oversized",
    title="A machine is larger than its role needs",
    means="A server or chief that is mostly idle costs as much as a busy one (E1 spent two of its steps of tuning on "
    "this).",
    threshold=f"In 95 % of the time a role's nodes use {percent(USED)} of their CPUs or less (and never all "
    f"that they may use for {percent(SHORT)} of the time): half a machine would do, and most clouds' next smaller "
    f"machine is half as large. Nothing is said of training nodes that want {percent(THROTTLED)} of their CPUs more "
    "than they get: these compute in bursts and wait between them. Where another finding says what training waits "
    "for, this is only possible, and holds as long as that stays; where a link or the fabric is full, nothing is said. "
    "It is good to know, and no trouble.",
    advice=(
        Advice("use a smaller machine for this role (site.nodes)", "site.nodes"),
        Advice("put another task beside it (layout)", "layout"),
    ),
    needs="Nodes whose CPUs are known (site.nodes).",
    look=look,
    seconds=8.0,
)
