"""The events of a run in a report: none is lost, and where a page shows fewer it says so."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.record.seal import seal
from headway.report.files import write_csv
from headway.report.happened import MOST_OF_A_KIND, not_shown, shown
from headway.report.html import html
from headway.report.page import Page, page
from headway.report.run_entries import run_entry

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import BEGAN, Made, make_run

RESTARTS, SAVES, LINKS = 150, 131, 90


def append(folder: RunFolder, task: str, rows: list[dict[str, Any]]) -> None:
    with folder.events(task).open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def of_run(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = make_run(tmp_path_factory.mktemp("runs"), Made("two", steps=60))
    again = {"kind": "restarting", "launch": 0, "task": "worker/1"}
    append(folder, "launcher", [{"t": BEGAN + 5 + n / 100, "reason": f"it died {n}", **again} for n in range(RESTARTS)])
    saved = {"kind": "checkpoint", "attempt": 0, "path": "", "bytes": 1, "seconds": 0.1}
    append(folder, "worker-0", [{"t": BEGAN + 5 + n / 100, "step": n, **saved} for n in range(SAVES - 2)])
    link = {"t": BEGAN + 1, "kind": "network_measured", "launch": 0, "what": "rate_out", "asked": 1e6}
    links = [
        {**link, "node": f"n{n}", "got": 5e5 if n == LINKS - 1 else 1e6, "ok": n < LINKS - 1} for n in range(LINKS)
    ]
    append(folder, "launcher", links)
    seal(folder)
    return page([Run(folder)])


def events_of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in found if event["kind"] == kind]


def test_exports_hold_every_event(of_run: Page, tmp_path: Path) -> None:
    write_csv(of_run, tmp_path / "r.csv")
    with (tmp_path / "r.csv" / "events.csv").open(newline="") as file:
        found: list[dict[str, Any]] = list(csv.DictReader(file))
    assert len(events_of(found, "restarting")) == RESTARTS
    assert len(events_of(found, "checkpoint")) == SAVES


def test_a_page_shows_all_trouble_and_says_of_how_many_others_it_shows_some(of_run: Page) -> None:
    text = html(of_run)
    (block,) = re.findall(r'id="data-run-0">([^<]*)<', text)
    events = json.loads(gzip.decompress(base64.b64decode(block)))["events"]
    assert [event["text"] for event in events_of(events, "restarting")] == [
        f"worker/1 restarting (it died {number})" for number in range(RESTARTS)
    ]
    saves = events_of(events, "checkpoint")
    assert 0 < len(saves) <= MOST_OF_A_KIND
    assert all(f"(shown: {len(saves)} of {SAVES} of this kind)" in event["text"] for event in saves)
    assert f"{len(saves)} of {SAVES} of kind checkpoint" in text
    assert [event["t"] for event in events] == sorted(event["t"] for event in events)


def test_where_all_events_are_shown_they_stay_as_they_are() -> None:
    events = [{"t": float(n), "kind": "checkpoint", "text": "saved", "trouble": False} for n in range(MOST_OF_A_KIND)]
    assert shown(events) == events
    assert not_shown(events) is None


def test_every_link_that_is_not_as_asked_is_shown_and_how_many_there_are(of_run: Page) -> None:
    (run,) = of_run["runs"]
    assert len(run["network"]) == LINKS
    text = run_entry(run, of_run)
    assert f"(60 of {LINKS}; all that are not as asked)" in text
    assert f"<td>n{LINKS - 1}</td>" in text


@pytest.mark.parametrize(
    ("what", "asked", "got", "ok", "words"),
    [
        ("rate_out", 1e6, 5e5, False, "less than asked"),
        ("rate_out", 1e6, 2e6, False, "more than asked"),
        ("round_trip", 0.001, 0.005, False, "longer than asked"),
        ("round_trip", 0.005, 0.001, False, "shorter than asked"),
        ("rate_in", 1e6, 1.01e6, True, "as asked"),
        ("rate_in", None, 1.01e6, True, "nothing was asked"),
        ("rate_in", "much", 1.01e6, False, "not as asked"),
    ],
)
def test_what_the_network_gave_is_more_or_less_than_was_asked(
    of_run: Page, what: str, asked: Any, got: float, ok: bool, words: str
) -> None:
    one = {"what": what, "node": "a", "to": "b", "asked": asked, "got": got, "ok": ok}
    assert f"<td>{words}</td>" in run_entry({**of_run["runs"][0], "network": [one]}, of_run)
