"""The launcher's own small promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.launch.launcher import Launcher
from headway.launch.prepare import create_run
from headway.record.files import EventWriter, read_events
from headway.record.folder import LAUNCHER
from headway.spec.load import parse_job


class Broken:
    """A display with a bug."""

    def fetching(self, what: str, done: int, total: int | None) -> None: ...
    def said(self, task: Any, event: dict[str, Any]) -> None: ...
    def looked(self, supervisor: Any) -> None: ...

    def noted(self, kind: str, fields: dict[str, Any]) -> None:
        raise ZeroDivisionError(f"{kind}: {fields}")


def test_a_display_that_breaks_down_is_recorded_once_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = create_run(parse_job({"workload": {"model": "softmax", "dataset": "synthetic"}}), tmp_path)
    launcher = Launcher(folder, Broken())
    launcher._events, launcher._launch = EventWriter(folder.events(LAUNCHER)), 0
    for _ in range(3):
        launcher._note("stalled", {"task": "worker/0"})
    launcher._events.close()
    kinds = [event["kind"] for event in read_events(folder.events(LAUNCHER))]
    assert kinds == ["stalled", "display_failed", "stalled", "stalled"]
