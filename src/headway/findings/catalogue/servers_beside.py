"""Servers beside training tasks would help."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts
from headway.findings.words import cpus, percent
from headway.units import format_rate

IDLE_SERVER = 0.5  # of its CPUs
ROOM = 0.85  # of a training node's CPUs in use: above, there is no room for a server
SHORT = 0.2  # of the time a server has all that it may use
TRAFFIC = 0.25  # of the network's rate


def look(facts: Facts) -> Iterator[Finding]:
    servers, training = facts.servers(), [node for node in facts.nodes if node.trains]
    if not servers or len(training) < 2 or any(node.cpus is None for node in (*servers, *training)):
        return
    used = sum(node.mean("cpus") for node in servers)
    has = sum(node.cpus or 0.0 for node in servers)
    busy = [node.cpu_use for node in training]
    links = [max(node.mean("received"), node.mean("sent")) / node.rate for node in servers if node.rate]
    room = sum((node.cpus or 0.0) - node.mean("cpus") for node in training)
    if (
        max(node.cpu_full for node in servers) >= SHORT
        or not used <= IDLE_SERVER * has
        or not float(np.mean(busy)) <= ROOM
        or used > room
    ):
        return
    if not links or max(links) < TRAFFIC:
        return
    moved = sum(node.mean("sent") for node in servers)
    layout = "-".join(["PW"] * len(training)) if len(training) <= 4 else "servers: beside_workers"
    yield RULE.finding(
        facts.job,
        "layout",
        f"The servers' own nodes use {cpus(used)} of {cpus(has)}, training nodes {percent(float(np.mean(busy)))} of "
        f"theirs, and {format_rate(moved)} cross the network that could in part stay on a node.",
        "possible",
        Evidence("CPUs in use on servers' nodes", used, "CPUs"),
        Evidence("CPUs in use on training nodes, share", float(np.mean(busy)), "share"),
        Evidence("sent by servers", moved, "B/s"),
        trouble=False,
        advice=(
            Advice(
                f"try layout: {layout}, with as many servers as training nodes: 1/{len(training)} of the traffic then "
                f"stays on its node, and {len(servers)} machine{'s' if len(servers) > 1 else ''} can be given back",
                "layout",
            ),
        ),
    )


RULE = Rule(
    name="servers_beside",
    title="Servers beside training tasks would help",
    means="Servers need little CPU. On the training tasks' nodes they save their machines, and a part of the traffic "
    "never leaves the node. E4: servers beside workers use the CPU best.",
    threshold=f"Servers' own nodes use {percent(IDLE_SERVER)} of their CPUs or less, which would fit into what "
    f"training nodes leave (they use {percent(ROOM)} or less, for they wait), and a server's network is "
    f"{percent(TRAFFIC)} in use or more on average. Good to know, and no trouble.",
    advice=(Advice("try layout: PW-PW, or {servers: beside_workers}", "layout"),),
    needs="Servers on nodes of their own, two or more training nodes, and the CPUs and network rate of all.",
    look=look,
)
