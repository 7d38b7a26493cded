"""When a run that is made to be measured is warm, and when it has been measured for long enough."""

from __future__ import annotations

from typing import Any

import pytest
from supervising import CHIEF, PS0, WORKER

from headway.launch.measuring import Measuring, is_steady
from headway.spec import Task
from headway.spec.load import parse_job


def measuring(**measure: Any) -> Measuring:
    """Of a chief and a worker, with a server."""
    return Measuring(
        parse_job(
            {
                "workload": {"model": "softmax", "dataset": "synthetic"},
                "strategy": "ps-async",
                "cluster": {"chief": 1, "worker": 1, "ps": 1},
                "measure": {"warmup": 2, "steps": 10, "seconds": 1.0, "most_warmup": 20, **measure},
            }
        )
    )


class Tasks:
    """Plays the tasks: each has made so many steps of its own."""

    def __init__(self, of: Measuring, start: float = 100.0) -> None:
        self.of, self.now = of, start
        self.own = {CHIEF: 0, WORKER: 0}

    def step(self, *tasks: Task, seconds: float = 0.5, num: int = 1, warmup: bool = True) -> None:
        self.now += seconds
        for task in tasks:
            self.own[task] += num
            self.of.heard(task, {"t": self.now, "own_step": self.own[task], "warmup": warmup}, self.now)

    @property
    def due(self) -> str | None:
        return self.of.look(self.now)


def warm(**measure: Any) -> Tasks:
    """Both tasks step at one pace, and were told that their warm-up is over."""
    tasks = Tasks(measuring(**measure))
    for _ in range(7):
        tasks.step(CHIEF, WORKER)
    assert tasks.due == "begin"
    tasks.of.begin(tasks.now)
    return tasks


# --- a steady pace ----------------------------------------------------------------------------------------------------
def test_six_paces_tell_whether_it_is_steady_and_five_do_not() -> None:
    assert is_steady([10.0] * 6)
    assert not is_steady([10.0] * 5)


def test_only_the_last_six_paces_count() -> None:
    assert is_steady([90.0, 50.0, 30.0, *[10.0] * 6])
    assert not is_steady([*[10.0] * 6, 20.0, 20.0, 20.0])


def test_halves_that_differ_by_a_tenth_are_steady_and_by_more_are_not() -> None:
    for change, expected in ((1.0, True), (1.01, False), (-1.0, True), (-1.01, False)):
        assert is_steady([10.0] * 3 + [10.0 + change] * 3) == expected, change


def test_noise_allows_halves_to_differ_by_twice_its_error() -> None:
    """A deviation of 14.8 (1.4826 times the median absolute one, 10): of the difference of two medians of three, about
    14.8 sqrt(4 / 6) = 12.1."""
    before = [0.0, 10.0, 20.0]
    assert is_steady([*before, *(pace + 24.2 for pace in before)])
    assert not is_steady([*before, *(pace + 24.3 for pace in before)])


# --- warm-up ----------------------------------------------------------------------------------------------------------
def test_a_task_of_which_every_so_many_steps_are_heard_has_the_pace_of_one_step() -> None:
    """Heard every 4 steps, then every 8: the pace is the same."""
    tasks = Tasks(measuring(most_warmup=1000))
    tasks.step(CHIEF, WORKER, seconds=1.0, num=4)
    for _ in range(3):
        tasks.step(CHIEF, WORKER, seconds=1.0, num=4)
    for _ in range(3):
        assert tasks.due is None
        tasks.step(CHIEF, WORKER, seconds=2.0, num=8)
    assert tasks.due == "begin"


def test_a_row_without_a_new_step_tells_nothing_of_the_pace() -> None:
    tasks = Tasks(measuring())
    for num in (1, 1, 1, 0, 1, 1, 1):
        tasks.step(CHIEF, WORKER, num=num)
    assert tasks.due is None, "five paces"
    tasks.step(CHIEF, WORKER)
    assert tasks.due == "begin"


def test_the_slowest_task_is_waited_for_until_it_has_made_its_warm_up() -> None:
    tasks = Tasks(measuring(warmup=8))
    for number in range(9):
        assert tasks.due is None, number
        tasks.step(CHIEF, WORKER)
    assert tasks.due == "begin", "the first row is where counting begins: 8 steps since"
    slow = Tasks(measuring(warmup=8))
    for _ in range(9):
        slow.step(CHIEF, WORKER, num=1)
        slow.own[CHIEF] += 5
    assert slow.due == "begin"


def test_what_was_done_before_all_tasks_step_is_no_warm_up() -> None:
    tasks = Tasks(measuring())
    for _ in range(30):
        tasks.step(CHIEF)
    tasks.step(WORKER)
    assert tasks.due is None
    for _ in range(6):
        assert tasks.due is None
        tasks.step(CHIEF, WORKER)
    assert tasks.due == "begin"
    said = tasks.of.begin(tasks.now)
    assert said["warmup_steps"] == {"chief/0": 6, "worker/0": 6}


def test_the_record_tells_seconds_and_steps_of_the_warm_up() -> None:
    tasks = Tasks(measuring(), start=1000.0)
    for _ in range(7):
        tasks.step(CHIEF, WORKER, seconds=0.5001)
    assert tasks.of.begin(tasks.now + 0.00057) == {
        "is_steady": True,
        "warmup_seconds": 3.001,
        "warmup_steps": {"chief/0": 6, "worker/0": 6},
    }


@pytest.mark.parametrize(("steps", "seconds"), [(19, 30.0), (20, 4.9)])
def test_an_unsteady_warm_up_is_not_given_up_before_its_steps_and_five_seconds_are_over(
    steps: int, seconds: float
) -> None:
    tasks = unsteady(steps, seconds)
    assert tasks.due is None


def test_an_unsteady_warm_up_is_given_up_after_its_steps_and_five_seconds() -> None:
    tasks = unsteady(20, 5.0)
    assert tasks.due == "begin"
    assert tasks.of.begin(tasks.now)["is_steady"] is False


def unsteady(steps: int, seconds: float) -> Tasks:
    """So many steps, each slower than the one before, in so many seconds."""
    tasks = Tasks(measuring(), start=0.0)
    tasks.step(CHIEF, WORKER, seconds=16.0)
    paces = [2.0**number for number in range(steps)]
    for number in range(1, steps + 1):
        at = 16.0 + seconds * sum(paces[:number]) / sum(paces)
        tasks.step(CHIEF, WORKER, seconds=at - tasks.now)
    return tasks


def test_a_task_that_is_gone_is_waited_for_before_anything_is_due() -> None:
    tasks = Tasks(measuring())
    for _ in range(7):
        tasks.step(CHIEF, WORKER)
    assert tasks.due == "begin"
    tasks.of.left(WORKER)
    assert tasks.due is None
    assert tasks.of.begin(tasks.now)["warmup_steps"] == {"chief/0": 6, "worker/0": 0}


# --- measuring --------------------------------------------------------------------------------------------------------
def test_it_stops_at_the_asked_steps_and_seconds_of_every_task() -> None:
    for steps, seconds, expected in ((10, 1.0, "stop"), (9, 1.0, None), (10, 0.75, None)):
        tasks = warm()
        tasks.step(CHIEF, WORKER, warmup=False)  # what is measured begins at the end of these
        tasks.step(CHIEF, WORKER, seconds=seconds, num=steps, warmup=False)
        assert tasks.due == expected, (steps, seconds)


def test_steps_that_are_still_warm_up_are_not_measured() -> None:
    tasks = warm()
    for _ in range(30):
        tasks.step(CHIEF, WORKER, warmup=True)
    assert tasks.due is None


def test_of_a_task_that_has_measured_nothing_neither_a_second_nor_a_step_counts() -> None:
    """The worker was told late: its rows are all warm-up."""
    for measure in ({"steps": 1, "seconds": 0.001}, {"steps": 1, "seconds": 0.5}):
        tasks = warm(**measure)
        tasks.step(CHIEF, warmup=False)
        tasks.step(CHIEF, seconds=5.0, num=50, warmup=False)
        tasks.step(WORKER, warmup=True)
        assert tasks.due is None


def test_a_task_that_came_back_measures_all_its_steps_anew() -> None:
    tasks = warm()
    tasks.step(CHIEF, WORKER, warmup=False)
    tasks.step(CHIEF, seconds=1.0, num=10, warmup=False)
    tasks.step(WORKER, num=9, warmup=False)
    tasks.of.left(WORKER)
    tasks.own[WORKER] = 0
    tasks.step(WORKER, warmup=False)
    tasks.step(WORKER, seconds=1.0, num=9, warmup=False)
    assert tasks.due is None
    tasks.step(WORKER, warmup=False)
    assert tasks.due == "stop"


# --- who is not measured ----------------------------------------------------------------------------------------------
def test_tasks_that_do_not_train_are_not_measured() -> None:
    tasks = Tasks(measuring())
    tasks.of.heard(PS0, {"t": 100.0, "own_step": 1}, 100.0)
    tasks.of.left(PS0)
    for _ in range(7):
        tasks.step(CHIEF, WORKER)
    assert tasks.of.begin(tasks.now)["warmup_steps"].keys() == {"chief/0", "worker/0"}


def test_a_run_that_is_not_made_to_be_measured_is_never_due() -> None:
    tasks = Tasks(measuring(steps=None))
    assert not tasks.of.is_asked
    for _ in range(40):
        tasks.step(CHIEF, WORKER, warmup=False)
        assert tasks.due is None
