"""A process's own view of the system: Linux namespaces, by the few calls that Python 3.11 does not have."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

NEW_MOUNTS, NEW_NAMES, NEW_IPC, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
A_HOST = NEW_MOUNTS | NEW_NAMES | NEW_IPC | NEW_PROCESSES | NEW_NETWORK
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 2, 4, 8
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def leave(kinds: int) -> None:
    """Give this process new namespaces of these kinds. A new process namespace begins with its next child."""
    _checked(_libc.unshare(kinds), "unshare")


@contextlib.contextmanager
def network_of(pid: int) -> Iterator[None]:
    """Be in the network of another process: sockets that are opened here stay there."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _checked(_libc.setns(other, NEW_NETWORK), f"enter the network of process {pid}")
        finally:
            os.close(other)
        try:
            yield
        finally:
            _checked(_libc.setns(own, NEW_NETWORK), "return to the own network")
    finally:
        os.close(own)


def set_name(name: str) -> None:
    """The host name, in this namespace."""
    encoded = name.encode()
    _checked(_libc.sethostname(encoded, len(encoded)), "set the host name")


def keep_mounts_private() -> None:
    """What is mounted from now on is seen by nobody else."""
    _checked(_libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None), "make mounts private")


def mount_proc() -> None:
    """/proc of the process namespace that we are in."""
    flags = _NO_SUID | _NO_DEVICES | _NO_PROGRAMS
    _checked(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount /proc")


def show_instead(path: Path, shown: Path) -> None:
    """Whoever opens `path` gets `shown`."""
    _checked(_libc.mount(bytes(shown), bytes(path), None, _BIND, None), f"show {shown} as {path}")
