"""The lock of a run's or a sweep's folder: held by who works on it, given back by the kernel however that one ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from headway.errors import Busy

HOLD_LIMIT = 1.0  # seconds to get the lock: a reader holds it for an instant


def hold(path: Path, complaint: str) -> int:
    """Take it for this process; Busy with `complaint` where another one has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + HOLD_LIMIT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:  # its holder, or a reader who looks just now (is_held)
            if time.monotonic() > deadline:
                os.close(lock)
                raise Busy(complaint) from None
            time.sleep(0.01)


def is_held(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
