"""The fabric between the nodes is saturated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import FULL_LINK, Facts
from headway.findings.words import percent
from headway.units import format_rate

BUSY = 0.6


def look(facts: Facts) -> Iterator[Finding]:
    nodes = [node for node in facts.nodes if len(node.t) > 1]
    if not facts.fabric or len(nodes) < 2:
        return
    width = 2 * float(np.median(np.concatenate([node.get("seconds") for node in nodes])))
    edges = np.arange(facts.start, facts.end + width, width)
    total = np.zeros(len(edges))
    for node in nodes:  # what each sent until then, whenever it was sampled
        sent = np.cumsum(np.nan_to_num(node.get("sent") * node.get("seconds")))
        total += np.interp(edges, node.t, sent)
    rates = np.diff(total) / width
    busy = float(np.mean(rates >= FULL_LINK * facts.fabric))
    if busy < BUSY:
        return
    mean = float(np.mean(rates))
    yield RULE.finding(
        "fabric",
        f"The fabric between the nodes was full {percent(busy)} of the time: {format_rate(mean)} on average of "
        f"{format_rate(facts.fabric)}.",
        "certain" if busy >= 0.8 else "likely",
        Evidence(f"time with at least {percent(FULL_LINK)} of the rate in use", busy, "share"),
        Evidence("traffic between nodes", mean, "B/s"),
        Evidence("rate of the fabric", facts.fabric, "B/s"),
    )


RULE = Rule(
    name="fabric",
    title="The fabric between the nodes is saturated",
    means="All traffic between nodes crosses one link or switch. When that is full, faster interfaces and more servers "
    "do not help.",
    threshold=f"All nodes together send {percent(FULL_LINK)} of the fabric's rate or more in {percent(BUSY)} of the "
    "time or more.",
    advice="Send less: servers beside training tasks (layout: PW-PW), allreduce (each link carries half), "
    "strategy.transfer: bfloat16, a larger batch; or a faster fabric.",
    needs="The fabric's rate (site.fabric), and two or more nodes.",
    look=look,
)
