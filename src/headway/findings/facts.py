"""A run as rules see it: series of every node and task on one time axis, plain arrays and numbers.

Rules are pure functions of `Facts`, so that their tests make up what they need; evidence.py reads one from a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headway.findings.advice import JobKind

Array = np.ndarray[Any, np.dtype[np.float64]]
NOTHING: Array = np.zeros(0)
TRAINING = ("chief", "worker")
FULL = 0.8  # of a node's CPUs, in one sample: they are used up (as record/usage.py has it)
FULL_LINK = 0.7  # of a link's rate: traffic comes and goes within a sample
BUSY_LINK = 0.6  # of the time a link is full: who exchanges a little and mostly computes stays below a third


@dataclass(frozen=True)
class Node:
    """A machine: what it was asked to be, and what it did while training was measured. Missing numbers are NaN."""

    name: str
    tasks: tuple[str, ...] = ()
    cpus: float | None = None
    """CPUs it has: what was asked; None where nothing was, or it cannot be limited."""
    rate: float | None = None
    """Bytes per second of its network, in each direction."""
    memory_limit: float | None = None
    disk_read: float | None = None
    """Bytes per second that its disk can read."""
    oom_kills: int = 0
    cores: int | None = None
    series: Mapping[str, Array] = field(default_factory=dict)
    """`t`, `seconds` (since the sample before), the rates and levels above."""

    def get(self, name: str) -> Array:
        """A series, as long as `t`; all NaN where it was not recorded."""
        found = self.series.get(name)
        return np.full(len(self.t), np.nan) if found is None else found

    @property
    def t(self) -> Array:
        return self.series.get("t", NOTHING)

    def mean(self, name: str) -> float:
        return weighted_mean(self.get(name), self.get("seconds"))

    def share(self, is_so: Array | np.ndarray[Any, np.dtype[np.bool_]]) -> float:
        """The share of the measured time in which something was so."""
        seconds = self.get("seconds")
        total = float(np.nansum(seconds))
        return float(np.nansum(seconds[is_so.astype(bool)])) / total if total > 0 else 0.0

    @property
    def cpu_share(self) -> Array:
        """CPUs in use, of what the node may use (a burstable one: at that moment)."""
        if self.cpus is None:
            return np.full(len(self.t), np.nan)
        allowed = self.get("cpus_allowed")
        return self.get("cpus") / np.where(np.isnan(allowed), self.cpus, allowed)

    @property
    def cpu_full(self) -> float:
        """The share of time in which its CPUs were used up."""
        return self.share(self.cpu_share >= FULL)

    @property
    def is_short_of_cpu(self) -> bool:
        """Its CPUs are used up most of the time; or it wants half as much again and does not get it: between bursts it
        waits for others, and then for its quota."""
        return self.cpus is not None and (self.cpu_full >= 0.6 or self.mean("throttled") >= 0.5 * self.cpus)

    @property
    def link_full(self) -> float:
        """The share of time in which its network was used up, in at least one direction."""
        if not self.rate:
            return 0.0
        return self.share(np.fmax(self.get("received"), self.get("sent")) >= FULL_LINK * self.rate)

    @property
    def link_use(self) -> float:
        """The mean share of its network's rate that is in use, in the busier direction; 0 where that is not known."""
        means = [mean for name in ("received", "sent") if not np.isnan(mean := self.mean(name))]
        return min(1.0, max(means, default=0.0) / self.rate) if self.rate else 0.0

    @property
    def is_link_saturated(self) -> bool:
        """Whoever exchanges anything with it waits for its network."""
        return self.link_full >= BUSY_LINK or self.link_use >= FULL_LINK

    @property
    def cpu_use(self) -> float:
        """The mean share of its CPUs that is in use; NaN where that is not known. (Samples of a counter may say a
        little more than all.)"""
        return float(np.minimum(self.mean("cpus") / self.cpus, 1.0)) if self.cpus else float("nan")

    @property
    def roles(self) -> set[str]:
        return {role_of(task) for task in self.tasks}

    @property
    def trains(self) -> bool:
        return bool(self.roles & {*TRAINING})

    @property
    def only_serves(self) -> bool:
        return self.roles == {"ps"}


@dataclass(frozen=True)
class Task:
    """A process. Training tasks have steps."""

    name: str
    node: str | None = None
    steps: Mapping[str, Array] = field(default_factory=dict)
    """Measured calls: `t`, `seconds`, `num_steps`, `input_seconds`, `loss`, `examples`."""
    usage: Mapping[str, Array] = field(default_factory=dict)
    """`t`, `seconds`, `cpus`, `rss`, `threads`, `context_switches`."""
    threads: int | None = None
    """Threads for one operation, as its settings say."""
    attempts: int = 1

    @property
    def role(self) -> str:
        return role_of(self.name)

    @property
    def trains(self) -> bool:
        return self.role in TRAINING

    def get(self, name: str) -> Array:
        return self.steps.get(name, NOTHING)

    def used(self, name: str) -> Array:
        return self.usage.get(name, NOTHING)

    @property
    def num_steps(self) -> float:
        return float(np.sum(self.get("num_steps")))

    @property
    def step_seconds(self) -> float:
        """Median time of one step; NaN without any."""
        return median(self.get("seconds") / self.get("num_steps")) if len(self.get("t")) else float("nan")

    @property
    def batch(self) -> float:
        """Examples of one step, in the median; NaN where that is not known."""
        known = len(self.get("t")) and len(self.get("examples"))
        return median(self.get("examples") / self.get("num_steps")) if known else float("nan")


@dataclass(frozen=True)
class Facts:
    """A run."""

    run: str = ""
    strategy: str = "single"
    site: str = "local"
    is_program: bool = False
    """The user's own."""
    start: float = 0.0
    """The measured time: from when every task has left its warm-up to the last step."""
    end: float = 0.0
    nodes: tuple[Node, ...] = ()
    tasks: tuple[Task, ...] = ()
    cores: int | None = None
    """Of the machine that the launcher ran on."""
    fabric: float | None = None
    updates: Mapping[str, Array] = field(default_factory=dict)
    """ps-sync: `t`, `spread`."""
    last_of: tuple[str, ...] = ()
    """... and for each of these updates the task whose gradient came last."""
    staleness: Array = field(default_factory=lambda: NOTHING)
    """Of each measured gradient."""
    server_bytes: Mapping[str, float] = field(default_factory=dict)
    """Server -> bytes of the variables on it."""
    placement: str | None = None
    transfer: str | None = None
    exchange: str | None = None
    batch_size: int | None = None
    dataset: str | None = None
    learning_rate: float | None = None
    warmup: int = 0
    pauses: tuple[tuple[float, float, str], ...] = ()
    """From when to when a task evaluated or saved, and which of both."""
    notes: tuple[tuple[float, str], ...] = ()
    """When a task or node was lost or restarted, in words."""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def training(self) -> list[Task]:
        """Training tasks with measured steps, the chief first."""
        return [task for task in self.tasks if task.trains and len(task.get("t"))]

    @property
    def chief(self) -> Task | None:
        return self.training[0] if self.training else None

    @property
    def num_steps(self) -> float:
        """Own steps of all training tasks."""
        return sum(task.num_steps for task in self.training)

    @property
    def job(self) -> JobKind:
        """Which settings advice may name."""
        has_servers = any(task.role == "ps" for task in self.tasks) or any("ps" in node.roles for node in self.nodes)
        return JobKind(self.strategy, self.site, self.is_program, has_servers)

    @property
    def fabric_full(self) -> float:
        """The share of time in which all nodes together used up the fabric between them."""
        rates = self.fabric_rates
        return float(np.mean(rates >= FULL_LINK * self.fabric)) if self.fabric and len(rates) else 0.0

    @property
    def fabric_rates(self) -> Array:
        """Bytes per second that cross the fabric, in equal parts of the measured time; empty where it has no rate."""
        nodes = [node for node in self.nodes if len(node.t) > 1]
        if not self.fabric or len(nodes) < 2:
            return NOTHING
        width = 2 * float(np.median(np.concatenate([node.get("seconds") for node in nodes])))
        edges = np.arange(self.start, self.end + width, width)
        total = np.zeros(len(edges))
        for node in nodes:  # what each sent until then, whenever it was sampled
            sent = np.cumsum(np.nan_to_num(node.get("sent") * node.get("seconds")))
            total += np.interp(edges, node.t, sent)
        return np.diff(total) / width

    @property
    def waits_for_network(self) -> bool:
        """A link or the fabric is full: then idle CPUs and short steps say nothing of machines or model."""
        return any(node.is_link_saturated for node in self.nodes) or self.fabric_full >= BUSY_LINK

    @property
    def is_synchronous(self) -> bool:
        return self.strategy in ("ps-sync", "allreduce")

    @property
    def has_servers(self) -> bool:
        return self.strategy in ("ps-sync", "ps-async")

    def node(self, name: str | None) -> Node | None:
        return next((node for node in self.nodes if node.name == name), None)

    def node_of(self, task: Task) -> Node | None:
        return self.node(task.node)

    def servers(self) -> list[Node]:
        """Nodes that hold servers and nothing else."""
        return [node for node in self.nodes if node.only_serves]


# --- arithmetic ----------------------------------------------------------------------------------------------
def role_of(task: str) -> str:
    return task.partition("/")[0]


def median(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def percentile(values: Array, percent: float) -> float:
    known = values[~np.isnan(values)]
    return float(np.percentile(known, percent)) if len(known) else float("nan")


def spread_of(values: Array) -> float:
    """Median distance from the median, as a standard deviation of normal noise."""
    return 1.4826 * median(np.abs(values - median(values)))


def weighted_mean(values: Array, weights: Array) -> float:
    known = ~np.isnan(values) & ~np.isnan(weights)
    total = float(np.sum(weights[known]))
    return float(np.sum(values[known] * weights[known])) / total if total > 0 else float("nan")


def bins(facts: Facts, width: float) -> tuple[Array, Array]:
    """Examples per second of all training tasks in equal parts of the measured time: (middles, rates). What a call did
    is spread evenly over its time."""
    count = max(1, int(facts.seconds / width))
    edges = np.linspace(facts.start, facts.end, count + 1)
    done = np.zeros(count + 1)
    for task in facts.training:
        ends, total = task.get("t"), np.cumsum(task.get("examples"))
        starts = np.maximum(ends - task.get("seconds"), np.concatenate([[-np.inf], ends[:-1]]))
        times = np.column_stack([starts, ends]).ravel()
        done += np.interp(edges, times, np.column_stack([total - task.get("examples"), total]).ravel())
    return (edges[1:] + edges[:-1]) / 2, np.diff(done) / np.diff(edges)
