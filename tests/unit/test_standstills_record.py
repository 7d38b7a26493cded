"""What a summary warns of: who stood still, and what came of it."""

from __future__ import annotations

import json
from typing import Any

import duckdb

from headway.record import standstills


def recorded(
    *notes: tuple[float, str, dict[str, Any]], steps_of: tuple[str, ...] = ("chief/0",), trained: float = 0.0
) -> list[str]:
    connection = duckdb.connect()
    connection.execute("create table events (t double, kind varchar, task varchar, data json)")
    connection.execute("create table steps (t double, task varchar)")
    for t, kind, fields in notes:
        connection.execute("insert into events values (?, ?, 'launcher', ?)", [t, kind, json.dumps(fields)])
    for task in steps_of:
        connection.execute("insert into steps values (2, ?), (?, ?)", [task, 2 + trained, task])
    return standstills.warnings(connection)


STOPPED = {"task": "worker/0", "seconds": 5.0, "process": "python", "by_debugger": False}
GONE: dict[str, Any] = {"task": "worker/0", "code": -9}


def test_a_summary_says_who_stood_still_and_what_came_of_it() -> None:
    assert recorded((10.0, "stopped", STOPPED), (15.0, "task_exited", GONE), (15.1, "restarting", GONE)) == [
        "worker/0 was stopped (process python, state T) for 10.0 s, and was started again"
    ]
    stalled = {"task": "worker/0", "seconds": 10.0}
    assert recorded((10.0, "stalled", stalled), (12.0, "going_on", GONE), (50.0, "stalled", stalled)) == [
        "worker/0 made no step for 12.0 s, and went on (2 times)"
    ]
    assert recorded((10.0, "stalled", stalled)) == ["worker/0 made no step, until the run ended"]


def test_a_short_silence_is_no_warning() -> None:
    silent = {"task": "worker/0", "seconds": 5.0}
    assert recorded((10.0, "silent", silent), (11.0, "going_on", GONE)) == []
    assert recorded((10.0, "silent", silent), (15.0, "task_exited", GONE)) == [
        "worker/0 gave no heartbeat for 10.0 s, and was ended"
    ]


def test_a_task_that_took_no_part_is_a_warning() -> None:
    started = [(1.0, "task_started", {"task": task}) for task in ("chief/0", "worker/0", "ps/0")]
    ended = [*started, (9.0, "state", {"state": "finished"})]
    assert recorded(*ended) == ["worker/0 made no step: the others trained without it"]
    assert recorded(*ended, steps_of=("chief/0", "worker/0")) == []
    assert recorded(*ended, steps_of=()) == []
    assert recorded(*ended, (2.0, "ready", {"program": 7})) == []  # it need not tell of every task's steps


def test_while_a_run_trains_it_is_a_warning_when_the_others_have_trained_for_a_while() -> None:
    started = [(1.0, "task_started", {"task": task}) for task in ("chief/0", "worker/0")]
    running = [*started, (1.5, "state", {"state": "running"})]
    assert recorded(*running, trained=standstills.SHORT) == []
    assert recorded(*running, trained=standstills.SHORT + 0.1) == [
        "worker/0 made no step: the others trained without it"
    ]
