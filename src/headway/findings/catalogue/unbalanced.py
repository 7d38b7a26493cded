"""Variables are unevenly shared out over the servers."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts
from headway.findings.words import percent
from headway.plural import counted
from headway.units import format_bytes

UNEVEN = 1.5  # times an even share
WORTH = 1e6  # bytes in all: with less, messages cost more than bytes


def look(facts: Facts) -> Iterator[Finding]:
    total, count = sum(facts.server_bytes.values()), len(facts.server_bytes)
    if count < 2 or total < WORTH:
        return
    server, most = max(facts.server_bytes.items(), key=lambda pair: pair[1])
    if most < UNEVEN * total / count:
        return
    how = f" with placement: {facts.placement}" if facts.placement else ""
    yield RULE.finding(
        facts.job,
        f"variables on {server}",
        f"{server} holds {percent(most / total)} of the variables ({format_bytes(most)} of "
        f"{format_bytes(total)}){how}; an even share of {counted(count, 'server')} would be {percent(1 / count)}.",
        "certain",
        Evidence("share of the variables' bytes", most / total, "share", server),
        Evidence("an even share", 1 / count, "share"),
    )


RULE = Rule(
    name="unbalanced",
    title="Variables are unevenly shared out over the servers",
    means="Each server sends and receives what it holds. One that holds most of the bytes is the only one that works: "
    "the others are paid for nothing.",
    threshold=f"One server holds {UNEVEN} times an even share or more, of variables of {format_bytes(WORTH)} in all or "
    "more. Of smaller models messages cost more than bytes, and balance does not matter.",
    advice=(
        Advice("split large variables over all servers (strategy.placement: partitioned)", "strategy.placement"),
        Advice("use one server (cluster.ps: 1)", "cluster.ps"),
    ),
    needs="Two or more servers, and the chief's record of what is where.",
    look=look,
    steps=1,
    seconds=0.0,
    is_of_speed=False,
)
