"""What a report says of a sweep besides its figures: what a search found and how sure that is, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_sweep_conduct import SEARCH
from test_sweep_folder import sweep_file

from headway.bench.conduct import prepare
from headway.bench.folder import SweepFolder
from headway.bench.search import choice_text
from headway.report.groups import of_sweep
from headway.report.tables import results
from headway.spec.sweep import load_sweep

CHOSEN: dict[str, Any] = {
    "group": "batch-size-10",
    "path": "cluster.ps",
    "settings": {},
    "value": 1,
    "best": "ps-1",
    "tried": [1, 2],
    "skipped": [3],
    "rivals": [],
    "may_lose": 0.0,
    "assumes": "throughput rises to one peak and falls from there",
}


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    return prepare(load_sweep(sweep_file(tmp_path, **SEARCH)), tmp_path)


def notes_after(sweep: SweepFolder, *events: dict[str, Any]) -> tuple[str, ...]:
    writer = sweep.writer()
    for event in events:
        writer.write(str(event["kind"]), **{key: value for key, value in event.items() if key != "kind"})
    writer.close()
    return of_sweep(sweep).notes


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"may_lose": None}, "whether another is as good is not known"),
        ({"may_lose": 0.034, "rivals": [2]}, "2 may be as good: up to 3.4% may be lost"),
        ({}, "1 saved: 3, if throughput rises to one peak and falls from there"),
        ({"value": None, "tried": [], "skipped": []}, "no cluster.ps could be tried"),
    ],
)
def test_what_a_search_found_is_said_with_its_doubt_and_as_the_command_line_says_it(
    sweep: SweepFolder, found: dict[str, Any], words: str
) -> None:
    event = {**CHOSEN, **found}
    (note,) = notes_after(sweep, {"kind": "chosen", **event})
    assert words in note
    assert note == choice_text(event)


def test_the_searches_of_a_grid_are_told_apart(sweep: SweepFolder) -> None:
    groups = ("batch-size-10", "batch-size-20")
    notes = notes_after(sweep, *({"kind": "chosen", **CHOSEN, "group": group} for group in groups))
    assert [note.split(":")[0] for note in notes] == list(groups)


def test_a_search_without_its_end_is_named_with_its_reason(sweep: SweepFolder) -> None:
    missing = {"group": "ps", "path": "cluster.ps", "reason": "budget 1 s: not every value was tried"}
    (note,) = notes_after(sweep, {"kind": "begun"}, {"kind": "not_found", **missing})
    assert note == "ps: the best cluster.ps was not found: budget 1 s: not every value was tried"


def test_what_a_search_chose_tells_no_secret(sweep: SweepFolder) -> None:
    path = "workload.env.A_TOKEN"
    hidden = {"path": path, "value": "hunter2", "tried": ["hunter2"], "skipped": ["hunter3"], "rivals": ["hunter2"]}
    (note,) = notes_after(sweep, {"kind": "chosen", **CHOSEN, **hidden})
    assert "hunter" not in note


def test_a_trial_that_failed_has_no_more_runs_that_do_not_count(tmp_path: Path) -> None:
    sweep = prepare(load_sweep(sweep_file(tmp_path)), tmp_path)
    folder = sweep.runs / "broken"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    ended = {"trial": "batch-size-10", "repeat": 0, "run": "broken", "state": "failed", "reason": "out of memory"}
    assert notes_after(sweep, {"kind": "ended", **ended}) == ()
    collection = of_sweep(sweep)
    rows = results(collection, {str(folder): {"problem": "damaged"}})["rows"]
    assert {row["cells"]["configuration"]: row["note"] for row in rows} == {
        "batch_size 10": "failed: out of memory",
        "batch_size 20": "planned",
    }
