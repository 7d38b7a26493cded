"""A role's machine is larger than it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts, Node, percentile
from headway.findings.words import cpus, percent

USED = 0.5  # half of it: the next smaller machine of most clouds would do
SHORT = 0.2  # of the time all that it may use is in use: without credits it would need more
ROOM = 1.25  # what is recommended has this much more than was used in nearly all of the time


def look(facts: Facts) -> Iterator[Finding]:
    kinds: dict[str, list[Node]] = {}
    for node in facts.nodes:
        if node.cpus and len(node.t):
            kinds.setdefault(node.name.rstrip("0123456789"), []).append(node)
    for kind, nodes in kinds.items():
        peak = max(percentile(node.get("cpus"), 95) for node in nodes)
        have = min(node.cpus for node in nodes if node.cpus)
        if not peak <= USED * have or max(node.cpu_full for node in nodes) >= SHORT:
            continue
        enough = math.ceil(peak * ROOM * 20) / 20
        names = f"{len(nodes)} nodes {kind}" if len(nodes) > 1 else nodes[0].name
        yield RULE.finding(
            f"CPU of {names}",
            f"{names} used at most {cpus(peak)} of {cpus(have)} in 95 % of the time: {cpus(enough)} would do.",
            "likely",
            Evidence("CPUs in use, 95th percentile", peak, "CPUs", nodes[0].name),
            Evidence("CPUs it has", have, "CPUs", nodes[0].name),
            trouble=False,
        )


RULE = Rule(
    name="oversized",
    title="A machine is larger than its role needs",
    means="A server or chief that is mostly idle costs as much as a busy one (E1 spent two of its steps of tuning on "
    "this).",
    threshold=f"In 95 % of the time a role's nodes use {percent(USED)} of their CPUs or less (and never all "
    f"that they may use for {percent(SHORT)} of the time): half a machine would do, and most clouds' next smaller "
    "machine is half as large. This is good to know, and no trouble.",
    advice="Take a smaller machine for this role (site.nodes), or put another task beside it (layout).",
    needs="Nodes whose CPUs are known (site.nodes).",
    look=look,
    seconds=8.0,
)
