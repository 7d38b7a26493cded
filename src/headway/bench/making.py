"""One run of a sweep, from a trial's job to what it came to: in this process, wherever that is (lanes.py)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.bench import judge
from headway.errors import HeadwayError, StorageError
from headway.launch.launcher import OUT_OF_TIME, Launcher
from headway.launch.prepare import create_run
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.spec.cluster import Task
from headway.spec.load import parse_job


@dataclass(frozen=True)
class Order:
    """What is to be made."""

    trial: str
    repeat: int
    job: dict[str, Any]
    figure: str
    runs: str
    """The folder in which run folders are made."""
    limit: float | None = None
    """Seconds after which the run is stopped."""


Tell = Callable[[dict[str, Any]], None]
"""Takes messages: `started` with the `run`, `line` with a `text` for the user, and at last `ended` with the fields of
the sweep's event of that name (docs/sweeps.md). State `interrupted` (unless it `is_cut`, by its limit), or `stop_asked`
before it (the run ended by itself all the same): somebody wants an end of everything. `storage`: the disk cannot take
more, which is the end of everything, too."""


def make(order: Order, machine: judge.Machine, tell: Tell) -> None:
    """Make the run, whatever becomes of it: other trials are not to suffer from it."""
    began, name = time.monotonic(), ""
    machine.forget()
    fields: dict[str, Any] = {}
    launcher: Launcher | None = None
    try:
        asked = parse_job(order.job, origin=order.trial)
        run = create_run(asked.model_copy(update={"seed": asked.seed + order.repeat}), Path(order.runs))
        name = run.name
        tell({"kind": "started", "run": name})
        launcher = Launcher(run, _Quiet(tell))
        end = launcher.run(order.limit)
        fields = {"state": str(end.state), "reason": end.reason}
        if fields["state"] == "finished":
            fields |= judge.judged(Run(RunFolder(Path(order.runs) / name)), order.figure, machine)
        elif fields["state"] == "stopped":
            fields |= {"state": "interrupted", "is_cut": end.reason == OUT_OF_TIME}
    except KeyboardInterrupt:
        fields = {"state": "interrupted", "reason": "Ctrl-C"}
    except StorageError as error:  # the next run would fail in the same way
        fields = {"state": "interrupted", "reason": str(error).splitlines()[0], "storage": True}
    except HeadwayError as error:
        fields = {"state": "failed", "reason": " ".join(str(error).split())}
    except Exception as error:  # also a record that cannot be read
        fields = {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
    if launcher is not None and launcher.stop_was_asked:
        tell({"kind": "stop_asked"})
    tell({"kind": "ended", "run": name, "seconds": time.monotonic() - began, **fields})


class _Quiet:
    """A run's watcher that tells only what takes long."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._told: set[str] = set()

    def fetching(self, what: str, done: int, total: int | None) -> None:
        del done, total
        if what not in self._told:
            self._told.add(what)
            self._tell({"kind": "line", "text": f"  fetching {what}"})

    def noted(self, kind: str, fields: dict[str, Any]) -> None: ...
    def said(self, task: Task, event: dict[str, Any]) -> None: ...
    def looked(self, status: Callable[[], dict[str, Any]]) -> None: ...
