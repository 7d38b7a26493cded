"""An internet in a box: a machine in namespaces of its own, and behind its one cable a host with two servers.

What is started on the machine has its network and its mounts (an own /run, its resolv.conf, a /dev/net/tun that
everybody may open, as on most machines), so nothing of the machine that the tests run on is touched. All of it ends
with this process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from parts import need

from headway.host.namespaces import network_of
from headway.host.netfilter import NETLINK_NETFILTER, NFT, REQUEST, message

WEB, NAMES, MACHINE, ROUTER = "198.51.100.7", "198.51.100.53", "203.0.113.2", "203.0.113.1"
PORT = 8000
TEXT = b"hello from outside"
GET_TABLE, DUMP, DONE = 1, 0x300, 3
LIMIT = 60.0

# Answers every question with the web server's address. It says that it is there.
NAME_SERVER = f"""
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind((sys.argv[1], 53))
    print("there", flush=True)
    while True:
        asked, who = server.recvfrom(512)
        end = asked.index(0, 12) + 5
        is_ipv4 = asked[end - 4:end - 2] == bytes([0, 1])
        answer = bytes([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]) + socket.inet_aton("{WEB}") if is_ipv4 else b""
        counts = bytes([0, 1, 0, int(is_ipv4), 0, 0, 0, 0])
        server.sendto(asked[:2] + bytes([0x81, 0x80]) + counts + asked[12:end] + answer, who)
"""
WEB_SERVER = f"""
import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write({TEXT!r})
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("{WEB}", {PORT}), Page)
print("there", flush=True)
server.serve_forever()
"""


class Machine:
    """The machine in the box. Use `machine` to get one."""

    def __init__(self, started: contextlib.ExitStack, folder: Path) -> None:
        self._started, self.folder = started, folder
        self.host = self.start(["unshare", "--net", "--mount", "--", "sh", "-c", "echo there; exec cat"])
        self.outside = self.start(["unshare", "--net", "--", "sh", "-c", "echo there; exec cat"])
        self.env = {**os.environ, "HEADWAY_RUNS": str(folder / "runs"), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}

    def start(self, command: Sequence[str]) -> int:
        """A process that says when it is there, until the end of the test. Its number."""
        process = self._started.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        self._started.callback(process.kill)
        assert process.stdout and process.stdout.readline() == "there\n", command
        return process.pid

    def at(self, pid: int, *command: str) -> list[str]:
        """The command in the network and mounts of that process."""
        mounts = ["--mount"] if pid == self.host else []
        return ["nsenter", "--target", str(pid), "--net", *mounts, f"--wdns={self.folder}", "--", *command]

    def do(self, *lines: str, pid: int | None = None) -> None:
        for line in lines:
            subprocess.run(self.at(pid or self.host, *line.split()), check=True, timeout=LIMIT)

    def build(self, forwards: bool, asks: str) -> None:
        """`asks`: the machine's name server; one at loopback runs on the machine itself."""
        (self.folder / "resolv.conf").write_text(f"nameserver {asks}\noptions timeout:2\n")
        (self.folder / "tun").touch()
        self.do(
            "mount --make-rprivate /",
            "mount -t tmpfs none /run",
            "mknod -m 666 /run/tun c 10 200",
            "mount --bind /run/tun /dev/net/tun",
            f"mount --bind {self.folder}/resolv.conf {Path('/etc/resolv.conf').resolve()}",
            "ip link set lo up",
            f"ip link add wan type veth peer name cable netns {self.outside}",
            f"ip addr add {MACHINE}/24 dev wan",
            "ip link set wan up",
            f"ip route add default via {ROUTER}",
        )
        with network_of(self.host):
            Path("/proc/sys/net/ipv4/ip_forward").write_text(str(int(forwards)))
        self.do(
            "ip link set lo up",
            f"ip addr add {ROUTER}/24 dev cable",
            f"ip addr add {WEB}/32 dev lo",
            f"ip addr add {NAMES}/32 dev lo",
            "ip link set cable up",
            f"ip route add default via {MACHINE}",  # so that whatever can get in would
            pid=self.outside,
        )
        self.start(self.at(self.outside, sys.executable, "-c", WEB_SERVER))
        where = self.host if asks.startswith("127.") else self.outside
        self.start(self.at(where, sys.executable, "-c", NAME_SERVER, asks))

    def has(self, *tools: Path) -> None:
        """Of the programs that make a way out these alone, unpacked there."""
        for installed in filter(None, map(shutil.which, ("pasta", "slirp4netns"))):
            self.do(f"mount --bind /dev/null {installed}")
        if tools:
            tools = tuple(shutil.copytree(tool, self.folder / tool.name, symlinks=True) for tool in tools)
            self.env["PATH"] = ":".join([*(f"{tool}/usr/bin" for tool in tools), self.env["PATH"]])
            self.env["LD_LIBRARY_PATH"] = ":".join(f"{tool}/usr/lib/x86_64-linux-gnu" for tool in tools)

    def let_everybody_use_python(self) -> None:
        """Ours may lie in a folder of root's alone: on this machine that folder has nothing else in it, and is open."""
        python = Path(sys.base_prefix).resolve()
        closed = [folder for folder in python.parents if not folder.stat().st_mode & 0o001]
        if closed:
            self.do(
                "mkdir /run/python",
                f"mount --bind {python} /run/python",
                f"mount -t tmpfs -o mode=755 none {closed[-1]}",
                f"mkdir -p {python}",
                f"mount --move /run/python {python}",
            )

    # --- using it ----------------------------------------------------------------------------------------------------
    def python(self, *arguments: str, user: int = 0) -> subprocess.Popen[str]:
        """Begun. `user`: whose it is."""
        command = [sys.executable, *arguments]
        if user:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *command]
        process = self._started.enter_context(
            subprocess.Popen(
                self.at(self.host, *command), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        self._started.callback(process.kill)
        return process

    def headway(self, *arguments: str, user: int = 0) -> tuple[int, str]:
        """The command, to its end: exit code and output."""
        return self.run("-m", "headway", *arguments, user=user)

    def run(self, *arguments: str, user: int = 0) -> tuple[int, str]:
        process = self.python(*arguments, user=user)
        output, _ = process.communicate(timeout=LIMIT)
        return process.returncode, output

    def state(self) -> dict[str, Any]:
        """All of its network that a run could change."""
        with network_of(self.host):
            settings = {str(path): path.read_text() for path in sorted(Path("/proc/sys/net/ipv4/conf").glob("*/*"))} | {
                "ip_forward": Path("/proc/sys/net/ipv4/ip_forward").read_text()
            }
            network = {
                what: subprocess.run(["ip", "-details", what], capture_output=True, text=True, check=True).stdout
                for what in ("link", "addr", "route", "rule")
            }
            return {"settings": settings, "tables": tables(), **network}

    def connects(self, pid: int, address: str, port: int) -> bool:
        """Whether a process in the network of that one gets through."""
        with network_of(pid):
            try:
                socket.create_connection((address, port), timeout=1.0).close()
            except OSError:
                return False
            return True


def tables() -> list[str]:
    """The names of nftables' tables in this network."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as link:
        link.bind((0, 0))
        link.settimeout(5.0)
        link.send(message(NFT << 8 | GET_TABLE, REQUEST | DUMP, 0, 0, b""))
        names: list[str] = []
        while True:
            data, place = link.recv(65536), 0
            while place < len(data):
                length, kind = struct.unpack_from("=IH", data, place)
                if kind == DONE:
                    return names
                size, _ = struct.unpack_from("=HH", data, place + 20)  # the name comes first
                names.append(data[place + 24 : place + 20 + size].rstrip(b"\0").decode())
                place += (length + 3) & ~3


@contextlib.contextmanager
def machine(folder: Path, forwards: bool = True, asks: str = NAMES) -> Iterator[Machine]:
    need(None if os.geteuid() == 0 else "root, to make a machine in namespaces")
    need(None if shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") else "the command `ip` (iproute2)")
    folder.chmod(0o755)
    with contextlib.ExitStack() as started:
        made = Machine(started, folder)
        made.build(forwards, asks)
        yield made
