"""The fabric between the nodes is saturated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import BUSY_LINK, FULL_LINK, Facts
from headway.findings.words import percent
from headway.units import format_rate


def look(facts: Facts) -> Iterator[Finding]:
    busy = facts.fabric_full
    if not facts.fabric or busy < BUSY_LINK:
        return
    mean = float(np.mean(facts.fabric_rates))
    yield RULE.finding(
        facts.job,
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
    threshold=f"All nodes together send {percent(FULL_LINK)} of the fabric's rate or more in {percent(BUSY_LINK)} of "
    "the time or more.",
    advice=(
        Advice("use a faster fabric (site.fabric)", "site.fabric"),
        Advice("send half the bytes (strategy.transfer: bfloat16)", "strategy.transfer"),
        Advice("compute longer between two exchanges: a larger batch"),
    ),
    needs="The fabric's rate (site.fabric), and two or more nodes.",
    look=look,
)
