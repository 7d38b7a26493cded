"""Which way out of a private network is chosen, and what a run there is told; tests/real/test_outbound.py makes it."""

from __future__ import annotations

import os
import random
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from headway.engines.command import known_limits
from headway.errors import SpecError
from headway.host import nat, netfilter
from headway.sites import outbound
from headway.spec.load import parse_job
from headway.spec.resolve import resolve


def given(monkeypatch: pytest.MonkeyPatch, **problems: str | None) -> tuple[str | None, str]:
    ways = {"nat": "no", "pasta": "no", "slirp4netns": "no", "switched": "no", **problems}
    names = {"switched": outbound.NAT_SWITCHED}
    monkeypatch.setattr(outbound, "problems", lambda: {names.get(way, way): why for way, why in ways.items()})
    return outbound.choose()


def test_the_way_that_changes_least_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, nat=None, pasta=None, switched=None)[0] == "nat"
    assert given(monkeypatch, pasta=None, slirp4netns=None, switched=None)[0] == "pasta"
    assert given(monkeypatch, slirp4netns=None, switched=None)[0] == "slirp4netns"
    way, why = given(monkeypatch, nat="eth0 forwards no packets", switched=None)
    assert way == outbound.NAT_SWITCHED
    assert "eth0 forwards no packets" in why
    way, why = given(monkeypatch, nat="it needs root", pasta="not installed (package passt)")
    assert way is None
    assert "nat: it needs root; pasta: not installed (package passt)" in why


def test_name_servers_are_those_that_a_private_network_reaches(tmp_path: Path) -> None:
    own, upstream = tmp_path / "resolv.conf", tmp_path / "upstream"
    upstream.write_text("nameserver 192.0.2.1\nnameserver 192.0.2.2\n")
    own.write_text("# a comment\nnameserver 127.0.0.53\nnameserver ::1\nsearch example.org\noptions edns0\n")
    assert outbound.name_servers(own, upstream) == ["192.0.2.1", "192.0.2.2"]
    assert outbound.name_servers(own, tmp_path / "missing") == []
    kept = "search example.org\noptions edns0\n"
    assert outbound.resolver_text("nat", own, upstream) == f"nameserver 192.0.2.1\nnameserver 192.0.2.2\n{kept}"
    # These two pass questions on, also to a server on loopback.
    assert outbound.resolver_text("pasta", own, upstream) == f"nameserver 169.254.1.1\n{kept}"
    assert outbound.resolver_text("slirp4netns", own, upstream) == f"nameserver 10.0.2.3\n{kept}"
    own.write_text("nameserver\nnameserver nonsense\nnameserver fe80::1%eth0\nnameserver 127.0.0.1\n")
    assert outbound.name_servers(own, upstream) == ["fe80::1%eth0"]


def test_no_route_leads_to_the_addresses_that_are_taken() -> None:
    used = [IPv4Network("100.64.0.0/11"), IPv4Network("100.112.0.0/12")]
    for seed in range(50):
        subnet = nat.free_subnet(used, random.Random(seed))
        assert subnet.prefixlen == 30
        assert subnet.subnet_of(IPv4Network("100.96.0.0/12"))
    full = nat.free_subnet([IPv4Network("100.64.0.0/10")], random.Random(1))
    assert full.subnet_of(IPv4Network("10.0.0.0/8"))
    with pytest.raises(OSError, match="every private address"):
        nat.free_subnet([IPv4Network("0.0.0.0/0")], random.Random(1))


def chosen(**job: object) -> tuple[str | None, str | None]:
    """The network of a resolved job, and why it is that."""
    resolved = resolve(parse_job({"name": "x", **job}), 2)
    why = {choice.path: choice.reason for choice in resolved.choices}.get("site.network")
    return resolved.job.site.network, why


PROGRAM = {"command": "python train.py"}
MODEL = {"model": "softmax", "dataset": "synthetic"}


def test_programs_reach_other_hosts_and_built_in_models_do_not() -> None:
    assert chosen(workload=PROGRAM) == ("outbound", "a program may need other hosts")
    assert chosen(workload=MODEL, strategy="single") == ("private", "data is fetched before the tasks start")
    for network in ("private", "outbound"):
        assert chosen(workload=PROGRAM, site={"network": network}) == (network, None)
    assert chosen(workload=PROGRAM, expose="cluster") == (None, None)  # this machine's own
    assert chosen(workload=PROGRAM, site="emulated") == (None, None)


@pytest.mark.parametrize(
    ("job", "part"),
    [
        ({"expose": "cluster", "site": {"network": "private"}}, "expose: cluster"),
        ({"site": {"kind": "emulated", "network": "outbound"}}, "emulated hosts reach each other alone"),
        ({"site": {"network": "open"}}, "site.network"),
    ],
)
def test_what_cannot_be_meant_is_refused(job: dict[str, object], part: str) -> None:
    with pytest.raises(SpecError, match=part):
        parse_job({"name": "x", "workload": PROGRAM, **job})


FAILURES = [
    "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    "requests.exceptions.ConnectionError: ... [Errno -2] Name or service not known",
    "OSError: [Errno 101] Network is unreachable",
    "curl: (6) Could not resolve host: example.org",
]
NO_ROUTE = "Iface\tDestination\tGateway\n"


@pytest.mark.parametrize("line", FAILURES)
def test_a_failure_for_want_of_a_network_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    routes = tmp_path / "route"
    monkeypatch.setattr(known_limits, "ROUTES", routes)
    routes.write_text(NO_ROUTE)
    said = known_limits.explanation(f"Traceback\n{line}\n\n")
    assert said
    assert line in said
    assert "--set site.network=outbound" in said
    # With a way out the cause is elsewhere.
    routes.write_text(f"{NO_ROUTE}eth0\t00000000\t01020304\n")
    assert known_limits.explanation(line) is None


# --- forwarding that a killed run has left on ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("is_alive", "others_forward", "switched", "left"),
    [(True, True, ["eth0"], "1"), (False, True, [], "1"), (False, False, ["eth0"], "0")],
    ids=["its run lives", "killed, and others rely on it", "killed, and nobody does"],
)
def test_a_note_of_a_killed_run_guards_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_alive: bool,
    others_forward: bool,
    switched: list[str],
    left: str,
) -> None:
    """A guard would drop what others forward. What the run had turned on is turned off, if nobody relies on it."""
    for name, value in (("eth0", "0"), ("all", "1" if others_forward else "0")):
        (tmp_path / "ipv4" / "conf" / name).mkdir(parents=True)
        (tmp_path / "ipv4" / "conf" / name / "forwarding").write_text(value)
    monkeypatch.setattr(nat, "SETTINGS", tmp_path)
    monkeypatch.setattr(nat, "uplinks", lambda: ["eth0"])
    note, lock = nat._switch_on(tmp_path, "eth0")
    if not is_alive:
        os.close(lock)  # as the kernel does for whoever is killed
    assert nat._to_switch(tmp_path) == switched
    assert note.exists() is is_alive
    assert (tmp_path / "ipv4" / "conf" / "eth0" / "forwarding").read_text() == left
    if is_alive:
        os.close(lock)


# --- firewalls that forward nothing -------------------------------------------------------------------------------
def chain(table: str, hook: int = 2, policy: int = 0, family: int = netfilter.INET) -> bytes:
    """As the kernel tells of it (linux/netfilter/nf_tables.h); policies: 0 drop, 1 accept."""
    attribute, number = netfilter.attribute, netfilter.number
    place = attribute(1, number(hook)) + attribute(2, number(0))
    body = attribute(1, netfilter.text(table)) + attribute(3, netfilter.text("forward"))
    body += attribute(4, place, nested=True) + attribute(5, number(policy)) + attribute(7, netfilter.text("filter"))
    return netfilter.message(netfilter.NFT << 8 | netfilter.NEW_CHAIN, 2, family, 0, body)


def test_chains_that_drop_what_is_forwarded_are_seen() -> None:
    others = chain("accepts", policy=1) + chain("arriving", hook=1) + chain("version6", family=10)
    assert list(netfilter.dropping_in(others, "forward")) == []
    found = netfilter.dropping_in(others + chain("mine") + chain("old", family=netfilter.IPV4), "forward")
    assert list(found) == [("mine", "forward"), ("old", "forward")]


def test_behind_a_firewall_of_nftables_another_way_out_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of runs are none: they go with their run."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda tool, **_: "/sbin/ip" if tool == "ip" else None)
    monkeypatch.setattr(nat, "uplinks", lambda: ["eth0"])
    monkeypatch.setattr(nat, "dropping", lambda _: [(f"{nat.PREFIX}1a2b3c", "forwarded")])
    assert nat.problem() is None
    monkeypatch.setattr(nat, "dropping", lambda hook: [("filter", hook)])
    why = nat.problem()
    assert why is not None and "nftables: table filter, chain forward, policy drop" in why
    assert given(monkeypatch, nat=why, pasta=None)[0] == "pasta"
