"""How other commands reach a running launcher: a socket in its run folder, JSON in, JSON out.
Only the run's owner may connect.

A socket's path has at most 107 bytes, and a run folder's may be longer: both ends go through an open
descriptor of the folder, whose path in /proc is always short.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headway.errors import Busy

LIMIT = 10.0
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def _short(path: Path) -> tuple[int, str]:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    return folder, f"/proc/self/fd/{folder}/{path.name}"


async def serve(path: Path, handle: Handler) -> asyncio.AbstractServer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await asyncio.wait_for(reader.readline(), LIMIT))
            writer.write(json.dumps(await handle(request)).encode() + b"\n")
            await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            pass  # a client that does not speak our language is none
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    path.unlink(missing_ok=True)  # left by a launcher that was killed; the lock says that it is gone
    folder, short = _short(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(short)
        Path(short).chmod(0o600)  # before it listens: until then nobody can connect
        return await asyncio.start_unix_server(answer, sock=listening)
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(folder)


def _check(path: str) -> None:
    """OSError unless it is a socket of ours itself: a link in a stranger's folder may lead anywhere."""
    found = os.lstat(path)
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(path)


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The launcher's answer; Busy when there is none to ask."""
    try:
        folder, short = _short(path)
    except FileNotFoundError:
        raise Busy(f"{path.parent} is gone") from None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(LIMIT)
        try:
            _check(short)
            connection.connect(short)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline())
        except (OSError, ValueError):
            raise Busy(f"{path.parent.name} is not running (its launcher does not answer)") from None
        finally:
            os.close(folder)
    assert isinstance(answer, dict)
    return answer
