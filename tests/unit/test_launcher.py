"""The launcher's own small promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.launch.launcher import Launcher
from headway.launch.messages import TaskSaid
from headway.launch.nodes import _events_of
from headway.launch.prepare import create_run
from headway.record.files import EventWriter, to_json
from headway.record.folder import LAUNCHER
from headway.record.reader import read_events
from headway.spec.load import parse_job


class Broken:
    """A display with a bug."""

    def fetching(self, what: str, done: int, total: int | None) -> None: ...
    def said(self, task: Any, event: dict[str, Any]) -> None: ...
    def looked(self, *_: Any) -> None: ...

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


def test_of_steps_in_a_row_only_the_last_is_looked_at_and_nothing_else_is_left_out() -> None:
    said = [
        {"t": 1.5, "kind": kind, "step": step}
        for kind, step in [
            ("joined", 0),
            ("step", 1),
            ("step", 2),
            ("evaluation", 2),
            ("step", 3),
            ("update", 4),
            ("update", 5),
            ("blocked", 5),
            ("blocked", 5),
            ("step", 6),
            ("step", 7),
        ]
    ]
    data = "".join(to_json(event) + "\n" for event in said)
    events = _events_of({"say": "lines", "task": "worker/0", "data": data})
    assert [(event.said["kind"], event.said["step"]) for event in events if isinstance(event, TaskSaid)] == [
        ("joined", 0),
        ("step", 2),
        ("evaluation", 2),
        ("step", 3),
        ("update", 5),
        ("blocked", 5),
        ("blocked", 5),
        ("step", 7),
    ]
