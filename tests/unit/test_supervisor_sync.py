"""The supervisor under ps-sync: everybody waits for the slowest, and ps/0 says who that is."""

from __future__ import annotations

from typing import Any

import pytest
from supervising import CHIEF, KILL, PS0, PS1, WORKER, WORKER1, World, kills, running, starts

from headway.cli.live import note_text
from headway.launch.messages import Action, End, SignalTask, StopAsked, TellTask
from headway.spec import Task

TRAINING = [CHIEF, WORKER, WORKER1]
ALL = [*TRAINING, PS0]


def together(**changes: Any) -> World:
    return running(**{"strategy": "ps-sync", "cluster": {"chief": 1, "worker": 2, "ps": 1}, **changes})


def block(world: World, *missing: Task, seconds: float = 5.0) -> list[Action]:
    return world.say(PS0, "blocked", step=world.step, missing=[str(task) for task in missing], seconds=seconds)


def updated(world: World, tasks: list[Task] = TRAINING) -> None:
    world.train_together(tasks)
    world.say(PS0, "update", step=world.step, tasks=[str(task) for task in tasks], dropped=[], generation=1)


def leave(task: Task) -> TellTask:
    return TellTask(PS0, {"do": "leave", "task": str(task)})


def close(reason: str) -> TellTask:
    return TellTask(PS0, {"do": "close", "reason": reason})


# --- blocked -------------------------------------------------------------------------------------------------
def test_the_one_that_everybody_waits_for_is_named_at_once() -> None:
    world = together()
    assert block(world, WORKER) == []
    assert world.note("blocked") == {"task": "worker/0", "seconds": 5.0, "waiting": ["chief/0", "worker/1"]}
    text = note_text("blocked", world.note("blocked"))
    assert text == "worker/0 keeps chief/0, worker/1 waiting: no update for 5.0 s"


def test_nobody_is_named_for_what_waits_in_a_frozen_server() -> None:
    world = together(cluster={"chief": 1, "worker": 2, "ps": 2})
    world.wait(4.5, alive=[*TRAINING, PS0])
    block(world, WORKER)
    assert not world.has_note("blocked")
    assert not world.supervisor.tasks[WORKER].stalled


def test_each_of_several_is_named() -> None:
    world = together()
    block(world, WORKER, WORKER1)
    assert [note.fields["task"] for note in world.notes if note.kind == "blocked"] == ["worker/0", "worker/1"]
    assert world.note("blocked")["waiting"] == ["chief/0"]


def test_a_frozen_task_is_named_within_10_seconds_whatever_the_limits_are() -> None:
    world = together(limits={"heartbeat": 600})
    world.wait(9, alive=[CHIEF, WORKER1, PS0])
    assert world.note("silent")["task"] == "worker/0"
    assert note_text("silent", world.note("silent")) == "worker/0 is silent: no heartbeat for 5.5 s"


def test_those_who_wait_are_not_stalled_and_the_missing_one_is_restarted_after_its_limit() -> None:
    world = together(limits={"stall": 60})
    block(world, WORKER)
    assert kills(world.wait(59, alive=ALL)) == set()
    assert not world.has_note("stalled")  # `blocked` has said it
    assert kills(world.wait(3, alive=ALL)) == {WORKER}
    world.exit(WORKER)
    assert "limits.stall" in world.note("restarting")["reason"]
    assert starts(world.wait(2, alive=[CHIEF, WORKER1, PS0])) == {WORKER}
    assert world.wait(120, alive=ALL) == []  # it starts: the others wait for that too
    world.up(WORKER)
    world.say(PS0, "unblocked", step=6, seconds=70.0)
    updated(world)
    assert world.restarts(*ALL) == [0, 1, 0, 0]


def test_a_missing_one_that_comes_back_and_hangs_again_is_still_the_one_to_blame() -> None:
    world = together(limits={"stall": 30})
    block(world, WORKER)
    world.wait(32, alive=ALL)
    world.exit(WORKER)
    world.wait(2, alive=ALL)
    world.up(WORKER)
    assert kills(world.wait(32, alive=ALL)) == {WORKER}


def test_what_is_said_again_is_noted_for_newly_missing_tasks_only() -> None:
    world = together()
    for missing in ([WORKER], [WORKER], [WORKER, WORKER1], [WORKER1]):
        block(world, *missing)
    assert [note.fields["task"] for note in world.notes if note.kind == "blocked"] == ["worker/0", "worker/1"]


def test_what_was_said_while_a_server_was_silent_counts_when_it_is_said_again() -> None:
    world = together(cluster={"chief": 1, "worker": 2, "ps": 2})
    world.wait(3, alive=[*TRAINING, PS0])
    block(world, WORKER)
    assert not world.has_note("blocked")
    world.wait(1, alive=[*TRAINING, PS0, PS1])
    block(world, WORKER)
    assert world.note("blocked")["task"] == "worker/0"


def test_who_hangs_after_it_was_busy_is_named_then() -> None:
    world = together()
    world.say(CHIEF, "evaluating", step=5)
    block(world, CHIEF)
    assert not world.has_note("blocked")
    world.say(CHIEF, "evaluation", step=5, accuracy=0.5)
    block(world, CHIEF)
    assert world.note("blocked")["task"] == "chief/0"


@pytest.mark.parametrize("how", ["unblocked", "update"])
def test_after_the_update_everybody_is_watched_again(how: str) -> None:
    world = together(limits={"stall": 30})
    block(world, WORKER)
    world.say(PS0, how, step=6, seconds=1.0, tasks=[], dropped=[], generation=1)
    assert kills(world.wait(32, alive=ALL)) == set(TRAINING)


def test_the_missing_one_is_shown_as_stalled_until_it_goes_on() -> None:
    world = together()
    block(world, WORKER)
    assert world.supervisor.tasks[WORKER].stalled
    world.say(PS0, "unblocked", step=6, seconds=7.0)
    updated(world)
    assert world.note("going_on")["task"] == "worker/0"
    assert not world.supervisor.tasks[WORKER].stalled


def test_a_busy_chief_is_waited_for_without_a_word() -> None:
    """It has said itself what it does; every evaluation would else look like a fault."""
    world = together(limits={"stall": 100})
    world.say(CHIEF, "evaluating", step=5)
    block(world, CHIEF)
    assert kills(world.wait(90, alive=ALL)) == set()
    assert not world.has_note("blocked")
    assert not world.has_note("stalled")
    assert kills(world.wait(12, alive=ALL)) == {CHIEF}


def test_waiting_for_a_task_that_starts_again_is_not_standing_still() -> None:
    world = together(limits={"stall": 20, "start": 100})
    world.exit(WORKER)
    world.wait(2, alive=ALL)
    assert world.wait(90, alive=ALL) == []
    assert not world.has_note("stalled")


def test_new_servers_are_not_blocked_by_what_the_old_ones_said() -> None:
    world = together(limits={"stall": 30})
    block(world, WORKER)
    world.exit(PS0)
    world.wait(2, alive=TRAINING)
    world.up(PS0)
    assert kills(world.wait(32, alive=ALL)) == set(TRAINING)


# --- leaving and closing -------------------------------------------------------------------------------------
def test_a_task_that_is_given_up_is_not_waited_for() -> None:
    world = together(restart={"attempts": 0, "exhausted": "continue"})
    assert world.exit(WORKER) == [leave(WORKER)]
    assert world.phase(WORKER) == "given up"


def test_new_servers_are_told_who_will_not_come() -> None:
    world = together(restart={"attempts": 1, "exhausted": "continue"})
    world.exit(WORKER)
    world.wait(2, alive=ALL)
    world.exit(WORKER)
    world.say(WORKER1, "done", reason="steps_per_task", step=5, own_steps=5)
    world.exit(WORKER1, 0)
    world.exit(PS0)
    assert starts(world.wait(2, alive=[CHIEF])) == {PS0}
    assert world.say(PS0, "ready") == [leave(WORKER), leave(WORKER1)]


def test_a_task_given_up_while_the_servers_restart_is_told_when_they_are_up() -> None:
    world = together(restart={"attempts": 1, "exhausted": "continue"})
    world.exit(WORKER)
    world.wait(2, alive=ALL)
    world.exit(PS0)
    assert world.exit(WORKER) == []
    world.wait(2, alive=ALL)
    assert world.say(PS0, "ready") == [leave(WORKER)]


def test_a_task_that_dies_behind_its_last_step_is_not_waited_for() -> None:
    world = together()
    world.say(WORKER, "done", reason="steps_per_task", step=5, own_steps=5)
    assert world.exit(WORKER) == [leave(WORKER)]


def test_stopping_closes_the_updates_after_all_were_told() -> None:
    world = together()
    told = world.tell(StopAsked("Ctrl-C"))
    assert told == [*(TellTask(task, {"do": "stop", "reason": "Ctrl-C"}) for task in TRAINING), close("Ctrl-C")]


def test_the_happy_end() -> None:
    world = together()
    told = world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    assert told == [*(TellTask(task, {"do": "stop", "reason": "steps"}) for task in (WORKER, WORKER1)), close("steps")]
    for task in (WORKER, WORKER1):
        world.say(task, "done", reason="steps", step=100, own_steps=100)
    # They have said so themselves, but a server may have been too slow to hear it.
    assert world.exit(WORKER, 0) == [leave(WORKER)]
    assert world.exit(WORKER1, 0) == [leave(WORKER1), TellTask(CHIEF, {"do": "finalize"})]
    world.exit(CHIEF, 0)
    assert world.exit(PS0, -15) == [End("finished", "steps")]


def test_servers_that_are_away_when_training_stops_are_told_when_the_chief_is_back() -> None:
    world = together()
    world.exit(CHIEF)
    world.exit(PS0)
    told = world.tell(StopAsked("Ctrl-C"))
    assert not any(isinstance(action, TellTask) and action.task == PS0 for action in told)
    world.wait(2, alive=[WORKER, WORKER1])
    world.say(PS0, "ready")
    world.say(CHIEF, "ready")
    assert world.say(CHIEF, "joined", step=4) == [TellTask(CHIEF, {"do": "stop", "reason": "Ctrl-C"}), close("Ctrl-C")]


def test_no_other_strategy_is_told_to_leave_or_to_close() -> None:
    world = running(restart={"attempts": 0, "exhausted": "continue"})
    world.exit(WORKER)
    world.tell(StopAsked("Ctrl-C"))
    assert not any(isinstance(action, TellTask) and action.task == PS0 for action in world.actions)


# --- one client ----------------------------------------------------------------------------------------------
def in_graph(**changes: Any) -> World:
    return together(strategy={"kind": "ps-sync", "replication": "in_graph"}, **changes)


def stop(task: Task, reason: str) -> TellTask:
    return TellTask(task, {"do": "stop", "reason": reason})


def test_a_client_ends_its_step_before_those_who_compute_for_it_are_told_to_stop() -> None:
    world = in_graph()
    assert world.tell(StopAsked("Ctrl-C")) == [stop(CHIEF, "Ctrl-C"), close("Ctrl-C")]
    told = world.say(CHIEF, "done", reason="stopped: Ctrl-C", step=6, own_steps=6)
    assert told == [stop(WORKER, "Ctrl-C"), stop(WORKER1, "Ctrl-C"), close("Ctrl-C")]
    for task in (WORKER, WORKER1):
        world.say(task, "done", reason="stopped: Ctrl-C", step=6, own_steps=6)
        last = world.exit(task, 0)
    assert last == [leave(WORKER1), TellTask(CHIEF, {"do": "finalize"})]


@pytest.mark.parametrize("reason", ["steps", "steps_per_task"])
def test_whatever_ends_the_client_ends_those_who_compute_for_it(reason: str) -> None:
    told = in_graph().say(CHIEF, "done", reason=reason, step=100, own_steps=100)
    assert told == [stop(WORKER, reason), stop(WORKER1, reason), close(reason)]


def test_while_the_client_is_to_stop_it_still_needs_a_task_that_dies() -> None:
    world = in_graph()
    world.tell(StopAsked("Ctrl-C"))
    world.exit(WORKER)
    assert starts(world.wait(2, alive=[CHIEF, WORKER1, PS0])) == {WORKER}
    world.up(WORKER)
    assert world.phase(WORKER) == "training"
    world.say(CHIEF, "done", reason="stopped: Ctrl-C", step=6, own_steps=6)
    assert world.exit(WORKER1) == [leave(WORKER1)]  # now nobody needs it any more
    assert world.phase(WORKER1) == "ended"


def test_a_task_that_waits_to_be_started_is_left_out_when_the_client_is_done() -> None:
    world = in_graph()
    world.exit(WORKER)
    assert world.phase(WORKER) == "waiting"
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    assert world.phase(WORKER) == "ended"


# --- deaths --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("task", [CHIEF, WORKER])
def test_a_dead_training_task_is_started_again_alone(task: Task) -> None:
    world = together()
    assert world.exit(task) == []
    assert starts(world.wait(2, alive=ALL)) == {task}
    world.up(task)
    if task == CHIEF:
        world.say(CHIEF, "initialized", how="adopted", step=world.step, generation=1)
    assert not world.has_note("rollback")
    assert world.restarts(*ALL) == [int(each == task) for each in ALL]


def test_a_dead_server_takes_all_servers_with_it() -> None:
    world = together(cluster={"chief": 1, "worker": 2, "ps": 2})
    assert world.exit(PS1) == [SignalTask(PS0, KILL)]
    world.exit(PS0)
    assert starts(world.wait(2, alive=TRAINING)) == {PS0, PS1}
    assert [world.phase(task) for task in TRAINING] == ["training"] * 3


def test_a_rollback_counts_from_the_last_update_even_if_no_task_has_told_it_yet() -> None:
    world = together()
    world.say(PS0, "update", step=8, tasks=[], dropped=[], generation=1)
    world.exit(PS0)
    world.wait(2, alive=TRAINING)
    world.up(PS0)
    world.say(CHIEF, "initialized", how="restored", step=5, generation=2)
    assert world.note("rollback") == {"step_before": 8, "step": 5, "steps_lost": 3}
