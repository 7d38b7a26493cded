"""How training ends: who is told to stop and when, when the chief finalizes, and who is ended after it."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from supervising import CHIEF, EVALUATOR, PS0, WORKER, WORKER1

from headway.launch.ending import Ending
from headway.launch.groups import Team
from headway.launch.messages import Note, SignalTask, TellTask
from headway.launch.taskstate import Phase, TaskState
from headway.spec import Task
from headway.spec.load import parse_job
from headway.spec.resolve import resolve

LIMITS = {"stop": 5.0, "finish": 50.0}
STOP = {"do": "stop", "reason": "steps"}


class Run:
    """Tasks in some phases, and their end."""

    def __init__(self, strategy: Any = "ps-async", **changes: Any) -> None:
        phases: dict[Task, Phase] = changes.pop("phases", {})
        settings: dict[str, Any] = {
            "workload": {"model": "softmax", "dataset": "synthetic", "stop": {"steps": 5}},
            "strategy": strategy,
            "cluster": {"chief": 1, "worker": 1, "ps": 1},
            "limits": LIMITS,
            **changes,
        }
        job = resolve(parse_job(settings), 2).job
        usual: dict[str, Phase] = {"ps": "ready", "evaluator": "ready"}
        self.states = {
            task: TaskState(task, phases.get(task, usual.get(task.role, "training"))) for task in job.cluster.tasks()
        }
        self.ending = Ending(job, Team(job, self.states))

    def stop(self, now: float = 100.0) -> list[Any]:
        self.ending.ask("steps", is_by_user=False)
        return self.ending.stop(now)

    def told(self, now: float = 100.0) -> list[Task]:
        return [action.task for action in self.stop(now) if isinstance(action, TellTask) and action.message == STOP]


# --- who is told to stop ----------------------------------------------------------------------------------------------
def test_every_training_task_is_told_to_stop_with_the_reason_and_once() -> None:
    run = Run()
    assert run.stop() == [TellTask(CHIEF, STOP), TellTask(WORKER, STOP)]
    assert run.stop(101.0) == []


def test_while_the_chief_is_in_its_step_those_who_compute_for_it_are_not_told() -> None:
    run = Run({"kind": "ps-sync", "replication": "in_graph"})
    assert run.told() == [CHIEF]
    run.states[CHIEF].phase = "done"
    assert run.told() == [WORKER]


def test_who_is_done_or_has_ended_is_not_told() -> None:
    assert Run(phases={WORKER: "done"}).told() == [CHIEF]
    assert Run(phases={WORKER: "ended", CHIEF: "done"}).told() == []


def test_a_worker_that_waits_to_be_started_again_is_not_started_any_more() -> None:
    run = Run(phases={WORKER: "waiting"})
    assert run.told() == [CHIEF]
    assert (run.states[WORKER].phase, run.states[WORKER].since) == ("ended", 100.0)


@pytest.mark.parametrize("phase", ["starting", "ready", "waiting"])
def test_a_chief_that_comes_back_is_told_when_it_has_joined(phase: Phase) -> None:
    """Told before, it could not save what the servers hold."""
    run = Run(phases={CHIEF: phase})
    assert run.told() == [WORKER]
    assert run.states[CHIEF].phase == phase


@pytest.mark.parametrize("phase", ["starting", "ready", "waiting"])
def test_a_ring_that_comes_back_is_told_when_it_has_joined(phase: Phase) -> None:
    run = Run("allreduce", cluster={"chief": 1, "worker": 2}, phases={WORKER1: phase})
    assert run.told() == [CHIEF, WORKER]
    assert run.states[WORKER1].phase == phase


@pytest.mark.parametrize("phase", ["starting", "ready"])
def test_a_worker_that_comes_back_is_told_at_once(phase: Phase) -> None:
    assert Run(phases={WORKER: phase}).told() == [CHIEF, WORKER]


def test_a_task_has_the_limit_and_ten_of_its_longest_steps_to_end() -> None:
    run = Run()
    run.states[WORKER].step_seconds.extend([0.5, 2.0, 1.0])
    run.stop(100.0)
    assert (run.states[CHIEF].end_by, run.states[WORKER].end_by) == (105.0, 125.0)


def test_ps_sync_closes_its_updates_after_all_were_told() -> None:
    closing = Run("ps-sync").stop()
    assert closing == [TellTask(CHIEF, STOP), TellTask(WORKER, STOP), TellTask(PS0, {"do": "close", "reason": "steps"})]


# --- the reason -------------------------------------------------------------------------------------------------------
def test_the_first_reason_stays() -> None:
    ending = Run().ending
    ending.ask("steps", is_by_user=False)
    ending.ask("Ctrl-C", is_by_user=True)
    assert (ending.reason, ending.is_by_user) == ("steps", False)


def test_where_the_variables_are_lost_only_a_users_stop_stays() -> None:
    ending = Run().ending
    assert not ending.take_back(), "nothing was to end"
    ending.ask("steps", is_by_user=False)
    assert ending.take_back()
    assert (ending.reason, ending.is_by_user) == (None, False)
    ending.ask("steps", is_by_user=False)
    ending.user_stop = "Ctrl-C"
    assert not ending.take_back()
    assert (ending.reason, ending.is_by_user) == ("Ctrl-C", True)


# --- the chief finalizes, the others are ended ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("chief", "worker", "finalizes"),
    [
        ("done", "ended", True),
        ("done", "given up", True),
        ("done", "training", False),
        ("done", "done", False),
        ("done", "waiting", False),
        ("training", "ended", False),
    ],
)
def test_the_chief_finalizes_when_it_is_done_and_every_other_has_ended(
    chief: Phase, worker: Phase, finalizes: bool
) -> None:
    run = Run(phases={CHIEF: chief, WORKER: worker})
    assert run.ending.look(100.0) == ([TellTask(CHIEF, {"do": "finalize"})] if finalizes else [])
    assert run.ending.is_finalizing == finalizes
    assert run.states[CHIEF].end_by == (150.0 if finalizes else None)
    assert run.ending.look(101.0) == []


def test_servers_and_evaluator_are_ended_when_the_chief_and_all_others_have() -> None:
    run = Run(cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}, phases={CHIEF: "ended"})
    assert run.ending.look(100.0) == [], "the worker has not ended"
    run.states[WORKER].phase = "ended"
    assert run.ending.look(100.0) == [
        SignalTask(PS0, signal.SIGTERM),
        TellTask(EVALUATOR, {"do": "stop", "reason": "training is over"}),
    ]
    assert (run.states[PS0].end_by, run.states[EVALUATOR].end_by) == (105.0, 105.0)
    assert not run.ending.is_over
    assert run.ending.look(101.0) == []
    run.states[PS0].phase = run.states[EVALUATOR].phase = "ended"
    assert run.ending.is_over


def test_before_anybody_is_ended_nothing_is_over() -> None:
    assert not Run(phases=dict.fromkeys((CHIEF, WORKER, PS0), "ended")).ending.is_over


@pytest.mark.parametrize(("is_by_user", "end_by", "told"), [(False, 150.0, []), (True, 105.0, ["stop"])])
def test_a_programs_evaluator_has_time_for_the_last_checkpoint_unless_the_user_stops_it(
    is_by_user: bool, end_by: float, told: list[str]
) -> None:
    run = program(EVALUATOR)
    run.ending.ask("x", is_by_user)
    for task in (CHIEF, WORKER):
        run.states[task].phase = "ended"
    actions = run.ending.look(100.0)
    assert [action.message["do"] for action in actions if isinstance(action, TellTask)] == told
    assert run.states[EVALUATOR].end_by == end_by


# --- failures that decide nothing -------------------------------------------------------------------------------------
def program(failed: Task, **workload: Any) -> Run:
    run = Run(workload={"command": "x", **workload}, cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
    run.states[failed].failure = "exit code 3"
    return run


@pytest.mark.parametrize(
    ("task", "ends_with", "phase", "why"),
    [
        (EVALUATOR, "everybody", "ended", "an evaluator does not decide how a run ends"),
        (WORKER, "chief", "ended", "only the chief's command decides how the run ends (workload.ends_with: chief)"),
        (WORKER, "everybody", "ended", "all training tasks were being stopped"),
        (WORKER, "everybody", "given up", "the others went on without it (restart.exhausted: continue)"),
    ],
)
def test_a_failure_that_does_not_decide_how_the_run_ends_is_told_with_the_reason(
    task: Task, ends_with: str, phase: Phase, why: str
) -> None:
    run = program(task, ends_with=ends_with)
    run.states[task].phase = phase
    found = run.ending.failures()
    assert found == [Note("failure_ignored", {"task": str(task), "reason": "exit code 3", "why": why})]


def test_a_server_that_was_ended_and_a_task_that_was_started_again_have_not_failed() -> None:
    assert program(PS0).ending.failures() == []
    run = Run()
    assert run.ending.failures() == []
    run.states[WORKER].failure = "exit code 3"
    assert run.ending.failures() == [], "the engine's task goes on"
    run.states[WORKER].phase = "given up"
    assert [note.fields["task"] for note in run.ending.failures()] == ["worker/0"]
