"""When a task that stands still is named, and when it is killed: to the tenth of a second."""

from __future__ import annotations

import pytest
from standing import begun, behave, heard, named, under_way
from supervising import CHIEF, PS0, PS1, WORKER, kills

from headway.host.vitals import WINDOW
from headway.launch.messages import Tick


def test_stopped_is_said_from_five_seconds_on_and_acted_on_from_ten() -> None:
    world = under_way("a program")
    heard(world, CHIEF, stopped_for=4.9, stopped="python", whole=True)
    assert named(world) == set()
    assert heard(world, CHIEF, stopped_for=5.0, stopped="python", whole=True) == []
    assert world.note("stopped") == {
        "task": "chief/0", "seconds": 5.0, "process": "python", "by_debugger": False,
    }  # fmt: skip
    assert heard(world, CHIEF, stopped_for=9.9, stopped="python", whole=True) == []
    assert kills(heard(world, CHIEF, stopped_for=10.0, stopped="python", whole=True)) == {CHIEF}


def test_a_stopped_task_is_killed_for_that_though_its_heartbeat_was_lost_before() -> None:
    """The last heartbeat comes up to a second before the agent sees that the process is stopped."""
    world = under_way("ps-async")
    world.now += 6.0
    heard(world, WORKER, age=6.0, stopped_for=5.0, stopped="python", whole=True)
    for task in (CHIEF, PS0, PS1):
        heard(world, task)
    world.now += 4.1
    assert kills(heard(world, WORKER, age=10.1, stopped_for=9.1, stopped="python", whole=True)) == {WORKER}
    world.exit(WORKER)
    assert world.note("restarting")["reason"] == "it was stopped for 10 s (state T; limits.heartbeat)"
    assert not world.has_note("unresponsive")


def test_a_part_that_is_stopped_is_enough_where_the_rest_is_idle_as_long() -> None:
    world = begun("a program")
    world.up(CHIEF)
    assert heard(world, CHIEF, stopped_for=20.0, stopped="python", idle_for=9.9) == []
    assert kills(heard(world, CHIEF, stopped_for=20.0, stopped="python", idle_for=10.0)) == {CHIEF}


def test_a_part_that_was_stopped_before_the_last_step_is_not_enough() -> None:
    world = under_way("a program")
    world.now += 6.0
    # The last step came in that time; its steps need little CPU time.
    assert heard(world, CHIEF, stopped_for=10.0, stopped="python", idle_for=10.0) == []
    world.now += 4.5
    assert kills(heard(world, CHIEF, stopped_for=10.0, stopped="python")) == {CHIEF}


def test_silence_is_said_after_five_seconds_and_acted_on_after_ten() -> None:
    world = under_way("ps-async")
    world.now += 5.0
    heard(world, CHIEF), heard(world, PS0), heard(world, PS1)
    assert named(world) == set()
    world.now += 0.1
    world.tell(Tick())
    assert world.note("silent") == {"task": "worker/0", "seconds": 5.1}
    world.now += 4.9
    for task in (CHIEF, PS0, PS1):
        heard(world, task)
    assert kills(world.actions) == set()
    world.now += 0.1
    assert kills(world.tell(Tick())) == {WORKER}
    assert world.note("unresponsive") == {"task": "worker/0", "seconds": 10.1}


@pytest.mark.parametrize(("idle_for", "is_named"), [(WINDOW - 0.1, False), (WINDOW, True)])
def test_who_starts_is_silent_only_where_it_was_idle_for_a_while(idle_for: float, is_named: bool) -> None:
    world = begun("ps-async")
    world.now += 30.0
    heard(world, WORKER, age=30.0, idle_for=idle_for)
    assert ("worker/0" in named(world)) == is_named


def test_a_server_is_called_stalled_after_ten_seconds_in_the_kernel() -> None:
    world = under_way("ps-async")
    heard(world, PS0, disk_for=10.0, idle_for=10.0)
    assert named(world) == set()
    heard(world, PS0, disk_for=10.1, idle_for=10.1)
    assert world.note("stalled") == {"task": "ps/0", "seconds": 10.1, "doing": "disk"}
    heard(world, PS0)
    assert world.note("going_on") == {"task": "ps/0"}


@pytest.mark.parametrize(("disk_for", "named_tasks"), [(WINDOW, set()), (WINDOW - 0.1, {"chief/0"})])
def test_who_waits_for_a_server_in_the_kernel_is_left_alone(disk_for: float, named_tasks: set[str]) -> None:
    world = under_way("ps-async")
    behave(world, 10, {CHIEF: "computes"})
    world.now += 0.4
    heard(world, PS0, disk_for=disk_for, idle_for=disk_for)
    heard(world, CHIEF, idle_for=10.0)
    assert named(world) == named_tasks


def test_a_step_is_missed_after_ten_seconds_or_three_usual_ones() -> None:
    for usual, limit in ((0.5, 10.0), (4.0, 12.0)):
        world = begun("single", limits={"stall": 1000})
        world.up(CHIEF)
        for _ in range(3):
            world.train(CHIEF, seconds=usual)
        world.now += limit
        heard(world, CHIEF)
        assert named(world) == set()
        world.now += 0.2
        heard(world, CHIEF)
        assert world.note("stalled") == {
            "task": "chief/0", "seconds": limit + 0.2, "median_step": usual, "doing": "computing",
        }  # fmt: skip


def test_after_two_reports_only_who_is_idle_is_missed() -> None:
    world = begun("single")
    world.up(CHIEF)
    world.train(CHIEF, 2, seconds=0.1)
    world.now += 20
    heard(world, CHIEF)
    assert named(world) == set()
    heard(world, CHIEF, idle_for=WINDOW)
    assert named(world) == {"chief/0"}


def test_a_program_that_computes_is_missed_after_a_minute_or_ten_usual_reports() -> None:
    for usual, limit in ((0.5, 60.0), (7.0, 70.0)):
        world = begun("a program", limits={"stall": 1000})
        world.up(CHIEF)
        world.train(CHIEF, 3, seconds=usual)
        world.now += limit
        heard(world, CHIEF)
        assert named(world) == set()
        world.now += 0.1
        heard(world, CHIEF)
        assert named(world) == {"chief/0"}


def test_nobody_is_killed_before_ten_usual_steps() -> None:
    world = begun("single", limits={"stall": 20})
    world.up(CHIEF)
    world.train(CHIEF, 3, seconds=7.0)
    world.now += 70.0
    assert heard(world, CHIEF) == []
    world.now += 0.1
    assert kills(heard(world, CHIEF)) == {CHIEF}


def test_a_report_of_many_steps_counts_as_one() -> None:
    """Every 30 s it tells of a hundred steps: 20 s without news are nothing."""
    world = begun("a program")
    world.up(CHIEF)
    for number in range(1, 5):
        world.say(CHIEF, "step", step=100 * number, num_steps=100, seconds=30.0)
    world.now += 40
    heard(world, CHIEF, idle_for=WINDOW)
    assert named(world) == set()


def test_a_restarted_task_is_measured_by_what_it_was_used_to() -> None:
    world = begun("ps-async", limits={"stall": 1000})
    world.up(CHIEF, WORKER, PS0, PS1)
    world.train(WORKER, 5, seconds=20.0)
    world.exit(WORKER)
    behave(world, 3, {CHIEF: "computes"})
    world.up(WORKER)
    since = world.now
    behave(world, 59, {WORKER: "waits", CHIEF: "trains"})
    assert named(world) == set()
    behave(world, 2, {WORKER: "waits", CHIEF: "trains"})
    assert named(world) == {"worker/0"}
    assert world.now - since < 62
