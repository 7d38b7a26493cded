"""Memory is near its limit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts
from headway.findings.words import percent
from headway.units import format_bytes

NEAR = 0.9
OWN = 0.6  # of the limit is the tasks' own: the rest of a full node may be files that the kernel drops when it must


def look(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node.oom_kills:
            yield RULE.finding(
                facts.job,
                f"memory of {node.name}",
                f"{node.name} ran out of memory: {node.oom_kills} "
                f"process{'es were' if node.oom_kills > 1 else ' was'} killed at {format_bytes(node.memory_limit)}.",
                "certain",
                Evidence("processes killed for want of memory", node.oom_kills, "processes", node.name),
            )
            continue
        memory = node.get("memory")
        if not node.memory_limit or not np.any(~np.isnan(memory)):
            continue
        peak = float(np.nanmax(memory))
        own = sum(
            float(np.nanmax(rss)) for task in facts.tasks if task.node == node.name and len(rss := task.used("rss"))
        )
        if peak < NEAR * node.memory_limit or own < OWN * node.memory_limit:
            continue
        yield RULE.finding(
            facts.job,
            f"memory of {node.name}",
            f"{node.name} used {format_bytes(peak)} of {format_bytes(node.memory_limit)} memory "
            f"({percent(min(1.0, peak / node.memory_limit))}), its tasks {format_bytes(own)}: a little more, and a "
            "task is killed.",
            "likely",
            Evidence("most memory in use", peak, "B", node.name),
            Evidence("limit", node.memory_limit, "B", node.name),
            Evidence("memory of its tasks", own, "B", node.name),
        )


RULE = Rule(
    name="memory_limit",
    title="Memory is near its limit",
    means="A task that wants more memory than its machine has is killed; before that, files that it reads are dropped "
    "from memory and read again.",
    threshold=f"A node uses {percent(NEAR)} of its memory or more, and its tasks themselves {percent(OWN)} or more of "
    "it (the rest may be files that the kernel can drop); or a process was killed for want of memory.",
    advice=(
        Advice("use a machine with more memory (site.nodes)", "site.nodes"),
        Advice("use fewer tasks on the node (layout)", "layout"),
        Advice("hold the variables on more servers (cluster.ps)", "cluster.ps"),
        Advice("use a smaller batch"),
    ),
    needs="A memory limit or size of the node, and samples.",
    look=look,
    steps=0,
    seconds=0.0,
    is_of_speed=False,
)
