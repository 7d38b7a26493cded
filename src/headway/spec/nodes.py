"""From machine types and layouts to the nodes of a job, with their numbers. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.errors import SpecError
from headway.plural import counted
from headway.spec.layout import NODE_KINDS, Host, LayoutError, NodeKind, Rule, counts, place
from headway.spec.machines import machine
from headway.spec.site import LEAST_CPUS, MOST_CPUS, MOST_DILATION, NodeSettings, Site
from headway.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from headway.spec.cluster import Cluster
    from headway.spec.job import Job

FOR_THE_EMULATION = 0.3  # cores that agents, queues and the launcher need themselves


@dataclass(frozen=True)
class Filled:
    """The machines of an emulated site with every number that follows from types and speeds."""

    nodes: dict[NodeKind, NodeSettings]
    dilation: float
    reasons: dict[str, tuple[Any, str]]
    """Path below `site` -> (value, why)."""


def counts_of_layout(layout: str | Rule | None) -> dict[str, int] | None:
    """The tasks of each role that a layout has, for a job without `cluster`; None where it leaves that open."""
    if layout is None or isinstance(layout, Rule) or (letters := counts(layout)) is None:
        return None
    return {"chief": letters["M"], "worker": letters["W"], "ps": letters["P"]}


def hosts(job: Job) -> list[Host]:
    """Who runs where. A local site is one node; elsewhere, without a layout, each task has a node of its own."""
    cluster = job.cluster
    if job.site.kind == "local":
        return _on_this_machine(job)
    if job.strategy.kind == "single":
        return [Host("worker0", "worker", tuple(cluster.tasks()))]
    placed = place(job.layout if job.layout is not None else Rule(), cluster)
    used = Counter(host.kind for host in placed)
    for kind, number in used.items():
        there = job.site.node(kind).count
        if there is not None and number > there:
            which = ", ".join(
                f"{host.name} ({', '.join(map(str, host.tasks))})" for host in placed if host.kind == kind
            )
            raise LayoutError(
                f"site.nodes.{kind}.count: {there}, but the layout needs {counted(number, 'node')} "
                f"of this kind: {which}"
            )
    return placed


def _on_this_machine(job: Job) -> list[Host]:
    tasks = tuple(job.cluster.tasks())
    if job.layout is not None and job.strategy.kind != "single":
        placed = place(job.layout, job.cluster)
        if len(placed) > 1:
            names = ", ".join(host.name for host in placed)
            raise LayoutError(
                f"layout: has {counted(len(placed), 'node')} ({names}), but site local is one machine; "
                "write site: emulated"
            )
    return [Host("local", "worker", tasks)]


def counts_of_nodes(site: Site) -> dict[str, int] | None:
    """The cluster that a site's machines make, one task on each, where neither cluster nor layout is given."""
    if "worker" not in site.nodes and "chief" not in site.nodes:
        return None
    return {kind: site.nodes[kind].count or 1 if kind in site.nodes else 0 for kind in NODE_KINDS}


def _model(job: Job) -> str:
    """Whose speed a machine's is given for. Of a program it is not known, so a machine with a speed needs CPUs, too."""
    return job.workload.title if job.program else job.training.model.name


def needs_core_speed(job: Job) -> bool:
    """Whether a node's CPUs follow from what one core here does with the job's model."""
    return (job.program or job.site.core_speed) is None and any(
        filled.speed is not None and filled.cpus is None
        for kind in job.site.nodes
        if (filled := _of_type(job.site.node(kind), kind, _model(job)))
    )


def fill(job: Job, num_cores: int, core_speed: float | None) -> Filled:
    """Numbers for every machine. `core_speed`: examples/s of the job's model on one core here, where it is needed."""
    reasons: dict[str, tuple[Any, str]] = {}
    model = _model(job)
    core_speed = job.site.core_speed or core_speed
    nodes = {kind: _of_type(job.site.node(kind), kind, model) for kind in job.site.nodes}
    for kind, settings in nodes.items():
        if settings.type is not None:
            reasons[f"nodes.{kind}"] = (_in_words(settings), f"machine type {settings.type}")
    used = Counter(host.kind for host in hosts(job))

    def wanted(kind: NodeKind) -> float:
        """CPUs' worth of this machine's cores, without dilation."""
        settings = nodes.get(kind) or nodes.get("worker") or NodeSettings()
        if settings.cpus is not None or settings.speed is None:
            return settings.cpus or 0.0
        if core_speed is None:
            raise SpecError(f"site.nodes.{kind}: has a speed, but what one core here does with {model} is not known")
        return settings.speed / core_speed

    total = sum(number * wanted(kind) for kind, number in used.items())
    dilation = job.site.dilation or 1.0
    has_speed = any(settings.speed is not None and settings.cpus is None for settings in nodes.values())
    room = max(num_cores - FOR_THE_EMULATION, 0.1)
    if job.site.dilation is None and has_speed and total > room:
        dilation = round(total / room + 0.005, 2)
        if dilation > MOST_DILATION:
            raise SpecError(
                f"site.nodes: the machines do as much as {total:.3g} cores here, and would need a dilation of "
                f"{dilation:.3g}; at most {MOST_DILATION:g} is allowed: fewer nodes, or a lower speed"
            )
        reasons["dilation"] = (
            dilation,
            f"the machines do as much as {total:.3g} cores here, of which {room:g} are free",
        )
    for kind, settings in nodes.items():
        if settings.cpus is None and settings.speed is not None:
            cpus = round(wanted(kind), 4)
            if not LEAST_CPUS <= cpus <= MOST_CPUS:
                raise SpecError(
                    f"site.nodes.{kind}.speed: {settings.speed:g} examples/s is as much as {cpus:g} CPUs here, where "
                    f"one core does {core_speed:g}; from {LEAST_CPUS:g} to {MOST_CPUS:g} CPUs are allowed"
                )
            reasons[f"nodes.{kind}.cpus"] = (
                cpus,
                f"{settings.speed:g} examples/s of {model}, of which one core here does {core_speed:g}",
            )
            nodes[kind] = settings.model_copy(update={"cpus": cpus})
    if total / dilation > room:
        reasons["cpus"] = (
            round(total / dilation, 2),
            f"WARNING: {total / dilation:.3g} CPUs are asked in all, but this machine has "
            f"{counted(num_cores, 'core')}, "
            f"{FOR_THE_EMULATION:g} of them for the emulation itself: nodes will be slower than asked. "
            f"site.dilation: {total / room + 0.05:.1f} would make them fit",
        )
    return Filled(nodes, dilation, reasons)


def _of_type(settings: NodeSettings, kind: NodeKind, model: str) -> NodeSettings:
    """What the catalogue says, and the job's own numbers on top."""
    if settings.type is None:
        return settings
    found = machine(settings.type)
    speed = settings.speed or found.speed.get(model)
    if found.gpus and speed is None and settings.cpus is None:
        known = ", ".join(f"{name}: {rate:g}" for name, rate in found.speed.items()) or "none"
        raise SpecError(
            f"site.nodes.{kind}.type: {settings.type} is a GPU machine, and its speed with {model} is not in the "
            f"catalogue (known: {known}).\n"
            f"Give it: site.nodes.{kind}.speed: 1234  (examples/s of {model} on one such machine)"
        )
    return settings.model_copy(
        update={
            "cpus": settings.cpus or (None if speed is not None else found.cpus),
            "memory": settings.memory or found.memory,
            "rate": settings.rate or found.network,
            "credits": settings.credits or found.credits,
            "speed": speed,
        }
    )


def _in_words(settings: NodeSettings) -> str:
    given = settings.model_dump(exclude_none=True, exclude={"type", "count", "disk"})
    say = {"memory": format_bytes, "rate": format_rate, "latency": format_seconds}
    numbers = {name: value for name, value in given.items() if isinstance(value, (int, float))}
    return ", ".join(f"{name} {say.get(name, '{:g}'.format)(value)}" for name, value in numbers.items())


def scaled(settings: NodeSettings, dilation: float) -> NodeSettings:
    """The machine as it is made here: slower by the dilation, in everything alike."""
    if dilation == 1.0:
        return settings

    def slower(number: float | None) -> float | None:
        return None if number is None else number / dilation

    return settings.model_copy(
        update={
            "cpus": slower(settings.cpus),
            "rate": slower(settings.rate),
            "latency": None if settings.latency is None else settings.latency * dilation,
            "disk": settings.disk.model_copy(
                update={"read": slower(settings.disk.read), "write": slower(settings.disk.write)}
            ),
        }
    )


def cluster_from(given: dict[str, int], cluster: Cluster) -> Cluster:
    """The cluster's settings (threads, cores, batch sizes) with these counts."""
    roles = {role: getattr(cluster, role).model_copy(update={"count": number}) for role, number in given.items()}
    return cluster.model_copy(update=roles)
