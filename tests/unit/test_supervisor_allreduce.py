"""The supervisor under allreduce: the training tasks hold the variables, and one that dies breaks the ring of all."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from supervising import (
    CHIEF,
    EVALUATOR,
    GONE,
    RING,
    WORKER,
    WORKER1,
    World,
    cut_off,
    kills,
    ring,
    ring_again,
    starts,
)

from headway.launch.messages import Action, End, Tick


# --- one dies ------------------------------------------------------------------------------------------------
def test_a_dead_member_takes_the_ring_with_it_and_none_starts_before_all_are_gone() -> None:
    world = ring()
    assert world.exit(WORKER) == []  # the others have their last steps to write
    assert cut_off(world, CHIEF) == []
    assert kills(cut_off(world, WORKER1)) == {CHIEF, WORKER1}
    assert world.exit(CHIEF) == []
    assert world.wait(5, alive=[WORKER1]) == []
    assert starts(world.exit(WORKER1)) == set(RING)
    assert world.restarts(*RING) == [0, 1, 0]
    assert world.note("restarting") == {"task": "worker/0", "reason": "signal SIGKILL", "restart": 1, "allowed": 3}


def test_members_that_do_not_notice_the_death_are_not_waited_for_long() -> None:
    world = ring()
    world.say(CHIEF, "evaluating", step=5)
    world.exit(WORKER)
    cut_off(world, WORKER1)
    assert kills(world.wait(1.5, alive=[CHIEF, WORKER1])) == {CHIEF, WORKER1}


@pytest.mark.parametrize("task", [CHIEF, WORKER])
def test_a_member_that_dies_while_all_start_needs_no_last_words(task: Any) -> None:
    world = World(strategy="allreduce", cluster={"chief": 1, "worker": 2})
    world.tell(Tick())
    assert kills(world.exit(task)) == set(RING) - {task}


def test_the_last_steps_of_the_survivors_count_for_the_steps_lost() -> None:
    world = ring()
    world.exit(WORKER)
    world.train_together([CHIEF, WORKER1])  # written, but not read yet, when the worker died
    cut_off(world, CHIEF, WORKER1)
    world.exit(CHIEF)
    world.exit(WORKER1)
    world.wait(2)
    ring_again(world, step=4)
    assert world.note("rollback") == {"step_before": 6, "step": 4, "steps_lost": 2}
    assert world.supervisor.max_step == 4


def test_own_steps_are_counted_over_all_attempts() -> None:
    world = ring()
    world.exit(WORKER)
    cut_off(world, CHIEF, WORKER1)
    world.exit(CHIEF)
    world.exit(WORKER1)
    world.wait(2)
    ring_again(world, step=3)
    world.train_together(RING, steps=4, generation=2)
    assert [world.supervisor.tasks[task].own_steps for task in RING] == [9, 9, 9]
    assert world.supervisor.max_step == 7


def test_delay_and_limit_count_the_restarts_of_the_whole_ring() -> None:
    """Whichever of them died: else a ring of n could be started again n times as often."""
    world = ring(restart={"attempts": 2, "delay": 4})

    def die(task: Any) -> list[Action]:
        world.exit(task)
        actions = cut_off(world, *(other for other in RING if other != task))
        return actions + [action for other in RING if other != task for action in world.exit(other)]

    die(WORKER)
    assert starts(world.wait(3.5)) == set()
    assert starts(world.wait(1)) == set(RING)
    ring_again(world)
    die(CHIEF)
    assert starts(world.wait(7.5)) == set()
    assert starts(world.wait(1)) == set(RING)
    ring_again(world, generation=3)
    assert die(WORKER)[-1] == End("failed", "worker/0 failed after 2 restarts: signal SIGKILL")


def test_a_dead_evaluator_is_started_again_alone() -> None:
    world = ring(cluster={"chief": 1, "worker": 2, "evaluator": 1})
    world.exit(EVALUATOR)
    assert world.wait(1, alive=RING) == [action for action in world.actions if starts([action]) == {EVALUATOR}][1:]
    assert world.phase(CHIEF) == "training"


# --- whose fault was it? -------------------------------------------------------------------------------------
def test_a_survivor_whose_end_is_reported_first_is_not_to_blame() -> None:
    world = ring()
    cut_off(world, CHIEF)
    world.say(CHIEF, "failed", error="UnavailableError", message="a collective broke")
    assert world.exit(CHIEF, 1) == []
    assert world.wait(2, alive=[WORKER, WORKER1]) == []
    world.exit(WORKER1)
    world.wait(1.5, alive=[WORKER])
    assert world.restarts(*RING) == [0, 0, 1]
    assert world.note("restarting")["task"] == "worker/1"


def test_a_survivor_that_failed_without_a_word_before_the_death_was_known_is_not_to_blame() -> None:
    world = ring()
    world.say(CHIEF, "failed", error="InternalError", message="RecvTensor failed")
    world.exit(CHIEF, 1)
    world.exit(WORKER)
    cut_off(world, WORKER1)
    assert world.restarts(*RING) == [0, 1, 0]


def test_a_survivor_that_aborts_is_not_to_blame() -> None:
    world = ring()
    world.exit(CHIEF, -signal.SIGABRT)
    world.exit(WORKER)
    cut_off(world, WORKER1)
    assert world.restarts(*RING) == [0, 1, 0]


def test_a_survivor_that_ends_after_the_verdict_is_a_bystander() -> None:
    world = ring()
    world.exit(WORKER)
    cut_off(world, CHIEF, WORKER1)
    world.say(CHIEF, "disconnected", error=GONE)  # said before the signal reached it
    world.say(CHIEF, "failed", error="UnavailableError", message="a collective broke")
    world.exit(CHIEF, 1)
    assert starts(world.exit(WORKER1) + world.wait(2)) == set(RING)
    assert world.restarts(*RING) == [0, 1, 0]


def test_a_member_that_failed_by_itself_is_to_blame_when_no_other_did() -> None:
    world = ring()
    world.say(WORKER, "failed", error="ValueError", message="no such thing")
    world.exit(WORKER, 1)
    assert kills(cut_off(world, CHIEF, WORKER1)) == {CHIEF, WORKER1}  # everybody has spoken: no need to wait
    assert world.note("restarting")["reason"] == "ValueError: no such thing"


def test_two_members_that_die_at_once_cost_one_restart() -> None:
    world = ring()
    world.exit(WORKER)
    world.exit(WORKER1)
    assert kills(cut_off(world, CHIEF)) == {CHIEF}
    assert starts(world.exit(CHIEF) + world.wait(2)) == set(RING)
    assert world.restarts(*RING) == [0, 1, 0]


def test_all_dying_at_once_cost_one_restart() -> None:
    world = ring()
    for task in RING:
        world.exit(task)
    assert starts(world.wait(2)) == set(RING)
    assert world.restarts(*RING) == [1, 0, 0]


def test_a_member_that_dies_while_the_others_start_again_counts_for_itself() -> None:
    world = ring()
    for task in RING:
        world.exit(task)
    world.wait(2)
    assert kills(world.exit(WORKER1)) == {CHIEF, WORKER}
    world.exit(CHIEF)
    assert starts(world.exit(WORKER) + world.wait(2)) == set(RING)
    assert world.restarts(*RING) == [1, 0, 1]


def test_a_death_that_is_known_late_clears_the_one_that_was_sentenced() -> None:
    world = ring()
    cut_off(world, WORKER)
    assert kills(world.wait(5.5, alive=RING)) == {WORKER}
    assert kills(world.exit(CHIEF)) == {WORKER1}  # the grace is long over
    world.exit(WORKER)
    assert starts(world.exit(WORKER1) + world.wait(2)) == set(RING)
    assert world.restarts(*RING) == [1, 0, 0]


# --- nobody dies ---------------------------------------------------------------------------------------------
def test_a_collective_that_breaks_though_nobody_died_restarts_all_and_names_who_said_so() -> None:
    world = ring()
    cut_off(world, WORKER)
    assert kills(world.wait(4, alive=RING)) == set()
    assert kills(world.wait(1.5, alive=RING)) == {WORKER}
    assert kills(world.exit(WORKER)) == {CHIEF, WORKER1}
    assert GONE in world.note("restarting")["reason"]
    assert world.restarts(*RING) == [0, 1, 0]


def test_all_cut_off_and_nobody_dead_need_no_grace() -> None:
    world = ring()
    assert kills(cut_off(world, *RING)) == {CHIEF}
    assert kills(world.exit(CHIEF)) == {WORKER, WORKER1}
    assert world.restarts(*RING) == [1, 0, 0]


def test_a_cut_off_member_that_ends_itself_is_to_blame_if_nobody_else_can_be() -> None:
    world = ring()
    cut_off(world, CHIEF)
    world.exit(CHIEF, 1)
    assert kills(world.wait(5.5, alive=[WORKER, WORKER1])) == {WORKER, WORKER1}
    assert world.restarts(*RING) == [1, 0, 0]


def test_a_frozen_member_is_to_blame_not_those_it_cut_off() -> None:
    """SIGSTOP: the others' collectives break after about 6 s, before a long limits.heartbeat is reached."""
    world = ring(limits={"heartbeat": 60})
    world.wait(6, alive=[CHIEF, WORKER1])
    assert world.note("silent")["task"] == "worker/0"
    cut_off(world, CHIEF)
    cut_off(world, WORKER1)
    assert kills(world.actions) == {WORKER}
    assert kills(world.exit(WORKER)) == {CHIEF, WORKER1}
    assert "no heartbeat" in world.note("restarting")["reason"]
    assert world.restarts(*RING) == [0, 1, 0]


def test_a_member_without_heartbeat_breaks_the_ring_by_its_limit() -> None:
    world = ring(limits={"heartbeat": 5})
    assert kills(world.wait(6, alive=[CHIEF, WORKER1])) == {WORKER}
    world.exit(WORKER)
    assert kills(cut_off(world, CHIEF, WORKER1)) == {CHIEF, WORKER1}
    assert "limits.heartbeat" in world.note("restarting")["reason"]


def test_a_killed_member_that_ended_itself_before_the_signal_came_is_known_to_be_dead() -> None:
    world = ring(limits={"heartbeat": 5})
    world.wait(6, alive=[CHIEF, WORKER1])
    world.exit(WORKER, 1)
    assert kills(world.wait(1.5, alive=[CHIEF, WORKER1])) == {CHIEF, WORKER1}


def test_a_ring_that_stands_still_is_restarted_once() -> None:
    world = ring(limits={"stall": 30})
    assert len(kills(world.wait(31, alive=RING))) == 1
    assert {note.fields["task"] for note in world.notes if note.kind == "stalled"} == {str(task) for task in RING}
    world.exit(CHIEF)
    assert kills(world.wait(1.5, alive=RING)) == {WORKER, WORKER1}
    world.exit(WORKER)
    assert starts(world.exit(WORKER1) + world.wait(2)) == set(RING)
    assert sum(world.restarts(*RING)) == 1
    assert "limits.stall" in world.note("restarting")["reason"]


def test_waiting_for_a_busy_member_is_not_standing_still() -> None:
    world = ring(limits={"stall": 100})
    world.say(CHIEF, "evaluating", step=5)
    assert world.wait(90, alive=RING) == []
    assert not world.has_note("stalled")
    world.say(CHIEF, "evaluation", step=5, loss=1.0)
    assert world.wait(9, alive=RING) == []
    assert not world.has_note("stalled")
    assert kills(world.wait(95, alive=RING)) == {CHIEF}


def test_a_member_busy_beyond_the_limit_breaks_the_ring() -> None:
    world = ring(limits={"stall": 30})
    world.say(CHIEF, "saving", step=5)
    assert kills(world.wait(32, alive=RING)) == {CHIEF}
