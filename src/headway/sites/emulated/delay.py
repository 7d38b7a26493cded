"""Latency without netem: packets wait in an NFQUEUE of the receiving host until they are due.

The kernel hands a note of every packet that comes in (not the packet itself) to a small process in the box, which says
"let go" when its time has come, many at once. The rule that sends packets there is made through netlink, so no program
has to be installed. The process's own delay, 0.1 to 0.25 ms, is measured at start and subtracted (`shorten`).

In the receiver's PREROUTING, not in the sender's POSTROUTING: there TCP would see its own packets as stuck.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence

from headway.host.namespaces import network_of
from headway.host.netfilter import (
    IPV4,
    NETLINK_NETFILTER,
    REQUEST,
    Chain,
    Table,
    attribute,
    comes_in_by,
    expression,
    message,
    number,
    text,
)

SOL_NETLINK, NETLINK_NO_ENOBUFS = 270, 5
SO_RCVBUFFORCE = 33
QUEUE = 3  # among netfilter's subsystems
PACKET, CONFIG, VERDICTS = 0, 2, 3
ACCEPT = 1
QUEUE_NUMBER = 1
MOST_WAITING = 65536
BUFFER = 16 * 2**20
PR_SET_TIMERSLACK = 29
MANGLE = -150


class DelayError(OSError):
    """Packets cannot be delayed here."""


# --- the rule --------------------------------------------------------------------------------------------------------
_QUEUE = struct.pack(">H", QUEUE_NUMBER)
# The kernel may have nftables' own queue, or that of iptables (through its compatibility layer), or none.
_WAYS = {
    "nft_queue": expression("queue", attribute(1, _QUEUE) + attribute(2, struct.pack(">H", 1))),
    "xt_NFQUEUE": expression(
        "target",
        attribute(1, text("NFQUEUE"))
        + attribute(2, number(0))
        + attribute(3, struct.pack("=H", QUEUE_NUMBER).ljust(8, b"\0")),
    ),
}


def _table(way: bytes) -> Table:
    """Whatever does not come from loopback goes to the queue."""
    rule = comes_in_by("lo", is_it=False) + way
    return Table("headway", IPV4, [Chain("arriving", "filter", "prerouting", MANGLE, [rule])])


def send_arriving_to_queue() -> str:
    """In the network that we are in. Returns the way that the kernel has; DelayError when it has none."""
    errors = {}
    for name, way in _WAYS.items():
        try:
            _table(way).make()
        except OSError as error:
            errors[name] = os.strerror(error.errno or errno.EIO)
        else:
            return name
    raise DelayError("; ".join(f"{name}: {why}" for name, why in errors.items()))


# --- the queues ------------------------------------------------------------------------------------------------------
class Queue:
    """The packets that wait to enter one host."""

    def __init__(self, delay: float) -> None:
        """In the network that we are in."""
        self.delay = delay
        self._waiting: deque[tuple[float, int]] = deque()
        self._link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self._link.bind((0, 0))
        with contextlib.suppress(OSError):  # in a user namespace: the default must do
            self._link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        with contextlib.suppress(OSError):
            self._link.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
        whole_segments = number(1 << 2)  # as the host's own TCP makes them: not cut up for us
        for setting in (
            attribute(1, struct.pack(">BBH", 1, 0, 0)),  # bind
            attribute(2, struct.pack(">IB", 0, 1)),  # notes of packets, not their content
            attribute(3, number(MOST_WAITING)),
            attribute(4, whole_segments) + attribute(5, whole_segments),
        ):
            self._link.send(message(QUEUE << 8 | CONFIG, REQUEST, 0, QUEUE_NUMBER, setting))
        self._link.setblocking(False)

    def fileno(self) -> int:
        return self._link.fileno()

    def close(self) -> None:
        """Here; a forked child keeps its own."""
        self._link.close()

    @property
    def due(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    def take(self, now: float) -> None:
        """Note every packet that has come."""
        while True:
            try:
                data = self._link.recv(2**20)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # notes were lost; their packets go with the next verdict
                    continue
                raise
            offset = 0
            while offset + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, offset)
                if kind == QUEUE << 8 | PACKET and (packet := _packet_of(data, offset, length)) is not None:
                    self._waiting.append((now + self.delay, packet))
                offset += (length + 3) & ~3

    def let_go(self, now: float) -> None:
        """Everything that is due, with one message: a verdict on a packet holds for all before it."""
        last = None
        while self._waiting and self._waiting[0][0] <= now:
            last = self._waiting.popleft()[1]
        if last is not None:
            verdict = attribute(2, struct.pack(">II", ACCEPT, last))
            self._link.send(message(QUEUE << 8 | VERDICTS, REQUEST, 0, QUEUE_NUMBER, verdict))


def _packet_of(data: bytes, offset: int, length: int) -> int | None:
    """The packet's number, from the attributes of its note."""
    place = offset + 20
    while place < offset + length:
        size, kind = struct.unpack_from("=HH", data, place)
        if kind & 0x7FFF == 1:
            return int(struct.unpack_from(">I", data, place + 4)[0])
        place += (size + 3) & ~3
    return None


# --- the process -----------------------------------------------------------------------------------------------------
def shorten(control: socket.socket, seconds: float) -> None:
    """Tell the process its own delay, to subtract."""
    control.send(struct.pack("=d", seconds))


def open_queues(delays: Mapping[int, float]) -> list[Queue]:
    """A queue in the network of each host, which is named by a process in it."""
    queues = []
    for pid, delay in delays.items():
        with network_of(pid):
            queues.append(Queue(delay))
            send_arriving_to_queue()
    return queues


def hold_back(queues: Sequence[Queue], control: socket.socket) -> None:
    """Let each packet go when it is due, until the control socket's other end is closed."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # wake up on time, not 50 microseconds later
    asked = [queue.delay for queue in queues]
    sources: list[Queue | socket.socket] = [control, *queues]
    while True:
        due = min((queue.due for queue in queues if queue.due is not None), default=None)
        # select, because epoll can wait for whole milliseconds only.
        ready, _, _ = select.select(sources, [], [], None if due is None else max(0.0, due - time.monotonic()))
        now = time.monotonic()
        for source in ready:
            if isinstance(source, Queue):
                source.take(now)
            elif message := source.recv(8):
                (shorter,) = struct.unpack("=d", message)
                for queue, seconds in zip(queues, asked, strict=True):
                    queue.delay = max(0.0, seconds - shorter)
            else:
                return
        for queue in queues:
            queue.let_go(now)
