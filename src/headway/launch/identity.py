"""Which process a launcher is, so that nobody else is signalled for it. A run folder may come from a stranger, and a
process id is used again: a record's word alone is not enough."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.errors import Busy

_STATE, _START = 0, 19  # of /proc/PID/stat, behind the name: fields 3 and 22


def identity() -> dict[str, Any]:
    """Of this process, for the record of a launch: its id, its start in clock ticks since the boot, and which boot."""
    return {"pid": os.getpid(), "pid_started": _stat("self")[0], "boot": _boot()}


def signal_launcher(run: str, launch: Mapping[str, Any], number: signal.Signals) -> None:
    """Signal the launcher that this entry of `launches` names; Busy where it is not proven to be that process."""
    pid, started, boot = (launch.get(key) for key in ("pid", "pid_started", "boot"))
    if not _is_number(pid) or not _is_number(started) or not isinstance(boot, str):
        raise _refused(run, "its record does not tell which process that is (it is of an older Headway, or damaged)")
    assert isinstance(pid, int)
    if boot != _boot():
        raise _refused(run, "its record is from another machine, or from before this one was started")
    try:
        process = os.pidfd_open(pid)  # from here on it is this process, also when its id is used again
    except (OSError, OverflowError):
        raise _refused(run, f"process {pid} does not exist any more") from None
    try:
        if problem := _problem(pid, started):
            raise _refused(run, problem)
        signal.pidfd_send_signal(process, number)
    except OSError:
        raise _refused(run, f"process {pid} has just ended, or cannot be signalled") from None
    finally:
        os.close(process)


def _problem(pid: int, started: Any) -> str | None:
    """Why this process is not a launcher of ours that began then."""
    begun, state = _stat(str(pid))
    if begun != started:
        return f"process {pid} is another one: it was started at another time"
    if state == "Z":
        return f"process {pid} has ended"
    if Path(f"/proc/{pid}").stat().st_uid != os.getuid():
        return f"process {pid} belongs to another user"
    if b"headway" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return f"process {pid} is no Headway launcher"
    return None


def _refused(run: str, why: str) -> Busy:
    return Busy(
        f"{run} cannot be stopped from here: its launcher does not answer at control.sock, and no process was "
        f"signalled, because {why}. End its launcher where it was started (Ctrl-C); if none runs, another process "
        f"holds the file `lock` in the run folder"
    )


def _stat(pid: str) -> tuple[int, str]:
    """When it was started, and its state."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[_START]), fields[_STATE].decode()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
