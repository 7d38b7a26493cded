"""Which tasks live and die together; and, of a broken ring, who is to blame and when that can be told."""

from __future__ import annotations

from typing import Any

import pytest
from supervising import CHIEF, EVALUATOR, PS0, PS1, WORKER, WORKER1

from headway.host.vitals import Vitals
from headway.launch.groups import Team, culprit, groups, holders
from headway.launch.messages import TellTask
from headway.launch.taskstate import TaskState
from headway.spec import Task
from headway.spec.job import Job
from headway.spec.load import parse_job
from headway.spec.resolve import resolve

SILENT: dict[str, Any] = {"frozen": "silent"}


def job(strategy: Any, **cluster: int) -> Job:
    workload = {"model": "softmax", "dataset": "synthetic", "stop": {"steps": 5}}
    return resolve(parse_job({"workload": workload, "strategy": strategy, "cluster": cluster}), 2).job


def member(task: Task, **known: Any) -> TaskState:
    """One that trains, and has shown nothing unless said otherwise."""
    return TaskState(task, **{"phase": "training", **known})


def dead(task: Task, at: float, how: str = "killed", **known: Any) -> TaskState:
    return member(task, phase="ended", fell=how, broke_at=at, **known)


def disconnected(task: Task, at: float, **known: Any) -> TaskState:
    return member(task, cut_off="connection reset", broke_at=at, **known)


def test_a_stopped_helper_or_a_debugger_takes_no_blame_for_another_ranks_failure() -> None:
    failed = dead(CHIEF, 10.0, how="ended itself")
    for known in (Vitals(stopped_for=9.0), Vitals(stopped_for=9.0, whole=True, by_debugger=True)):
        ring = [failed, member(WORKER, frozen="stopped", vitals=known)]
        assert culprit(ring, 20.0) is failed
    frozen = member(WORKER, frozen="stopped", vitals=Vitals(stopped_for=9.0, whole=True))
    assert culprit([failed, frozen], 20.0) is frozen


# --- groups -----------------------------------------------------------------------------------------------------------
def test_servers_live_and_die_together_and_everybody_else_alone() -> None:
    several = job("ps-async", chief=1, worker=1, ps=2, evaluator=1)
    assert holders(several) == [PS0, PS1]
    assert groups(several) == [[CHIEF], [WORKER], [PS0, PS1], [EVALUATOR]]


def test_without_servers_the_training_tasks_live_and_die_together() -> None:
    ring = job("allreduce", chief=1, worker=2, evaluator=1)
    assert holders(ring) == [CHIEF, WORKER, WORKER1]
    assert groups(ring) == [[CHIEF, WORKER, WORKER1], [EVALUATOR]]


@pytest.mark.parametrize(("strategy", "cluster"), [("ps-async", {"worker": 3, "ps": 3}), ("allreduce", {"worker": 3})])
def test_every_task_is_in_exactly_one_group(strategy: str, cluster: dict[str, int]) -> None:
    asked = job(strategy, **cluster)
    assert sorted(task for group in groups(asked) for task in group) == sorted(asked.cluster.tasks())


def test_who_begins_anew_with_a_task_is_its_group() -> None:
    several = job("ps-async", chief=1, worker=1, ps=2)
    team = Team(several, {task: member(task) for task in several.cluster.tasks()})
    assert [state.task for state in team.group(PS1)] == [PS0, PS1]
    assert [state.task for state in team.group(WORKER)] == [WORKER]


def test_only_ps_sync_has_somebody_who_must_be_told_whom_not_to_wait_for() -> None:
    for strategy, expected in (("ps-async", []), ("ps-sync", [TellTask(PS0, {"do": "leave", "task": "worker/0"})])):
        asked = job(strategy, chief=1, worker=1, ps=2)
        team = Team(asked, {task: member(task, phase="ready") for task in asked.cluster.tasks()})
        assert team.tell_updater("leave", task="worker/0") == expected
        team.states[PS0].phase = "starting"
        assert team.tell_updater("leave", task="worker/0") == [], "it is told when it is up"


def test_only_under_allreduce_there_is_a_ring_and_only_in_graph_somebody_computes_for_the_chief() -> None:
    def team(strategy: Any, **cluster: int) -> Team:
        asked = job(strategy, **cluster)
        return Team(asked, {task: member(task) for task in asked.cluster.tasks()})

    ring = team("allreduce", chief=1, worker=1)
    assert (ring.ring, ring.helpers, ring.servers) == ([CHIEF, WORKER], [], [])
    alone = team({"kind": "ps-sync", "replication": "in_graph"}, chief=1, worker=2, ps=1)
    assert (alone.ring, alone.helpers, alone.servers, alone.chief) == ([], [WORKER, WORKER1], [PS0], CHIEF)


# --- when it can be told ----------------------------------------------------------------------------------------------
def test_a_whole_ring_has_no_culprit() -> None:
    assert culprit([member(CHIEF), member(WORKER)], now=100.0) is None


def test_when_all_have_shown_what_became_of_them_the_dead_one_is_blamed_at_once() -> None:
    killed = dead(WORKER, at=10.2)
    assert culprit([disconnected(CHIEF, at=10.1), killed], now=10.2) is killed


def test_of_a_known_death_those_who_train_have_a_second_for_their_last_words() -> None:
    killed = dead(WORKER, at=10.0)
    ring = [member(CHIEF), killed]
    assert culprit(ring, now=10.9) is None
    assert culprit(ring, now=11.0) is killed
    starting = [member(CHIEF, phase="ready"), killed]
    assert culprit(starting, now=10.0) is killed, "who does not train has no steps to tell"


def test_without_a_known_death_all_have_five_seconds() -> None:
    for phase in ("training", "ready", "starting"):
        cut = disconnected(CHIEF, at=10.0)
        ring = [cut, member(WORKER, phase=phase)]
        assert culprit(ring, now=14.9) is None, phase
        assert culprit(ring, now=15.0) is cut, phase


def test_the_grace_begins_with_the_first_sign() -> None:
    ring = [disconnected(CHIEF, at=10.0), disconnected(WORKER, at=13.0), member(WORKER1)]
    assert culprit(ring, now=14.9) is None
    assert culprit(ring, now=15.0) is ring[0]


@pytest.mark.parametrize("known", [SILENT, {"killed_for": "no heartbeat"}, {"phase": "ended"}])
def test_who_cannot_speak_any_more_is_not_waited_for(known: dict[str, Any]) -> None:
    ring = [disconnected(CHIEF, at=10.0), member(WORKER, **known)]
    assert culprit(ring, now=10.0) is not None


# --- who it was -------------------------------------------------------------------------------------------------------
def test_who_was_killed_by_us_is_blamed_before_all_others() -> None:
    ours = member(CHIEF, killed_for="no heartbeat", broke_at=12.0)
    ring = [dead(WORKER, at=10.0), ours, member(WORKER1, broke_at=9.0, **SILENT)]
    assert culprit(ring, now=20.0) is ours
    fallen = dead(CHIEF, at=12.0, killed_for="no heartbeat")
    assert culprit([dead(WORKER, at=10.0), fallen], now=20.0) is fallen
    over = member(CHIEF, phase="ended", killed_for="no heartbeat", broke_at=12.0)
    assert culprit([dead(WORKER, at=13.0), over], now=20.0) is not over, "it has ended in good order"


def test_who_was_killed_by_others_is_blamed_before_who_is_frozen() -> None:
    killed = dead(WORKER, at=10.0)
    assert culprit([member(CHIEF, broke_at=9.0, **SILENT), killed], now=20.0) is killed


def test_who_is_frozen_is_blamed_before_who_ended_itself() -> None:
    silent = member(CHIEF, **SILENT)
    assert culprit([dead(WORKER, at=10.0, how="ended itself"), silent], now=20.0) is silent
    gone = member(CHIEF, phase="ended", **SILENT)
    ended = dead(WORKER, at=10.0, how="ended itself")
    assert culprit([ended, gone], now=20.0) is ended, "what has ended is not frozen"


def test_who_ended_itself_is_blamed_before_who_was_only_cut_off() -> None:
    ended = dead(WORKER, at=12.0, how="ended itself")
    assert culprit([disconnected(CHIEF, at=10.0), ended], now=20.0) is ended


@pytest.mark.parametrize(
    "known",
    [{"killed_for": "no heartbeat"}, {"fell": "killed"}, SILENT, {"fell": "ended itself"}],
)
def test_who_was_cut_off_first_is_never_blamed_before_another(known: dict[str, Any]) -> None:
    """Whatever became of it after its connection broke, another broke it."""
    ended = dead(WORKER, at=12.0, how="ended itself")
    assert culprit([disconnected(CHIEF, at=10.0, **known), ended], now=20.0) is ended


def test_of_several_the_first_to_show_it_is_blamed_and_who_showed_nothing_comes_last() -> None:
    first, second = dead(CHIEF, at=11.0), dead(WORKER, at=10.0)
    assert culprit([first, second], now=20.0) is second
    quiet = member(WORKER1, **SILENT)
    shown = member(CHIEF, broke_at=19.0, **SILENT)
    assert culprit([quiet, shown], now=20.0) is shown


def test_who_says_that_it_is_hopeless_is_blamed_at_once() -> None:
    hopeless = dead(WORKER, at=10.0, how="ended itself", is_hopeless=True)
    assert culprit([member(CHIEF), hopeless], now=10.0) is hopeless
    assert culprit([member(CHIEF), member(WORKER, is_hopeless=True)], now=10.0) is None, "it has not fallen"


def test_who_is_done_is_not_waited_for() -> None:
    cut = disconnected(CHIEF, at=10.0)
    assert culprit([cut, member(WORKER, phase="done")], now=10.0) is cut
