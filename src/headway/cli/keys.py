"""Keys of the terminal as they are pressed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from types import FrameType

Wait = Callable[[float], str]
"""Waits so many seconds for a key; an empty text when none came."""


@contextlib.contextmanager
def pressed() -> Iterator[Wait]:
    """Keys come at once and are not shown. At the end, and when SIGTERM or SIGHUP ends us, the terminal is as before.

    Without a terminal, or in the background of one, no key ever comes.
    """
    if not _have_keyboard():
        yield _only_wait
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    handlers = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setcbreak(keyboard)  # Ctrl-C and Ctrl-Z stay signals
        yield lambda seconds: _key(keyboard, seconds)
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _have_keyboard() -> bool:
    try:
        if not sys.stdin.isatty():
            return False
    except (AttributeError, ValueError):  # standard input is closed
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # a terminal without foreground and background
        return True


def _only_wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _key(keyboard: int, seconds: float) -> str:
    if not select.select([keyboard], [], [], seconds)[0]:
        return ""
    if not (key := os.read(keyboard, 1)):  # the terminal is gone, and there is nothing to wait for
        time.sleep(seconds)
    return key.decode(errors="replace")


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
