"""A node's network is saturated: a server's, or that of a training task in an all-reduce."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import BUSY_LINK, FULL_LINK, Facts, Node
from headway.findings.words import listed, percent
from headway.units import format_rate

SURE = 0.8
MOST_NAMED = 3
ADD_SERVERS = Advice("add a server (cluster.ps)", "cluster.ps")
PARTITIONED = Advice(
    "share large variables out over the servers (strategy.placement: partitioned)", "strategy.placement"
)
FEWER_BYTES = Advice("send half the bytes (strategy.transfer: bfloat16)", "strategy.transfer")
LARGER_BATCH = Advice("compute longer between two exchanges: a larger batch")


def look(facts: Facts) -> Iterator[Finding]:
    kinds: dict[bool, list[Node]] = {}
    for node in facts.nodes:
        if node.is_link_saturated:
            kinds.setdefault("ps" in node.roles, []).append(node)
    for serves, nodes in kinds.items():
        node = max(nodes, key=lambda one: one.link_full)
        busy, into, out = node.link_full, node.mean("received"), node.mean("sent")
        yield RULE.finding(
            facts.job,
            f"network of {_names(nodes)}",
            f"The network of {node.name} ({', '.join(node.tasks)}) was full {percent(busy)} of the time: "
            f"{format_rate(into)} in and {format_rate(out)} out on average, of {format_rate(node.rate)} each way."
            f"{_others(nodes, node)}",
            "certain" if busy >= SURE and node.cpu_full < 0.5 else "likely",
            Evidence(f"time with at least {percent(FULL_LINK)} of the rate in use", busy, "share", node.name),
            Evidence("received", into, "B/s", node.name),
            Evidence("sent", out, "B/s", node.name),
            Evidence("rate of the interface", node.rate or float("nan"), "B/s", node.name),
            title="A server's network is saturated" if serves else None,
            advice=_advice(facts, serves, nodes),
        )


def _names(nodes: list[Node]) -> str:
    names = [node.name for node in nodes]
    return listed(names if len(names) <= MOST_NAMED else [*names[: MOST_NAMED - 1], f"{len(names) - 2} more"])


def _others(nodes: list[Node], busiest: Node) -> str:
    rest = [node for node in nodes if node is not busiest]
    if not rest:
        return ""
    least = min(node.link_full for node in rest)
    return f" That of {_names(rest)} was, too, {percent(least)} of the time{' or more' if len(rest) > 1 else ''}."


def _faster(kind: str) -> Advice:
    return Advice(f"use a faster network (site.nodes.{kind}.rate)", "site.nodes")


def _advice(facts: Facts, serves: bool, nodes: list[Node]) -> tuple[Advice, ...]:
    """Nothing that the job has already."""
    faster = [_faster(kind) for kind in dict.fromkeys(node.name.rstrip("0123456789") for node in nodes)]
    is_spread = facts.placement == "partitioned" or len(facts.server_bytes) < 2
    options = [ADD_SERVERS, *([] if is_spread else [PARTITIONED])] if serves else []
    return (*options, *faster, *([] if facts.transfer == "bfloat16" else [FEWER_BYTES]), LARGER_BATCH)


RULE = Rule(
    name="network",
    title="A node's network is saturated",
    means="With servers, all training tasks pull variables from them and push gradients to them; in an all-reduce "
    "every task sends its gradients to others in every step. When a link on that way is full, tasks wait for it: "
    "more tasks or faster CPUs only wait longer.",
    threshold=f"At least {percent(FULL_LINK)} of the interface's rate is in use, inwards or outwards, in "
    f"{percent(BUSY_LINK)} of the time or more, or on average. Traffic comes in bursts: a node whose tasks mostly "
    "compute stays below a third of the time. Nodes with servers and others are told apart.",
    advice=(ADD_SERVERS, PARTITIONED, _faster("ROLE"), FEWER_BYTES, LARGER_BATCH),
    needs="The network rate of the node (site.nodes.ROLE.rate). Whatever its tasks run: a program of the user's, too, "
    "also one that tells of no step.",
    look=look,
    steps=0,
)
