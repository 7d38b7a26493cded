"""Bytes that each process has sent and received over TCP, as the kernel counts them for each connection.

Interfaces count for a whole host; this tells tasks apart that share one, and their traffic among themselves (loopback)
from what leaves the host. The kernel is asked (netlink, as `ss` does) about the connections of the network namespace
that we are in: nothing is captured, and the processes are not touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# linux/netlink.h, linux/inet_diag.h, linux/tcp.h
NETLINK_SOCK_DIAG = 4
REQUEST_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
# Nearly all of the time goes into the kernel's walk through its table of connections (0.35 ms for 262144 rows, however
# few are used). This request walks once for IPv4 and IPv6; SOCK_DIAG_BY_FAMILY, the newer one, once for each.
TCPDIAG_GETSOCK = 18
INET_DIAG_INFO = 2
ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING = 1, 4, 5, 8, 9, 11
STATES = sum(1 << state for state in (ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING))
PEER_HAS_ENDED = (CLOSE_WAIT, LAST_ACK, CLOSING)
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_CODE = struct.Struct("=i")
_REQUEST = struct.Struct("=B2xB48xII")  # inet_diag_req: family, wanted attributes, states, unused
_MESSAGE = struct.Struct("=xB42xQ16xI")  # inet_diag_msg: state, cookie, inode
_ATTRIBUTE = struct.Struct("=HH")  # length with this header, type
_COUNTS = struct.Struct("=100xI16xQQ")  # tcp_info: total_retrans, bytes_acked, bytes_received
_BYTES_SENT = struct.Struct("=200xQ")  # tcp_info, since Linux 4.19
_LOOPBACK_6 = (bytes(15) + b"\1", bytes(10) + b"\xff\xff\x7f")  # ::1, ::ffff:127.0.0.0
LOOKS = 2


@dataclass(frozen=True)
class SocketTraffic:
    """Payload, without headers."""

    loopback_sent: int = 0
    """Bytes that have arrived: what was sent again counts once. Known when the peer has said so, some ms later."""
    loopback_received: int = 0
    external_sent: int = 0
    external_received: int = 0
    retransmitted: int = 0
    """Packets that were sent again."""


@dataclass(slots=True)
class _Connection:
    place: int
    pid: int | None = None
    looks: int = LOOKS
    """Times to look for its process. An accepted connection can be seen just before the process has it: twice."""
    sent: int = 0
    received: int = 0
    retransmitted: int = 0


class Sockets:
    """Asks the kernel. A connection's bytes count for the process that is seen to have it, also when it is closed;
    what moved between the last read and its end is not seen, nor a connection that lived between two reads only."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.problem: str | None = None
        """Why it does not work here, or not for some process: as of the last read."""
        self._proc = proc
        self._netlink: socket.socket | None = None
        self._asked: set[int] = set()
        self._hidden: set[int] = set()
        self._totals: dict[int, list[int]] = {}
        # By cookie, which is never used again; the inode is gone when the process has closed, while bytes still leave.
        # `_missing`: were there the time before. A dump can miss one, and if it was forgotten it would count again.
        self._connections: dict[int, _Connection] = {}
        self._missing: dict[int, _Connection] = {}
        self.read(())

    def read(self, pids: Iterable[int]) -> dict[int, SocketTraffic]:
        """Of each process, since the beginning of every connection that it was seen to have. Never less than before.
        A process that is left out: not known (`problem` says why)."""
        asked = list(pids)
        self.problem = None
        if not self._asked.issuperset(asked):
            for known in self._connections.values():
                known.looks = LOOKS  # strangers may be theirs
        self._asked = set(asked)
        try:
            if self._netlink is None:
                self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
                self._netlink.settimeout(1.0)
            self._follow(self._netlink, asked)
        except OSError as error:
            self.close()  # half an answer may be in it
            self.problem = f"TCP connections cannot be counted: {error.strerror or error}"
            return {}
        seen = [pid for pid in asked if pid in self._totals or pid not in self._hidden]
        if len(seen) < len(asked):
            self.problem = "the sockets of another user's processes cannot be seen: root is needed"
        return {pid: SocketTraffic(*self._totals.get(pid, ())) for pid in seen}

    def close(self) -> None:
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _follow(self, netlink: socket.socket, pids: list[int]) -> None:
        """Add to the totals what has moved since the last time."""
        before, now = self._connections, dict[int, _Connection]()
        owners: dict[int, int] | None = None
        for data, at, end in self._dump(netlink):
            state, cookie, inode = _MESSAGE.unpack_from(data, at)
            one = before.get(cookie) or self._missing.get(cookie)
            if one is None:
                if not inode:
                    continue  # not accepted yet, or closed before we saw whose it was
                one = _Connection(_place(data[at], data[at + 8 : at + 24], data[at + 24 : at + 40]))
                before[cookie] = one  # also when the rest of the dump fails, it must not count again
            now[cookie] = one
            if one.pid is None and one.looks and inode:
                # Only when there is somebody new: it takes several times as long as all the rest.
                owners = self._owners(pids) if owners is None else owners
                one.pid = owners.get(inode)
                one.looks -= 1
            if one.pid is not None:
                self._count(one, one.pid, state, _counts(data, at + _MESSAGE.size, end))
        self._missing = {cookie: one for cookie, one in before.items() if cookie not in now}
        self._connections = now

    def _count(self, one: _Connection, pid: int, state: int, counts: tuple[int, int, int]) -> None:
        sent, received, retransmitted = counts
        received -= state in PEER_HAS_ENDED  # the kernel counts the end mark as a byte
        total = self._totals.setdefault(pid, [0] * 5)
        # State and counts are read one after the other, so that an end mark may be counted once: never go back.
        if sent > one.sent:
            total[one.place] += sent - one.sent
            one.sent = sent
        if received > one.received:
            total[one.place + 1] += received - one.received
            one.received = received
        if retransmitted > one.retransmitted:
            total[4] += retransmitted - one.retransmitted
            one.retransmitted = retransmitted

    def _dump(self, netlink: socket.socket) -> Iterator[tuple[bytes, int, int]]:
        """Of each connection, where its message begins and ends."""
        request = _REQUEST.pack(socket.AF_INET, 1 << (INET_DIAG_INFO - 1), STATES, 0)
        size = _HEADER.size + len(request)
        netlink.send(_HEADER.pack(size, TCPDIAG_GETSOCK, REQUEST_DUMP, 0, 0) + request)
        while True:
            data = netlink.recv(65536)
            at = 0
            while at < len(data):
                length, kind = _HEADER.unpack_from(data, at)[:2]
                body = at + _HEADER.size
                if kind in (NLMSG_DONE, NLMSG_ERROR):
                    (code,) = _CODE.unpack_from(data, body)
                    if code:
                        raise OSError(-code, os.strerror(-code))
                    return
                yield data, body, at + length
                at += (length + 3) & ~3

    def _owners(self, pids: list[int]) -> dict[int, int]:
        """Inode -> process. A socket that several have is the first one's."""
        owners: dict[int, int] = {}
        self._hidden.clear()
        for pid in pids:
            folder = f"{self._proc}/{pid}/fd"
            try:
                names = os.listdir(folder)  # noqa: PTH208 - and no Path below: it takes three times as long
            except OSError as error:
                if isinstance(error, PermissionError):
                    self._hidden.add(pid)
                continue
            for name in names:
                with contextlib.suppress(OSError):  # closed meanwhile
                    link = os.readlink(f"{folder}/{name}")  # noqa: PTH115
                    if link.startswith("socket:["):
                        owners.setdefault(int(link[8:-1]), pid)
        return owners


def _place(family: int, local: bytes, remote: bytes) -> int:
    """Where the totals have its bytes: 0 loopback, 2 external."""
    if local == remote:  # also the host's own address
        return 0
    return 0 if remote.startswith(b"\x7f" if family == socket.AF_INET else _LOOPBACK_6) else 2


def _counts(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Bytes that arrived at the peer, bytes received, packets sent again: from the message's attributes."""
    while at < end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if kind == INET_DIAG_INFO and length >= _ATTRIBUTE.size + _COUNTS.size:
            info = at + _ATTRIBUTE.size
            retransmitted, acknowledged, received = _COUNTS.unpack_from(data, info)
            # What was acknowledged has the marks of begin and end in it, what was sent has what was sent again.
            if length >= _ATTRIBUTE.size + _BYTES_SENT.size:
                acknowledged = min(acknowledged, _BYTES_SENT.unpack_from(data, info)[0])
            return acknowledged, received, retransmitted
        at += (length + 3) & ~3
    raise OSError(errno.EOPNOTSUPP, "this kernel does not count their bytes (Linux 4.1 does)")
