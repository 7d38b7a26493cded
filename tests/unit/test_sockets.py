"""Bytes of each process's connections: real ones over loopback, and answers of a kernel that is made up."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import astuple, replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from parts import need

from headway.host.sockets import CLOSE_WAIT, ESTABLISHED, Sockets, SocketTraffic

SENT, BACK = 1_000_003, 17
# Sends, receives, waits for a line, closes, waits for another.
CHILD = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection.sendall(bytes(int(sys.argv[3])))
connection.recv(int(sys.argv[4]), socket.MSG_WAITALL)
sys.stdin.readline()
connection.close()
sys.stdin.readline()
"""


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    it = Sockets()
    need(it.problem)
    yield it
    it.close()


MARKS = 2  # where a packet was repeated, the marks of a connection's beginning and end may count as a byte each


def are_settled(sockets: Sockets, pids: list[int], expected: list[SocketTraffic]) -> bool:
    """Whether what is read becomes what is expected: acknowledgements may take some ms. On a busy machine even loopback
    repeats a packet now and then."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = [astuple(replace(each, retransmitted=0)) for each in sockets.read(pids).values()]
        pairs = zip(found, map(astuple, expected), strict=True)
        if all(0 <= got - wanted <= MARKS for both in pairs for got, wanted in zip(*both, strict=True)):
            return True
        time.sleep(0.005)
    print(f"{found} instead of {expected}")
    return False


@pytest.mark.parametrize("listening, address", [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")])
def test_two_processes_exactly(sockets: Sockets, listening: str, address: str) -> None:
    try:
        server = socket.create_server(
            (listening, 0),
            family=socket.AF_INET6 if ":" in listening else socket.AF_INET,
            dualstack_ipv6=listening == "::",
        )
    except (OSError, ValueError) as error:
        need(f"IPv6: {error}")
        raise
    arguments = [address, str(server.getsockname()[1]), str(SENT), str(BACK)]
    with (
        server,
        subprocess.Popen(
            [sys.executable, "-S", "-I", "-c", CHILD, *arguments], stdin=subprocess.PIPE, bufsize=0
        ) as child,
    ):
        assert child.stdin is not None
        pids = [os.getpid(), child.pid]
        before = sockets.read(pids)[os.getpid()]
        server.settimeout(10)
        connection = server.accept()[0]
        with connection:
            assert len(connection.recv(SENT, socket.MSG_WAITALL)) == SENT
            connection.sendall(bytes(BACK))
            expected = [
                SocketTraffic(before.loopback_sent + BACK, before.loopback_received + SENT),
                SocketTraffic(SENT, BACK),
            ]
            assert are_settled(sockets, pids, expected)
            child.stdin.write(b"close\n")
            assert connection.recv(1) == b""
            assert are_settled(sockets, pids, expected), "marks of an end are no bytes"
        for _ in range(4):
            assert are_settled(sockets, pids, expected), "closed"
        child.stdin.write(b"end\n")
        child.wait()
        assert are_settled(sockets, pids, expected), "the process is gone"
    assert sockets.problem is None


def test_a_process_that_is_not_there(sockets: Sockets) -> None:
    assert sockets.read([2**22 + 1]) == {2**22 + 1: SocketTraffic()}


def test_no_netlink(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> socket.socket:
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    monkeypatch.setattr(socket, "socket", refuse)
    sockets = Sockets()
    assert sockets.problem == "TCP connections cannot be counted: Protocol not supported"
    assert sockets.read([os.getpid()]) == {}
    sockets.close()


# --- a kernel that is made up --------------------------------------------------------------------------------------
def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body + bytes(-len(body) % 4)


def connection(
    cookie: int,
    remote: str,
    sent: int = 0,
    received: int = 0,
    *,
    inode: int = 0,
    local: str = "10.0.0.1",
    state: int = ESTABLISHED,
    info_size: int = 232,
    again: int = 0,
    marks: int = 0,
) -> bytes:
    """`marks`: of begin and end, which the kernel counts in what is acknowledged."""
    addresses = [ip_address(each).packed.ljust(16, b"\0") for each in (local, remote)]
    family = socket.AF_INET if len(ip_address(remote).packed) == 4 else socket.AF_INET6
    body = struct.pack("=BB6x16s16s4xQ16xI", family, state, *addresses, cookie, inode)
    info = struct.pack("=100xI16xQQ64xQ24x", again, sent + marks, received, sent + 1000 * again)[:info_size]
    shutdown = struct.pack("=HHB3x", 5, 8, 0)
    return message(20, body + shutdown + struct.pack("=HH", 4 + len(info), 2) + info)


class Kernel:
    """One datagram for each connection, as if each filled one."""

    def __init__(self) -> None:
        self.connections: list[bytes] = []
        self.end = message(3, struct.pack("=i", 0))
        self._answer: list[bytes] = []

    def send(self, _: bytes) -> None:
        self._answer = [*self.connections, self.end]

    def recv(self, _: int) -> bytes:
        return self._answer.pop(0)

    def settimeout(self, _: float) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made_up = Kernel()
    monkeypatch.setattr(socket, "socket", lambda *_: made_up)
    return made_up


def process(proc: Path, pid: int, *inodes: int) -> Path:
    folder = proc / str(pid) / "fd"
    folder.mkdir(parents=True, exist_ok=True)
    for inode in inodes:
        (folder / str(inode)).symlink_to(f"socket:[{inode}]")
    (folder / "0").exists() or (folder / "0").write_text("")
    return folder


@pytest.mark.parametrize(
    "local, remote, place",
    [
        ("10.0.0.1", "10.0.0.2", "external"),
        ("10.0.0.1", "10.0.0.1", "loopback"),
        ("127.0.0.1", "127.0.0.2", "loopback"),
        ("fd00::1", "fd00::2", "external"),
        ("fd00::1", "::1", "loopback"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.9", "loopback"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", "external"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1", "loopback"),
        ("7f00::1", "7f00::2", "external"),
    ],
)
def test_what_stays_on_the_host(kernel: Kernel, tmp_path: Path, local: str, remote: str, place: str) -> None:
    process(tmp_path, 5, 50)
    kernel.connections = [connection(1, remote, 300, 40, inode=50, local=local, again=2)]
    expected = SocketTraffic(**{f"{place}_sent": 300, f"{place}_received": 40}, retransmitted=2)
    assert Sockets(tmp_path).read([5]) == {5: expected}


def test_marks_of_begin_and_end_are_no_bytes(kernel: Kernel, tmp_path: Path) -> None:
    process(tmp_path, 5, 50)
    kernel.connections = [connection(1, "10.0.0.2", 300, 41, inode=50, marks=2, state=CLOSE_WAIT)]
    assert Sockets(tmp_path).read([5])[5] == SocketTraffic(external_sent=300, external_received=40)


def test_descriptors_are_read_for_new_connections_only(kernel: Kernel, tmp_path: Path) -> None:
    folder = process(tmp_path, 5, 50)
    sockets = Sockets(tmp_path)
    kernel.connections = [connection(1, "10.0.0.2", 10, inode=50), connection(2, "10.0.0.3", 7, inode=99)]
    assert sockets.read([5])[5].external_sent == 10
    assert sockets.read([5])[5].external_sent == 10  # 99 may have been accepted a moment ago: the second and last look
    folder.rename(tmp_path / "away")
    (tmp_path / "5").rmdir()
    kernel.connections = [connection(1, "10.0.0.2", 25), connection(2, "10.0.0.3", 8, inode=99)]
    assert sockets.read([5])[5].external_sent == 25, "closed by the process, still sending"
    process(tmp_path, 6, 99)
    assert sockets.read([5, 6]) == {5: SocketTraffic(external_sent=25), 6: SocketTraffic(external_sent=8)}


def test_accepted_just_now(kernel: Kernel, tmp_path: Path) -> None:
    process(tmp_path, 5)
    sockets = Sockets(tmp_path)
    kernel.connections = [connection(1, "10.0.0.2", 10)]
    assert sockets.read([5])[5] == SocketTraffic(), "nobody's yet"
    kernel.connections = [connection(1, "10.0.0.2", 10, inode=50)]
    assert sockets.read([5])[5] == SocketTraffic(), "not yet among the descriptors"
    process(tmp_path, 5, 50)
    assert sockets.read([5])[5].external_sent == 10


def test_never_less_and_nothing_twice(kernel: Kernel, tmp_path: Path) -> None:
    process(tmp_path, 5, 50, 51)
    sockets = Sockets(tmp_path)
    both = [connection(1, "10.0.0.2", 10, inode=50), connection(2, "10.0.0.2", 5, inode=51)]
    kernel.connections = both
    assert sockets.read([5])[5].external_sent == 15
    kernel.connections = both[1:]  # a dump has missed one
    assert sockets.read([5])[5].external_sent == 15
    kernel.connections = both
    assert sockets.read([5])[5].external_sent == 15
    kernel.connections = [connection(3, "10.0.0.2", 4, inode=50)]  # the inode is used again, the cookie is not
    assert sockets.read([5])[5].external_sent == 19
    assert sockets.read([]) == {}
    assert sockets.read([5])[5].external_sent == 19


def test_an_error_is_told_and_forgotten(kernel: Kernel, tmp_path: Path) -> None:
    process(tmp_path, 5, 50)
    good, kernel.end = kernel.end, message(2, struct.pack("=i", -errno.ENOENT) + bytes(16))
    sockets = Sockets(tmp_path)
    assert sockets.problem == "TCP connections cannot be counted: No such file or directory"
    kernel.connections = [connection(1, "10.0.0.2", 10, inode=50)]
    assert sockets.read([5]) == {}
    kernel.end = good
    assert sockets.read([5])[5].external_sent == 10, "once"
    assert sockets.problem is None


def test_older_kernels(kernel: Kernel, tmp_path: Path) -> None:
    process(tmp_path, 5, 50)
    sockets = Sockets(tmp_path)
    kernel.connections = [connection(1, "10.0.0.2", 10, 20, inode=50, info_size=192, marks=1)]  # 4.10
    assert sockets.read([5])[5] == SocketTraffic(external_sent=11, external_received=20), "one mark more is known"
    kernel.connections = [connection(2, "10.0.0.2", 10, 20, inode=50, info_size=104)]  # 3.10
    assert sockets.read([5]) == {}
    assert sockets.problem is not None and "Linux 4.1" in sockets.problem


def test_processes_of_others(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 5, 50)
    process(tmp_path, 6)
    listed = os.listdir

    def refuse(folder: str) -> list[str]:
        if folder == f"{tmp_path}/6/fd":
            raise PermissionError(errno.EACCES, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(os, "listdir", refuse)
    kernel.connections = [connection(1, "10.0.0.2", 10, inode=50), connection(2, "10.0.0.2", 5, inode=60)]
    sockets = Sockets(tmp_path)
    assert sockets.read([5, 6]) == {5: SocketTraffic(external_sent=10)}, "not zero: not known"
    assert sockets.problem is not None and "root" in sockets.problem
