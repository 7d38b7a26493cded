"""The time that a run's record is written in: Unix time that does not jump.

    now() = Unix time when the launch began + monotonic seconds since then

Somebody may set a machine's clock while a run trains: NTP after a long sleep, a user, the host of a virtual machine.
Times that followed it would give negative durations, or a day of training that never was. So the launcher fixes the
offset between the two clocks once a launch. Agents on the same machine adopt it and hand it to their tasks: one
machine, one axis. On another machine an agent has an offset of its own, and the launcher measures the difference.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

VARIABLE = "HEADWAY_CLOCK"  # in the environment of a task: what `handed_on` gave


def now() -> float:
    return time.monotonic() + _offset


def jump() -> float:
    """Seconds by which the machine's clock was set forward (negative: back) since the offset was fixed."""
    return time.time() - now()


def from_unix(t: float) -> float:
    """The time of something that a program has just stamped with the machine's clock, before or after a jump."""
    here = now()
    return min(t, t - jump(), key=lambda candidate: abs(here - candidate))


def begin(not_before: float = 0.0) -> float:
    """Fix the offset anew, for a launch. A resumed run goes on behind what it has recorded, whatever the machine's
    clock says now; returns the seconds that this one is ahead of it."""
    global _offset  # noqa: PLW0603 - there is one clock
    unix = time.time()
    ahead = max(0.0, not_before - unix)
    _offset = unix + ahead - time.monotonic()
    return ahead


def handed_on() -> str:
    """For the processes of this machine: boot id and offset."""
    return f"{_boot()}:{_offset!r}"


def adopt(handed: str) -> bool:
    """Take what another process handed on; False, and nothing changes, if that was on another machine."""
    global _offset  # noqa: PLW0603
    boot, _, text = handed.rpartition(":")
    try:
        offset = float(text)
    except ValueError:
        return False
    if boot != _boot() or not math.isfinite(offset):
        return False
    _offset = offset
    return True


def _boot() -> str:
    """Monotonic clocks count from the boot: they agree where this does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


_offset = 0.0
if not adopt(os.environ.get(VARIABLE, "")):
    begin()
