"""What the network between nodes gives: rate of each node, round trips, all to all. From agent to agent, on any
site."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.errors import SiteError
from headway.sites.base import Node

ROUND_TRIPS = 60
TRIES = 3
# One after the other until there is no less than was asked: another program may hold up a short one, while a link that
# is slower than asked is so in every one. More than was asked is never chance. Round trips likewise.
RATE_SECONDS = (0.25, 0.5, 0.5)
LIMIT = 30.0
RENEW = 0.5
PEERS = 8  # to which each node sends where all do: a thousand connections would measure themselves
# Ethernet, IP and TCP (with time stamps) around 1,448 bytes of payload: what a shaper counts.
HEADERS = 1514 / 1448
TOLERANCE = 0.1
LATENCY_TOLERANCE = 0.0002


@dataclass
class Found:
    """Asked and got. Rates are bytes per second on the wire, headers included; None: nothing was asked."""

    sending: dict[str, tuple[float | None, list[float]]] = field(default_factory=dict)
    """Node -> its own flow to the next node. The best counts: what moved once can be moved."""
    receiving: dict[str, tuple[float | None, list[float]]] = field(default_factory=dict)
    round_trips: dict[tuple[str, str], tuple[float | None, list[float]]] = field(default_factory=dict)
    all_to_all: tuple[float | None, list[float]] | None = None
    own_delay_before: float | None = None
    """What was subtracted from latencies before these were measured."""

    @property
    def own_delay(self) -> float | None:
        """Seconds of each direction by which round trips are longer than asked, in the median."""
        excess = [
            (statistics.median(got) - asked) / 2
            for asked, got in self.round_trips.values()
            if asked is not None and asked
        ]
        return max(0.0, statistics.median(excess)) if excess else None

    def events(self) -> Iterator[dict[str, Any]]:
        """One record for each figure: what, where, asked, got, and whether that is good enough."""
        for what, figures in (("rate_out", self.sending), ("rate_in", self.receiving)):
            for node, rates in figures.items():
                yield {"what": what, "node": node, **_judged(*rates)}
        for (node, other), (asked, samples) in self.round_trips.items():
            got = statistics.median(samples)
            yield {
                "what": "round_trip",
                "node": node,
                "to": other,
                "asked": asked,
                "got": got,
                "ok": asked is None or abs(got - asked) <= _room(asked),
                "samples": samples,
                "own_delay": self.own_delay_before,
            }
        if self.all_to_all is not None:
            yield {"what": "all_to_all", **_judged(*self.all_to_all)}


def _judged(asked: float | None, samples: list[float]) -> dict[str, Any]:
    got = max(samples)
    return {"asked": asked, "got": got, "ok": _is_close(asked, got), "samples": samples}


def _is_close(asked: float | None, got: float) -> bool:
    return asked is None or abs(got - asked) <= TOLERANCE * asked


def _room(latency: float) -> float:
    return max(LATENCY_TOLERANCE, TOLERANCE * latency)


async def measure(
    nodes: Sequence[Node], fabric: float | None, own_delay: float | None = None, only_round_trips: bool = False
) -> Found:
    """Each node against the next one, one after the other; then all at once, each to so many others that it is busy."""
    found = Found(own_delay_before=own_delay)
    ports = {node.name: (await _ask(node, "serve", "serving"))["port"] for node in nodes}
    to = {node.name: (node.planned.address, ports[node.name]) for node in nodes}
    for node, other in _ring(nodes)[: 1 if len(nodes) == 2 else None]:
        both = (node.planned.machine.latency, other.planned.machine.latency)
        asked = None if both == (None, None) else (both[0] or 0.0) + (both[1] or 0.0)
        found.round_trips[node.name, other.name] = (asked, await _trips(asked, node, to[other.name]))
    for node, other in _flows(nodes) if not only_round_trips else ():
        asked = _least(node.planned.machine.rate, other.planned.machine.rate, fabric)
        samples = await _rates(asked, [(node, [to[other.name]])])
        for figures, name in ((found.sending, node.name), (found.receiving, other.name)):
            best = figures.get(name)
            if best is None or max(samples) > max(best[1]):
                figures[name] = (asked, samples)
    if len(nodes) > 2 and not only_round_trips:
        behind = [[*nodes[place + 1 :], *nodes[:place]] for place in range(len(nodes))]
        others = [
            (node, [to[other.name] for other in following[:PEERS]])
            for node, following in zip(nodes, behind, strict=True)
        ]
        rates = [node.planned.machine.rate for node in nodes]
        asked = None if fabric is None and None in rates else _least(sum(rate for rate in rates if rate), fabric)
        found.all_to_all = (asked or None, await _rates(asked, others))
    for node in nodes:
        node.send("unserve")
    return found


async def _trips(asked: float | None, node: Node, to: tuple[str, int]) -> list[float]:
    """Seconds of each of many round trips: of those tries that were needed, the one with the least median."""
    found: list[list[float]] = []
    for _ in range(TRIES):
        answer = await _ask(node, "round_trips", "round_trips", to=to, count=ROUND_TRIPS)
        found.append(answer["seconds"][1:])  # the first one made the connection
        if asked is None or statistics.median(found[-1]) <= asked + _room(asked):
            break
    return min(found, key=statistics.median)


async def _rates(asked: float | None, flows: Sequence[tuple[Node, list[tuple[str, int]]]]) -> list[float]:
    """Bytes per second on the wire, of all flows at once together; once again as long as it is less than was asked."""
    found: list[float] = []
    for seconds in RATE_SECONDS:
        answers = await asyncio.gather(*(_ask(node, "rates", "rates", to=to, seconds=seconds) for node, to in flows))
        found.append(sum(sum(answer["rates"]) for answer in answers) * HEADERS)
        if asked is None or found[-1] >= (1 - TOLERANCE) * asked:
            break
    return found


def _ring(nodes: Sequence[Node]) -> list[tuple[Node, Node]]:
    return list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))


def _flows(nodes: Sequence[Node]) -> list[tuple[Node, Node]]:
    """Flows in which each node sends once and receives once. Unlike nodes are measured against the fastest other one,
    for against a slow one they could not show what they can."""

    def rate(node: Node) -> float:
        return node.planned.machine.rate or float("inf")

    if len({rate(node) for node in nodes}) == 1:
        return _ring(nodes)
    found: dict[tuple[str, str], tuple[Node, Node]] = {}
    for node in nodes:
        fastest = max((other for other in nodes if other is not node), key=rate)
        found.setdefault((node.name, fastest.name), (node, fastest))
        found.setdefault((fastest.name, node.name), (fastest, node))
    return list(found.values())


def _least(*rates: float | None) -> float | None:
    return min((rate for rate in rates if rate), default=None)


@contextlib.asynccontextmanager
async def renewing(nodes: Sequence[Node]) -> AsyncIterator[None]:
    """Keep the agents' leases, while nobody else does."""

    async def renew() -> None:
        while True:
            for node in nodes:
                node.send("renew")
            await asyncio.sleep(RENEW)

    job = asyncio.get_running_loop().create_task(renew())
    try:
        yield
    finally:
        job.cancel()


async def _ask(node: Node, do: str, say: str, **fields: Any) -> dict[str, Any]:
    node.send(do, **fields)
    while True:
        try:
            message = await asyncio.wait_for(node.receive(), LIMIT)
        except TimeoutError:
            raise SiteError(f"node {node.name} did not measure its network within {LIMIT:g} s") from None
        if message is None:
            raise SiteError(f"node {node.name} ended while its network was measured")
        if message["say"] == say:
            if "error" in message:
                raise SiteError(f"node {node.name} cannot reach another node: {message['error']}")
            return message
