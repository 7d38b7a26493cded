"""What a run cost: every node, from when it is asked for to its release, split by what it was doing. E5 counted the
training alone, and not every machine; that figure stands beside the whole one, under its own name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headway.errors import HeadwayError, SpecError

if TYPE_CHECKING:
    from headway.record.run import Run

HOURS = {"s": 3600.0, "min": 60.0, "h": 1.0, "d": 1 / 24}
PHASES = ("provisioning", "data", "training", "idle")
EVERY_NODE = "all"


@dataclass(frozen=True)
class NodeCost:
    node: str
    price_per_h: float
    why: str
    """Where the price is from."""
    dollars: float


@dataclass(frozen=True)
class Owning:
    """To own such machines instead of renting them; power and people are not counted."""

    price: float
    """To buy all of them."""
    hours: float
    """Of use after which owning is cheaper."""
    trainings: float
    """As many trainings like this one as that is."""


@dataclass(frozen=True)
class Cost:
    run: str
    seconds: dict[str, float]
    """Phase -> seconds: provisioning (from when nodes are asked for until all answer), data (until it lies there),
    training (first step to last), idle (whatever else nodes are paid for: starting, last evaluation, export,
    stopping)."""
    dollars: dict[str, float]
    """Phase -> dollars of all nodes."""
    nodes: tuple[NodeCost, ...]
    steps: int
    """Global steps that it is for."""
    is_extrapolated: bool = False
    """Training of another number of steps than were made: the rate is taken as if it stayed."""
    to_accuracy: dict[str, float] = field(default_factory=dict)
    """Accuracy -> dollars, from when nodes are asked for to the evaluation that reached it; of a resumed run over all
    launches until then."""
    owning: Owning | None = None

    @property
    def total(self) -> float:
        return sum(self.dollars.values())

    @property
    def training_only(self) -> float:
        return self.dollars["training"]

    @property
    def per_1000_steps(self) -> float | None:
        return 1000 * self.total / self.steps if self.steps else None

    @property
    def price_per_h(self) -> float:
        return sum(node.price_per_h for node in self.nodes)


def cost(run: Run, prices: Mapping[str, float], steps: int | None = None, buy: float | None = None) -> Cost:
    """`prices`: dollars an hour by node (`worker0`), by kind of node (`worker`), or for all; they go before those
    of the job's machine types. `steps`: extrapolate to that many. `buy`: what all machines together cost to buy."""
    from headway.record.seal import result

    figures = result(run)
    events = run.rows("events")
    names = node_names(events)
    if unused := set(prices) - {EVERY_NODE} - {key for name in names for key in (name, kind_of(name))}:
        known = ", ".join(dict.fromkeys(key for name in names for key in (name, kind_of(name))))
        raise SpecError(f"price for {', '.join(sorted(unused))}, but run {run.name} has no such node; it has: {known}")
    priced = [_priced(name, run.job, prices, run.name) for name in names]
    seconds = phases(run.facts["launches"], events, figures["training_seconds"] or 0.0, figures["dilation"])
    made = figures["updates"] or 0
    is_extrapolated = steps is not None and steps != made
    if steps is not None and is_extrapolated:
        if not made:
            raise HeadwayError(f"run {run.name} made no step: nothing to extrapolate from")
        seconds["training"] *= steps / made
    paid = _paid(run.facts["launches"], events)
    reached = {
        # What was training until then took longer here than on the machines meant.
        target: _paid_until(paid, each["t"]) - each["seconds"] * (1 - 1 / figures["dilation"])
        for target, each in figures["time_to_accuracy"].items()
    }
    return priced_phases(run.name, seconds, priced, steps or made, is_extrapolated, reached, buy)


def priced_phases(
    name: str,
    seconds: dict[str, float],
    priced: Sequence[tuple[str, float, str]],
    steps: int,
    is_extrapolated: bool = False,
    reached: Mapping[str, float] | None = None,
    buy: float | None = None,
) -> Cost:
    """The arithmetic. `priced`: (node, dollars an hour, why); `reached`: accuracy -> seconds of nodes until then."""
    per_h = sum(price for _, price, _ in priced)
    hours = sum(seconds.values()) / 3600
    dollars = {phase: per_h * seconds[phase] / 3600 for phase in PHASES}
    to_accuracy = {target: per_h * each / 3600 for target, each in (reached or {}).items()}
    owning = None
    if buy is not None and per_h > 0:
        owning = Owning(buy, buy / per_h, buy / (per_h * hours) if hours else 0.0)
    nodes = tuple(NodeCost(node, price, why, price * hours) for node, price, why in priced)
    return Cost(name, seconds, dollars, nodes, steps, is_extrapolated, to_accuracy, owning)


def phases(
    launches: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]], training: float, dilation: float
) -> dict[str, float]:
    """Seconds of each phase, all launches together. Where seconds here stand for others (dilation), training is that
    on the machines meant; the rest took what it took."""
    provisioning = whole = 0.0
    for number, (begin, end) in enumerate(_paid(launches, events)):
        whole += end - begin
        ready = [event["t"] for event in events if event["launch"] == number and event["kind"] == "node_ready"]
        # A node that was lost and made again is not waited for by the others.
        up = sorted(ready)[: len(set(node_names(events)))]
        provisioning += max(up[-1] - begin, 0.0) if up else 0.0
    idle = max(whole - provisioning - training, 0.0)
    # No site stages data yet: nodes read that of this machine. What loading takes is in the start of their tasks.
    return {"provisioning": provisioning, "data": 0.0, "training": training / dilation, "idle": idle}


def _paid(launches: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Of each launch, from when to when its nodes are paid: what is fetched before, on this machine, costs nothing on
    them. Records from before this was told: since the command. A launch that was killed lasts to its last sign."""
    began: dict[int, float] = {}
    for event in events:
        if event["kind"] == "acquiring":
            began[event["launch"]] = min(event["t"], began.get(event["launch"], event["t"]))
    spans = []
    for number, launch in enumerate(launches):
        begin, end = began.get(number, launch["started"]), launch.get("ended")
        if end is None:
            end = max((event["t"] for event in events if event["launch"] == number), default=begin)
        spans.append((begin, end))
    return spans


def _paid_until(paid: Sequence[tuple[float, float]], t: float) -> float:
    """Seconds of launches that were over at t, and those of the one that was under way."""
    begun = [span for span in paid if span[0] <= t]
    return sum(end - begin for begin, end in begun[:-1]) + sum(t - begin for begin, _ in begun[-1:])


def node_names(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """The nodes that a run had, in the order in which they came up."""
    ready = (json.loads(event["data"])["node"] for event in events if event["kind"] == "node_ready")
    return list(dict.fromkeys(ready))


def kind_of(node: str) -> str:
    """worker0 -> worker."""
    return node.rstrip("0123456789")


def _priced(node: str, job: Mapping[str, Any], prices: Mapping[str, float], run: str) -> tuple[str, float, str]:
    from headway.spec.machines import catalogue

    kind = kind_of(node)
    for key in (node, kind, EVERY_NODE):
        if key in prices:
            return node, prices[key], "given"
    nodes = job["site"].get("nodes") or {}
    settings = nodes.get(kind) or (nodes.get("worker") if kind == "chief" else None) or {}
    machine = catalogue().get(settings.get("type") or "")
    if machine is None or machine.price is None:
        what = f"machine type {settings['type']} is not for rent" if settings.get("type") else "it has no machine type"
        raise SpecError(f"run {run}: what node {node} costs is not known ({what}); give it: --price {kind}=0.10/h")
    return node, machine.price, f"{settings['type']}, {machine.date}"


def parse_price(text: str) -> tuple[str, float]:
    """`worker=0.9/h`, `ps0=2/d`, `worker=p2.xlarge` (a machine type), or without a node for all of them: `0.1/h`."""
    from headway.spec.machines import machine

    node, equals, value = text.rpartition("=")
    node = node.strip() if equals else EVERY_NODE
    match = re.fullmatch(r"\$?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\$?(?:\s*/\s*([a-z]+))?", value.strip())
    if match is None and re.fullmatch(r"[a-z][a-z0-9.-]+", value.strip()):
        found = machine(value.strip())
        if found.price is None:
            raise SpecError(f"price {text!r}: machine type {value.strip()} is not for rent")
        return node, found.price
    if match is None or (match[2] or "h") not in HOURS or not node:
        raise SpecError(f"price {text!r}: write for example worker=0.90/h, ps=p2.xlarge, or 0.10/h for every node")
    return node, float(match[1]) * HOURS[match[2] or "h"]
