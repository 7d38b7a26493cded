"""More threads than CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts, median
from headway.findings.words import cpus, quantity
from headway.plural import counted

FACTOR = 3.0  # threads for each CPU: with two, one computes while the other waits


def look(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        has = max(1.0, node.cpus or node.cores or facts.cores or 0)
        mine = [task for task in facts.training if task.node == node.name and task.threads]
        threads = sum(task.threads or 0 for task in mine)
        # A task has one thread at least: where that alone is more than the CPUs, tasks are too many, not threads.
        if threads < FACTOR * max(has, len(mine)) or (node.cpus and not node.is_short_of_cpu):
            continue
        switches = sum(rate for task in mine if (rate := median(task.used("context_switches"))) > 0)
        often = f", and were switched {quantity(switches)} times a second" if switches else ""
        yield RULE.finding(
            facts.job,
            f"threads on {node.name}",
            f"The training tasks on {node.name} compute with {counted(threads, 'thread')} on "
            f"{cpus(node.cpus or has)}{often}.",
            "likely" if threads >= 2 * FACTOR * has else "possible",
            Evidence("threads for one operation, of all its tasks", threads, "threads", node.name),
            Evidence("CPUs", node.cpus or has, "CPUs", node.name),
            *([Evidence("switches between threads", switches, "1/s", node.name)] if switches else []),
        )


RULE = Rule(
    name="too_many_threads",
    title="More threads than CPUs",
    means="Threads that outnumber the CPUs take turns: caches are lost at every switch, and an operation waits for its "
    "last part.",
    threshold=f"{FACTOR:g} threads (intra_op, all training tasks of the node together) for each CPU or more, and "
    "for each task (where every task has but one, tasks are too many and not threads); on a node with known CPUs only "
    "where these are used up in 60 % of the time or more, or it wants half as much again.",
    advice=(
        Advice(
            "set cluster.ROLE.threads.intra_op to the CPUs of the node divided by its training tasks, or leave it out: "
            "that is the default",
            "cluster.ROLE.threads",
        ),
    ),
    needs="The threads of the tasks' settings, and the node's CPUs or cores.",
    look=look,
)
