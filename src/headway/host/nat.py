"""A way out of a private network, as root: a pair of virtual interfaces, and address translation (NAT) on this machine.

`python -m headway.host.nat PID FOLDER` keeps it for the network of a process until standard input ends, and then
removes it. If it is killed itself, the kernel removes its table, and the interfaces go with the private network.

Nobody gets in: in the private network whatever is no answer is dropped, and this machine forwards nothing else to it.

Answers come in by the machine's own interface, which must forward packets for that. Where it does not, it does so for
as long as a run needs it, and then for the runs alone. A file in FOLDER says so, and every run that needs it has a lock
on the file; the last one turns forwarding off again, or if that one was killed the next run does, or `clean`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import FrameType
from typing import Any

from headway import locks
from headway.host.namespaces import network_of
from headway.host.netfilter import (
    ACCEPT,
    DROP,
    INET,
    IPV4,
    MASQUERADE,
    Chain,
    Table,
    comes_from,
    comes_in_by,
    dropping,
    goes_out_by,
    is_answer,
)

TOOL_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PREFIX = "hwnet"
LIMIT = 10.0  # seconds for a command
# Shared address space first: few machines have routes there.
POOLS = [IPv4Network(text) for text in ("100.64.0.0/10", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
TRIES = 100
SETTINGS = Path("/proc/sys/net")
CLOSED = Table(
    "headway",
    INET,
    [Chain("arriving", "filter", "input", 0, [comes_in_by("lo") + ACCEPT, is_answer() + ACCEPT, DROP])],
)
"""In the private network: TensorFlow listens at every interface."""


def problem() -> str | None:
    """Why there can be none here, whatever the machine forwards."""
    if os.geteuid() != 0:
        return "it needs root"
    if not shutil.which("ip", path=TOOL_PATH):
        return "the command `ip` (package iproute2) is missing"
    try:
        if not uplinks():
            return "this machine has no default route"
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if iptables := shutil.which("iptables", path=TOOL_PATH):  # Docker and ufw do that
        said = subprocess.run([iptables, "-S", "FORWARD"], check=False, capture_output=True, text=True, timeout=LIMIT)
        if "-P FORWARD DROP" in said.stdout:
            return "this machine's firewall drops forwarded packets (iptables -S FORWARD)"
    return _native_problem()


def _native_problem() -> str | None:
    """Of rules that were made by nftables itself: `iptables` does not show them. What drops there, no rule of ours in
    another table can accept."""
    with contextlib.suppress(OSError):  # a kernel without nftables; what NAT lacks then is said when it is made
        for table, chain in dropping("forward"):
            if not table.startswith(PREFIX):
                return (
                    f"this machine's firewall drops forwarded packets (nftables: table {table}, chain {chain}, policy "
                    "drop)"
                )
    return None


def uplinks() -> list[str]:
    """The interfaces that lead out of this machine."""
    return sorted({route["dev"] for route in _routes() if route["dst"] == "default" and "dev" in route})


def not_forwarding() -> list[str]:
    """Those of them that forward no packets."""
    return [name for name in uplinks() if _forwarding(name).read_text().strip() == "0"]


def _packet_size() -> int:
    """The largest that every way out takes: who answers sends no larger ones than we say."""
    links: list[dict[str, Any]] = json.loads(_ip("-json", "link", "show"))
    names = uplinks()
    return min((link["mtu"] for link in links if link["ifname"] in names), default=1500)


def free_subnet(used: Iterable[IPv4Network], pick: random.Random) -> IPv4Network:
    """Four addresses that no route leads to."""
    taken = list(used)
    for pool in POOLS:
        for _ in range(TRIES):
            subnet = IPv4Network((int(pool[0]) + 4 * pick.randrange(pool.num_addresses // 4), 30))
            if not any(subnet.overlaps(other) for other in taken):
                return subnet
    raise OSError("every private address has a route here")


def _routes() -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(_ip("-4", "-json", "route", "show", "table", "all") or "[]")
    return found


def _used() -> Iterator[IPv4Network]:
    for route in _routes():
        with contextlib.suppress(ValueError):
            yield IPv4Network(route["dst"])


def _ip(*arguments: str, lines: Iterable[str] = ()) -> str:
    tool = shutil.which("ip", path=TOOL_PATH) or "ip"
    given = "".join(f"{line}\n" for line in lines)
    done = subprocess.run([tool, *arguments], input=given, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise OSError(f"ip: {done.stderr.strip()}")
    return done.stdout


def _forwarding(interface: str) -> Path:
    return SETTINGS / "ipv4" / "conf" / interface / "forwarding"


def _no_ipv6(interface: str) -> None:
    """Else it has an address by which it is reached; addresses of version 6 are not translated."""
    setting = SETTINGS / "ipv6" / "conf" / interface / "disable_ipv6"
    if setting.exists():
        setting.write_text("1")


class Nat:
    def __init__(self, pid: int, folder: Path) -> None:
        """For the network of that process. OSError when it cannot be made; then nothing is left of it."""
        self.name = f"{PREFIX}{secrets.token_hex(3)}"
        self._folder = folder
        self._table: socket.socket | None = None
        self._forwarded: list[tuple[Path, int]] = []
        try:
            self._make(pid)
        except BaseException:
            self.close()
            raise

    def _make(self, pid: int) -> None:
        gateway, inside = free_subnet(_used(), random.SystemRandom()).hosts()
        with network_of(pid):
            CLOSED.make()
        size = ["mtu", str(_packet_size())]
        _ip("link", "add", self.name, *size, "type", "veth", "peer", "name", "eth0", *size, "netns", str(pid))
        with network_of(pid):
            _no_ipv6("eth0")
            _ip("-batch", "-", lines=(f"addr add {inside}/30 dev eth0", "link set eth0 up"))
        _no_ipv6(self.name)
        _ip("-batch", "-", lines=(f"addr add {gateway}/30 dev {self.name}", f"link set {self.name} up"))
        with _locked(self._folder):
            switched = _to_switch(self._folder)
            self._table = self._rules(inside, switched).hold()
            for name in switched:
                self._forwarded.append(_switch_on(self._folder, name))
        _forwarding(self.name).write_text("1")
        with network_of(pid):  # last: it says that all is there
            _ip("route", "add", "default", "via", str(gateway))

    def _rules(self, inside: IPv4Address, switched: Iterable[str]) -> Table:
        """`switched`: interfaces that forward for runs' sake alone."""
        guard = [comes_in_by(name) + goes_out_by(f"{PREFIX}*", is_it=False) + DROP for name in switched]
        only_answers = goes_out_by(self.name) + is_answer(is_it=False) + DROP
        leaving = comes_from(inside) + goes_out_by(self.name, is_it=False) + MASQUERADE
        return Table(
            self.name,
            IPV4,
            [
                Chain("forwarded", "filter", "forward", 0, [*guard, only_answers]),
                Chain("leaving", "nat", "postrouting", 100, [leaving]),
            ],
        )

    def close(self) -> None:
        """Forwarding ends before the rules that guard it."""
        with _locked(self._folder):
            for path, lock in self._forwarded:
                if locks.upgrade(lock):  # else another run needs it
                    _switch_off(path)
                os.close(lock)
        self._forwarded = []
        if self._table is not None:
            self._table.close()
        with contextlib.suppress(OSError):  # it has gone with the private network
            _ip("link", "delete", self.name)


# --- forwarding, where this machine has none -------------------------------------------------------------------------
@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One at a time."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locks.held(folder / "forwarding.lock"):
        yield


def _note(folder: Path, interface: str) -> Path:
    """Interfaces of other networks (containers) may have the same name."""
    network = Path("/proc/self/ns/net").stat().st_ino
    return folder / f"forwarding-{network}-{interface}"


def _is_switched(folder: Path, interface: str) -> bool:
    """It forwards for runs alone, or will have to."""
    return _forwarding(interface).read_text().strip() == "0" or _note(folder, interface).exists()


def _to_switch(folder: Path) -> list[str]:
    """The interfaces that forward for runs alone, or will have to. A note whose run was killed says nothing of them any
    more: somebody else may have turned forwarding on since, whose packets a guard would drop."""
    _switch_off_unused(folder)
    return [name for name in uplinks() if _is_switched(folder, name)]


def _switch_on(folder: Path, interface: str) -> tuple[Path, int]:
    path = _note(folder, interface)
    lock = locks.share(path)
    _forwarding(interface).write_text("1")
    return path, lock


def _switch_off(path: Path) -> str:
    """What the note says; its lock is ours, so no other run needs it. The interface's name."""
    interface = path.name.split("-", 2)[2]
    # The interface may be gone; and if all forward by now, somebody else has turned it on and relies on it.
    if _forwarding(interface).exists() and _forwarding("all").read_text().strip() == "0":
        _forwarding(interface).write_text("0")
    path.unlink(missing_ok=True)
    return interface


def clean(folder: Path) -> list[str]:
    """Turn forwarding off where it was left on by a run that was killed. Returns what was done, in words."""
    if not folder.is_dir() or os.geteuid() != 0:
        return []
    with _locked(folder):
        return [f"forwarding of packets by {interface}" for interface in _switch_off_unused(folder)]


def _switch_off_unused(folder: Path) -> list[str]:
    """Where no run that lives has a lock on the note. The interfaces' names."""
    done = []
    for path in sorted(folder.glob(_note(folder, "*").name)):
        if (lock := locks.attempt(path)) is not None:
            try:
                done.append(_switch_off(path))
            finally:
                os.close(lock)
    return done


def _end(_: int, __: FrameType | None) -> None:
    raise SystemExit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the launcher's
    pid, folder = int(sys.argv[1]), Path(sys.argv[2])
    try:
        nat = Nat(pid, folder)
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(str(error))
    try:
        print(nat.name, flush=True)
        sys.stdin.buffer.read()
    finally:
        nat.close()


if __name__ == "__main__":
    main()
