"""The supervisor of a user's own program: it knows less of it, and assumes nothing."""

from __future__ import annotations

import signal
from typing import Any

from supervising import CHIEF, EVALUATOR, KILL, PS0, WORKER, World, kills, starts

from headway.launch.messages import End, SignalTask, StopAsked, TellTask, Tick
from headway.spec.command import CHIEF_ENDED, ENDED

PROGRAM = {"workload": {"command": "python train.py"}}


def program(cluster: dict[str, int], **changes: Any) -> World:
    """Under way, without a word of any step."""
    strategy = "ps-async" if "ps" in cluster else "allreduce"
    world = World(**{**PROGRAM, "strategy": strategy, "cluster": cluster, **changes})
    world.tell(Tick())
    world.up(*world.supervisor.tasks)
    return world


def test_it_is_over_when_every_training_task_has_ended() -> None:
    world = program({"chief": 1, "worker": 1, "ps": 1}, workload={"command": "x", "ends_with": "everybody"})
    assert world.say(CHIEF, "done", reason=ENDED, step=0, own_steps=0) == []
    world.wait(120, alive=[CHIEF, WORKER, PS0])
    assert world.phase(WORKER) == "training"
    world.say(WORKER, "done", reason=ENDED, step=0, own_steps=0)
    assert world.exit(WORKER, 0) == [TellTask(CHIEF, {"do": "finalize"})]
    assert world.exit(CHIEF, 0) == [SignalTask(PS0, signal.SIGTERM)]
    assert world.exit(PS0, -signal.SIGTERM) == [End("finished", ENDED)]


def test_or_when_the_chief_has() -> None:
    """Workers may be servers that never end: they have their time, and are ended."""
    world = program({"chief": 1, "worker": 1, "ps": 1})
    assert world.say(CHIEF, "done", reason=CHIEF_ENDED, step=0, own_steps=0) == [
        TellTask(WORKER, {"do": "stop", "reason": CHIEF_ENDED})
    ]
    world.say(WORKER, "done", reason=f"stopped: {CHIEF_ENDED}", step=0, own_steps=0)
    world.exit(WORKER, 0)
    world.exit(CHIEF, 0)
    assert world.exit(PS0, -signal.SIGTERM) == [End("finished", CHIEF_ENDED)]


def test_a_program_that_tells_nobody_of_its_steps_is_left_alone() -> None:
    world = program({"chief": 1, "worker": 1})
    assert kills(world.wait(2000, alive=[CHIEF, WORKER])) == set()


def test_but_one_that_did_and_stands_still_is_not() -> None:
    world = program({"chief": 1, "worker": 1}, limits={"stall": 60})
    for task in (CHIEF, WORKER):
        world.train(task, steps=5)
    assert kills(world.wait(100, alive=[CHIEF, WORKER])) != set()


def test_a_stop_lets_it_end_in_order_also_when_no_step_was_heard_of() -> None:
    world = program({"chief": 1, "worker": 1})
    told = world.tell(StopAsked("Ctrl-C"))
    assert {action.task for action in told if isinstance(action, TellTask)} == {CHIEF, WORKER}
    assert kills(told) == set()
    for task in (WORKER, CHIEF):
        world.say(task, "done", reason="stopped: Ctrl-C", step=0, own_steps=0)
    world.exit(WORKER, 0)
    assert world.exit(CHIEF, 0)[-1] == End("stopped", "Ctrl-C")


def test_without_servers_all_begin_anew_when_one_dies() -> None:
    world = program({"chief": 1, "worker": 1})
    world.exit(WORKER)
    assert KILL in {action.number for action in world.wait(6, alive=[CHIEF]) if isinstance(action, SignalTask)}
    assert starts(world.exit(CHIEF)) == {CHIEF, WORKER}
    assert world.restarts(CHIEF, WORKER) == [0, 1]


def test_with_servers_a_worker_begins_anew_alone() -> None:
    world = program({"chief": 1, "worker": 1, "ps": 1})
    world.exit(WORKER, 1)
    assert starts(world.wait(3, alive=[CHIEF, PS0])) == {WORKER}


def test_an_evaluator_has_time_for_the_last_checkpoint() -> None:
    world = program({"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}, limits={"finish": 300})
    world.say(WORKER, "done", reason=ENDED, step=0, own_steps=0)
    world.exit(WORKER, 0)
    world.say(CHIEF, "done", reason=CHIEF_ENDED, step=0, own_steps=0)
    ended = world.exit(CHIEF, 0)
    assert [action.task for action in ended if isinstance(action, (TellTask, SignalTask))] == [PS0]
    world.exit(PS0, -signal.SIGTERM)
    assert kills(world.wait(200, alive=[EVALUATOR])) == set()
    world.say(EVALUATOR, "done", reason=ENDED, step=0, own_steps=0)
    assert world.exit(EVALUATOR, 0)[-1] == End("finished", CHIEF_ENDED)
