"""What the network between nodes gives, measured from agent to agent over TCP: round trips, and rates of one to many.

A connection begins with one byte: E, every byte is sent back; S, everything is taken, and at the end the receiver says
how fast it came. Receivers' times count: what a sender has got rid of may still lie in a buffer. The beginning does
not count: a shaper lets a burst pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Sequence

ECHO, SINK = b"E", b"S"
CHUNK = 2**18
SKIPPED = 0.2  # share of the time that does not count
RESULT = struct.Struct("=dd")
CONNECT_LIMIT = 5.0


async def serve(host: str = "0.0.0.0") -> tuple[asyncio.Server, int]:
    """Answer other nodes, on a free port; (what to close, the port)."""
    server = await asyncio.start_server(_answer, host, 0, limit=CHUNK)
    return server, server.sockets[0].getsockname()[1]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        try:
            kind = await reader.readexactly(1)
            if kind == ECHO:
                while data := await reader.read(64):
                    writer.write(data)
            elif kind == SINK:
                (seconds,) = struct.unpack("=d", await reader.readexactly(8))
                writer.write(RESULT.pack(*await _take(reader, seconds)))
                await writer.drain()
        finally:
            writer.close()


async def _take(reader: asyncio.StreamReader, seconds: float) -> tuple[float, float]:
    """(bytes, seconds) of what counts: the same part of the time for every connection that began at the same moment,
    so that rates of several may be added."""
    began = time.monotonic()
    first, last = began + SKIPPED * seconds, began + seconds
    counted = 0
    while data := await reader.read(CHUNK):
        if first < time.monotonic() <= last:
            counted += len(data)
    return float(counted), last - first


def round_trips(address: tuple[str, int], count: int) -> list[float]:
    """Seconds of each of `count` single bytes there and back. Blocks: an event loop would add its own delay."""
    with socket.create_connection(address, CONNECT_LIMIT) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(ECHO)
        found = []
        for _ in range(count):
            began = time.perf_counter()
            link.sendall(b".")
            if not link.recv(1):
                raise ConnectionError("the other node ended the connection")
            found.append(time.perf_counter() - began)
        return found


async def rates(addresses: Sequence[tuple[str, int]], seconds: float) -> list[float]:
    """Bytes per second of payload to each address, all at once."""
    return list(await asyncio.gather(*(_send(address, seconds) for address in addresses)))


async def _send(address: tuple[str, int], seconds: float) -> float:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as link:
        link.setblocking(False)
        await asyncio.wait_for(loop.sock_connect(link, address), CONNECT_LIMIT)
        await loop.sock_sendall(link, SINK + struct.pack("=d", seconds))
        block = bytes(CHUNK)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await loop.sock_sendall(link, block)
        link.shutdown(socket.SHUT_WR)
        answer = b""
        while len(answer) < RESULT.size and (more := await loop.sock_recv(link, RESULT.size - len(answer))):
            answer += more
        moved, took = RESULT.unpack(answer)
        return float(moved / took)
