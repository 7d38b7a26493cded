"""Who is started again, with whom, after what delay, and when no more."""

from __future__ import annotations

from typing import Any

import pytest
from supervising import CHIEF, EVALUATOR, PS0, PS1, WORKER, WORKER1

from headway.launch.groups import Team
from headway.launch.messages import TaskExited
from headway.launch.restarts import Restarts
from headway.launch.taskstate import TaskState
from headway.spec import Task
from headway.spec.load import parse_job
from headway.spec.resolve import resolve

WORKLOAD = {"model": "softmax", "dataset": "synthetic", "stop": {"steps": 5}}
CLUSTER = {"chief": 1, "worker": 2, "ps": 2, "evaluator": 1}


class Run:
    def __init__(self, strategy: str = "ps-async", **changes: Any) -> None:
        settings: dict[str, Any] = {"workload": WORKLOAD, "strategy": strategy, "cluster": CLUSTER, **changes}
        job = resolve(parse_job(settings), 2).job
        self.states = {task: TaskState(task, "training") for task in job.cluster.tasks()}
        self.restarts = Restarts(job, Team(job, self.states))

    def fail(self, task: Task, code: int = 1, lived: float = 5.0, steps: int = 0) -> str:
        """The task ends by its own fault, having made so many more steps."""
        state = self.states[task]
        state.exit, state.failure, state.lived = TaskExited(task, 0, code), f"exit code {code}", lived
        state.own_steps += steps
        return self.restarts.failed(state)

    def killed(self, task: Task) -> str:
        """From outside."""
        self.states[task].exit, self.states[task].failure = None, "signal SIGKILL"
        return self.restarts.failed(self.states[task])


def anew(run: Run, dead: Task, goes_on: bool = False, loses_variables: bool = True) -> set[Task]:
    return {state.task for state in run.restarts.begin_anew(dead, goes_on, loses_variables)}


# --- how often --------------------------------------------------------------------------------------------------------
def test_a_task_is_started_again_as_often_as_is_allowed() -> None:
    run = Run(restart={"attempts": 2})
    assert [run.killed(CHIEF) for _ in range(3)] == ["restart", "restart", "fail"]
    assert run.states[CHIEF].restarts == 2


def test_restarts_of_tasks_that_begin_anew_together_are_counted_together() -> None:
    run = Run(restart={"attempts": 2})
    assert [run.killed(task) for task in (PS0, PS1, PS0)] == ["restart", "restart", "fail"]
    assert (run.restarts.made(PS0), run.restarts.made(PS1), run.restarts.made(CHIEF)) == (2, 2, 0)


def test_without_restarts_the_first_failure_is_the_last() -> None:
    assert Run(restart={"attempts": 0}).killed(CHIEF) == "fail"


def test_what_says_that_it_is_hopeless_is_not_started_again() -> None:
    run = Run()
    run.states[CHIEF].is_hopeless = True
    assert run.fail(CHIEF) == "fail"
    assert run.states[CHIEF].restarts == 0


# --- the same failure twice -------------------------------------------------------------------------------------------
def test_the_same_end_twice_without_a_step_in_between_is_hopeless() -> None:
    run = Run()
    assert [run.fail(CHIEF), run.fail(CHIEF)] == ["restart", "fail"]
    assert run.states[CHIEF].failure == "exit code 1 (in the same way twice, without a step in between)"
    assert run.states[CHIEF].is_hopeless


def test_another_end_or_a_step_in_between_is_another_chance() -> None:
    run = Run(restart={"attempts": 9})
    assert [run.fail(CHIEF, code=1), run.fail(CHIEF, code=2), run.fail(CHIEF, code=1)] == ["restart"] * 3
    assert [run.fail(CHIEF, steps=1), run.fail(CHIEF, steps=1)] == ["restart"] * 2
    assert run.fail(CHIEF) == "fail"


def test_another_error_is_another_end() -> None:
    run = Run()
    run.states[CHIEF].error = "ValueError"
    assert run.fail(CHIEF) == "restart"
    run.states[CHIEF].error = "OSError"
    assert run.fail(CHIEF) == "restart"


def test_who_was_killed_from_outside_has_not_failed_in_the_same_way() -> None:
    run = Run()
    assert [run.killed(CHIEF), run.killed(CHIEF)] == ["restart"] * 2
    assert run.states[CHIEF].failure == "signal SIGKILL"


@pytest.mark.parametrize(("lived", "expected"), [(59.0, "fail"), (60.0, "restart")])
def test_who_tells_of_no_steps_and_lived_for_a_minute_may_have_worked(lived: float, expected: str) -> None:
    run = Run()
    run.fail(CHIEF, lived=lived)
    assert run.fail(CHIEF, lived=lived) == expected


def test_who_made_steps_and_fails_twice_after_the_same_one_is_hopeless_however_long_it_lived() -> None:
    run = Run()
    run.fail(CHIEF, steps=40, lived=600.0)
    assert run.fail(CHIEF, lived=600.0) == "fail"


def test_servers_make_no_steps_so_those_of_the_training_tasks_count() -> None:
    run = Run(restart={"attempts": 9})
    assert run.fail(PS0) == "restart"
    run.states[WORKER].own_steps += 1
    assert run.fail(PS0) == "restart"
    assert run.fail(PS1) == "fail", "either server is the same group"


# --- who can be done without ------------------------------------------------------------------------------------------
def given_up(run: Run, task: Task) -> str:
    run.states[task].is_hopeless = True
    return run.killed(task)


@pytest.mark.parametrize(
    ("task", "exhausted", "expected"),
    [
        (WORKER, "continue", "give up"),
        (WORKER, "fail", "fail"),
        (CHIEF, "continue", "fail"),
        (PS0, "continue", "fail"),
        (EVALUATOR, "fail", "give up"),
    ],
)
def test_a_worker_can_be_done_without_where_that_was_asked_for_and_an_evaluator_always(
    task: Task, exhausted: str, expected: str
) -> None:
    assert given_up(Run(restart={"exhausted": exhausted}), task) == expected


def test_an_evaluator_that_alone_could_end_the_run_cannot_be_done_without() -> None:
    evaluated = {**WORKLOAD, "evaluate": {"every": 5}}
    only = Run(workload={**evaluated, "stop": {"accuracy": 0.9}})
    assert given_up(only, EVALUATOR) == "fail"
    for end in ({"steps": 5}, {"epochs": 1}, {"seconds": 9}, {"steps_per_task": 5}):
        run = Run(workload={**evaluated, "stop": {"accuracy": 0.9, **end}})
        assert given_up(run, EVALUATOR) == "give up", end


@pytest.mark.parametrize(
    ("task", "ends_with", "expected"),
    [
        (WORKER, "chief", "give up"),
        (WORKER, "everybody", "fail"),
        (CHIEF, "chief", "fail"),
        (EVALUATOR, "everybody", "give up"),
        (PS0, "chief", "fail"),
    ],
)
def test_of_a_program_that_ends_with_its_chief_the_workers_can_be_done_without(
    task: Task, ends_with: str, expected: str
) -> None:
    assert given_up(Run(workload={"command": "x", "ends_with": ends_with}), task) == expected


def test_a_group_that_is_not_whole_any_more_is_not_started_again() -> None:
    run = Run()
    run.states[PS1].phase = "given up"
    assert run.killed(PS0) == "fail"


# --- when -------------------------------------------------------------------------------------------------------------
def test_each_restart_waits_twice_as_long_as_the_one_before_up_to_half_a_minute() -> None:
    delay = Run(restart={"delay": 1.0}).restarts.delay
    assert [delay(number) for number in (0, 1, 2, 3, 5, 6, 50)] == [1.0, 1.0, 2.0, 4.0, 16.0, 30.0, 30.0]


# --- who begins anew --------------------------------------------------------------------------------------------------
def test_a_dead_worker_begins_anew_alone_and_a_dead_server_with_all_servers() -> None:
    run = Run()
    assert anew(run, WORKER) == {WORKER}
    assert anew(run, PS0) == {PS0, PS1}


def test_a_chief_that_waits_for_the_others_to_end_begins_anew_with_the_servers() -> None:
    run = Run()
    run.states[CHIEF].phase = "done"
    assert anew(run, PS0) == {PS0, PS1, CHIEF}


def test_where_training_goes_on_everybody_does_who_trained_or_has_ended() -> None:
    run = Run()
    assert anew(run, PS0, goes_on=True) == {PS0, PS1, CHIEF, WORKER, WORKER1}
    run.states[EVALUATOR].phase = "ended"
    assert anew(run, PS0, goes_on=True) == {*run.states}
    run.states[WORKER1].phase = "given up"
    assert WORKER1 not in anew(run, PS0, goes_on=True)


def test_servers_that_are_needed_no_more_begin_anew_without_anybody_else() -> None:
    run = Run()
    run.states[CHIEF].phase = "done"
    assert anew(run, PS0, loses_variables=False) == {PS0, PS1}


@pytest.mark.parametrize(
    ("dead", "chief", "is_finalizing", "expected"),
    [
        (PS0, "training", False, True),
        (PS0, "done", False, True),
        (PS0, "done", True, False),
        (PS0, "training", True, True),
        (WORKER, "training", False, False),
    ],
)
def test_variables_are_lost_with_a_server_until_the_chief_has_its_last_snapshot(
    dead: Task, chief: Any, is_finalizing: bool, expected: bool
) -> None:
    run = Run()
    run.states[CHIEF].phase = chief
    assert run.restarts.loses_variables(dead, is_finalizing) == expected


def test_in_a_ring_variables_are_lost_also_while_the_chief_finalizes() -> None:
    ring = Run("allreduce", cluster={"chief": 1, "worker": 2})
    ring.states[CHIEF].phase = "done"
    assert ring.restarts.loses_variables(WORKER, is_finalizing=True)
