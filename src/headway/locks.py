"""Locks between processes: `flock` on a file, given back by the kernel however its holder ends.

    take(path, complaint)   for this process alone; Busy with the complaint where another one keeps it
    wait(path), held(path)  for this process alone, however long that takes
    share(path)             together with others who share it
    attempt(path)           for this process alone, now or not at all; makes no file
    is_held(path)           whether anybody has it; makes no file

A lock is an open descriptor: `os.close` gives it back, and a process that inherits it keeps it. A lock file is a
regular file that only its owner may open. A symbolic link, a FIFO, a device or a folder in its place is refused:
StorageError.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from headway.errors import Busy, StorageError

HOLD_LIMIT = 1.0  # seconds to take a lock: a reader (is_held) has it for an instant
MODE = 0o600
# No link is followed, and a FIFO does not keep us waiting for its other end.
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_INSTEAD = {errno.EISDIR: "a folder", errno.ENXIO: "a socket"}  # by what opening it says
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder"}


class Held(Enum):
    """Whether a lock is held. True only where it surely is: whoever must know that it is free asks for FREE."""

    HELD = "held"
    FREE = "free"
    UNKNOWN = "unknown"
    """It cannot be opened: it is another user's, or no lock file."""

    def __bool__(self) -> bool:
        return self is Held.HELD


def take(
    path: Path,
    complaint: str,
    limit: float = HOLD_LIMIT,
    waiting: Callable[[], None] = lambda: None,
    pause: float = 0.01,
) -> int:
    """Exclusively. Busy with `complaint` after `limit` seconds; until then `waiting` is called before each `pause`."""
    lock = _open(path, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + limit
    try:
        while not upgrade(lock):
            if time.monotonic() > deadline:
                raise Busy(complaint)
            waiting()
            time.sleep(pause)
    except BaseException:
        os.close(lock)
        raise
    return lock


def wait(path: Path, new: bool = False) -> int:
    """Exclusively, without limit. `new`: FileExistsError where there is such a file already."""
    return _wait(path, fcntl.LOCK_EX, os.O_EXCL if new else 0)


def share(path: Path) -> int:
    """Together with others who share it, without limit."""
    return _wait(path, fcntl.LOCK_SH)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Exclusively for as long as the block takes; waits without limit."""
    lock = wait(path)
    try:
        yield
    finally:
        os.close(lock)


def attempt(path: Path) -> int | None:
    """Exclusively, at once; None where somebody else has it, or there is no such file (any more)."""
    try:
        lock = _open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        if upgrade(lock) and _is_still(path, lock):
            return lock
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def upgrade(lock: int) -> bool:
    """Make it exclusive, if nobody else has it now. Where that fails, a share of it is lost."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> Held:
    """By anybody, this process included. Where there is no file, nobody holds it."""
    try:
        lock = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return Held.FREE
    except OSError:
        return Held.UNKNOWN
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Held.HELD
    except OSError:  # a file system without locks
        return Held.UNKNOWN
    finally:
        os.close(lock)
    return Held.FREE


def _wait(path: Path, kind: int, flags: int = 0) -> int:
    lock = _open(path, os.O_RDWR | os.O_CREAT | flags)
    try:
        fcntl.flock(lock, kind)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _open(path: Path, flags: int) -> int:
    """OSError where it cannot be opened; StorageError, which is one, where it is no lock file."""
    try:
        lock = os.open(path, flags | _FLAGS, MODE)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise _refused(path, "a symbolic link") from None
        if error.errno in _INSTEAD:
            raise _refused(path, _INSTEAD[error.errno]) from None
        raise
    kind = stat.S_IFMT(os.fstat(lock).st_mode)
    if kind != stat.S_IFREG:
        os.close(lock)
        raise _refused(path, _KINDS.get(kind, "a device"))
    return lock


def _refused(path: Path, kind: str) -> StorageError:
    return StorageError(f"{path} is {kind}, and no lock file; remove it and try again")


def _is_still(path: Path, lock: int) -> bool:
    """Whether the file has its name yet: its last holder may have removed it."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(lock))
    except FileNotFoundError:
        return False
