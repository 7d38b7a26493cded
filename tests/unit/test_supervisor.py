"""The supervisor without processes or clocks: events in, actions out."""

from __future__ import annotations

import signal

import pytest
from supervising import CHIEF, EVALUATOR, KILL, PS0, PS1, WORKER, World, closing, kills, running

from headway.launch.messages import (
    AgentLost,
    End,
    NewNodes,
    Regroup,
    SignalTask,
    StartTask,
    StopAsked,
    TaskExited,
    TellTask,
    Tick,
)
from headway.launch.taskstate import History

ALL = [CHIEF, WORKER, PS0, PS1]


def test_everything_is_started_at_once_with_attempt_0() -> None:
    started = [action for action in World().tell(Tick()) if isinstance(action, StartTask)]
    assert [(action.task, action.attempt) for action in started] == [(task, 0) for task in ALL]


def test_the_run_is_running_when_a_training_task_joins() -> None:
    assert running().supervisor.state == "running"


def test_the_happy_end() -> None:
    """Chief done -> others stop -> chief finalizes -> servers end -> finished. In this order."""
    world = running()
    assert world.say(CHIEF, "done", reason="steps", step=100, own_steps=50) == [
        TellTask(WORKER, {"do": "stop", "reason": "steps"})
    ]
    assert world.say(WORKER, "done", reason="stopped: steps", step=101, own_steps=51) == []
    assert world.exit(WORKER, 0) == [TellTask(CHIEF, {"do": "finalize"})]
    stopped = world.exit(CHIEF, 0)
    assert stopped == [SignalTask(PS0, signal.SIGTERM), SignalTask(PS1, signal.SIGTERM)]
    assert world.exit(PS0, -signal.SIGTERM) == []
    assert world.exit(PS1, -signal.SIGTERM) == [End("finished", "steps")]
    assert all(note.fields["expected"] for note in world.notes if note.kind == "task_exited")


def test_steps_per_task_lets_every_task_finish_its_own() -> None:
    world = running()
    assert world.say(CHIEF, "done", reason="steps_per_task", step=50, own_steps=50) == []
    world.wait(60, alive=ALL)
    assert world.phase(CHIEF) == "done"
    world.say(WORKER, "done", reason="steps_per_task", step=100, own_steps=50)
    assert world.exit(WORKER, 0) == [TellTask(CHIEF, {"do": "finalize"})]


def test_a_worker_that_does_not_stop_in_time_is_killed_and_the_chief_finalizes() -> None:
    world = running(limits={"stop": 5})
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=50)
    assert SignalTask(WORKER, KILL) in world.wait(6, alive=ALL)
    assert world.exit(WORKER) == [TellTask(CHIEF, {"do": "finalize"})]


def test_a_chief_that_does_not_finalize_in_time_is_killed_and_started_again() -> None:
    world = running(limits={"finish": 20})
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=50)
    world.say(WORKER, "done", reason="stopped: steps", step=100, own_steps=50)
    world.exit(WORKER, 0)
    assert SignalTask(CHIEF, KILL) in world.wait(21, alive=ALL)
    world.exit(CHIEF)
    assert any(isinstance(action, StartTask) and action.task == CHIEF for action in world.wait(2, alive=[PS0, PS1]))


def test_a_dead_worker_is_started_again_and_the_others_are_left_alone() -> None:
    world = running()
    assert world.exit(WORKER) == []
    assert world.note("restarting")["reason"] == "signal SIGKILL"
    restarted = world.wait(2, alive=ALL)
    (start,) = restarted
    assert isinstance(start, StartTask)
    assert (start.task, start.attempt, start.own_steps) == (WORKER, 1, 5)
    assert start.trained_seconds == pytest.approx(1.0, abs=1)
    assert [world.phase(task) for task in (CHIEF, PS0, PS1)] == ["training", "ready", "ready"]


def test_restarts_are_delayed_more_and_more_and_end() -> None:
    world = running(restart={"attempts": 2, "delay": 4})
    world.exit(WORKER)
    assert world.wait(3, alive=ALL) == []
    assert len(world.wait(2, alive=ALL)) == 1
    world.up(WORKER)
    world.exit(WORKER)
    assert world.wait(7, alive=ALL) == []
    assert len(world.wait(2, alive=ALL)) == 1
    world.up(WORKER)
    killed = world.exit(WORKER)
    assert {action.task for action in killed if isinstance(action, SignalTask)} == {CHIEF, PS0, PS1}
    for task in (CHIEF, PS0):
        world.exit(task)
    assert world.exit(PS1) == [End("failed", "worker/0 failed after 2 restarts: signal SIGKILL")]


def test_no_delay_is_longer_than_half_a_minute() -> None:
    world = running(restart={"attempts": 9, "delay": 25})
    for _ in range(3):
        world.exit(WORKER)
        assert world.wait(24.5, alive=ALL) == []
        assert len(world.wait(6, alive=ALL)) == 1
        world.up(WORKER)


def test_what_would_fail_again_is_not_started_again() -> None:
    world = World()
    world.tell(Tick())
    world.up(CHIEF, PS0, PS1)
    world.say(WORKER, "failed", error="SiteError", message="no GPU here", hopeless=True)
    world.exit(WORKER, 1)
    world.exit(CHIEF)
    world.exit(PS0)
    assert world.exit(PS1) == [End("failed", "worker/0 failed: SiteError: no GPU here")]


def test_a_worker_may_be_given_up() -> None:
    world = running(restart={"attempts": 0, "exhausted": "continue"})
    assert world.exit(WORKER) == []
    assert world.phase(WORKER) == "given up"
    assert world.say(CHIEF, "done", reason="steps", step=100, own_steps=95) == [TellTask(CHIEF, {"do": "finalize"})]


def test_the_chief_is_never_given_up() -> None:
    world = running(restart={"attempts": 0, "exhausted": "continue"})
    world.exit(CHIEF)
    for task in (WORKER, PS0, PS1):
        world.exit(task)
    assert world.supervisor.end == End("failed", "chief/0 failed: signal SIGKILL")


def test_a_dead_chief_comes_back_and_adopts() -> None:
    world = running()
    world.exit(CHIEF)
    world.wait(2, alive=ALL)
    world.up(CHIEF)
    world.train(WORKER, 3)
    world.say(CHIEF, "initialized", how="adopted", step=world.step, generation=1)
    assert not world.has_note("rollback")
    assert world.phase(WORKER) == "training"


def test_a_dead_server_takes_all_servers_with_it_and_none_starts_before_all_are_gone() -> None:
    world = running()
    assert world.exit(PS0) == [SignalTask(PS1, KILL)]
    assert world.wait(5, alive=[CHIEF, WORKER, PS1]) == []
    again = world.exit(PS1)  # the delay counts from the death, and is over
    assert [(action.task, action.attempt) for action in again if isinstance(action, StartTask)] == [
        (PS0, 1),
        (PS1, 1),
    ]
    assert not any(isinstance(action, SignalTask) for action in again)
    # Only the one that failed has used up a restart.
    assert [world.supervisor.tasks[task].restarts for task in (PS0, PS1)] == [1, 0]


def test_a_rollback_is_recorded_with_the_steps_lost() -> None:
    world = running()
    world.train(CHIEF, 50)
    world.exit(PS1)
    world.exit(PS0)
    world.wait(3, alive=[CHIEF, WORKER])
    world.up(PS0, PS1)
    world.say(CHIEF, "initialized", how="restored", step=40, generation=2)
    assert world.note("rollback") == {"step_before": 60, "step": 40, "steps_lost": 20}
    # A late word from before the rollback does not count.
    world.say(WORKER, "step", step=61, num_steps=1, seconds=0.1, generation=1)
    assert world.supervisor.max_step == 40


def test_a_rollback_right_behind_a_checkpoint_loses_nothing_and_is_recorded_all_the_same() -> None:
    world = running()
    world.exit(PS1)
    world.exit(PS0)
    world.say(CHIEF, "initialized", how="restored", step=world.step, generation=2)
    assert world.note("rollback")["steps_lost"] == 0


def test_a_run_resumed_where_it_stopped_has_no_rollback() -> None:
    world = World(History(step=90))
    world.tell(Tick())
    world.say(CHIEF, "initialized", how="restored", step=90, generation=2)
    assert not world.has_note("rollback")


def test_waiting_for_servers_is_not_standing_still() -> None:
    world = running(limits={"stall": 20})
    world.exit(PS0)
    world.exit(PS1)
    world.wait(60, alive=[CHIEF, WORKER])
    assert not world.has_note("stalled")


def test_a_silent_task_is_killed() -> None:
    world = running(limits={"heartbeat": 5})
    assert SignalTask(WORKER, KILL) in world.wait(6, alive=[CHIEF, PS0, PS1])
    assert world.note("unresponsive")["task"] == "worker/0"
    world.exit(WORKER)
    assert "heartbeat" in world.note("restarting")["reason"]


def test_a_silent_server_is_killed_with_the_other() -> None:
    world = running(limits={"heartbeat": 5})
    assert world.wait(6, alive=[CHIEF, WORKER, PS1]) == [SignalTask(PS0, KILL)]
    assert world.exit(PS0) == [SignalTask(PS1, KILL)]


def test_a_slow_task_is_named_but_not_killed_and_goes_on() -> None:
    world = running()
    world.train(WORKER, 5)
    assert world.wait(60, alive=ALL) == []  # a step of 60 s
    assert world.note("stalled")["task"] in ("worker/0", "chief/0")
    world.train(WORKER)
    assert world.note("going_on")["task"] == "worker/0"


def test_a_task_with_slow_steps_is_not_called_stalled() -> None:
    world = running()
    for task in (CHIEF, WORKER):
        world.train(task, steps=10, seconds=60)
    assert world.wait(179, alive=ALL) == []
    assert not world.has_note("stalled")
    world.wait(2, alive=ALL)  # 3 median steps are 180 s
    assert world.note("stalled")["median_step"] == 60


def test_a_task_that_evaluates_is_not_called_stalled() -> None:
    world = running()
    world.say(CHIEF, "evaluating", step=10)
    world.wait(60, alive=ALL)
    assert all(note.fields["task"] != "chief/0" for note in world.notes if note.kind == "stalled")


def test_standing_still_beyond_the_limit_is_a_failure() -> None:
    world = running(limits={"stall": 30})
    killed = world.wait(31, alive=ALL)
    assert SignalTask(WORKER, KILL) in killed
    world.exit(WORKER)
    assert "limits.stall" in world.note("restarting")["reason"]


def test_a_task_that_never_gets_ready_is_killed() -> None:
    world = World(limits={"start": 20})
    world.tell(Tick())
    world.up(CHIEF, WORKER, PS0)
    assert SignalTask(PS1, KILL) in world.wait(21, alive=[CHIEF, WORKER, PS0])


def test_a_taken_port_moves_everything_to_new_ports() -> None:
    world = World()
    world.tell(Tick())
    world.up(CHIEF, PS0, PS1)
    world.say(WORKER, "failed", error="PortTaken", message="port 4711", port_taken=True)
    killed = world.exit(WORKER, 1)
    assert {action.task for action in killed if isinstance(action, SignalTask)} == {CHIEF, PS0, PS1}
    world.exit(CHIEF)
    world.exit(PS0)
    (regroup,) = world.exit(PS1)
    assert isinstance(regroup, Regroup)
    again = world.tell(NewNodes())
    assert {action.task for action in again if isinstance(action, StartTask)} == set(ALL)


def test_a_lost_agent_is_replaced_and_all_its_tasks_with_it() -> None:
    world = running()
    (regroup,) = world.tell(AgentLost("it was killed"))
    assert isinstance(regroup, Regroup)
    assert world.wait(5) == []  # nothing starts without a node
    started = [action for action in world.tell(NewNodes()) if isinstance(action, StartTask)]
    assert [(action.task, action.attempt) for action in started] == [(task, 1) for task in ALL]


def test_of_several_nodes_only_the_lost_ones_tasks_have_died() -> None:
    world = running()
    assert world.tell(AgentLost("power cut", (WORKER,))) == []
    assert world.supervisor.tasks[WORKER].restarts == 1
    assert [action.task for action in world.wait(1.5) if isinstance(action, StartTask)] == [WORKER]
    assert world.supervisor.tasks[CHIEF].phase == "training"


def test_a_lost_node_with_a_server_takes_the_other_servers_along() -> None:
    world = running()
    killed = world.tell(AgentLost("power cut", (PS0,)))
    assert [action.task for action in killed if isinstance(action, SignalTask)] == [PS1]


def test_a_task_without_memory_says_so() -> None:
    world = running(restart={"attempts": 0})
    assert world.tell(TaskExited(WORKER, 0, -signal.SIGKILL, out_of_memory=True))
    assert "no more memory" in (world.supervisor.end.reason if world.supervisor.end else "")


def test_agents_that_keep_dying_end_the_run() -> None:
    world = running(restart={"attempts": 1})
    world.tell(AgentLost("once"))
    world.tell(NewNodes())
    assert world.tell(AgentLost("twice")) == [End("failed", "twice")]


def test_stopping_in_order_goes_the_same_way_as_the_happy_end() -> None:
    world = running()
    told = world.tell(StopAsked("Ctrl-C"))
    assert told == [TellTask(task, {"do": "stop", "reason": "Ctrl-C"}) for task in (CHIEF, WORKER)]
    world.say(WORKER, "done", reason="stopped: Ctrl-C", step=10, own_steps=5)
    world.exit(WORKER, 0)
    assert world.say(CHIEF, "done", reason="stopped: Ctrl-C", step=10, own_steps=5) == [
        TellTask(CHIEF, {"do": "finalize"})
    ]
    world.exit(CHIEF, 0)
    world.exit(PS0, -signal.SIGTERM)
    assert world.exit(PS1, -signal.SIGTERM) == [End("stopped", "Ctrl-C")]


def test_a_second_stop_kills() -> None:
    world = running()
    world.tell(StopAsked("Ctrl-C"))
    killed = world.tell(StopAsked("Ctrl-C", at_once=True))
    assert killed == [SignalTask(task, KILL) for task in ALL]
    for task in (CHIEF, WORKER, PS0):
        world.exit(task)
    assert world.exit(PS1) == [End("stopped", "Ctrl-C")]


def test_stopping_before_training_has_begun_needs_no_finalizing() -> None:
    world = World()
    world.tell(Tick())
    assert world.tell(StopAsked("Ctrl-C")) == [SignalTask(task, KILL) for task in ALL]


def test_a_chief_that_died_while_stopping_is_told_again() -> None:
    world = running()
    world.tell(StopAsked("headway stop"))
    world.say(WORKER, "done", reason="stopped", step=10, own_steps=5)
    world.exit(WORKER, 0)
    world.exit(CHIEF)
    world.wait(2, alive=[PS0, PS1])
    world.say(CHIEF, "ready", pid=1)
    assert world.say(CHIEF, "joined", step=10) == [TellTask(CHIEF, {"do": "stop", "reason": "headway stop"})]


def test_a_worker_that_dies_while_stopping_stays_dead() -> None:
    world = running()
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=50)
    assert world.exit(WORKER) == [TellTask(CHIEF, {"do": "finalize"})]
    assert world.phase(WORKER) == "ended"


def test_the_evaluators_accuracy_stops_training() -> None:
    world = running(
        cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
        workload={
            "model": "softmax",
            "dataset": "synthetic",
            "stop": {"steps": 100, "accuracy": 0.9},
            "evaluate": {"every": 10},
        },
    )
    assert world.say(EVALUATOR, "evaluation", accuracy=0.8, step=10) == []
    told = world.say(EVALUATOR, "evaluation", accuracy=0.95, step=20)
    assert told == [TellTask(task, {"do": "stop", "reason": "accuracy"}) for task in (CHIEF, WORKER)]


def test_a_broken_evaluator_does_not_break_training() -> None:
    world = running(cluster={"chief": 1, "ps": 1, "evaluator": 1}, restart={"attempts": 0})
    world.exit(EVALUATOR, 1)
    assert world.note("given_up")["task"] == "evaluator/0"
    assert world.phase(CHIEF) == "training"


def test_a_resumed_run_goes_on_counting() -> None:
    world = World(History(attempts={WORKER: 2}, own_steps={WORKER: 40}, step=90, trained_seconds=12.0))
    started = {action.task: action for action in world.tell(Tick()) if isinstance(action, StartTask)}
    assert started[WORKER] == StartTask(WORKER, 3, own_steps=40, trained_seconds=12.0)
    assert started[CHIEF].attempt == 0
    world.up(*ALL)
    world.say(CHIEF, "initialized", how="restored", step=80, generation=2)
    assert world.note("rollback")["steps_lost"] == 10


def test_news_of_an_earlier_attempt_is_ignored() -> None:
    world = running()
    world.exit(WORKER)
    world.wait(2, alive=ALL)
    assert world.tell(TaskExited(WORKER, 0, -KILL)) == []
    assert world.phase(WORKER) == "starting"


def test_killed_tasks_that_do_not_end_are_a_lost_node() -> None:
    """A frozen agent kills nothing: the run must not wait for it for ever."""
    world = running(limits={"heartbeat": 5})
    world.wait(6)
    assert any(isinstance(action, Regroup) for action in world.wait(11))


def test_a_stop_while_the_chief_restarts_waits_for_it_to_join() -> None:
    """Told before, it would end without having seen what the servers hold."""
    world = running()
    world.exit(CHIEF)
    world.wait(2, alive=ALL)
    assert world.phase(CHIEF) == "starting"
    assert world.tell(StopAsked("Ctrl-C")) == [TellTask(WORKER, {"do": "stop", "reason": "Ctrl-C"})]
    world.say(CHIEF, "ready", pid=1)
    assert world.say(CHIEF, "joined", step=10) == [TellTask(CHIEF, {"do": "stop", "reason": "Ctrl-C"})]


def test_a_server_dying_while_the_chief_waits_for_the_others_restarts_the_chief_too() -> None:
    """With steps_per_task the others still train, and only a chief restores servers."""
    world = running()
    world.say(CHIEF, "done", reason="steps_per_task", step=50, own_steps=50)
    assert set(world.exit(PS0)) == {SignalTask(PS1, KILL), SignalTask(CHIEF, KILL)}
    actions = world.exit(PS1) + world.exit(CHIEF) + world.wait(3, alive=[WORKER, CHIEF])
    assert {action.task for action in actions if isinstance(action, StartTask)} == {PS0, PS1, CHIEF}
    assert world.supervisor.tasks[CHIEF].restarts == 0


def test_a_chief_that_comes_back_after_a_lost_agent_is_told_to_stop_again() -> None:
    world = running()
    world.tell(StopAsked("Ctrl-C"))
    world.say(WORKER, "done", reason="stopped", step=10, own_steps=5)
    world.exit(WORKER, 0)
    world.say(CHIEF, "done", reason="stopped", step=10, own_steps=5)
    world.tell(AgentLost("killed"))
    world.tell(NewNodes())
    world.say(CHIEF, "ready", pid=1)
    assert world.say(CHIEF, "joined", step=10) == [TellTask(CHIEF, {"do": "stop", "reason": "Ctrl-C"})]


def test_a_servers_taken_port_moves_everything_too() -> None:
    world = World()
    world.tell(Tick())
    world.up(CHIEF, WORKER, PS1)
    world.say(PS0, "failed", error="PortTaken", message="port 4711", port_taken=True)
    killed = world.exit(PS0, 1)
    assert {action.task for action in killed if isinstance(action, SignalTask)} == {CHIEF, WORKER, PS1}


def test_nothing_is_started_while_the_run_closes() -> None:
    world = closing(cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
    world.exit(EVALUATOR, 1)
    world.exit(CHIEF, 0)
    assert world.wait(20, alive=[PS0]) == []
    assert world.exit(PS0, -signal.SIGTERM) == [End("finished", "steps")]


def test_an_agent_lost_while_the_run_closes_is_no_failure() -> None:
    world = closing(restart={"attempts": 0})
    world.exit(CHIEF, 0)
    assert world.tell(AgentLost("killed")) == [End("finished", "steps")]


def test_an_evaluator_that_alone_could_end_the_run_is_not_given_up() -> None:
    workload = {
        "model": "softmax",
        "dataset": "synthetic",
        "stop": {"accuracy": 0.9},
        "evaluate": {"every": 10},
    }
    world = running(cluster={"chief": 1, "ps": 1, "evaluator": 1}, restart={"attempts": 0}, workload=workload)
    world.exit(EVALUATOR, 1)
    assert world.supervisor.end == End("failed", "evaluator/0 failed: exit code 1")


def test_a_real_time_signal_has_no_name_but_is_told() -> None:
    world = running()
    world.exit(WORKER, -40)
    assert world.note("task_exited")["reason"] == "signal 40"


def test_late_news_of_a_lost_task_does_not_bring_it_back() -> None:
    world = running()
    world.tell(AgentLost("frozen"))
    world.say(WORKER, "joined", step=3, attempt=0)
    assert world.phase(WORKER) == "waiting"
    world.tell(NewNodes())
    world.say(WORKER, "done", reason="steps", step=3, attempt=0)
    assert world.phase(WORKER) == "starting"


def test_after_the_end_nothing_is_done() -> None:
    world = World()
    world.tell(StopAsked("x"))
    assert world.supervisor.state == "ended"
    assert world.tell(Tick()) == []


def test_a_chief_that_has_ended_training_is_not_killed_for_the_slowness_of_others() -> None:
    world = running(limits={"stop": 5})
    world.train(WORKER, seconds=2.0)  # it gets more time to end than the chief
    world.tell(StopAsked("Ctrl-C"))
    world.say(CHIEF, "done", reason="stopped: Ctrl-C", step=11, own_steps=5)
    assert kills(world.wait(30, alive=ALL)) == {WORKER}
    assert world.exit(WORKER) == [TellTask(CHIEF, {"do": "finalize"})]


def test_a_worker_that_dies_after_its_last_step_is_not_started_again() -> None:
    world = running()
    world.say(WORKER, "done", reason="steps_per_task", step=20, own_steps=10)
    world.exit(WORKER)
    assert world.phase(WORKER) == "ended"
    assert world.wait(5, alive=ALL) == []


def test_a_silent_task_is_named_long_before_it_is_killed_and_only_once() -> None:
    world = running(limits={"heartbeat": 60})
    others = [task for task in ALL if task != WORKER]
    assert world.wait(20, alive=others) == []
    assert [note.fields["task"] for note in world.notes if note.kind == "silent"] == ["worker/0"]
    assert world.note("silent")["seconds"] <= 6
    world.wait(1, alive=ALL)
    assert world.note("going_on")["task"] == "worker/0"
    world.wait(6, alive=others)
    assert len([note for note in world.notes if note.kind == "silent"]) == 2


def test_silence_is_named_at_half_of_a_short_limit() -> None:
    world = running(limits={"heartbeat": 6})
    assert world.wait(4, alive=[CHIEF, PS0, PS1]) == []
    assert world.note("silent")["task"] == "worker/0"


def test_a_training_task_that_never_begins_to_train_is_killed() -> None:
    world = World(limits={"start": 20})
    world.tell(Tick())
    world.up(PS0, PS1, CHIEF)
    world.say(WORKER, "ready")
    assert kills(world.wait(39, alive=ALL)) == set()
    assert kills(world.wait(3, alive=ALL)) == {WORKER}


def test_a_checkpoint_newer_than_the_last_recorded_step_is_no_negative_loss() -> None:
    """A killed worker's last rows are missing from the record; the checkpoint has its updates."""
    world = running()
    world.exit(PS1)
    world.exit(PS0)
    world.say(CHIEF, "initialized", how="restored", step=12, generation=2)
    assert world.note("rollback") == {"step_before": 12, "step": 12, "steps_lost": 0}
