"""The lock of a folder: one holder, and readers who are in nobody's way."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from headway.errors import Busy
from headway.record import lock


def test_one_process_holds_it_and_others_are_told(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not lock.is_held(path)
    held = lock.hold(path, "taken")
    assert lock.is_held(path)
    with pytest.raises(Busy, match="taken"):
        lock.hold(path, "taken")
    os.close(held)
    assert not lock.is_held(path)


def test_a_reader_who_looks_just_then_does_not_keep_it_from_being_taken(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    looking = os.open(path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.2, os.close, [looking]).start()
    os.close(lock.hold(path, "taken"))
