"""What the doctor says of emulated hosts, from what was tried out."""

from __future__ import annotations

from typing import Any

from headway.cli.doctor import emulated_hosts
from headway.sites.emulated.probe import Abilities
from headway.sites.isolation import Isolation

ROOT = Isolation(("unshare", "--net", "--"), True, True, "private network and processes, as root")


def checked(**found: Any) -> dict[str, tuple[str, str]]:
    return {
        check.what.removeprefix("emulated hosts").removeprefix(": "): (check.verdict, check.found)
        for check in emulated_hosts(Abilities(ROOT, **{"groups_version": 2, **found}))
    }


def test_where_everything_works_it_says_by_what() -> None:
    assert checked() == {
        "": ("ok", "private network and processes, as root"),
        "rate": ("ok", "links can be slowed down (tbf)"),
        "latency": ("ok", "netem"),
        "CPU, memory and disk limits": ("ok", "CPU, memory, disk (control groups, version 2)"),
    }


def test_without_hosts_there_is_one_reason_and_what_to_do() -> None:
    (check,) = emulated_hosts(Abilities(ROOT, problem="the command `tc` (package iproute2) is missing"))
    assert (check.verdict, check.found) == ("warning", "the command `tc` (package iproute2) is missing")
    assert "iproute2" in check.advice
    (check,) = emulated_hosts(Abilities(ROOT, problem="no private network can be made (not permitted)"))
    assert "user namespaces" in check.advice


def test_a_queue_takes_the_place_of_netem() -> None:
    verdict, found = checked(netem="Specified qdisc kind is unknown.", way="nftables")["latency"]
    assert verdict == "ok"
    assert "nftables" in found
    assert "Specified qdisc kind is unknown." in found
    verdict, found = checked(netem="unknown qdisc", queue="not supported")["latency"]
    assert verdict == "warning"
    assert "unknown qdisc" in found
    assert "not supported" in found


def test_what_cannot_be_limited_is_named_with_its_reason() -> None:
    verdict, found = checked(
        groups_version=1, limits={"io": "no blkio", "memory": "no memory tree"}, storage="no sshfs"
    )["CPU, memory and disk limits"]
    assert verdict == "warning"
    assert found == (
        "CPU (control groups, version 1); not disk: no blkio; and no link to it: no sshfs; not memory: no memory tree"
    )
    everything = checked(limits=dict.fromkeys(("cpu", "memory", "io"), "root is needed"))
    assert everything["CPU, memory and disk limits"] == (
        "warning",
        "none (control groups, version 2); disk: behind a shaped link, by sshfs (root is needed); "
        "not CPU, memory: root is needed",
    )
    assert checked(limits={"io": "no blkio"})["CPU, memory and disk limits"] == (
        "ok",
        "CPU, memory (control groups, version 2); disk: behind a shaped link, by sshfs (no blkio)",
    )
    assert checked(rate="no tbf")["rate"] == ("warning", "links cannot be slowed down: no tbf")
