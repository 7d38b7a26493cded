"""A program on site local reaches other hosts, nobody reaches it, and afterwards the machine is as it was."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from debian import unpacked, unpacked_with_dependencies
from internet import MACHINE, NAMES, PORT, TEXT, WEB, Machine, machine

from headway.host.namespaces import network_of
from headway.record.folder import RunFolder

pytestmark = [pytest.mark.real, pytest.mark.system]
NOBODY = 65534
LIMIT = 30.0
LISTENING = 5555

FETCH = f"import urllib.request; urllib.request.urlopen('http://{WEB}:{PORT}/', timeout=5).close()"
# Listens at every interface, as TensorFlow does, and fetches a page by address and by name until it is told to end.
SERVE = f"""
import pathlib, socket, sys, time, urllib.request
with socket.create_server(("::", {LISTENING}), family=socket.AF_INET6, dualstack_ipv6=True):
    while not pathlib.Path(sys.argv[1]).exists():
        for host in ("{WEB}", "pypi.example"):
            with urllib.request.urlopen(f"http://{{host}}:{PORT}/", timeout=5) as page:
                assert page.read() == {TEXT!r}
        pathlib.Path(sys.argv[1] + ".fetched").touch()
        time.sleep(0.1)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Everybody may enter it, unlike pytest's own: runs of another user are there, too."""
    made = Path(tempfile.mkdtemp(prefix="machine-"))
    made.chmod(0o755)
    for name in ("runs", "said"):
        (made / name).mkdir()
        (made / name).chmod(0o777)
    (made / "serve.py").write_text(SERVE)
    yield made
    shutil.rmtree(made)


def tool(name: str) -> Path:
    return unpacked("passt") if name == "pasta" else unpacked_with_dependencies("slirp4netns")


def choice(here: Machine, path: str) -> tuple[str, str]:
    """Of the newest run: what was chosen, and why."""
    chosen = {each["path"]: each for each in json.loads(newest(here).job_file.read_text())["choices"]}
    return chosen[path]["value"], chosen[path]["reason"]


def newest(here: Machine) -> RunFolder:
    return RunFolder.all(here.folder / "runs")[-1]


def wait_for(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + LIMIT
    while not (found := look()):
        assert time.monotonic() < deadline, f"no {what} within {LIMIT} s"
        time.sleep(0.05)
    return found


class Serving:
    """A launched program that listens, and fetches pages all the time."""

    def __init__(self, here: Machine, name: str, *settings: str, user: int = 0) -> None:
        self.here, self.end = here, here.folder / "said" / name
        script = str(here.folder / "serve.py")
        self.process = here.python(
            "-m", "headway", "launch", *settings, "--", sys.executable, script, str(self.end), user=user
        )
        self.fetched = self.end.with_name(f"{self.end.name}.fetched")
        self.fetches()
        self.program = next(each for each in self.family() if str(self.end) in each.cmdline()[-1:])

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def fetches(self) -> None:
        """Anew."""
        self.fetched.unlink(missing_ok=True)
        wait_for(self.fetched.exists, "page that the program fetched")

    def of(self, *words: str) -> psutil.Process:
        """The process of the run with these words in its command."""
        return next(each for each in self.family() if set(words) <= set(each.cmdline()))

    def finish(self) -> str:
        self.end.touch()
        output, _ = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == 0, output
        return output

    def addresses(self) -> list[str]:
        """By which it might be reached, of both versions."""
        with network_of(self.program.pid):
            shown = subprocess.run(["ip", "-oneline", "addr"], capture_output=True, text=True, check=True).stdout
        return re.findall(r"inet6? ([0-9a-f.:]+)/", shown)


WAYS = [
    pytest.param("nat", True, NAMES, 0, id="nat"),
    pytest.param("nat, forwarding turned on", False, NAMES, 0, id="nat-where-nothing-is-forwarded"),
    pytest.param("pasta", False, "127.0.0.53", 0, id="pasta-as-root"),
    pytest.param("slirp4netns", False, "127.0.0.53", 0, id="slirp4netns-as-root"),
    pytest.param("pasta", False, "127.0.0.53", NOBODY, id="pasta"),
    pytest.param("slirp4netns", False, "127.0.0.53", NOBODY, id="slirp4netns"),
]


@pytest.mark.parametrize(("way", "forwards", "asks", "user"), WAYS)
def test_a_program_reaches_others_and_nobody_reaches_it(
    folder: Path, way: str, forwards: bool, asks: str, user: int
) -> None:
    with machine(folder, forwards, asks) as here:
        here.has(*([] if way.startswith("nat") else [tool(way)]))
        if user:
            here.let_everybody_use_python()
        before = here.state()
        serving = Serving(here, "serving", user=user)
        assert choice(here, "site.network")[0] == "outbound"
        assert choice(here, "site.outbound")[0] == way
        assert here.connects(serving.program.pid, "127.0.0.1", LISTENING)  # else this would prove nothing
        for address in [*serving.addresses(), MACHINE]:
            for place in (here.host, here.outside):
                scope = "%wan" if address.startswith("fe80") else ""
                assert not here.connects(place, address + scope, LISTENING), (address, place)
        for name in [line.split(":")[1].strip() for line in here.state()["link"].splitlines() if "hwnet" in line]:
            gateway = name.partition("@")[0]  # what a neighbour on that cable sees
            for address in serving.addresses():
                assert not here.connects(here.host, f"{address}%{gateway}", LISTENING)
        family = serving.family()
        serving.finish()
        assert here.state() == before
        wait_for(lambda: not any(each.is_running() for each in family), "end of all processes")


@pytest.mark.parametrize("forwards", [True, False], ids=["forwarding", "not-forwarding"])
def test_two_runs_at_once_do_not_disturb_each_other(folder: Path, forwards: bool) -> None:
    with machine(folder, forwards) as here:
        here.has()
        before = here.state()
        first, second = Serving(here, "first"), Serving(here, "second")
        for address in [address for address in second.addresses() if address not in ("127.0.0.1", "::1")]:
            assert not here.connects(first.program.pid, address, LISTENING)
        first.fetches()
        first.finish()
        second.fetches()
        assert here.state() != before  # it is still needed
        second.finish()
        assert here.state() == before


def test_a_machine_that_forwards_nothing_forwards_for_runs_alone(folder: Path) -> None:
    """While it does so, no stranger's packet passes through it."""
    with machine(folder, forwards=False) as here:
        here.has()
        third = here.start(["unshare", "--net", "--", "sh", "-c", "echo there; exec cat"])
        here.do(f"ip link add lan type veth peer name eth0 netns {third}", "ip addr add 192.0.2.1/24 dev lan")
        here.do("ip link set lan up")
        here.do("ip addr add 192.0.2.2/24 dev eth0", "ip link set eth0 up", pid=third)
        here.do("ip route add default via 192.0.2.1", pid=third)
        here.start(here.at(third, sys.executable, "-c", ECHO))
        assert here.connects(here.host, "192.0.2.2", LISTENING)
        serving = Serving(here, "serving")
        with network_of(here.host):
            assert Path("/proc/sys/net/ipv4/conf/wan/forwarding").read_text() == "1\n"
            Path("/proc/sys/net/ipv4/conf/lan/forwarding").write_text("1")  # so that answers could pass
        assert not here.connects(here.outside, "192.0.2.2", LISTENING)
        serving.finish()


ECHO = f"""
import socket
with socket.create_server(("", {LISTENING})) as server:
    print("there", flush=True)
    while True:
        server.accept()[0].close()
"""


@pytest.mark.parametrize("way", ["nat", "nat, forwarding turned on", "pasta", "slirp4netns"])
def test_whoever_is_killed_nothing_is_left(folder: Path, way: str) -> None:
    with machine(folder, forwards=way == "nat") as here:
        here.has(*([] if way.startswith("nat") else [tool(way)]))
        before = here.state()

        def is_as_before() -> bool:
            return here.state() == before

        serving = Serving(here, "launcher")
        family = serving.family()
        serving.process.kill()
        serving.process.communicate(timeout=LIMIT)
        wait_for(lambda: not any(each.is_running() for each in family), "end of all processes")
        wait_for(is_as_before, "removal of what the killed launcher had")

        serving = Serving(here, "agent", "--set", "restart.delay=0.1")
        serving.of("-m", "headway.agent", "--private-network").kill()
        time.sleep(0.5)
        serving.fetches()  # the node is made anew, and its way out
        serving.finish()
        assert is_as_before()

        serving = Serving(here, "way", "--set", "restart.attempts=0")
        keeper = serving.of("headway.host.nat") if way.startswith("nat") else serving.of(way)
        keeper.kill()
        wait_for(lambda: events(newest(here), "no_outbound"), "word of it")
        serving.end.touch()  # or it has failed
        output, _ = serving.process.communicate(timeout=LIMIT)
        assert "no outbound network" in output
        if way == "nat, forwarding turned on":
            assert not is_as_before()
            code, output = here.headway("clean")
            assert (code, output) == (0, "removed forwarding of packets by wan\n")
        wait_for(is_as_before, "removal of what the killed keeper had")


def events(folder: RunFolder, kind: str) -> list[dict[str, Any]]:
    lines = folder.events("launcher").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def test_a_private_network_has_no_way_out_and_the_failure_says_what_to_do(folder: Path) -> None:
    with machine(folder) as here:
        fetch = ["--", sys.executable, "-c", FETCH]
        code, output = here.headway("launch", "--set", "site.network=private", "--set", "restart.attempts=0", *fetch)
        assert code != 0
        assert "Network is unreachable" in output
        assert "--set site.network=outbound" in output
        code, output = here.headway("launch", "--set", "expose=cluster", *fetch)
        assert code == 0, output


TRY_ALL = """
import asyncio
from headway.sites import isolation, outbound
as_user = next(each for each in isolation.candidates() if "--user" in each.command)
for way in outbound.problems():
    print(asyncio.run(outbound.try_out(way, as_user)))
"""
DOCTOR = "from headway.cli.doctor import outbound_network as look; check = look(); print(check.verdict, check.found)"


def test_a_way_out_that_fails_or_is_slow_does_not_cost_the_run_its_node(folder: Path) -> None:
    """Longer than the agent's lease; then the next way is taken."""
    with machine(folder, forwards=False) as here:
        here.has()
        broken = folder / "usr" / "bin" / "pasta"
        broken.parent.mkdir(parents=True)
        broken.write_text("#!/bin/sh\nsleep 4\necho it is broken\nexit 1\n")
        broken.chmod(0o755)
        here.env["PATH"] = f"{broken.parent}:{here.env['PATH']}"
        code, output = here.headway("launch", "--", sys.executable, "-c", FETCH)
        assert code == 0, output
        (event,) = events(newest(here), "outbound")
        assert event["way"] == "nat, forwarding turned on"
        assert event["failed"] == ["pasta: it is broken"]
        assert not events(newest(here), "agent_lost")


def test_where_there_is_no_way_out_one_line_says_so(folder: Path) -> None:
    with machine(folder) as here:
        here.has()
        here.let_everybody_use_python()
        code, output = here.headway("launch", "--", sys.executable, "-c", "pass", user=NOBODY)
        assert code == 0, output
        (line,) = [line for line in output.splitlines() if "site.outbound" in line]
        for part in ("none", "no other host", "nat: it needs root", "pasta: not installed", "passt", "expose=cluster"):
            assert part in line
        assert choice(here, "site.outbound")[0] == "none"
        _, output = here.run("-c", DOCTOR, user=NOBODY)
        assert re.search(r"warning.*pasta: not installed", output), output


def test_the_doctor_tries_the_way_out(folder: Path) -> None:
    with machine(folder) as here:
        before = here.state()
        _, output = here.run("-c", DOCTOR)
        assert output == "ok by nat\n"
        # Each for root's own user namespace, too, as in a container.
        here.has(tool("pasta"), tool("slirp4netns"))
        _, output = here.run("-c", TRY_ALL)
        assert output == "None\n" * 4
        assert here.state() == before
