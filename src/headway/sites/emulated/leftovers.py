"""What a box that was killed leaves: control groups. Its state file names them.

A box holds a lock on its state file for as long as it lives; the kernel lets go when it dies. So a state file whose
lock can be taken is of a dead box, and what it names is removed: nothing else is touched, whatever it is called.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from headway import locks
from headway.errors import StorageError
from headway.host import control_groups
from headway.host.leftovers import state_folder
from headway.record.files import to_json
from headway.record.reader import read_json

FORMAT = 1


class StateFile:
    """Of one box. The launcher makes it, the box inherits its lock."""

    def __init__(self, run: str, hosts: Sequence[str], folder: Path | None = None) -> None:
        self.name = f"{control_groups.PREFIX}{secrets.token_hex(3)}"
        """Begins the names of the box's control groups."""
        folder = state_folder() if folder is None else folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / f"{self.name}.json"
        self.lock = locks.wait(self.path, new=True)
        content = {"format": FORMAT, "run": run, "groups": [self.group(host) for host in hosts]}
        os.write(self.lock, to_json(content).encode())

    def group(self, host: str) -> str:
        return f"{self.name}-{host}"

    def hand_over(self) -> None:
        """The box holds the lock now."""
        os.close(self.lock)


def clean(folder: Path | None = None) -> list[str]:
    """Remove what dead boxes have left. Returns what was removed, in words."""
    removed = []
    for path in _of_dead_boxes(state_folder() if folder is None else folder):
        state = read_json(path, FORMAT)
        here = control_groups.find()
        there = [name for name in state["groups"] if name in here.existing()]
        for name in there:
            group = here.find(name)
            for (
                pid
            ) in group.processes():  # its init is dead, so these are dying; a box without its own ids may have some
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            group.remove()
            removed.append(f"control group {name} of run {state['run']}")
        path.unlink(missing_ok=True)
        removed.append(f"state file {path.name} of run {state['run']}")
    return removed


def _of_dead_boxes(folder: Path) -> Iterator[Path]:
    """Each is locked while it is looked at, so that two who clean at once do not meet."""
    for path in sorted(folder.glob(f"{control_groups.PREFIX}*.json")) if folder.is_dir() else ():
        try:
            lock = locks.attempt(path)
        except StorageError:  # no file of ours
            continue
        if lock is None:
            continue
        try:
            yield path
        finally:
            os.close(lock)
