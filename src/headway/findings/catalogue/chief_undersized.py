"""The chief's machine is too small."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts
from headway.findings.lagging import has_less, lag, larger_batch
from headway.findings.words import cpus, percent

SLOWER = 1.3  # times the other tasks' step: machines that are alike differ by a tenth


def look(facts: Facts) -> Iterator[Finding]:
    chief = facts.chief
    if chief is None or len(facts.training) < 2:
        return
    node = facts.node_of(chief)
    if node is None or node.cpus is None or not node.is_short_of_cpu or not has_less(facts, chief):
        return
    full = node.cpu_full
    short = node.mean("throttled")
    wanted = f", and it wanted {cpus(short)} more" if short > 0 else ""
    behind = lag(facts, chief)
    if behind is None or behind.factor < SLOWER:
        return
    others = [other for task in facts.training if task is not chief and (other := facts.node_of(task))]
    theirs = [other.cpu_full for other in others]
    batch = larger_batch(facts, chief)
    besides = f" Besides, {batch}." if batch else ""
    yield RULE.finding(
        facts.job,
        f"CPU of {node.name}",
        f"The chief ({chief.name} on {node.name}) is slower than the other training tasks: {behind.text}. Its CPU was "
        f"full {percent(full)} of the time ({cpus(node.mean('cpus'))} of {cpus(node.cpus)}{wanted}).{besides}",
        "certain" if full >= 0.8 and behind.factor >= 1.5 else "likely",
        Evidence("time with full CPU", full, "share", node.name),
        Evidence("wanted and not got", short, "CPUs", node.name),
        Evidence("slower than the other tasks by", behind.factor, "times", chief.name),
        *([Evidence("time with full CPU of the others", float(max(theirs)), "share")] if theirs else []),
    )


RULE = Rule(
    name="chief_undersized",
    title="The chief's machine is too small",
    means="The chief trains as the others do, and also evaluates, saves and exports. On too small a machine it falls "
    "behind; in a synchronous strategy everybody then waits for it (E1 found this in three paid steps).",
    threshold="The chief's machine has fewer CPUs than the other tasks', or more tasks on it; its CPU is full in 60 % "
    "of the time or more, or it wants half as much again as it has; and its steps take "
    f"{SLOWER} times as long as the other tasks' (ps-async: for an example, where batches differ; synchronous: it "
    "comes last in most updates, and they wait that long). Equal machines differ by a tenth. A chief that is behind "
    "on a machine like the others' is a straggler: its batch may be larger.",
    advice=(
        Advice(
            "give the chief a machine as large as the workers', or larger by what evaluating takes (site.nodes.chief)",
            "site.nodes",
        ),
        Advice("evaluate in a task of its own (cluster.evaluator: 1)", "cluster.evaluator"),
        Advice("give the chief less work"),
    ),
    needs="Two or more training tasks; the CPUs of the chief's node (site.nodes).",
    look=look,
)
