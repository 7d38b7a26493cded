"""One server is enough, or there are too few."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.sweeps import SweepFacts, TrialFacts
from headway.findings.words import percent, quantity
from headway.plural import counted

SAME = 0.05  # of the best rate: as good as the best
BETTER = 0.10


def look_at_sweep(sweep: SweepFacts) -> Iterator[Finding]:
    for group in sweep.groups("cluster.ps"):
        by_servers: dict[int, TrialFacts] = {}
        for trial in group:
            if trial.num_ps and trial.samples:
                by_servers[trial.num_ps] = trial
        if len(by_servers) < 2:
            continue
        fewest, best = min(by_servers), max(by_servers, key=lambda count: by_servers[count].median)
        small, large = by_servers[fewest], by_servers[best]
        gain = large.median / small.median - 1
        rates = ", ".join(f"{count}: {quantity(trial.median)}" for count, trial in sorted(by_servers.items()))
        where = f" with {counted(small.tasks, 'training task')}" if small.tasks else ""
        if gain <= SAME:
            yield RULE.finding(
                small.job,
                "number of servers",
                f"{_servers(fewest)} {'is' if fewest == 1 else 'are'} enough{where}: more are at most "
                f"{percent(max(gain, 0.0))} faster (examples/s by servers: {rates}).",
                "likely" if min(len(small.samples), len(large.samples)) > 1 else "possible",
                Evidence("as fast with more servers", 1 + gain, "times"),
                trouble=False,
                title="One server is enough" if fewest == 1 else "The fewest servers are enough",
                advice=(Advice(f"use {_servers(fewest).lower()} (cluster.ps)", "cluster.ps"),),
            )
        elif gain >= BETTER and best != fewest:
            apart = min(large.samples) > max(small.samples)
            yield RULE.finding(
                small.job,
                "number of servers",
                f"{_servers(fewest)} {'is' if fewest == 1 else 'are'} too few{where}: {best} are {percent(gain)} "
                f"faster (examples/s by servers: {rates}).",
                "certain" if apart and len(small.samples) > 1 else "likely" if apart else "possible",
                Evidence(f"as fast with {counted(best, 'server')}", 1 + gain, "times"),
                advice=(Advice(f"use {_servers(best).lower()} (cluster.ps)", "cluster.ps"),),
            )


def _servers(count: int) -> str:
    return "One server" if count == 1 else f"{count} servers"


RULE = Rule(
    name="server_count",
    title="There are too few servers",
    means="More servers share the traffic and the work of updates, and cost machines (E1: one was enough; E2 searched "
    "for the best number in weeks).",
    threshold=f"Among trials that differ only in the number of servers: the fewest are enough when more give "
    f"{percent(SAME)} or less, and too few when more give {percent(BETTER)} or more; between the two nothing is said.",
    advice=(Advice("use the best number of the sweep (cluster.ps)", "cluster.ps"),),
    needs="A sweep that varies cluster.ps.",
    look_at_sweep=look_at_sweep,
)
