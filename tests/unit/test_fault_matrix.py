"""The fault matrix is complete, docs/faults.md is made from it, and its verdicts can fail. No process is started."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from headway.errors import RunFailed
from headway.spec.job import Limits, StrategyName
from headway.spec.load import parse_job

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "faults"))

import matrix  # noqa: E402
import page  # noqa: E402
from matrix import CELLS, SETUPS, Cell  # noqa: E402
from observed import Event, Record, Seen, observe  # noqa: E402
from verdict import problems_of  # noqa: E402

DOCUMENT = (TESTS.parent / "docs" / "faults.md").read_text(encoding="utf-8")


def cell_of(name: str) -> Cell:
    return next(cell for cell in CELLS if cell.name == name)


# --- the matrix ----------------------------------------------------------------------------------------------
def test_every_strategy_has_a_cell_for_each_role_and_fault() -> None:
    assert {setup.kind for setup in SETUPS.values()} == {*get_args(StrategyName)}
    for setup in SETUPS.values():
        faults = {(cell.role, cell.fault) for cell in CELLS if cell.setup == setup.name}
        if setup.is_program:
            assert {fault for _, fault in faults} == {*matrix.EVERY_PROGRAM}
        else:
            assert faults >= {(role, fault) for role in setup.cluster for fault in matrix.EVERY_ROLE}
    ours = [setup for setup in SETUPS.values() if not setup.is_program]
    for kind in get_args(StrategyName):
        names = {setup.name for setup in ours if setup.kind == kind}
        assert {cell.fault for cell in CELLS if cell.setup in names} >= {*matrix.EVERY_STRATEGY}
    programs = {setup.kind for setup in SETUPS.values() if setup.is_program}
    assert programs == {"single", "allreduce", "ps-async"}  # what `headway launch` chooses from
    roles = {setup.kind: {*setup.cluster} for setup in ours}
    assert roles == {
        "single": {"chief"},
        "ps-async": {"chief", "worker", "ps"},
        "ps-sync": {"chief", "worker", "ps"},
        "allreduce": {"chief", "worker"},
    }
    without_restart = {cell.setup for cell in CELLS if not cell.attempts}
    assert without_restart == {"ps-sync-2of2", "allreduce"}


def test_cells_have_names_of_their_own() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_cell_is_a_job_and_hits_one_of_its_tasks(cell: Cell) -> None:
    setup = SETUPS[cell.setup]
    job = parse_job(cell.job, origin=cell.name)
    tasks = {str(task) for task in job.cluster.tasks()}
    assert {cell.task, *cell.outcome.restarted, *setup.training} <= tasks
    stall = matrix.STALL if "hang" in cell.fault else Limits().stall
    assert job.limits == Limits(stall=stall)  # "named within 10 s" is promised for the defaults
    assert job.limits.heartbeat == matrix.HEARTBEAT
    if setup.is_program:
        return
    assert job.checkpoint.steps is not None
    assert 1 < setup.fault_step / job.checkpoint.steps < matrix.CHECKPOINTS / 2
    assert setup.fault_step % job.checkpoint.steps  # else nothing could be lost


def test_the_matrix_knows_the_exit_code_of_a_failed_run() -> None:
    assert RunFailed.exit_code == matrix.FAILED


# --- the page ------------------------------------------------------------------------------------------------
def rows_of(document: str) -> list[list[str]]:
    """The cells of its tables."""
    lines = [line for line in document.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if row[0] not in ("task", "---")]


def test_the_page_has_what_the_matrix_expects() -> None:
    wanted = [[cell.task, page.fault_of(cell), page.in_words(cell)] for cell in CELLS]
    assert [row[:3] for row in rows_of(DOCUMENT)] == wanted
    for title in (f"## {setup.title}" for setup in SETUPS.values()):
        assert title in DOCUMENT
    for line in matrix.ALWAYS:
        assert f"- {line}" in DOCUMENT


def test_the_page_says_what_failed_and_what_was_not_run() -> None:
    cell, other = cell_of("ps-async-worker0-sigkill"), cell_of("ps-async-chief0-sigkill")
    good = SEEN["ps-async-worker0-sigkill"]
    results = page.Results({}, {"ps-async": UNDISTURBED}, {cell.name: replace(good, accuracy=0.5), other.name: good})
    text = page.page(results)
    assert f"2 FAILED, {len(CELLS) - 2} not run" in text
    verdicts = {row[0] + row[1]: row[-2] for row in rows_of(text)[4:10]}
    assert verdicts["worker/0SIGKILL"] == page.FAILED
    assert verdicts["ps/1SIGKILL"] == page.NOT_RUN
    assert "- worker/0, SIGKILL: accuracy 0.5000, undisturbed 0.9200" in text


def test_rows_that_were_not_run_again_stay_as_they_were() -> None:
    cell, other = cell_of("ps-async-worker0-sigkill"), cell_of("ps-async-chief0-sigkill")
    seen = {cell.name: SEEN[cell.name], other.name: SEEN["ps-async-worker0-sigkill"]}
    machine = {"date": "1970-01-01", "cores": 2, "cpu": "x", "python": "3", "packages": {}, "commit": "abc"}
    then = dict.fromkeys(seen, "1970-01-01, abc")
    before = page.page(page.Results(machine, {"ps-async": UNDISTURBED}, seen, then))
    assert page.page(page.Results({}, {}, {}), before) == before
    newer = replace(SEEN[cell.name], named=9.9)
    now = page.Results(machine, {"ps-async": UNDISTURBED}, {cell.name: newer}, {cell.name: "1970-01-02, def"})
    rows = {row[0] + row[1]: row for row in rows_of(page.page(now, before))[4:10]}
    assert rows["worker/0SIGKILL"][3] == "9.9 s (restarting)"
    assert [row[-1] for row in rows.values() if row[-1]] == ["1970-01-01, abc", "1970-01-02, def"]


# --- verdicts ------------------------------------------------------------------------------------------------
UNDISTURBED = Seen("finished", "steps", 0, step=12000, accuracy=0.92, loss=0.28)
ENDED: dict[str, Any] = {"state": "finished", "reason": "steps", "exit_code": 0, "accuracy": 0.921, "loss": 0.28005}
KILLED: dict[str, Any] = {"named": 0.1, "named_by": "restarting", "reasons": ["signal SIGKILL"], "back": 6.0}
SEEN = {
    "ps-async-worker0-sigkill": Seen(**ENDED, **KILLED, step=12001, restarted={"worker/0": 1}, meanwhile=900),
    "ps-sync-2of2-chief0-sigkill": Seen(
        **ENDED, **KILLED, step=SETUPS["ps-sync-2of2"].steps, restarted={"chief/0": 1}, initialized=["adopted"]
    ),
    "allreduce-worker0-sigkill": Seen(
        **ENDED,
        **KILLED,
        step=SETUPS["allreduce"].steps,
        restarted={"chief/0": 1, "worker/0": 1},
        initialized=["restored"],
        restored=2000,
        checkpoint=2000,
        highest=2400,
        rollbacks=[(2400, 2000, 400)],
    ),
    "programs-ring-worker1-sigkill-hang": Seen(
        **{**ENDED, "accuracy": None, "loss": None},
        named=11.0,
        named_by="stalled",
        reasons=["no step for 20 s (limits.stall)"],
        back=25.0,
        restarted={"chief/0": 2, "worker/0": 2, "worker/1": 2},
    ),
    "ps-async-worker0-sigstop-at-start": Seen(
        **ENDED,
        named=6.0,
        named_by="stopped",
        reasons=["it was stopped for 10 s (state T; limits.heartbeat)"],
        back=30.0,
        step=12000,
        restarted={"worker/0": 1},
        initialized=["fresh"],
        meanwhile=50,
    ),
    "allreduce-worker0-sigkill-no-restart": Seen(
        "failed", "worker/0 failed: signal SIGKILL", 6, named=1.0, named_by="state"
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_is_as_expected_has_no_problem(name: str) -> None:
    assert problems_of(cell_of(name), SEEN[name], UNDISTURBED) == []


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        ("ps-async-worker0-sigkill", {"named": 10.1}, "named after 10.1 s"),
        ("ps-async-worker0-sigkill", {"named": None}, "never named"),
        ("ps-async-worker0-sigkill", {"reasons": ["exit code 1"]}, "no restart"),
        ("ps-async-worker0-sigkill", {"blamed": ["chief/0 (blocked)"]}, "others were blamed"),
        ("ps-async-worker0-sigkill", {"restarted": {"worker/0": 2}}, "worker/0 2 times"),
        ("ps-async-worker0-sigkill", {"restarted": {"worker/0": 1, "chief/0": 1}}, "chief/0"),
        ("ps-async-worker0-sigkill", {"initialized": ["adopted"]}, "expected: kept"),
        ("ps-async-worker0-sigkill", {"rollbacks": [(4000, 3000, 1000)]}, "1000 steps lost"),
        ("ps-async-worker0-sigkill", {"longest_pause": 5.1}, "paused for 5.1 s"),
        ("ps-async-worker0-sigkill", {"back": None}, "never went on"),
        ("ps-async-worker0-sigkill", {"step": 12002}, "ended at step 12002"),
        ("ps-async-worker0-sigkill", {"step": 11999}, "ended at step 11999"),
        ("ps-async-worker0-sigkill", {"accuracy": 0.905}, "accuracy 0.9050"),
        ("ps-async-worker0-sigkill", {"accuracy": None}, "no accuracy"),
        ("ps-async-worker0-sigkill", {"state": "failed"}, "ended failed"),
        ("ps-async-worker0-sigkill", {"exit_code": 1}, "exit code 1"),
        ("ps-async-worker0-sigkill", {"left": ["process 77"]}, "left behind: process 77"),
        ("ps-async-worker0-sigkill", {"miscounted": ["3 steps double"]}, "3 steps double"),
        ("ps-async-worker0-sigkill", {"broke": "no checkpoint within 600 s"}, "no checkpoint"),
        ("ps-sync-2of2-chief0-sigkill", {"meanwhile": 1}, "made 1 steps"),
        ("ps-sync-2of2-chief0-sigkill", {"initialized": ["restored"]}, "expected: adopted"),
        ("ps-sync-2of2-chief0-sigkill", {"bad_updates": ["1 updates"]}, "1 updates"),
        ("ps-sync-2of2-chief0-sigkill", {"loss": 0.281}, "another model"),
        ("allreduce-worker0-sigkill", {"rollbacks": []}, "0 rollbacks"),
        ("allreduce-worker0-sigkill", {"rollbacks": [(2400, 2000, 399)]}, "the recorded rollback says"),
        ("allreduce-worker0-sigkill", {"highest": 2401}, "steps and checkpoints say 2401"),
        ("allreduce-worker0-sigkill", {"checkpoint": 2200}, "there was a checkpoint of step 2200"),
        ("programs-ring-worker1-sigkill-hang", {"named": 13.1}, "not within 13 s"),
        ("programs-ring-worker1-sigkill-hang", {"blamed": ["chief/0 (stalled)"]}, "others were blamed"),
        ("programs-ring-worker1-sigkill-hang", {"restarted": {"worker/1": 2}}, "expected: chief/0 2 times"),
        ("programs-ring-worker1-sigkill-hang", {"killed": 31.0}, "killed only after 31.0 s"),
        ("ps-async-worker0-sigstop-at-start", {"named": 10.1}, "not within 10 s"),
        ("ps-async-worker0-sigstop-at-start", {"meanwhile": 0}, "they train without it"),
        ("ps-async-worker0-sigstop-at-start", {"reasons": ["limits.start"]}, "because of stopped"),
        ("ps-async-worker0-sigstop-at-start", {"initialized": []}, "expected: fresh"),
        ("allreduce-worker0-sigkill-no-restart", {"reason": "chief/0 failed: signal SIGKILL"}, "does not say"),
        ("allreduce-worker0-sigkill-no-restart", {"state": "finished"}, "not failed"),
        ("allreduce-worker0-sigkill-no-restart", {"restarted": {"worker/0": 1}}, "expected: nobody"),
    ],
)
def test_what_is_not_as_expected_is_a_problem(name: str, changes: dict[str, Any], problem: str) -> None:
    found = problems_of(cell_of(name), replace(SEEN[name], **changes), UNDISTURBED)
    assert any(problem in each for each in found), found


# --- what the record says ------------------------------------------------------------------------------------
AT = 100.0


def record_of(*events: Event) -> Record:
    record = Record.__new__(Record)
    record.events = sorted(({"task": event["by"], **event} for event in events), key=lambda event: float(event["t"]))
    return record


def said(by: str, t: float, kind: str, **fields: Any) -> Event:
    return {"by": by, "t": t, "kind": kind, **fields}


def steps(by: str, begin: float, first: int, last: int, attempt: int = 0, generation: int = 1) -> list[Event]:
    """A step every tenth of a second."""
    return [
        said(by, begin + 0.1 * number, "step", step=step, attempt=attempt, generation=generation)
        for number, step in enumerate(range(first, last + 1), start=1)
    ]


def restored(last: int = 80, lost: int = 15) -> list[Event]:
    """`single`: killed at step 45, with a checkpoint at 30."""
    return [
        said("chief/0", 95.0, "initialized", how="fresh", step=0, checkpoint=None, generation=1),
        *steps("chief/0", 95.5, 1, 45),
        said("chief/0", 98.7, "checkpoint", step=30, attempt=0),
        said("launcher", 100.1, "restarting", task="chief/0", reason="signal SIGKILL"),
        said("launcher", 101.0, "task_started", task="chief/0", attempt=1),
        said("chief/0", 106.0, "initialized", how="restored", step=30, checkpoint="step-00000030", generation=2),
        said("launcher", 106.1, "rollback", step_before=30 + lost, step=30, steps_lost=lost),
        said("chief/0", 106.0, "joined", step=30, attempt=1, generation=2),
        *steps("chief/0", 106.1, 31, last, attempt=1, generation=2),
        said("chief/0", 120.0, "finished", step=80, accuracy=0.9, loss=0.3),
    ]


def test_a_rollback_is_read_from_steps_and_checkpoints() -> None:
    seen = observe(record_of(*restored()), SETUPS["single"], "chief/0", AT)
    assert (seen["highest"], seen["restored"], seen["checkpoint"]) == (45, 30, 30)
    assert (seen["rollbacks"], seen["restarted"], seen["initialized"]) == ([(45, 30, 15)], {"chief/0": 1}, ["restored"])
    assert seen["named"] == pytest.approx(0.1)
    assert seen["back"] == pytest.approx(6.2)
    assert seen["miscounted"] == []
    assert seen["meanwhile"] == 0


def test_a_lost_or_doubled_step_shows() -> None:
    assert observe(record_of(*restored(last=79)), SETUPS["single"], "chief/0", AT)["miscounted"] == [
        "all: 1 steps missing, the first is 80"
    ]
    twice = [*restored(), *steps("chief/0", 118.0, 70, 70, attempt=1, generation=2)]
    assert observe(record_of(*twice), SETUPS["single"], "chief/0", AT)["miscounted"] == [
        "all: 1 steps double, the first is 70"
    ]


def test_steps_of_others_while_it_is_away_are_counted_with_their_longest_pause() -> None:
    events = [
        said("chief/0", 90.0, "initialized", how="fresh", step=0, checkpoint=None, generation=1),
        *steps("chief/0", 99.0, 1, 20),  # to 101.0
        *steps("chief/0", 104.0, 21, 60),  # to 108.0
        said("launcher", 105.0, "silent", task="worker/0", seconds=5.0),
        said("worker/0", 108.0, "joined", step=60, attempt=1, generation=1),
    ]
    seen = observe(record_of(*events), SETUPS["ps-async"], "worker/0", AT)
    assert seen["named_by"] == "silent"
    assert seen["meanwhile"] == 39
    assert seen["longest_pause"] == pytest.approx(3.1)
    assert seen["back"] is None  # it has made no step yet


def test_an_update_with_two_gradients_of_one_task_shows() -> None:
    good = said("ps/0", 99.0, "update", step=1, generation=1, tasks=["chief/0", "worker/0"])
    bad = said("ps/0", 99.5, "update", step=2, generation=1, tasks=["chief/0", "chief/0"])
    for events, number in (([good], 0), ([good, bad], 1)):
        seen = observe(record_of(*events), SETUPS["ps-sync-2of2"], "worker/0", AT)
        assert len(seen["bad_updates"]) == number
