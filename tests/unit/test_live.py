"""What a user sees while a run goes on."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from statuses import RUN, Told, trained_here

from headway.cli.live import Display, Lines, note_text
from headway.record.folder import RunFolder


def folder() -> RunFolder:
    return RunFolder(Path(RUN))


def test_lines_tell_how_far_it_is_now_and_then_and_ask_only_then() -> None:
    out, asked = io.StringIO(), []
    status = trained_here()

    def ask() -> dict[str, Any]:
        asked.append(1)
        return status

    lines = Lines(folder(), out)
    for _ in range(20):
        lines.looked(ask)
    assert len(asked) == 1
    (line,) = out.getvalue().splitlines()
    assert "steps/s" in line
    assert "loss 1" in line


def test_lines_wait_for_the_first_step() -> None:
    told = Told()
    told.world.supervisor.training_since = None
    out = io.StringIO()
    Lines(folder(), out).looked(told.value)
    assert out.getvalue() == ""


def test_the_display_is_the_picture_of_top_and_what_happened_last() -> None:
    display = Display(folder(), io.StringIO())
    console = Console(width=80, height=24, color_system=None, force_terminal=True)

    def shown() -> list[str]:
        with console.capture() as capture:
            console.print(display._render())
        return [line.rstrip() for line in capture.get().splitlines()]

    display.fetching("mnist", 1_000_000, 2_000_000)
    assert shown()[0].startswith("fetching mnist: 1 MB of 2 MB, ")
    for number in range(10):
        display.happened.append(f"event {number}")
    status = trained_here()
    display.looked(lambda: status)
    display.looked(lambda: pytest.fail("it was asked again at once"))
    lines = shown()
    assert len(lines) <= 24
    assert lines[0].startswith(f"{RUN}: running")
    assert lines[-6:] == [f"event {number}" for number in range(4, 10)]
    assert any(line.startswith("local") for line in lines)


def test_notes_of_sites_and_of_metrics_are_told_in_words() -> None:
    assert note_text("metrics_served", {"address": "http://127.0.0.1:9464/metrics"}) == (
        "metrics for Prometheus: http://127.0.0.1:9464/metrics"
    )
    measured = {"what": "rate_out", "node": "ps0", "asked": 125e6, "got": 100e6, "ok": False}
    assert note_text("network_measured", measured) == "ps0: rate out 800 Mbit/s, but 1 Gbit/s was asked"
    assert note_text("network_measured", {**measured, "ok": True}) is None
    trip = {"what": "round_trip", "node": "ps0", "to": "worker0", "asked": 0.001, "got": 0.002, "ok": False}
    assert note_text("network_measured", trip) == "ps0 to worker0: round trip 2 ms, but 1 ms was asked"
    at_once = {"what": "all_to_all", "asked": 125e6, "got": 50e6, "ok": False}
    assert note_text("network_measured", at_once) == (
        "all nodes at once: all to all 400 Mbit/s, but 1 Gbit/s was asked"
    )
