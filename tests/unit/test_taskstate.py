"""What a task's words and heartbeats tell of it, and what of that holds in its next attempt."""

from __future__ import annotations

from typing import Any

import pytest
from supervising import WORKER

from headway.host.vitals import Vitals
from headway.launch.messages import TaskExited
from headway.launch.taskstate import History, TaskState


def step(number: int, **known: Any) -> dict[str, Any]:
    return {"kind": "step", "step": number, "own_step": number, "num_steps": 1, "seconds": 0.5, "loss": 1.0, **known}


def stopped(seconds: float) -> Vitals:
    return Vitals(stopped_for=seconds, stopped="python (7)", whole=True)


# --- heartbeats -------------------------------------------------------------------------------------------------------
def test_a_heartbeat_is_as_old_as_it_says() -> None:
    state = TaskState(WORKER)
    state.beat(3.0, None, 100.0)
    assert state.alive_at == 97.0


def test_an_old_heartbeat_does_not_make_a_task_older() -> None:
    state = TaskState(WORKER, alive_at=99.0)
    state.beat(3.0, None, 100.0)
    assert state.alive_at == 99.0


def test_what_is_known_of_its_processes_stays_until_more_is() -> None:
    state = TaskState(WORKER)
    state.beat(0.0, stopped(1.0), 100.0)
    state.beat(0.0, None, 101.0)
    assert state.vitals == stopped(1.0)
    state.beat(0.0, stopped(2.0), 102.0)
    assert state.vitals == stopped(2.0)


def test_why_it_is_frozen_is_said_with_the_process_or_the_silence() -> None:
    state = TaskState(WORKER, alive_at=90.0, vitals=stopped(7.0))
    assert state.why_frozen(100.0) == ""
    state.frozen = "silent"
    assert state.why_frozen(100.0) == "no heartbeat for 10 s"
    state.frozen = "stopped"
    assert state.why_frozen(100.0) == "python (7) was stopped for 7 s"


# --- words ------------------------------------------------------------------------------------------------------------
def test_a_step_tells_how_far_it_is_and_how_long_it_took() -> None:
    state = TaskState(WORKER)
    assert (state.reports, state.stride, state.usual_report) == (0, 1, 0.0)
    state.hear(step(8, own_step=4, num_steps=2, seconds=1.0, loss=0.25), 100.0)
    assert (state.step, state.own_steps, state.loss, state.reports, state.stride) == (8, 4, 0.25, 1, 2)
    assert (list(state.step_seconds), list(state.report_seconds)) == ([0.5], [1.0])
    assert (state.progress_at, state.alive_at) == (100.0, 100.0)


def test_a_warm_up_is_news_of_steps_but_no_measure_of_one() -> None:
    state = TaskState(WORKER)
    state.hear(step(1, warmup=True), 100.0)
    assert (list(state.step_seconds), list(state.report_seconds), state.step) == ([], [0.5], 1)


def test_a_first_report_that_does_not_know_when_it_began_says_nothing_of_the_pace() -> None:
    state = TaskState(WORKER)
    state.hear(step(1, seconds=0.0), 100.0)
    assert (list(state.report_seconds), state.reports) == ([], 1)


def test_examples_are_those_of_one_step() -> None:
    state = TaskState(WORKER)
    state.hear(step(4, num_steps=4, examples=40), 100.0)
    assert state.step_examples == 10.0


def test_a_programs_loss_may_come_from_another_source_than_its_steps() -> None:
    state = TaskState(WORKER)
    state.hear({"kind": "told", "loss": 0.5}, 100.0)
    assert state.loss == 0.5
    state.hear(step(1, loss=None, source="lines"), 101.0)
    assert state.loss == 0.5
    state.hear(step(2, loss=0.25, source="lines"), 102.0)
    assert state.loss == 0.25
    state.hear(step(3, loss=None), 103.0)
    assert state.loss is None, "of our own engine: it was not read in this step"


def test_only_the_last_hundred_and_one_steps_are_remembered() -> None:
    state = TaskState(WORKER)
    for number in range(1, 301):
        state.hear(step(number, seconds=float(number)), 100.0)
    for remembered in (state.step_seconds, state.report_seconds):
        assert (len(remembered), remembered[0]) == (101, 200.0)
    assert state.usual_report == 250.0


@pytest.mark.parametrize("kind", ["evaluating", "saving", "exporting"])
def test_what_is_no_step_keeps_it_busy_until_it_says_something_else(kind: str) -> None:
    state = TaskState(WORKER)
    state.hear({"kind": kind}, 100.0)
    assert state.busy == kind
    state.hear({"kind": "bad_record"}, 101.0)
    assert state.busy == kind, "said by a thread of its own"
    state.hear({"kind": "checkpoint"}, 102.0)
    assert state.busy is None


def test_a_failure_is_told_in_its_own_words() -> None:
    state = TaskState(WORKER)
    state.hear({"kind": "failed", "error": "ValueError", "message": "no", "port_taken": True, "hopeless": True}, 100.0)
    assert (state.error, state.failure, state.port_taken) == ("ValueError", "ValueError: no", True)
    assert state.is_hopeless


def test_a_task_that_was_never_started_is_due_at_once_and_has_no_past() -> None:
    new = TaskState(WORKER)
    assert (new.phase, new.attempt, new.start_at, new.restarts) == ("waiting", -1, 0.0, 0)
    assert (new.since, new.alive_at, new.progress_at, new.began_at, new.lived, new.killed_at) == (0.0,) * 6
    assert (new.step, new.own_steps, new.reports) == (0, 0, 0)
    assert (History().step, History().trained_seconds) == (0, 0.0)


# --- attempts ---------------------------------------------------------------------------------------------------------
def test_a_new_attempt_keeps_what_is_counted_and_forgets_everything_else() -> None:
    state = TaskState(WORKER, attempt=1, restarts=2, pid=7, lived=3.0)
    state.hear(step(60, own_step=30), 98.0)
    state.hear({"kind": "failed", "error": "E", "message": "m", "port_taken": True, "hopeless": True}, 99.0)
    state.busy, state.end_by, state.killed_for, state.is_bystander, state.stalled = "saving", 9.0, "it", True, True
    state.cut_off, state.fell, state.frozen, state.vitals = "reset", "killed", "silent", stopped(3.0)
    state.show_break(98.0)
    state.begin(100.0)
    expected = TaskState(WORKER, "starting", attempt=2, restarts=2, pid=7, own_steps=30, step=60, loss=1.0, lived=3.0)
    expected.since = expected.alive_at = expected.progress_at = expected.began_at = 100.0
    expected.start_at, expected.usual_before = None, 0.5
    assert state == expected
    assert state.usual_report == 0.5, "it is used to the pace of the attempt before"


@pytest.mark.parametrize(
    ("code", "killed_for", "is_own"), [(3, None, True), (-9, None, False), (3, "no heartbeat", False)]
)
def test_an_end_is_its_own_fault_unless_it_was_killed(code: int, killed_for: str | None, is_own: bool) -> None:
    state = TaskState(WORKER, began_at=90.0, killed_for=killed_for)
    exited = TaskExited(WORKER, 0, code)
    state.left(exited, "because", 100.0)
    assert (state.failure, state.lived) == ("because", 10.0)
    assert state.exit == (exited if is_own else None)


def test_a_break_is_as_old_as_its_first_sign() -> None:
    state = TaskState(WORKER)
    state.show_break(10.0)
    state.show_break(12.0)
    assert state.broke_at == 10.0


def test_a_task_waits_until_it_is_due() -> None:
    state = TaskState(WORKER, phase="ended", since=1.0)
    state.wait_to_start(105.0, 100.0)
    assert (state.phase, state.since, state.start_at) == ("waiting", 100.0, 105.0)


@pytest.mark.parametrize(
    ("phase", "is_running"),
    [
        ("waiting", False),
        ("starting", True),
        ("ready", True),
        ("training", True),
        ("done", True),
        ("ended", False),
        ("given up", False),
    ],
)
def test_a_task_is_in_trouble_only_while_it_runs(phase: Any, is_running: bool) -> None:
    assert TaskState(WORKER, phase).is_running == is_running
    assert TaskState(WORKER, phase).trouble is None
    assert TaskState(WORKER, phase, stalled=True).trouble == ("stalled" if is_running else None)
    assert TaskState(WORKER, phase, stalled=True, frozen="silent").trouble == ("silent" if is_running else None)
