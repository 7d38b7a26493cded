"""The supervisor when the variables are lost behind the last step: the end of training is taken back."""

from __future__ import annotations

from supervising import CHIEF, PS0, PS1, WORKER, WORKER1, closing, kills, running, starts

from headway.launch.messages import AgentLost, End, NewNodes, StopAsked, TellTask

ALL = [CHIEF, WORKER, PS0, PS1]


def test_servers_lost_before_the_chief_could_save_take_the_end_of_training_back() -> None:
    """It would else be called finished with fewer steps than asked."""
    world = running()
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=50)
    assert kills(world.exit(PS0)) == {PS1, CHIEF, WORKER}
    assert (world.supervisor.state, world.supervisor.stop_reason) == ("running", None)
    for task in (PS1, CHIEF, WORKER):
        world.exit(task)
    assert starts(world.wait(2)) == {PS0, PS1, CHIEF, WORKER}
    world.up(PS0, PS1, CHIEF)
    world.say(CHIEF, "initialized", how="restored", step=60, generation=2)
    world.up(WORKER)
    assert not any(isinstance(action, TellTask) and action.message["do"] == "finalize" for action in world.actions)
    assert world.restarts(PS0, PS1, CHIEF, WORKER) == [1, 0, 0, 0]


def test_a_worker_that_had_ended_comes_back_when_the_end_is_taken_back() -> None:
    cluster = {"chief": 1, "worker": 2, "ps": 1}
    world = running(cluster=cluster)
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=50)
    world.say(WORKER, "done", reason="stopped: steps", step=100, own_steps=50)
    world.exit(WORKER, 0)
    assert kills(world.exit(PS0)) == {CHIEF, WORKER1}
    assert world.exit(CHIEF) + world.exit(WORKER1) == []
    assert starts(world.wait(2)) == {CHIEF, WORKER, WORKER1, PS0}


def test_servers_lost_while_the_chief_finalizes_do_not_disturb_it() -> None:
    world = closing()
    assert kills(world.exit(PS0)) == {PS1}
    world.exit(PS1)
    world.wait(2, alive=[CHIEF])
    world.exit(CHIEF, 0)
    world.exit(PS0)
    assert world.exit(PS1) == [End("finished", "steps")]


def test_servers_and_chief_lost_while_it_finalizes_take_the_end_back() -> None:
    world = closing()
    world.exit(PS0)
    world.exit(PS1)
    world.exit(CHIEF)
    world.wait(2)
    world.up(PS0, PS1)
    world.say(CHIEF, "ready")
    assert starts(world.say(CHIEF, "initialized", how="restored", step=8, generation=2)) == {WORKER}
    assert world.say(CHIEF, "joined", step=8, generation=2) == []
    assert world.supervisor.state == "running"


def test_a_chief_that_lost_the_servers_before_its_last_snapshot_begins_anew_with_everybody() -> None:
    world = closing()
    world.exit(PS0)
    world.exit(PS1)
    world.say(CHIEF, "disconnected", error="gone")
    world.wait(2, alive=[CHIEF])
    world.up(PS0, PS1)
    again = world.say(CHIEF, "initialized", how="restored", step=8, generation=2)
    assert (kills(again), starts(again)) == ({CHIEF}, {WORKER})
    assert starts(world.exit(CHIEF)) == {CHIEF}
    assert world.restarts(CHIEF, WORKER) == [0, 0]


def test_servers_lost_right_behind_the_last_checkpoint_leave_the_end_as_it_is() -> None:
    world = closing()
    world.exit(PS0)
    world.exit(PS1)
    world.exit(CHIEF)
    world.wait(2)
    world.up(PS0, PS1)
    world.say(CHIEF, "ready")
    assert world.say(CHIEF, "initialized", how="restored", step=10, generation=2) == []
    assert world.say(CHIEF, "joined", step=10) == [TellTask(CHIEF, {"do": "stop", "reason": "steps"})]


def test_a_lone_chief_killed_before_it_could_save_trains_on_to_the_real_end() -> None:
    world = running(strategy="single", cluster={"chief": 1})
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    world.exit(CHIEF)
    world.wait(2)
    world.say(CHIEF, "ready")
    world.say(CHIEF, "initialized", how="restored", step=60, generation=2)
    assert world.say(CHIEF, "joined", step=60) == []
    assert world.supervisor.state == "running"


def test_a_users_stop_is_not_taken_back_even_if_it_came_after_the_end_of_training() -> None:
    world = running(strategy="single", cluster={"chief": 1})
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=100)
    world.tell(StopAsked("Ctrl-C"))
    world.exit(CHIEF)
    world.wait(2)
    world.say(CHIEF, "ready")
    assert world.say(CHIEF, "joined", step=60) == [TellTask(CHIEF, {"do": "stop", "reason": "Ctrl-C"})]
    world.say(CHIEF, "done", reason="stopped: Ctrl-C", step=60, own_steps=100)
    assert world.exit(CHIEF, 0) == [End("stopped", "Ctrl-C")]


def test_an_agent_lost_while_the_chief_finalizes_takes_the_end_back_too() -> None:
    world = closing()
    world.tell(AgentLost("killed"))
    assert starts(world.tell(NewNodes())) == set(ALL)
    assert world.supervisor.state == "running"


def test_who_was_given_up_stays_away_when_training_goes_on() -> None:
    world = running(cluster={"chief": 1, "worker": 2, "ps": 2}, restart={"attempts": 1, "exhausted": "continue"})
    for _ in range(2):
        world.exit(WORKER1)
        world.wait(3, alive=[CHIEF, WORKER, PS0, PS1])
        if world.phase(WORKER1) == "starting":
            world.up(WORKER1)
    assert world.phase(WORKER1) == "given up"
    world.say(CHIEF, "done", reason="steps", step=100, own_steps=50)
    world.exit(PS0)
    for task in (PS1, CHIEF, WORKER):
        world.exit(task)
    world.wait(3)
    assert world.phase(WORKER1) == "given up"
    assert world.phase(WORKER) == "starting"
