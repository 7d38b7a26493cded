"""One training task is slower than the others."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.catalogue.input_bound import SHARE, input_wait
from headway.findings.facts import Facts, Node, Task
from headway.findings.lagging import Lag, has_less, lag, larger_batch
from headway.findings.words import cpus, percent

SLOWER = 1.4
LINK_FULL = 0.5
SMALLER_BATCH = (
    Advice(
        "its machine is like the others': give it as small a batch as theirs (cluster.ROLE.batch_size)",
        "cluster.ROLE.batch_size",
    ),
    Advice("give all tasks batches that take the same time"),
)
SHARED = 0.3  # of the time: a server whose network is full that long serves one task after the other


def look(facts: Facts) -> Iterator[Finding]:
    behind: list[tuple[Lag, Task]] = []
    for task in facts.training:
        found = lag(facts, task)
        node = facts.node_of(task)
        if task is facts.chief and node is not None and node.is_short_of_cpu and has_less(facts, task):
            continue  # the finding about the chief's machine says so
        if facts.strategy == "ps-async" and _is_served_less(facts, task):
            continue  # the server's network decides who is slow, and another time it is another task
        if found is not None and found.factor >= SLOWER:
            behind.append((found, task))
    if not behind or len(behind) * 2 > len(facts.training):
        return  # nobody, or as many as not: then tasks are of two kinds
    how, task = max(behind, key=lambda pair: pair[0].factor)
    node = facts.node_of(task)
    is_its_batch = larger_batch(facts, task) is not None and not has_less(facts, task)
    yield RULE.finding(
        facts.job,
        task.name,
        f"{task.name} is slower than the other training tasks: {how.text}. {_why(facts, task, node)}",
        "likely" if how.factor >= 1.6 else "possible",
        Evidence("slower than the other tasks by", how.factor, "times", task.name),
        *([Evidence("time with full CPU", node.cpu_full, "share", node.name)] if node and node.cpus else []),
        *([Evidence("time with full network", node.link_full, "share", node.name)] if node and node.rate else []),
        advice=SMALLER_BATCH if is_its_batch else None,
    )


def _is_served_less(facts: Facts, task: Task) -> bool:
    """Its machine is like the others' and has all it needs; what they share is busy, and not shared out equally."""
    node = facts.node_of(task)
    busy = [server for server in facts.servers() if server.link_full >= SHARED or server.is_short_of_cpu]
    if node is None or not busy or node.is_short_of_cpu or node.link_full >= LINK_FULL or input_wait(task)[0] >= SHARE:
        return False
    machines = [machine for one in facts.training if (machine := facts.node_of(one))]
    return len({(machine.cpus, machine.rate, len(machine.tasks)) for machine in machines}) == 1


def _why(facts: Facts, task: Task, node: Node | None) -> str:
    if node is None:
        return "Why cannot be seen."
    others = [other for one in facts.training if one is not task and (other := facts.node_of(one)) and other != node]
    if node.rate and node.link_full >= LINK_FULL:
        return f"The network of {node.name} was full {percent(node.link_full)} of the time."
    if (batch := larger_batch(facts, task)) and not has_less(facts, task):
        return f"The cause is the work it is given, not its machine: {batch}."
    if node.cpus and node.is_short_of_cpu:
        most = max((other.cpus or 0.0 for other in others), default=0.0)
        beside = [name for name in node.tasks if name != task.name]
        shared = f", which it shares with {', '.join(beside)}" if beside else ""
        less = f" (others have {cpus(most)})" if most > node.cpus else ""
        return f"The CPU of {node.name}{shared} was full {percent(node.cpu_full)} of the time{less}."
    if "ps" not in node.roles and any("ps" in other.roles for other in others):
        return f"Its variables cross the network; those of a task beside a server need not ({others[0].name})."
    return f"Neither CPU nor network of {node.name} was full: look at its input, or at what else it does."


RULE = Rule(
    name="straggler",
    title="One training task is slower than the others",
    means="A slow task holds everybody up in a synchronous strategy; in an asynchronous one its gradients are stale "
    "and its machine gives less than it costs.",
    threshold=f"Its steps take {SLOWER} times as long as the others' in the median (ps-async: for an example, where "
    "batches differ; ps-sync: it comes last in most updates, and the update waits that long; allreduce: it computes "
    "while the others' CPUs idle). If more than half of the tasks are slow, they are of two kinds and nobody is a "
    "straggler. Nor is a task of ps-async whose "
    f"machine is like the others' and lacks nothing, while the network of a server is full {percent(SHARED)} of the "
    "time or its CPU is short: what is busy is not shared out equally.",
    advice=(
        Advice("give it a machine like the others' (site.nodes)", "site.nodes"),
        Advice("give it a smaller batch (cluster.ROLE.batch_size)", "cluster.ROLE.batch_size"),
        Advice("do not wait for it (strategy.aggregate one below the number of tasks)", "strategy.aggregate"),
        Advice("look at what else its machine does"),
    ),
    needs="Two or more training tasks; for all-reduce their nodes' CPUs.",
    look=look,
)
