"""A server's network is saturated."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import FULL_LINK, Facts
from headway.findings.words import percent
from headway.units import format_rate

BUSY = 0.6  # of the time: a server that serves bursts of traffic to workers who compute stays below a third
SURE = 0.8


def look(facts: Facts) -> Iterator[Finding]:
    for node in facts.servers():
        if node.rate is None or (busy := node.link_full) < BUSY:
            continue
        into, out = node.mean("received"), node.mean("sent")
        sure = busy >= SURE and node.cpu_full < 0.5
        yield RULE.finding(
            f"network of {node.name}",
            f"The network of {node.name} ({', '.join(node.tasks)}) was full {percent(busy)} of the time: "
            f"{format_rate(into)} in and {format_rate(out)} out on average, of {format_rate(node.rate)} each way.",
            "certain" if sure else "likely",
            Evidence(f"time with at least {percent(FULL_LINK)} of the rate in use", busy, "share", node.name),
            Evidence("received", into, "B/s", node.name),
            Evidence("sent", out, "B/s", node.name),
            Evidence("rate of the interface", node.rate, "B/s", node.name),
        )


RULE = Rule(
    name="server_network",
    title="A server's network is saturated",
    means="All training tasks pull variables from the servers and push gradients to them. When the link of a server is "
    "full, more training tasks only wait longer.",
    threshold=f"At least {percent(FULL_LINK)} of the interface's rate is in use, inwards or outwards, in "
    f"{percent(BUSY)} of the time or more. Traffic comes in bursts: a server whose tasks mostly compute stays below a "
    "third of the time.",
    advice="Add a server (cluster.ps, placement: partitioned shares large variables out), give the server a faster "
    "network, send half the bytes (strategy.transfer: bfloat16), or compute longer between exchanges (a larger batch).",
    needs="A server with a node of its own whose network rate is known (site.nodes.ps.rate).",
    look=look,
)
