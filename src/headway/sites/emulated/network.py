"""The network between emulated hosts, as lines for `ip -batch` and `tc -batch`. Pure.

host ps0           the box                          host worker0
eth0 ──────────── p0 ─┐                    ┌─ p1 ──────────── eth0       each end of each pair is shaped: what a
 └ shaped: out     └ shaped: in            │                             host sends at its own, what it gets at ours
                      switch (a bridge) ───┘
                         │
                      f0 ═ f1: with `fabric`, all traffic between hosts is routed over this shaped pair and back
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

FIRST = IPv4Address("10.77.0.1")
GATEWAY = IPv4Address("10.77.255.254")
BITS = 16
SWITCH = "switch"
# A burst passes unshaped. It must hold one segment as the kernel's TCP makes them, or each is cut up, which costs CPU.
LEAST_BURST = 128 * 1024
BURST_SECONDS = 0.002
# How long a packet may queue before it is dropped: a switch's buffer.
QUEUE_SECONDS = 0.05
NETEM_PACKETS = 100_000


@dataclass(frozen=True)
class Link:
    """One host's connection to the switch."""

    number: int
    pid: int
    """Of a process in the host's network."""
    rate: float | None
    """Bytes per second, in each direction; None: as fast as it goes."""
    latency: float
    """Seconds that netem adds to what the host sends; 0 where something else delays, or nothing."""

    @property
    def port(self) -> str:
        """Our end."""
        return f"p{self.number}"

    @property
    def hardware_address(self) -> str:
        """Of the host's end. A host that is made again has the same one: the others would else send to nobody, until
        they ask who has its address."""
        return f"02:77:00:00:{self.number >> 8:02x}:{self.number & 255:02x}"


def address(number: int) -> str:
    """Of the host with this number."""
    return str(FIRST + number)


def shaped(device: str, rate: float | None, latency: float = 0.0) -> list[str]:
    """Lines for tc: a token bucket, behind netem if there is a latency."""
    lines = []
    parent = "root"
    if latency:
        lines.append(f"qdisc add dev {device} root handle 1: netem delay {latency * 1e6:.0f}us limit {NETEM_PACKETS}")
        parent = "parent 1:1"
    if rate is not None:
        burst = max(LEAST_BURST, round(rate * BURST_SECONDS))
        lines.append(
            f"qdisc add dev {device} {parent} handle 2: tbf rate {round(rate * 8)}bit burst {burst}b "
            f"latency {QUEUE_SECONDS * 1e3:.0f}ms"
        )
    return lines


def switch(fabric: float | None) -> list[str]:
    """Lines for ip, in the box."""
    lines = [f"link add {SWITCH} type bridge", f"link set {SWITCH} up", "link set lo up"]
    if fabric is not None:
        lines += [
            "link add f0 type veth peer name f1",
            f"link set f0 master {SWITCH} up",
            f"addr add {GATEWAY}/{BITS} dev f1",
            "link set f1 up",
        ]
    return lines


def switch_shaping(fabric: float | None) -> list[str]:
    """Lines for tc, in the box."""
    return shaped("f1", fabric) if fabric is not None else []


def switch_settings(fabric: float | None) -> dict[str, str]:
    """Settings below /proc/sys/net/ipv4, in the box: f1 routes, and tells nobody of a shorter way."""
    if fabric is None:
        return {}
    return {"ip_forward": "1", "conf/all/send_redirects": "0", "conf/f1/send_redirects": "0"}


def plugged_in(links: Sequence[Link], fabric: float | None) -> list[str]:
    """Lines for ip, in the box: a pair of interfaces for each host, one end of it there."""
    lines = []
    for link in links:
        lines += [
            f"link add {link.port} type veth peer name eth0 address {link.hardware_address} netns {link.pid}",
            f"link set {link.port} master {SWITCH} up",
        ]
        if fabric is not None:  # hosts see only f0, never each other
            lines.append(f"link set {link.port} type bridge_slave isolated on")
    return lines


def plugged_in_shaping(links: Sequence[Link]) -> list[str]:
    """Lines for tc, in the box: what the hosts get."""
    return [line for link in links for line in shaped(link.port, link.rate)]


def inside(number: int, fabric: float | None) -> list[str]:
    """Lines for ip, in a host."""
    bits = BITS if fabric is None else 32
    lines = [f"addr add {address(number)}/{bits} dev eth0", "link set eth0 up", "link set lo up"]
    if fabric is not None:
        lines += [f"route add {GATEWAY} dev eth0", f"route add default via {GATEWAY}"]
    return lines


def inside_shaping(link: Link) -> list[str]:
    """Lines for tc, in a host: what it sends."""
    return shaped("eth0", link.rate, link.latency)
