"""Limits of the supervisor that are met exactly, and reasons that must not get lost."""

from __future__ import annotations

import pytest
from supervising import CHIEF, EVALUATOR, PS0, PS1, WORKER, running

from headway.launch.messages import AgentLost, Heartbeat, TellTask


@pytest.mark.parametrize(("accuracy", "stops"), [(0.89, False), (0.9, True), (0.95, True)])
def test_an_evaluation_that_reaches_the_wanted_accuracy_stops_training(accuracy: float, stops: bool) -> None:
    stop = {"accuracy": 0.9, "steps": 1000}
    workload = {"model": "softmax", "dataset": "synthetic", "stop": stop, "evaluate": {"every": 5}}
    world = running(workload=workload, cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
    told = world.say(EVALUATOR, "evaluation", step=5, accuracy=accuracy, loss=1.0)
    assert {action.task for action in told if isinstance(action, TellTask)} == ({CHIEF, WORKER} if stops else set())


def test_a_task_that_died_with_its_node_is_started_again_for_that_reason() -> None:
    world = running()
    world.tell(AgentLost("node worker0 does not answer", (WORKER,)))
    assert world.note("restarting")["reason"] == "node worker0 does not answer"


def test_a_heartbeat_that_is_old_already_when_it_comes_is_no_sign_of_life() -> None:
    world = running()
    for _ in range(12):
        world.now += 0.5
        for task in (CHIEF, PS0, PS1):
            world.tell(Heartbeat(task, 0.0))
        world.tell(Heartbeat(WORKER, world.now - 100.0))
    assert world.note("silent")["task"] == "worker/0"
