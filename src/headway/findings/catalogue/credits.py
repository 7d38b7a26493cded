"""CPU credits run out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts, Node
from headway.findings.words import cpus, quantity
from headway.units import format_seconds

SLOWLY = 1e-6  # credits per second that any account loses by rounding


def look(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        credits = node.get("credits")
        known = ~np.isnan(credits)
        if np.count_nonzero(known) < 10:
            continue
        t, left = node.t[known], credits[known]
        if np.any(is_out := _is_out(node)[known]):
            yield _ran_out(facts, node, float(t[np.argmax(is_out)]))
            continue
        falling = (left[0] - left[-1]) / max(t[-1] - t[0], 1e-9)
        if falling <= SLOWLY:
            continue
        until = float(left[-1]) / falling
        if until > facts.seconds:
            continue
        yield RULE.finding(
            facts.job,
            f"CPU credits of {node.name}",
            f"{node.name} loses {quantity(60 * falling)} CPU credits a minute and has {quantity(float(left[-1]))} "
            f"left: after {format_seconds(until)} more it slows down to what it earns.",
            "likely",
            Evidence("credits at the end", float(left[-1]), "credits", node.name),
            Evidence("credits lost", falling, "credits/s", node.name),
        )


def _is_out(node: Node) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Of each sample: whether the node has slowed down. What it was allowed says so; where that was not recorded, a
    balance of nothing does. A little that is left is still the whole machine."""
    allowed, none_left = node.get("cpus_allowed"), node.get("credits") <= 0
    whole = node.cpus or (float(np.nanmax(allowed)) if np.any(~np.isnan(allowed)) else None)
    if whole is None or (node.cpus is None and not np.any(allowed < whole)):
        return none_left
    return np.where(np.isnan(allowed), none_left, allowed < whole)


def _ran_out(facts: Facts, node: Node, when: float) -> Finding:
    allowed = node.get("cpus_allowed")
    least = float(np.nanmin(allowed)) if np.any(~np.isnan(allowed)) else float("nan")
    now = f"; since then it has {cpus(least)} instead of {cpus(node.cpus)}" if node.cpus and least < node.cpus else ""
    at = max(0.0, when - facts.start)
    said = f"ran out after {format_seconds(at)} of measured time" if at > 1 else "had run out when measuring began"
    return RULE.finding(
        facts.job,
        f"CPU credits of {node.name}",
        f"The CPU credits of {node.name} ({', '.join(node.tasks)}) {said}{now}.",
        "certain",
        Evidence("credits", float(np.nanmin(node.get("credits"))), "credits", node.name, when, None),
        *([Evidence("CPUs it may use without credits", least, "CPUs", node.name)] if not np.isnan(least) else []),
    )


RULE = Rule(
    name="credits",
    title="CPU credits run out",
    means="A burstable machine is fast while it has credits and slow from then on. E5's small server fell off in the "
    "middle of training, which was found by eye.",
    threshold="At some time no credit is left and the node may use less than it has (as long as any is left, it is as "
    "fast as before); or, at the rate of this run, none would be left after as long again.",
    advice=(
        Advice("use a machine that is not burstable, or a larger one, which earns more (site.nodes)", "site.nodes"),
        Advice("use the unlimited mode of the cloud"),
    ),
    needs="Nodes with credits (site.nodes.ROLE.credits).",
    look=look,
    is_of_speed=False,
)
