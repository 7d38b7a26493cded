"""The way out of a run's private network: the tasks reach other hosts, and nobody reaches the tasks.

As root by address translation on this machine (host/nat.py), where it forwards packets anyway; else by pasta or
slirp4netns, which pass connections on as ordinary programs and change nothing; as root without either by address
translation with forwarding turned on for the time. All of them end with the launcher, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from headway.host import nat
from headway.host.leftovers import state_folder
from headway.sites.isolation import PROBE_LIMIT, Isolation

LIMIT = 10.0  # seconds until there must be a way out
LOOK = 0.02
RESOLVER = Path("/etc/resolv.conf")
UPSTREAM = Path("/run/systemd/resolve/resolv.conf")  # whom systemd's own resolver asks
TUN = Path("/dev/net/tun")
NAT, NAT_SWITCHED, PASTA, SLIRP = "nat", "nat, forwarding turned on", "pasta", "slirp4netns"
PASSED_ON = {PASTA: "169.254.1.1", SLIRP: "10.0.2.3"}
"""Addresses at which these two pass questions on to the name server of this machine."""
NONE = "none"


# --- which way -------------------------------------------------------------------------------------------------------
@cache
def problems() -> dict[str, str | None]:
    """Every way, the best first, with None where it should work here and else why not."""
    no_nat = nat.problem() or (None if name_servers() else "name servers are reached by loopback alone")
    silent = [] if no_nat else nat.not_forwarding()
    off = f"{' and '.join(silent)} forwards no packets (net.ipv4.conf.{silent[0]}.forwarding is 0)" if silent else None
    return {NAT: no_nat or off, PASTA: _missing(PASTA, "passt"), SLIRP: _missing(SLIRP, SLIRP), NAT_SWITCHED: no_nat}


def _missing(tool: str, package: str) -> str | None:
    if not shutil.which(tool):
        return f"not installed (package {package})"
    if not shutil.which("setpriv"):
        return "the command `setpriv` (package util-linux) is missing"
    return None if os.access(TUN, os.R_OK | os.W_OK) else f"{TUN} cannot be opened"


def candidates() -> list[str]:
    """The ways that should work here, the best first."""
    return [way for way, problem in problems().items() if problem is None]


def choose() -> tuple[str | None, str]:
    """The best way that should work here, and why it is that one; None: why there is none."""
    passed = [f"{way}: {why}" for way, why in problems().items() if why and way != NAT_SWITCHED]
    for way in candidates():
        return way, "the first that works here" + (f"; {'; '.join(passed)}" if way == NAT_SWITCHED else "")
    return (
        None,
        f"no other host can be reached: {'; '.join(passed)}. Install the package passt, or use expose=cluster",
    )


# --- names -----------------------------------------------------------------------------------------------------------
def name_servers(resolver: Path = RESOLVER, upstream: Path = UPSTREAM) -> list[str]:
    """Those that a private network can reach: loopback is another one there."""
    for file in (resolver, upstream):
        if found := [server for server in _servers(file) if not _is_loopback(server)]:
            return found
    return []


def _servers(file: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "nameserver":
                yield words[1]


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return True  # nothing that can be asked


def resolver_text(way: str, resolver: Path = RESOLVER, upstream: Path = UPSTREAM) -> str:
    """resolv.conf as the tasks see it: this machine's, with servers that they reach."""
    servers = [PASSED_ON[way]] if way in PASSED_ON else name_servers(resolver, upstream)
    kept: list[str] = []
    with contextlib.suppress(OSError):
        lines = resolver.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = [line for line in lines if line.split()[:1] and line.split()[0] in ("search", "domain", "options")]
    return "".join(f"{line}\n" for line in [*(f"nameserver {server}" for server in servers), *kept])


# --- the process that keeps it ----------------------------------------------------------------------------------------
def command(way: str, pid: int, a_file: Path) -> list[str]:
    """What is started for the private network of that process. `a_file`: any that is there."""
    if way in (NAT, NAT_SWITCHED):
        return [sys.executable, "-m", "headway.host.nat", str(pid), str(state_folder())]
    dying_with_us = ["setpriv", "--pdeathsig", "KILL", "--"]
    if way == SLIRP:
        settings = ["--configure", "--mtu=65520", "--disable-host-loopback"]
        return [*dying_with_us, SLIRP, *settings, str(pid), "tap0"]
    nobody_comes_in = ["-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw"]
    settings = ["--foreground", "--quiet", "--config-net", *nobody_comes_in, "--dns-forward", PASSED_ON[PASTA]]
    if os.geteuid() == 0:
        settings += ["--runas", "0"]
    if _users(pid) != _users(os.getpid()):
        return [*dying_with_us, PASTA, *settings, str(pid)]
    # It gives up root's rights before it looks at the process; so the network gets a name, in private mounts.
    named = 'mount --bind "/proc/$1/ns/net" "$2" && shift 2 && exec "$@"'
    pasta = [PASTA, *settings, "--netns", str(a_file)]
    return [*dying_with_us, "unshare", "--mount", "--", "sh", "-c", named, "sh", str(pid), str(a_file), *pasta]


def _users(pid: int) -> int:
    """The user namespace of a process."""
    return Path(f"/proc/{pid}/ns/user").stat().st_ino


class Outbound:
    """One run's way out."""

    def __init__(self, way: str, log: Path, a_file: Path) -> None:
        self._way, self._log, self._a_file = way, log, a_file
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def open(self, pid: int, lost: Callable[[str], None]) -> str | None:
        """For the private network of that process. None when it is there, else why it is not; `lost` is told why when
        it ends before `close`."""
        with self._log.open("ab") as log:
            process = self._process = await asyncio.create_subprocess_exec(
                *command(self._way, pid, self._a_file),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is the launcher's alone
            )
        deadline = asyncio.get_running_loop().time() + LIMIT
        while not has_way_out(pid):
            if process.returncode is not None:
                self._process = None
                return f"{self._way}: {_last_line(self._log) or f'exit code {process.returncode}'}"
            if asyncio.get_running_loop().time() > deadline:
                await self.close()
                return f"{self._way} made no way out within {LIMIT:g} s"
            await asyncio.sleep(LOOK)

        async def watch() -> None:
            code = await process.wait()
            lost(f"{self._way} ended with exit code {code}: {_last_line(self._log)}")

        self._watch = asyncio.get_running_loop().create_task(watch())
        return None

    async def close(self) -> None:
        process, self._process = self._process, None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if process is None:
            return
        assert process.stdin
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            if self._way not in (NAT, NAT_SWITCHED):  # that one has to tidy up
                process.terminate()
        try:
            await asyncio.wait_for(process.wait(), LIMIT)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def has_way_out(pid: int) -> bool:
    """The network of that process has a default route."""
    try:
        lines = Path(f"/proc/{pid}/net/route").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return False
    return any(line.split()[1:2] == ["00000000"] for line in lines)


def _last_line(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


async def try_out(way: str, isolation: Isolation) -> str | None:
    """Make it for a network that nobody uses, and remove it. None, or why it does not work."""
    idle = await asyncio.create_subprocess_exec(
        *isolation.command, "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert idle.stdin and idle.stdout
    idle.stdin.write(b"there\n")
    with tempfile.NamedTemporaryFile() as log:
        outbound = Outbound(way, Path(log.name), Path(log.name))
        try:
            await asyncio.wait_for(idle.stdout.readline(), PROBE_LIMIT)
            return await outbound.open(idle.pid, lambda _: None)
        except TimeoutError:
            return "no private network could be made in time"
        finally:
            await outbound.close()
            idle.stdin.close()
            await idle.wait()
