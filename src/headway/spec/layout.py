"""Which task runs on which node. Pure, and the same on every site.

A layout is a text, or a rule that scales with the cluster:

    PS-W-W        three nodes: a server; a training task (the first one is the chief); a training task
    PW-PW         two nodes, each with a server and a training task
    M-PS-W*       a chief of its own, a server, and as many further nodes as there are training tasks left
    {servers: beside_workers, ps_per_node: 1, worker_per_node: 2}
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from headway.errors import HeadwayError
from headway.plural import counted
from headway.spec.cluster import MOST_PLACED, MOST_TASKS, Cluster, Strict, Task

NodeKind = Literal["chief", "worker", "ps"]
Letter = Literal["M", "P", "W"]
NODE_KINDS: tuple[NodeKind, ...] = get_args(NodeKind)
_NODE = re.compile(r"(?P<letters>(?:PS|[PWM])+)(?:\*(?P<times>[1-9][0-9]{0,17})?)?")
MOST_TEXT = 8 * MOST_PLACED  # letters; more tasks than are allowed
EXAMPLES = "PS-W-W, PW-PW or M-PS-W*"


class LayoutError(HeadwayError):
    """A layout that cannot be read, or does not fit the cluster."""


class Rule(Strict):
    """A layout that scales with the number of tasks."""

    servers: Literal["own", "beside_workers"] = "own"
    """Whether servers have nodes of their own, or share those of training tasks."""
    ps_per_node: Annotated[int, Field(ge=1, le=MOST_TASKS)] = 1
    """Servers on each node that has any."""
    worker_per_node: Annotated[int, Field(ge=1, le=MOST_TASKS)] = 1
    """Training tasks, the chief among them, on each node that has any."""


@dataclass(frozen=True)
class Host:
    """A node before a site makes one of it: its name, what kind of machine it is, and who runs on it."""

    name: str
    kind: NodeKind
    tasks: tuple[Task, ...]


def parse(text: str) -> list[tuple[str, int | None]]:
    """`PS-W*2-W*` -> [("P", 1), ("W", 2), ("W", None)]: each node's tasks, and how often it is there (None: as often
    as there are tasks for it)."""
    nodes: list[tuple[str, int | None]] = []
    if len(text) > MOST_TEXT:
        raise LayoutError(f"layout {text[:20]!r}...: {len(text):,} characters; at most {MOST_TEXT:,} are allowed")
    num_tasks = 0
    for part in text.split("-"):
        match = _NODE.fullmatch(part.strip())
        if not match:
            raise LayoutError(
                f"layout {text!r}: {part!r} is no node. A node is P or PS (a server), W (a training task), M (a chief "
                f"of its own), or several of them, perhaps with * (repeated); nodes are joined by -: {EXAMPLES}"
            )
        times = 1 if "*" not in part else int(match["times"]) if match["times"] else None
        letters = match["letters"].replace("PS", "P")
        num_tasks += len(letters) * (times or 1)
        if num_tasks > MOST_PLACED:
            raise LayoutError(
                f"layout {text!r}: has more than {MOST_PLACED:,} tasks, which is the most that is allowed"
            )
        nodes.append((letters, times))
    whole = "".join(letters * (times or 1) for letters, times in nodes)
    if whole.count("M") > 1:
        raise LayoutError(f"layout {text!r}: has {whole.count('M')} chiefs (M); a cluster has one")
    if not set(whole) & {"M", "W"}:
        raise LayoutError(f"layout {text!r}: has no training task; add W or M")
    if sum(times is None for _, times in nodes) > 1:
        raise LayoutError(f"layout {text!r}: only one node can be repeated without a number")
    return nodes


def counts(text: str) -> Counter[str] | None:
    """How many tasks of each letter a layout has; None where a `*` leaves that to the cluster."""
    nodes = parse(text)
    if any(times is None for _, times in nodes):
        return None
    return Counter("".join(letters * (times or 1) for letters, times in nodes))


def place(layout: str | Rule, cluster: Cluster) -> list[Host]:
    """The nodes, each with its tasks; every task of the cluster is on exactly one. LayoutError when that cannot be."""
    servers = [task for task in cluster.tasks() if task.role == "ps"]
    training = cluster.training_tasks()
    nodes = _by_rule(layout, len(servers), len(training)) if isinstance(layout, Rule) else _by_text(layout, cluster)
    chief, *others = training
    has_own_chief = any("M" in letters for letters in nodes)
    waiting = {"P": iter(servers), "W": iter(others if has_own_chief else training), "M": iter([chief])}
    numbers: Counter[str] = Counter()
    hosts = []
    for letters in nodes:
        kind: NodeKind = "worker" if "W" in letters else "chief" if "M" in letters else "ps"
        hosts.append(Host(f"{kind}{numbers[kind]}", kind, tuple(next(waiting[letter]) for letter in letters)))
        numbers[kind] += 1
    evaluator = tuple(task for task in cluster.tasks() if task.role == "evaluator")
    return [
        Host(host.name, host.kind, host.tasks + evaluator) if chief in host.tasks and evaluator else host
        for host in hosts
    ]


def _by_rule(rule: Rule, num_servers: int, num_training: int) -> list[str]:
    num_nodes = math.ceil(num_training / rule.worker_per_node)
    nodes = [
        "W" * min(rule.worker_per_node, num_training - done) for done in range(0, num_training, rule.worker_per_node)
    ]
    if rule.servers == "own":
        own = ["P" * min(rule.ps_per_node, num_servers - done) for done in range(0, num_servers, rule.ps_per_node)]
        return own + nodes
    room = num_nodes * rule.ps_per_node
    if num_servers > room:
        raise LayoutError(
            f"layout: {counted(num_training, 'training task')} at {rule.worker_per_node} a node "
            f"have {counted(num_nodes, 'node')}, with room "
            f"for {num_nodes} x {rule.ps_per_node} = {counted(room, 'server')} beside them, but the "
            f"cluster has {num_servers}"
        )
    # Spread evenly: the first nodes get one more where it does not come out even.
    share, rest = divmod(num_servers, num_nodes)
    return ["P" * (share + (number < rest)) + letters for number, letters in enumerate(nodes)]


def _by_text(text: str, cluster: Cluster) -> list[str]:
    nodes = parse(text)
    wanted = {"P": cluster.ps.count, "training": len(cluster.training_tasks())}
    fixed = Counter("".join(letters * times for letters, times in nodes if times is not None))
    repeated = next((letters for letters, times in nodes if times is None), None)
    missing = {"P": wanted["P"] - fixed["P"], "training": wanted["training"] - fixed["W"] - fixed["M"]}
    times = 0
    if repeated is not None:
        each = {"P": repeated.count("P"), "training": repeated.count("W") + repeated.count("M")}
        times = max(missing[what] // each[what] for what in each if each[what])
        missing = {what: missing[what] - max(times, 0) * each[what] for what in missing}
    if any(missing.values()) or times < 0:
        has = {what: wanted[what] - missing[what] for what in wanted}
        how = f" with its * repeated {max(times, 0)} times" if repeated else ""
        raise LayoutError(f"layout {text}: has {_in_words(has)}{how}, but the cluster has {_in_words(wanted)}")
    return [letters for letters, number in nodes for _ in range(times if number is None else number)]


def _in_words(tasks: dict[str, int]) -> str:
    servers, training = tasks["P"], tasks["training"]
    return f"{servers} server{'s' if servers != 1 else ''} and {training} training task{'s' if training != 1 else ''}"
