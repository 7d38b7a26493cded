"""A server's CPU is saturated."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import FULL, Facts
from headway.findings.words import cpus, percent

BUSY = 0.6
SURE = 0.8


def look(facts: Facts) -> Iterator[Finding]:
    for node in facts.servers():
        if node.cpus is None or (busy := node.cpu_full) < BUSY:
            continue
        used, throttled = node.mean("cpus"), node.mean("throttled")
        yield RULE.finding(
            facts.job,
            f"CPU of {node.name}",
            f"The CPU of {node.name} ({', '.join(node.tasks)}) was full {percent(busy)} of the time: it used "
            f"{cpus(used)} of {cpus(node.cpus)} on average.",
            "certain" if busy >= SURE else "likely",
            Evidence(f"time with at least {percent(FULL)} of its CPUs in use", busy, "share", node.name),
            Evidence("CPUs in use", used, "CPUs", node.name),
            Evidence("CPUs it has", node.cpus, "CPUs", node.name),
            Evidence("wanted and not got", throttled, "CPUs", node.name),
        )


RULE = Rule(
    name="server_cpu",
    title="A server's CPU is saturated",
    means="A server applies every gradient and answers every pull. When its CPU is full, all training tasks wait for "
    "it.",
    threshold=f"At least {percent(FULL)} of what the node may use is in use in {percent(BUSY)} of the time or more. A "
    "server that keeps up with its tasks is idle between their messages.",
    advice=(
        Advice("give the server a machine with more CPUs (site.nodes.ps)", "site.nodes"),
        Advice("add a server (cluster.ps)", "cluster.ps"),
        Advice("choose an optimizer with less work for it (workload.optimizer)", "workload.optimizer"),
        Advice("compute longer between two exchanges: a larger batch"),
    ),
    needs="A server with a node of its own whose CPUs are known (site.nodes.ps.cpus).",
    look=look,
)
