"""A run that is made to be measured: everybody warms up together, and stops when enough is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from supervising import CHIEF, PS0, WORKER, World

from headway.errors import SpecError
from headway.launch.messages import TellTask
from headway.spec import Task
from headway.spec.load import parse_job

MEASURE = {"warmup": 5, "steps": 20, "seconds": 1.0, "most_warmup": 40}


def begun(*tasks: Task, **changes: Any) -> World:
    """These training tasks have joined; the others have not."""
    settings: dict[str, Any] = {"cluster": {"chief": 1, "worker": 1, "ps": 1}, "measure": MEASURE, **changes}
    world = World(**settings)
    world.wait(0.5)
    world.up(PS0, *tasks)
    world.say(CHIEF, "initialized", how="fresh", step=0, generation=1)
    return world


def steps(world: World, tasks: Sequence[Task], paces: Sequence[float], warmup: bool = True) -> list[Any]:
    """Steps of all these tasks, each of them as long as said; what the supervisor does meanwhile."""
    done = []
    for seconds in paces:
        world.now += seconds
        for task in tasks:
            world.step += 1
            done += world.say(
                task, "step", t=world.now, step=world.step, num_steps=1, seconds=seconds, loss=1.0, warmup=warmup
            )
    return done


def told(actions: Sequence[Any], do: str) -> set[Task]:
    return {action.task for action in actions if isinstance(action, TellTask) and action.message["do"] == do}


def test_all_are_told_together_when_the_pace_of_all_is_steady() -> None:
    world = begun(CHIEF, WORKER)
    assert told(steps(world, [CHIEF, WORKER], [0.9, 0.7, 0.5, 0.4, 0.3, 0.2]), "measure") == set()
    assert told(steps(world, [CHIEF, WORKER], [0.1] * 8), "measure") == {CHIEF, WORKER}
    note = world.note("measuring")
    assert note["is_steady"]
    assert note["warmup_steps"]["worker/0"] >= MEASURE["warmup"]


def test_the_warm_up_begins_when_the_last_task_has_made_a_step() -> None:
    world = begun(CHIEF)
    assert told(steps(world, [CHIEF], [0.1] * 50), "measure") == set()
    world.up(WORKER)
    assert told(steps(world, [CHIEF, WORKER], [0.2] * 5), "measure") == set()
    assert told(steps(world, [CHIEF, WORKER], [0.2] * 5), "measure") == {CHIEF, WORKER}
    assert world.note("measuring")["warmup_steps"]["chief/0"] < 12


def test_a_pace_that_never_becomes_steady_ends_the_warm_up_at_its_limit_and_the_record_says_so() -> None:
    world = begun(CHIEF, WORKER, limits={"heartbeat": "1d", "stall": "1d"})
    done = steps(world, [CHIEF, WORKER], [0.2 * 1.2**number for number in range(50)])
    assert told(done, "measure") == {CHIEF, WORKER}
    note = world.note("measuring")
    assert not note["is_steady"]
    assert min(note["warmup_steps"].values()) >= MEASURE["most_warmup"] - 1


def test_it_stops_when_every_task_has_its_steps_and_the_time_is_long_enough() -> None:
    world = begun(CHIEF, WORKER)
    steps(world, [CHIEF, WORKER], [0.01] * 10)
    assert told(steps(world, [CHIEF, WORKER], [0.01] * 40, warmup=False), "stop") == set()  # only 0.4 s
    assert told(steps(world, [CHIEF], [0.01] * 100, warmup=False), "stop") == set()  # the worker has not
    assert told(steps(world, [CHIEF, WORKER], [0.1] * 12, warmup=False), "stop") == {CHIEF, WORKER}


def test_it_ends_as_finished_and_measured() -> None:
    world = begun(CHIEF, WORKER)
    steps(world, [CHIEF, WORKER], [0.1] * 10)
    steps(world, [CHIEF, WORKER], [0.1] * 25, warmup=False)
    for task in (CHIEF, WORKER):
        world.say(task, "done", reason="stopped: measured", step=world.step, own_steps=35)
    world.exit(WORKER, code=0)
    world.exit(CHIEF, code=0)
    world.exit(PS0)
    end = world.supervisor.end
    assert end is not None
    assert (end.state, end.reason) == ("finished", "measured")


def test_a_task_that_comes_back_is_told_that_the_warm_up_is_over_and_makes_all_its_steps() -> None:
    world = begun(CHIEF, WORKER, restart={"delay": 0.5})
    steps(world, [CHIEF, WORKER], [0.1] * 10)
    steps(world, [CHIEF, WORKER], [0.1] * 15, warmup=False)
    world.exit(WORKER)
    world.wait(2.0, alive=[CHIEF, PS0])
    before = len(world.actions)
    world.up(WORKER)
    assert told(world.actions[before:], "measure") == {WORKER}
    assert told(steps(world, [CHIEF, WORKER], [0.1] * 10, warmup=False), "stop") == set()
    assert told(steps(world, [CHIEF, WORKER], [0.1] * 12, warmup=False), "stop") == {CHIEF, WORKER}


def test_without_steps_to_measure_nobody_is_told_anything() -> None:
    world = begun(CHIEF, WORKER, measure={"warmup": 5})
    done = steps(world, [CHIEF, WORKER], [0.1] * 90, warmup=False)
    assert not told(done, "measure")
    assert not told(done, "stop")


def test_a_warm_up_longer_than_its_limit_is_a_mistake() -> None:
    with pytest.raises(SpecError, match="most_warmup: 10, but warmup: 20"):
        parse_job(
            {
                "workload": {"model": "softmax", "dataset": "synthetic"},
                "measure": {"warmup": 20, "steps": 5, "most_warmup": 10},
            }
        )
