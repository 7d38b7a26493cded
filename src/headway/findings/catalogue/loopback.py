"""Most traffic is between tasks of one node."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts
from headway.findings.words import percent
from headway.units import format_rate

SHARE = 0.6  # of all that a node sends
WORTH = 2e6  # bytes per second: less costs nothing
FULL_TIME = 0.6
LESS = 0.75  # of the full one's use, by another node


def look(facts: Facts) -> Iterator[Finding]:
    if len(facts.nodes) < 2:
        return
    for node in facts.nodes:
        inside, outside = node.mean("loopback_sent"), node.mean("sent")
        if not ("ps" in node.roles and node.trains and inside >= WORTH and inside >= SHARE * (inside + outside)):
            continue
        others = [other for other in facts.nodes if other is not node and other.trains and other.cpus]
        full = node.cpu_full if node.cpus else 0.0
        used = node.cpu_use if node.cpus else 0.0
        idlest = min(others, key=lambda other: other.cpu_use, default=None)
        least = idlest.cpu_use if idlest else float("nan")
        is_trouble = full >= FULL_TIME and least <= LESS * used
        beside = (
            f" Its CPU was full {percent(full)} of the time, while {idlest.name} used {percent(least)} of its own."
            if is_trouble and idlest
            else ""
        )
        yield RULE.finding(
            facts.job,
            f"loopback of {node.name}",
            f"{percent(inside / (inside + outside))} of what {node.name} ({', '.join(node.tasks)}) sends stays on it: "
            f"{format_rate(inside)} over loopback, {format_rate(outside)} over its network.{beside}",
            "likely" if is_trouble else "certain",
            Evidence("share of its traffic over loopback", inside / (inside + outside), "share", node.name),
            Evidence("loopback", inside, "B/s", node.name),
            Evidence("time with full CPU", full, "share", node.name),
            trouble=is_trouble,
        )


RULE = Rule(
    name="loopback",
    title="Most traffic is between tasks of one node",
    means="A server beside a training task exchanges variables with it over loopback. That is faster than any network, "
    "but it is paid with the CPU of that node (E4 took it for the transformer's bottleneck).",
    threshold=f"A node with servers and training tasks sends {percent(SHARE)} of its traffic over loopback, "
    f"{format_rate(WORTH)} or more. It is trouble where its CPU is full in {percent(FULL_TIME)} of the time or more "
    f"and another training node uses less than {percent(LESS)} as much of its own; else it is good to know.",
    advice=(
        Advice("put a server on every node (layout: PW-PW), or on a node of its own (PS-W-W)", "layout"),
        Advice("give the node more CPUs (site.nodes)", "site.nodes"),
        Advice("use fewer training tasks on the node of the server"),
    ),
    needs="Two or more nodes, one of them with a server and a training task.",
    look=look,
)
