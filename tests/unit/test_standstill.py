"""Who is named and who is killed when a task stands still: every strategy, and users' programs, without processes.

In each case some tasks do something (`Manner`) for some time, and the agent reports of their processes what the kernel
would say: the supervisor must name who stands still, soon, and nobody else.
"""

from __future__ import annotations

import pytest
from standing import SETUPS, TICK, Lived, Manner, begun, behave, named, stand, under_way, victim_of
from supervising import CHIEF, EVALUATOR, KILL, PS0, PS1, WORKER, WORKER1, kills

from headway.cli.live import note_text
from headway.host.vitals import Vitals
from headway.launch.messages import Heartbeat, SignalTask, Tick


def report_missing(world: Lived) -> None:
    """ps-sync: what ps/0 says every 5 s while an update waits."""
    if world.supervisor.job.strategy.kind == "ps-sync":
        world.say(PS0, "blocked", step=world.step, missing=[str(victim_of(world))], seconds=5.0)


# --- stopped -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("setup", SETUPS)
def test_frozen_before_its_first_heartbeat(setup: str) -> None:
    world = begun(setup)
    victim = victim_of(world)
    world.up(*(task for task in world.supervisor.tasks if task != victim))
    killed = stand(world, 9.5, "stopped")
    assert named(world) == {str(victim)}
    assert world.note("stopped")["process"] == "python"
    assert world.supervisor.tasks[victim].trouble == "stopped"
    killed += stand(world, 2, "stopped")
    assert kills(killed) == {victim}
    world.exit(victim)
    behave(world, 2, {}, "waits")
    assert "stopped" in world.note("restarting")["reason"]
    assert world.note("restarting")["task"] == str(victim)


@pytest.mark.parametrize("manner", ["stopped", "stopped program"])
@pytest.mark.parametrize("setup", SETUPS)
def test_frozen_in_training(setup: str, manner: Manner) -> None:
    """Also where the process beside the program goes on, and its heartbeat with it."""
    world = under_way(setup)
    victim = victim_of(world)
    assert kills(stand(world, 9, manner)) == set()
    assert named(world) == {str(victim)}
    assert kills(stand(world, 2, manner)) == {victim}
    world.exit(victim)
    behave(world, 2, {}, "waits")
    assert world.note("restarting")["task"] == str(victim)
    assert named(world) == {str(victim)}


@pytest.mark.parametrize("setup", ["ps-async", "ps-sync"])
def test_a_frozen_server_is_named_and_nobody_who_waits_for_it(setup: str) -> None:
    world = under_way(setup)
    killed = behave(world, 9, {PS1: "stopped", CHIEF: "waits", WORKER: "waits"})
    assert kills(killed) == set()
    assert named(world) == {"ps/1"}
    killed = behave(world, 2, {PS1: "stopped", CHIEF: "waits", WORKER: "waits"})
    assert kills(killed) == {PS1}
    assert named(world) == {"ps/1"}


def test_a_stop_that_ends_in_time_is_forgiven() -> None:
    world = under_way("two programs")
    assert stand(world, 8, "stopped program") == []
    behave(world, 1, {})
    assert world.note("going_on")["task"] == "worker/0"
    assert behave(world, 30, {}) == []
    assert world.supervisor.tasks[WORKER].trouble is None


def test_what_a_debugger_holds_is_named_and_not_killed() -> None:
    world = under_way("ps-async")
    assert stand(world, 59, "debugged") == []
    assert world.note("stopped")["by_debugger"]
    assert note_text("stopped", world.note("stopped")) == "worker/0 is held by a debugger: process python, for 5.0 s"


def test_a_program_of_which_a_part_is_stopped_and_the_rest_goes_on_is_not_killed() -> None:
    """It still tells of its steps: the stopped one may be meant to be."""
    world = under_way("two programs")
    for _ in range(60):
        world.now += TICK
        for task in (CHIEF, WORKER):
            stopped = Vitals(stopped_for=world.now - 110, stopped="helper") if task == WORKER else Vitals()
            assert world.tell(Heartbeat(task, 0.0, stopped)) == []
            world.train(task, 1)
    assert named(world) == {"worker/0"}
    assert world.phase(WORKER) == "training"


def test_but_where_its_steps_end_it_is() -> None:
    world = under_way("two programs")
    assert kills(stand(world, 10.5, "half stopped")) == {WORKER}


def test_a_limit_set_by_the_user_holds_for_stopped_tasks_too() -> None:
    world = under_way("two programs", limits={"heartbeat": 300})
    assert kills(stand(world, 250, "stopped program")) == set()
    assert named(world) == {"worker/0"}
    assert world.note("stopped")["seconds"] == pytest.approx(5.0)


# --- no heartbeat --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("setup", SETUPS)
def test_hung_before_its_first_heartbeat_is_named_but_has_its_time_to_start(setup: str) -> None:
    world = begun(setup)
    victim = victim_of(world)
    world.up(*(task for task in world.supervisor.tasks if task != victim))
    assert kills(stand(world, 10, "hung")) == set()
    assert named(world) == {str(victim)}
    assert kills(stand(world, 100, "hung")) == set()


@pytest.mark.parametrize("manner", ["starved", "computes"])
def test_a_slow_start_on_a_busy_machine_is_nobodys_fault(manner: Manner) -> None:
    world = begun("ps-async")
    world.up(CHIEF, PS0, PS1)
    assert behave(world, 60, {WORKER: manner}) == []
    assert named(world) == set()


@pytest.mark.parametrize("setup", SETUPS)
def test_a_lost_heartbeat_in_training(setup: str) -> None:
    world = under_way(setup)
    victim = victim_of(world)
    assert kills(stand(world, 9, "hung")) == set()
    assert named(world) == {str(victim)}
    assert kills(stand(world, 2, "hung")) == {victim}


# --- alive, and without a step ---------------------------------------------------------------------------------
def restarted(setup: str) -> Lived:
    """The last training task was killed and is back; in a ring all are."""
    world = under_way(setup)
    victim = victim_of(world)
    world.exit(victim)
    for task in sorted(kills(behave(world, 3, {}, "waits"))):
        world.exit(task)
    behave(world, 3, {}, "waits")
    again = [task for task, state in world.supervisor.tasks.items() if state.phase == "starting"]
    assert victim in again
    world.up(*again)
    if CHIEF in again and not world.supervisor.job.program:
        world.say(CHIEF, "initialized", how="restored", step=0, generation=2)
    world.notes.clear()
    return world


@pytest.mark.parametrize("setup", [name for name in SETUPS if name not in ("ps-sync", "allreduce", "two programs")])
@pytest.mark.parametrize("num_reports", [0, 1])
def test_restarted_and_hung_after_one_report_is_judged_like_a_new_one(setup: str, num_reports: int) -> None:
    world = restarted(setup)
    victim = victim_of(world)
    ring = world.supervisor.job.cluster.training_tasks() if setup == "programs in a ring" else [victim]
    for task in ring:
        for _ in range(num_reports):
            world.say(task, "step", step=1, num_steps=1, seconds=0.0, warmup=True, generation=2)
    assert kills(stand(world, 11.5, "waits")) == set()
    assert named(world) == {str(task) for task in ring}  # of a ring nobody stands out
    assert world.note("stalled")["doing"] == "nothing"
    assert len(kills(stand(world, 50, "waits"))) == 1


def test_a_restarted_program_that_starts_slowly_is_not_called_stalled() -> None:
    world = restarted("two programs")
    assert behave(world, 55, {}, "computes") == []
    assert named(world) == set()


def test_of_a_ring_the_one_that_reported_less_is_behind() -> None:
    for setup in ("allreduce", "programs in a ring"):
        world = under_way(setup)
        world.step += 1
        for task in (CHIEF, WORKER):
            world.say(task, "step", step=world.step, num_steps=1, seconds=TICK, generation=1)
        assert kills(behave(world, 59, {}, "waits")) == set()
        assert named(world) == {"worker/1"}
        assert "among" not in world.note("stalled")
        assert kills(behave(world, 3, {}, "waits")) == {WORKER1}


def test_reports_of_every_hundredth_step_are_not_behind() -> None:
    world = under_way("two programs")
    world.say(CHIEF, "step", step=290, num_steps=10, seconds=1.0)
    world.say(WORKER, "step", step=200, num_steps=100, seconds=10.0)
    behave(world, 40, {}, "waits")
    assert named(world) == {"chief/0", "worker/0"}
    assert note_text("stalled", world.note("stalled")) == (
        "worker/0 has made no step for 10.5 s and uses no CPU; which task keeps the others waiting is not known"
    )


def test_of_ours_those_who_wait_use_no_cpu() -> None:
    world = under_way("allreduce")
    stand(world, 12, "computes")
    assert named(world) == {"worker/1"}
    assert world.note("stalled")["doing"] == "computing"


def test_of_three_programs_the_one_that_differs_is_behind() -> None:
    world = under_way("programs in a ring")
    assert behave(world, 11, {WORKER1: "waits"}, "computes") == []  # the others wait in a loop
    assert named(world) == {"worker/1"}
    world = under_way("programs in a ring", limits={})
    assert behave(world, 59, {CHIEF: "computes"}, "waits") == []  # it may evaluate
    assert named(world) == set()
    behave(world, 2, {CHIEF: "computes"}, "waits")
    assert named(world) == {"chief/0"}


@pytest.mark.parametrize("setup", [name for name in SETUPS if name != "ps-sync"])
def test_hung_in_the_kernel(setup: str) -> None:
    world = under_way(setup)
    assert kills(stand(world, 11, "disk")) == set()
    assert named(world) == {str(victim_of(world))}
    assert "state D" in (note_text("stalled", world.note("stalled")) or "")
    assert kills(stand(world, 51, "disk")) == {victim_of(world)}
    assert named(world) == {str(victim_of(world))}


def test_a_server_that_hangs_in_the_kernel_is_named_and_nobody_who_waits_for_it() -> None:
    for setup in ("ps-async", "ps-sync", "programs with servers"):
        world = under_way(setup)
        assert behave(world, 50, {PS0: "disk", CHIEF: "waits", WORKER: "waits"}) == []
        assert named(world) == {"ps/0"}
        behave(world, 1, {})
        assert world.note("going_on")["task"] == "ps/0"


@pytest.mark.parametrize("setup", ["single", "ps-async", "a program", "programs with servers"])
def test_deadlocked_without_a_cpu(setup: str) -> None:
    world = under_way(setup)
    assert kills(stand(world, 9, "waits")) == set()
    assert named(world) == set()
    stand(world, 2, "waits")
    assert named(world) == {str(victim_of(world))}
    assert kills(stand(world, 50, "waits")) == {victim_of(world)}


def test_in_ps_sync_the_missing_one_is_named_and_nobody_who_waits() -> None:
    world = under_way("ps-sync")
    stand(world, 5, "waits")
    report_missing(world)
    assert kills(stand(world, 50, "waits")) == set()
    assert named(world) == {"worker/0"}
    assert kills(stand(world, 10, "waits")) == {WORKER}


def test_a_ring_in_which_nothing_tells_who_is_behind_says_so() -> None:
    for setup in ("allreduce", "two programs", "programs in a ring"):
        world = under_way(setup)
        stand(world, 11, "waits")
        training = {str(task) for task in world.supervisor.job.cluster.training_tasks()}
        assert named(world) == training
        assert {*world.note("stalled")["among"]} == training
        assert len(kills(stand(world, 50, "waits"))) == 1


def test_ready_and_hung_while_the_others_train_is_named() -> None:
    world = begun("ps-async")
    world.up(CHIEF, PS0, PS1)
    world.say(CHIEF, "initialized", how="fresh", step=0, generation=1)
    world.say(WORKER, "ready", pid=1)
    assert behave(world, 9, {WORKER: "waits"}) == []
    assert named(world) == set()
    assert behave(world, 2, {WORKER: "waits"}) == []
    assert named(world) == {"worker/0"}


def test_nobody_is_called_late_before_another_has_made_a_step() -> None:
    world = begun("ps-async")
    world.up(CHIEF, PS0, PS1)
    world.say(WORKER, "ready", pid=1)
    assert behave(world, 30, {WORKER: "waits", CHIEF: "computes"}) == []  # its first step is compiled
    assert named(world) == set()


def test_a_task_that_never_joins_is_killed_after_twice_the_time_to_start() -> None:
    world = begun("ps-async", limits={"start": 20})
    world.up(CHIEF, PS0, PS1)
    world.say(WORKER, "ready", pid=1)
    assert kills(behave(world, 40, {WORKER: "computes"})) == set()
    assert kills(behave(world, 1, {WORKER: "computes"})) == {WORKER}
    world.exit(WORKER)
    assert world.note("restarting")["reason"] == "it did not begin to train within 40 s (2 limits.start)"


# --- innocent ------------------------------------------------------------------------------------------------
def test_a_program_that_computes_without_a_word_is_left_alone() -> None:
    """It evaluates, or saves: half a minute without a step, though steps take half a second."""
    for setup in ("a program", "two programs", "programs with servers"):
        world = under_way(setup)
        assert behave(world, 55, {}, "computes") == []
        assert named(world) == set()
        behave(world, 10, {})
        assert named(world) == set()


def test_ranks_that_wait_while_another_evaluates_are_left_alone() -> None:
    world = under_way("two programs")
    assert behave(world, 55, {CHIEF: "computes", WORKER: "waits"}) == []
    assert named(world) == set()


def test_a_program_that_tells_nobody_of_its_steps_is_left_alone() -> None:
    world = begun("programs with servers")
    world.up(CHIEF, WORKER, PS0)
    assert behave(world, 2000, {}, "waits") == []
    assert named(world) == set()


def test_a_program_that_tells_of_a_step_every_five_minutes_is_not_standing_still() -> None:
    world = begun("a program", limits={})
    world.up(CHIEF)
    for number in range(1, 6):
        assert behave(world, 300, {}, "computes") == []
        world.say(CHIEF, "step", step=number, num_steps=1, seconds=0.0 if number == 1 else 300.0)
    assert named(world) == set()


def test_a_first_step_that_is_compiled_is_not_standing_still() -> None:
    for setup in ("single", "allreduce", "ps-async"):
        world = begun(setup)
        world.up(*world.supervisor.tasks)
        assert behave(world, 55, {}, "computes") == []
        assert named(world) == set()


def test_who_waits_for_a_busy_chief_is_left_alone() -> None:
    for setup in ("ps-sync", "allreduce"):
        world = under_way(setup)
        world.say(CHIEF, "evaluating", step=5)
        assert kills(behave(world, 55, {CHIEF: "computes"}, "waits")) == set()
        assert named(world) == set()


def test_an_evaluator_that_waits_for_a_checkpoint_is_left_alone() -> None:
    world = under_way("ps-async", cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
    assert behave(world, 300, {EVALUATOR: "waits"}) == []
    assert named(world) == set()


def test_news_that_the_agent_sends_late_makes_nothing_longer() -> None:
    """The launcher was suspended, or the machine is slow: only what the agent saw counts."""
    world = under_way("a program")
    world.tell(Heartbeat(CHIEF, 0.0, Vitals(stopped_for=3.0, stopped="python", whole=True)))
    world.now += 4.5
    assert SignalTask(CHIEF, KILL) not in world.tell(Tick())
    assert named(world) == set()
