"""CPU credits run out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Array, Facts, Node
from headway.findings.words import cpus, quantity
from headway.units import format_seconds

NONE_LEFT = 0.01  # credits
SLOWLY = 1e-6  # credits per second that any account loses by rounding


def look(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        credits = node.get("credits")
        known = ~np.isnan(credits)
        if np.count_nonzero(known) < 10:
            continue
        t, left = node.t[known], credits[known]
        if np.any(left <= NONE_LEFT):
            yield _ran_out(facts, node, t, left)
            continue
        falling = (left[0] - left[-1]) / max(t[-1] - t[0], 1e-9)
        if falling <= SLOWLY:
            continue
        until = float(left[-1]) / falling
        if until > facts.seconds:
            continue
        yield RULE.finding(
            f"CPU credits of {node.name}",
            f"{node.name} loses {quantity(60 * falling)} CPU credits a minute and has {quantity(float(left[-1]))} "
            f"left: after {format_seconds(until)} more it slows down to what it earns.",
            "likely",
            Evidence("credits at the end", float(left[-1]), "credits", node.name),
            Evidence("credits lost", falling, "credits/s", node.name),
        )


def _ran_out(facts: Facts, node: Node, t: Array, left: Array) -> Finding:
    when = float(t[np.argmax(left <= NONE_LEFT)])
    allowed = node.get("cpus_allowed")
    least = float(np.nanmin(allowed)) if np.any(~np.isnan(allowed)) else float("nan")
    now = f"; since then it has {cpus(least)} instead of {cpus(node.cpus)}" if node.cpus and least < node.cpus else ""
    at = max(0.0, when - facts.start)
    said = f"ran out after {format_seconds(at)} of measured time" if at > 1 else "had run out when measuring began"
    return RULE.finding(
        f"CPU credits of {node.name}",
        f"The CPU credits of {node.name} ({', '.join(node.tasks)}) {said}{now}.",
        "certain",
        Evidence("credits", float(np.min(left)), "credits", node.name, when, None),
        *([Evidence("CPUs it may use without credits", least, "CPUs", node.name)] if not np.isnan(least) else []),
    )


RULE = Rule(
    name="credits",
    title="CPU credits run out",
    means="A burstable machine is fast while it has credits and slow from then on. E5's small server fell off in the "
    "middle of training, which was found by eye.",
    threshold="No credit is left at some time; or, at the rate of this run, none would be left after as long again.",
    advice="A machine that is not burstable, a larger one (it earns more), or the unlimited mode of the cloud.",
    needs="Nodes with credits (site.nodes.ROLE.credits).",
    look=look,
    is_of_speed=False,
)
