"""The supervisor under allreduce: when training ends or is stopped, and when nodes are lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from supervising import CHIEF, EVALUATOR, KILL, RING, WORKER, WORKER1, World, cut_off, kills, ring, ring_again, starts

from headway.launch.messages import Action, AgentLost, End, NewNodes, Regroup, SignalTask, StopAsked, TellTask, Tick


def ending(**changes: Any) -> World:
    """Everybody has made the last step; the workers have ended, and the chief finalizes."""
    world = ring(**changes)
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    for task in (WORKER, WORKER1):
        world.say(task, "done", reason="steps", step=100, own_steps=100)
        world.exit(task, 0)
    assert TellTask(CHIEF, {"do": "finalize"}) in world.actions
    return world


# --- at the end ----------------------------------------------------------------------------------------------
def test_the_happy_end() -> None:
    world = ending()
    assert world.exit(CHIEF, 0) == [End("finished", "steps")]


@pytest.mark.parametrize("how", [-KILL, 1])
def test_a_worker_that_dies_after_its_last_step_is_simply_ended(how: int) -> None:
    world = ring()
    for task in RING:
        world.say(task, "done", reason="steps", step=100, own_steps=100)
    assert world.exit(WORKER, how) == []
    assert world.exit(WORKER1, 0) == [TellTask(CHIEF, {"do": "finalize"})]
    assert world.restarts(*RING) == [0, 0, 0]


def test_a_worker_that_dies_after_the_chiefs_last_step_is_simply_ended() -> None:
    """The chief's step was a step of all: it has everything."""
    world = ring()
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    assert world.exit(WORKER) == []
    assert kills(cut_off(world, WORKER1)) == {WORKER1}
    assert world.exit(WORKER1) == [TellTask(CHIEF, {"do": "finalize"})]
    assert world.restarts(*RING) == [0, 0, 0]


def test_a_worker_whose_death_is_known_before_the_chief_says_that_it_is_done_is_simply_ended_too() -> None:
    world = ring()
    world.exit(WORKER)
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    assert world.phase(WORKER) == "ended"
    world.say(WORKER1, "done", reason="steps", step=100, own_steps=100)
    assert world.exit(WORKER1, 0) == [TellTask(CHIEF, {"do": "finalize"})]


def test_a_chief_killed_while_it_finalizes_brings_everybody_back() -> None:
    world = ending()
    world.exit(CHIEF)
    assert starts(world.wait(2)) == set(RING)
    assert (world.supervisor.state, world.supervisor.stop_reason) == ("running", None)
    ring_again(world, step=60)
    assert world.note("rollback")["step"] == 60
    world.train_together(RING, steps=40, generation=2)
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=140)
    for task in (WORKER, WORKER1):
        world.say(task, "done", reason="steps", step=100, own_steps=140)
        world.exit(task, 0)
    assert world.actions[-1] == TellTask(CHIEF, {"do": "finalize"})
    assert world.exit(CHIEF, 0) == [End("finished", "steps")]


def test_a_chief_killed_after_its_last_step_takes_along_workers_that_still_run() -> None:
    world = ring()
    for task in RING:
        world.say(task, "done", reason="steps", step=100, own_steps=100)
    world.exit(WORKER, 0)
    assert kills(world.exit(CHIEF) + world.wait(5.5, alive=[WORKER1])) == {WORKER1}
    assert starts(world.exit(WORKER1, 0) + world.wait(2)) == set(RING)  # it had ended in order before the signal came


def test_a_worker_cut_off_by_the_death_of_a_chief_that_was_done() -> None:
    """The worker's word comes first: it is ended. Then the chief's end is known, and all come back."""
    world = ring()
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    assert kills(cut_off(world, WORKER, WORKER1)) == {WORKER, WORKER1}
    world.exit(WORKER)
    world.exit(CHIEF)
    world.exit(WORKER1)
    assert starts(world.wait(2)) == set(RING)
    assert world.restarts(*RING) == [1, 0, 0]


def test_a_worker_that_had_to_be_killed_at_the_end_is_not_blamed_for_the_chiefs_death_later() -> None:
    world = ring(limits={"stop": 5})
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    world.say(WORKER1, "done", reason="steps", step=100, own_steps=100)
    world.exit(WORKER1, 0)
    assert kills(world.wait(8, alive=RING)) == {WORKER}
    assert world.exit(WORKER) == [TellTask(CHIEF, {"do": "finalize"})]
    world.exit(CHIEF)
    assert starts(world.wait(2)) == set(RING)
    assert world.restarts(*RING) == [1, 0, 0]


def test_an_agent_lost_while_the_chief_finalizes_brings_everybody_back() -> None:
    world = ending()
    (regroup,) = world.tell(AgentLost("killed"))
    assert isinstance(regroup, Regroup)
    assert starts(world.tell(NewNodes())) == set(RING)
    assert (world.supervisor.state, world.supervisor.stop_reason) == ("running", None)


def test_an_agent_lost_while_the_chief_finalizes_what_a_user_stopped_brings_everybody_back_to_save() -> None:
    world = ring()
    world.tell(StopAsked("Ctrl-C"))
    for task in (WORKER, WORKER1):
        world.say(task, "done", reason="stopped: Ctrl-C", step=5, own_steps=5)
        world.exit(task, 0)
    world.say(CHIEF, "done", reason="stopped: Ctrl-C", step=5, own_steps=5)
    world.tell(AgentLost("killed"))
    assert starts(world.tell(NewNodes())) == set(RING)  # a ring that is not complete cannot start
    assert (world.supervisor.state, world.supervisor.stop_reason) == ("stopping", "Ctrl-C")


def test_a_chief_that_breaks_while_it_finalizes_is_to_blame_itself() -> None:
    world = ring()
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    cut_off(world, WORKER, WORKER1)
    world.exit(WORKER)
    world.exit(WORKER1)
    world.wait(1, alive=[CHIEF])
    assert kills(cut_off(world, CHIEF)) == {CHIEF}
    world.exit(CHIEF)
    assert starts(world.wait(2)) == set(RING)
    assert world.restarts(*RING) == [1, 0, 0]


# --- stopping ------------------------------------------------------------------------------------------------
def told_to_stop(actions: list[Action]) -> list[Any]:
    return [action.task for action in actions if isinstance(action, TellTask) and action.message["do"] == "stop"]


def test_a_stop_during_a_restart_waits_until_each_member_has_joined() -> None:
    """A ring that is not complete cannot even start, and only a complete one can save."""
    world = ring()
    for task in RING:
        world.exit(task)
    assert world.tell(StopAsked("Ctrl-C")) == []
    assert [world.phase(task) for task in RING] == ["waiting"] * 3
    assert starts(world.wait(2)) == set(RING)
    for task in RING:
        assert told_to_stop(world.say(task, "ready")) == []
    world.say(CHIEF, "initialized", how="restored", step=4, generation=2)
    for task in RING:
        assert told_to_stop(world.say(task, "joined", step=4, generation=2)) == [task]
    for task in (WORKER, WORKER1):
        world.say(task, "done", reason="stopped: Ctrl-C", step=4, own_steps=5)
        world.exit(task, 0)
    assert world.say(CHIEF, "done", reason="stopped: Ctrl-C", step=4, own_steps=5) == [
        TellTask(CHIEF, {"do": "finalize"})
    ]
    assert world.exit(CHIEF, 0) == [End("stopped", "Ctrl-C")]


def test_a_stop_while_the_members_start_again() -> None:
    world = ring()
    for task in RING:
        world.exit(task)
    world.wait(2)
    assert world.tell(StopAsked("Ctrl-C")) == []
    world.say(WORKER, "ready")
    assert told_to_stop(world.say(WORKER, "joined", step=4)) == [WORKER]


def test_a_stop_between_a_death_and_its_verdict() -> None:
    world = ring()
    world.exit(WORKER)
    assert told_to_stop(world.tell(StopAsked("Ctrl-C"))) == [CHIEF, WORKER1]
    assert kills(cut_off(world, CHIEF, WORKER1)) == {CHIEF, WORKER1}
    world.exit(CHIEF)
    assert starts(world.exit(WORKER1) + world.wait(2)) == set(RING)
    assert (world.supervisor.state, world.supervisor.stop_reason) == ("stopping", "Ctrl-C")


def test_a_death_while_a_user_stops_restarts_all_to_save_what_the_checkpoint_has() -> None:
    world = ring()
    world.tell(StopAsked("Ctrl-C"))
    for task in (WORKER, WORKER1):
        world.say(task, "done", reason="stopped: Ctrl-C", step=5, own_steps=5)
        world.exit(task, 0)
    world.say(CHIEF, "done", reason="stopped: Ctrl-C", step=5, own_steps=5)
    world.exit(CHIEF)
    assert starts(world.wait(2)) == set(RING)
    assert world.supervisor.state == "stopping"
    world.say(CHIEF, "ready")
    assert told_to_stop(world.say(CHIEF, "joined", step=4)) == [CHIEF]


def test_a_second_stop_during_a_restart_kills() -> None:
    world = ring()
    for task in RING:
        world.exit(task)
    world.tell(StopAsked("Ctrl-C"))
    assert world.tell(StopAsked("Ctrl-C", at_once=True)) == [End("stopped", "Ctrl-C")]


def test_the_evaluators_accuracy_is_taken_back_with_what_was_trained() -> None:
    workload = {
        "model": "softmax",
        "dataset": "synthetic",
        "stop": {"steps": 100, "accuracy": 0.9},
        "evaluate": {"every": 10},
    }
    world = ring(cluster={"chief": 1, "worker": 2, "evaluator": 1}, workload=workload)
    assert told_to_stop(world.say(EVALUATOR, "evaluation", accuracy=0.95, step=20)) == RING
    world.exit(WORKER)
    assert kills(cut_off(world, CHIEF, WORKER1)) == {CHIEF, WORKER1}
    assert (world.supervisor.state, world.supervisor.stop_reason) == ("running", None)


# --- agents and ports ----------------------------------------------------------------------------------------
def between_death_and_verdict(world: World) -> None:
    world.exit(WORKER)


def while_some_are_being_killed(world: World) -> None:
    world.exit(WORKER)
    cut_off(world, CHIEF, WORKER1)
    world.exit(CHIEF)


def while_all_wait(world: World) -> None:
    for task in RING:
        world.exit(task)


def while_all_start(world: World) -> None:
    while_all_wait(world)
    world.wait(2)


@pytest.mark.parametrize(
    "when", [between_death_and_verdict, while_some_are_being_killed, while_all_wait, while_all_start]
)
def test_an_agent_lost_during_a_restart(when: Callable[[World], None]) -> None:
    world = ring()
    when(world)
    actions = world.tell(AgentLost("killed"))
    assert [type(action) for action in actions] == [Regroup]
    assert world.wait(20) == []  # nothing starts without a node, and nobody is blamed meanwhile
    assert starts(world.tell(NewNodes())) == set(RING)
    ring_again(world, step=3)
    assert sum(world.restarts(*RING)) <= 1
    assert world.wait(8, alive=RING) == []


def test_a_killed_member_that_does_not_end_is_a_lost_node() -> None:
    world = ring()
    world.exit(WORKER)
    cut_off(world, CHIEF, WORKER1)
    world.exit(CHIEF)
    assert any(isinstance(action, Regroup) for action in world.wait(11, alive=[WORKER1]))


def test_a_taken_port_moves_all_to_new_ports() -> None:
    world = World(strategy="allreduce", cluster={"chief": 1, "worker": 2})
    world.tell(Tick())
    world.say(WORKER, "failed", error="PortTaken", message="port 4711", port_taken=True)
    assert world.exit(WORKER, 1) == [SignalTask(CHIEF, KILL), SignalTask(WORKER1, KILL)]
    world.exit(CHIEF)
    assert [type(action) for action in world.exit(WORKER1)] == [Regroup]
    assert starts(world.tell(NewNodes())) == set(RING)
    assert world.restarts(*RING) == [0, 0, 0]
