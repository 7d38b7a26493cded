"""Limits of the watch, second by second: who is named, who is killed, and with which words."""

from __future__ import annotations

from typing import Any

import pytest
from supervising import CHIEF, EVALUATOR, PS0, WORKER, WORKER1

from headway.host.vitals import Vitals
from headway.launch.messages import Note
from headway.launch.taskstate import Phase, TaskState
from headway.launch.watch import Sentence, Watch
from headway.spec import Task
from headway.spec.load import parse_job
from headway.spec.resolve import resolve

LIMITS = {"start": 20.0, "heartbeat": 8.0, "stall": 100.0}
NOW = 1000.0


class Seen:
    """Tasks of which all is well at NOW, unless said otherwise."""

    def __init__(self, strategy: str = "ps-async", **changes: Any) -> None:
        settings: dict[str, Any] = {
            "workload": {"model": "softmax", "dataset": "synthetic", "stop": {"steps": 5}},
            "strategy": strategy,
            "cluster": {"chief": 1, "worker": 1, **({} if strategy == "allreduce" else {"ps": 1})},
            "limits": LIMITS,
            **changes,
        }
        job = resolve(parse_job(settings), 2).job
        usual: dict[str, Phase] = {"ps": "ready", "evaluator": "ready"}
        self.tasks = {
            task: TaskState(task, usual.get(task.role, "training"), alive_at=NOW, progress_at=NOW, since=NOW, reports=5)
            for task in job.cluster.tasks()
        }
        for state in self.tasks.values():
            state.own_steps = 5
        self.watch = Watch(job, self.tasks)

    def set(self, task: Task, **known: Any) -> TaskState:
        for name, value in known.items():
            setattr(self.tasks[task], name, value)
        return self.tasks[task]

    def look(self, now: float = NOW) -> list[tuple[str, str, Any]]:
        """(what, task, about): notes by their kind, sentences as `kill`."""
        return [
            ("kill", str(found.state.task), found.reason)
            if isinstance(found, Sentence)
            else (found.kind, found.fields["task"], {key: each for key, each in found.fields.items() if key != "task"})
            for found in self.watch.look(now)
        ]


def test_nothing_is_said_of_tasks_that_are_well() -> None:
    assert Seen().look() == []


# --- signs of life ----------------------------------------------------------------------------------------------------
def test_silence_is_told_after_half_the_limit_and_ends_with_the_limit() -> None:
    seen = Seen()
    seen.set(WORKER, alive_at=NOW - 4.0)
    assert seen.look() == []
    assert seen.look(NOW + 0.25) == [("silent", "worker/0", {"seconds": 4.2})]
    assert seen.look(NOW + 4.0) == [], "said once"
    assert [what for what in seen.look(NOW + 4.5) if what[1] == "worker/0"] == [
        ("unresponsive", "worker/0", {"seconds": 8.5}),
        ("kill", "worker/0", "no heartbeat for 8 s (limits.heartbeat)"),
    ]


@pytest.mark.parametrize(("heartbeat", "told"), [(2.5, 2.0), (8.0, 4.0), (60.0, 5.0)])
def test_silence_is_told_after_two_seconds_at_least_and_five_at_most(heartbeat: float, told: float) -> None:
    seen = Seen(limits={**LIMITS, "heartbeat": heartbeat})
    seen.set(WORKER, alive_at=NOW - told)
    assert seen.look() == []
    seen.set(WORKER, alive_at=NOW - told - 0.1)
    assert [what[:2] for what in seen.look()] == [("silent", "worker/0")]


def test_who_beats_again_goes_on() -> None:
    seen = Seen()
    seen.set(WORKER, frozen="silent", vitals=Vitals())
    assert seen.look() == [("going_on", "worker/0", {})]


def test_of_a_silent_task_only_the_silence_is_told_also_where_more_is_known_of_its_processes() -> None:
    seen = Seen()
    seen.set(WORKER, alive_at=NOW - 5.0, vitals=Vitals())
    assert seen.look() == [("silent", "worker/0", {"seconds": 5.0})]


@pytest.mark.parametrize(("idle_for", "is_told"), [(0.0, False), (5.0, True)])
def test_who_starts_is_silent_only_if_it_does_nothing(idle_for: float, is_told: bool) -> None:
    seen = Seen()
    seen.set(WORKER, phase="starting", alive_at=NOW - 6.0, since=NOW - 6.0, vitals=Vitals(idle_for=idle_for))
    assert bool(seen.look()) == is_told


def test_who_is_stopped_is_named_with_its_process_and_killed_at_the_limit() -> None:
    seen = Seen()
    seen.set(WORKER, vitals=Vitals(stopped_for=3.9, stopped="python", whole=True))
    assert seen.look() == []
    seen.set(WORKER, vitals=Vitals(stopped_for=4.0, stopped="python", whole=True))
    assert seen.look() == [("stopped", "worker/0", {"seconds": 4.0, "process": "python", "by_debugger": False})]
    seen.set(WORKER, vitals=Vitals(stopped_for=8.0, stopped="python", whole=True))
    assert seen.look() == [("kill", "worker/0", "it was stopped for 8 s (state T; limits.heartbeat)")]


def test_silent_to_its_limit_and_just_seen_to_be_stopped_it_is_named_and_killed_as_stopped() -> None:
    """With a short limits.heartbeat the silence reaches it before the agent has seen `stopped` for long enough."""
    seen = Seen()
    seen.set(WORKER, alive_at=NOW - 8.1, vitals=Vitals(stopped_for=1.0, stopped="python", whole=True))
    assert seen.look() == [
        ("stopped", "worker/0", {"seconds": 1.0, "process": "python", "by_debugger": False}),
        ("kill", "worker/0", "it was stopped for 8 s (state T; limits.heartbeat)"),
    ]
    seen = Seen()  # where only a part is, the silence is all that is known of the rest
    seen.set(WORKER, alive_at=NOW - 8.1, vitals=Vitals(stopped_for=1.0, stopped="python"))
    assert [what[0] for what in seen.look()] == ["unresponsive", "kill"]


@pytest.mark.parametrize(
    ("known", "reports", "still", "is_killed"),
    [
        ({"whole": True}, 0, 0.0, True),
        ({}, 5, 0.0, False),  # the rest of it goes on
        ({"idle_for": 9.0}, 5, 0.0, False),  # ... and needs little CPU time for that
        ({"idle_for": 8.0}, 0, 0.0, True),
        ({"idle_for": 7.9}, 0, 0.0, False),
        ({}, 5, 8.1, True),  # also where its last words came after the stop
        ({}, 5, 8.0, False),
        ({}, 0, 9.1, False),
        ({}, 2, 9.1, False),  # too few reports to know what is long, and it computes
        ({"idle_for": 8.0}, 2, 8.1, True),
        ({"whole": True, "by_debugger": True}, 5, 9.1, False),
    ],
)
def test_who_is_stopped_in_part_is_killed_if_the_rest_stands_still(
    known: dict[str, Any], reports: int, still: float, is_killed: bool
) -> None:
    seen = Seen()
    vitals = Vitals(stopped_for=9.0, stopped="python", **known)
    seen.set(WORKER, vitals=vitals, reports=reports, progress_at=NOW - still, frozen="stopped")
    assert [what[0] for what in seen.look()] == (["kill"] if is_killed else [])


def test_a_server_that_waits_for_a_disk_is_killed_at_the_limit() -> None:
    seen = Seen()
    seen.set(PS0, vitals=Vitals(disk_for=100.0))
    assert [what[:2] for what in seen.look()] == [("stalled", "ps/0")]
    seen.set(PS0, vitals=Vitals(disk_for=100.1))
    assert seen.look() == [("kill", "ps/0", "it has waited for a disk for 100 s (state D; limits.stall)")]


PROGRAM: dict[str, Any] = {"workload": {"command": "x"}, "cluster": {"worker": 2}}
COMPUTES, IDLE = Vitals(), Vitals(idle_for=60.0)


@pytest.mark.parametrize(
    ("reports", "vitals", "is_killed"),
    [(0, COMPUTES, False), (1, COMPUTES, False), (2, COMPUTES, True), (0, IDLE, True), (1, IDLE, True)],
)
def test_a_restarted_program_that_computes_is_not_judged_before_its_steps_are_known(
    reports: int, vitals: Vitals, is_killed: bool
) -> None:
    seen = Seen("allreduce", **PROGRAM)
    for task in seen.tasks:
        seen.set(task, reports=reports, vitals=vitals, progress_at=NOW - 101.0)
    assert bool([what for what in seen.look() if what[0] == "kill"]) == is_killed


@pytest.mark.parametrize(
    ("strategy", "stepped", "vitals", "is_killed"),
    [
        ("allreduce", 1.0, COMPUTES, False),  # its silence is not its standstill: a step takes all
        ("allreduce", 1.0, IDLE, False),
        ("allreduce", 101.0, COMPUTES, True),
        ("ps-sync", 1.0, COMPUTES, False),
        ("ps-sync", 1.0, IDLE, True),  # it may be a backup, which the others do not wait for
    ],
)
def test_a_rank_that_no_longer_prints_is_not_killed_while_the_others_make_steps(
    strategy: str, stepped: float, vitals: Vitals, is_killed: bool
) -> None:
    servers = {"ps": 1} if strategy == "ps-sync" else {}
    seen = Seen(strategy, workload={"command": "x"}, cluster={"worker": 2, **servers})
    seen.set(WORKER, step=90, stepped_at=NOW - stepped, vitals=COMPUTES, progress_at=NOW - stepped)
    seen.set(WORKER1, step=5, stepped_at=NOW - 110.0, vitals=vitals, progress_at=NOW - 101.0)
    assert bool([what for what in seen.look() if what[:2] == ("kill", "worker/1")]) == is_killed


# --- starting and joining ---------------------------------------------------------------------------------------------
def test_who_is_not_ready_within_its_limit_is_killed() -> None:
    seen = Seen()
    seen.set(WORKER, phase="starting", since=NOW - 20.0)
    assert seen.look() == []
    seen.set(WORKER, since=NOW - 20.1)
    assert seen.look() == [("kill", "worker/0", "it was not ready within 20 s (limits.start)")]


def test_who_does_not_begin_to_train_within_twice_the_limit_is_killed() -> None:
    seen = Seen()
    seen.set(WORKER, phase="ready", since=NOW - 40.0)
    assert seen.look() == []
    seen.set(WORKER, since=NOW - 40.1)
    assert seen.look() == [("kill", "worker/0", "it did not begin to train within 40 s (2 limits.start)")]


def joining(**known: Any) -> Seen:
    """The worker does nothing and does not join, while the chief trains."""
    seen = Seen()
    seen.set(WORKER, **{"phase": "ready", "since": NOW - 10.25, "vitals": Vitals(idle_for=10.1), **known})
    return seen


def test_who_does_nothing_and_does_not_join_is_named_while_another_trains() -> None:
    seen = joining()
    assert seen.look() == [("stalled", "worker/0", {"seconds": 10.2, "doing": "nothing"})]
    assert seen.look() == [], "once"


@pytest.mark.parametrize(
    "known", [{"since": NOW - 10.0}, {"vitals": Vitals(idle_for=10.0)}, {"vitals": None}, {"stalled": True}]
)
def test_who_joins_is_not_named_too_soon(known: dict[str, Any]) -> None:
    assert joining(**known).look() == []


@pytest.mark.parametrize(
    ("task", "known"),
    [
        (CHIEF, {"phase": "ready", "since": NOW}),
        (CHIEF, {"reports": 0}),
        (PS0, {"phase": "starting"}),
        (PS0, {"stalled": True, "vitals": Vitals(disk_for=11.0)}),
    ],
)
def test_who_joins_is_not_named_where_it_may_wait_for_others(task: Task, known: dict[str, Any]) -> None:
    seen = joining()
    seen.set(task, **known)
    assert [what for what in seen.look() if what[1] == "worker/0"] == []


# --- progress ---------------------------------------------------------------------------------------------------------
def test_a_task_that_computes_is_named_after_ten_seconds_or_three_of_its_reports() -> None:
    for pace, limit in ((0.5, 10.0), (5.0, 15.0)):
        seen = Seen()
        seen.set(WORKER, progress_at=NOW - limit).report_seconds.extend([pace] * 3)
        assert seen.look() == [], pace
        seen.set(WORKER, progress_at=NOW - limit - 0.25)
        (found,) = seen.look()
        assert found[:2] == ("stalled", "worker/0")
        assert found[2] == {"seconds": round(limit + 0.25, 1), "median_step": pace}


def test_a_task_whose_pace_is_not_known_is_named_only_if_it_does_nothing() -> None:
    seen = Seen()
    seen.set(WORKER, progress_at=NOW - 11.0, reports=2)
    assert seen.look() == []
    seen.set(WORKER, reports=3)
    assert [what[0] for what in seen.look()] == ["stalled"]
    idle = Seen()
    idle.set(WORKER, progress_at=NOW - 11.0, reports=0, vitals=Vitals(idle_for=5.0))
    assert [what[2].get("doing") for what in idle.look()] == ["nothing"]


def test_a_busy_task_is_not_named() -> None:
    seen = Seen()
    seen.set(WORKER, progress_at=NOW - 50.0, busy="saving")
    assert seen.look() == []


def test_a_standstill_ends_at_its_limit_or_after_ten_reports() -> None:
    for pace, limit in ((0.5, 100.0), (20.0, 200.0)):
        seen = Seen()
        seen.set(WORKER, progress_at=NOW - limit, stalled=True).report_seconds.append(pace)
        assert seen.look() == [], pace
        seen.set(WORKER, progress_at=NOW - limit - 1.0)
        assert seen.look() == [("kill", "worker/0", f"no step for {limit + 1:.0f} s (limits.stall)")]


@pytest.mark.parametrize(
    "known", [{"phase": "starting"}, {"frozen": "silent"}, {"stalled": True}, {"vitals": Vitals(disk_for=5.0)}]
)
def test_who_waits_for_a_server_does_not_stand_still(known: dict[str, Any]) -> None:
    seen = Seen()
    seen.set(PS0, **known)
    if known.get("frozen"):
        seen.set(PS0, alive_at=NOW - 5.0)
    seen.set(WORKER, progress_at=NOW - 101.0)
    assert [what for what in seen.look() if what[1] == "worker/0"] == []
    assert seen.tasks[WORKER].progress_at == NOW or known.get("stalled")


def test_a_program_that_never_told_of_a_step_is_left_alone() -> None:
    seen = Seen(workload={"command": "x"})
    seen.set(WORKER, progress_at=NOW - 500.0, own_steps=0)
    assert seen.look() == []


@pytest.mark.parametrize(("pace", "limit"), [(0.5, 60.0), (7.0, 70.0)])
def test_a_program_that_computes_may_evaluate_for_a_minute_or_ten_reports(pace: float, limit: float) -> None:
    seen = Seen(workload={"command": "x"})
    seen.set(WORKER, progress_at=NOW - limit, vitals=Vitals()).report_seconds.append(pace)
    assert seen.look() == []
    seen.set(WORKER, progress_at=NOW - limit - 1.0)
    assert [what[:2] for what in seen.look()] == [("stalled", "worker/0")]


# --- who is behind ----------------------------------------------------------------------------------------------------
def ring(**changes: Any) -> Seen:
    """All stand still for eleven seconds, and compute."""
    seen = Seen("allreduce", cluster={"chief": 1, "worker": 2}, **changes)
    for task in seen.tasks:
        seen.set(task, progress_at=NOW - 11.0, step=50, vitals=Vitals())
    return seen


def named(seen: Seen) -> list[str]:
    return [task for what, task, _ in seen.look() if what == "stalled"]


def test_of_tasks_that_wait_for_each_other_the_one_behind_is_named() -> None:
    seen = ring()
    seen.set(WORKER, step=49)
    assert named(seen) == ["worker/0"]
    strided = ring()
    strided.set(WORKER, step=49, stride=2)
    assert len(named(strided)) == 3, "it tells of every second step only: it may be as far"


def test_the_one_that_waits_for_a_disk_is_named_before_the_one_behind() -> None:
    seen = ring()
    seen.set(WORKER, step=49)
    seen.set(WORKER1, vitals=Vitals(disk_for=5.0))
    assert named(seen) == ["worker/1"]


def test_the_one_that_computes_is_named_while_all_others_wait() -> None:
    seen = ring()
    for task in (CHIEF, WORKER):
        seen.set(task, vitals=Vitals(idle_for=5.0))
    assert named(seen) == ["worker/1"]


def test_where_nothing_tells_them_apart_all_are_named_together() -> None:
    found = [about["among"] for what, _, about in ring().look() if what == "stalled"]
    assert found == [["chief/0", "worker/0", "worker/1"]] * 3


def test_of_three_programs_the_one_that_differs_is_named() -> None:
    for different, alike in ((Vitals(idle_for=61.0), Vitals()), (Vitals(), Vitals(idle_for=61.0))):
        seen = ring(workload={"command": "x"})
        for task in seen.tasks:
            seen.set(task, vitals=different if task == WORKER else alike, progress_at=NOW - 61.0)
        assert named(seen) == ["worker/0"]


def test_a_ring_that_is_broken_makes_nobody_stand_still() -> None:
    for known in ({"broke_at": NOW}, {"killed_for": "x"}):
        seen = ring()
        seen.set(WORKER1, **known)
        assert [task for task in named(seen) if task != "worker/1"] == []


@pytest.mark.parametrize("phase", ["waiting", "starting", "ready"])
def test_who_waits_for_a_task_that_comes_back_does_not_stand_still(phase: Phase) -> None:
    seen = ring()
    seen.set(WORKER1, phase=phase)
    assert named(seen) == []


# --- blocked updates --------------------------------------------------------------------------------------------------
def blocked(seen: Seen, *missing: str) -> list[Note]:
    return list(seen.watch.blocked({"missing": list(missing), "seconds": 3.14}, NOW))


def test_who_an_update_waits_for_is_named_with_those_who_wait() -> None:
    seen = Seen("ps-sync", cluster={"chief": 1, "worker": 2, "ps": 1})
    expected = Note("blocked", {"task": "worker/0", "seconds": 3.1, "waiting": ["chief/0", "worker/1"]})
    assert blocked(seen, "worker/0") == [expected]
    assert seen.tasks[WORKER].stalled
    assert blocked(seen, "worker/0") == []
    seen.watch.unblocked()
    assert blocked(seen, "worker/0") == [expected]


def test_who_is_not_training_yet_is_named_and_not_called_stalled() -> None:
    seen = Seen("ps-sync", cluster={"chief": 1, "worker": 2, "ps": 1})
    seen.set(WORKER, phase="ready")
    assert [note.fields["task"] for note in blocked(seen, "worker/0")] == ["worker/0"]
    assert not seen.tasks[WORKER].stalled
    seen.set(WORKER1, busy="saving")
    assert blocked(seen, "worker/1") == [], "it has said itself what keeps it"


def test_where_a_server_is_silent_nobody_else_is_to_blame() -> None:
    seen = Seen("ps-sync")
    seen.set(PS0, alive_at=NOW - 2.0)
    assert len(blocked(seen, "worker/0")) == 1
    silent = Seen("ps-sync")
    silent.set(PS0, alive_at=NOW - 2.1)
    assert blocked(silent, "worker/0") == []


# --- those who do not train -------------------------------------------------------------------------------------------
def test_a_server_that_waits_for_a_disk_is_named_until_it_goes_on() -> None:
    seen = Seen()
    seen.set(PS0, vitals=Vitals(disk_for=10.0))
    assert seen.look() == []
    seen.set(PS0, vitals=Vitals(disk_for=10.5))
    assert seen.look() == [("stalled", "ps/0", {"seconds": 10.5, "doing": "disk"})]
    assert seen.look() == []
    seen.set(PS0, vitals=Vitals())
    assert seen.look() == [("going_on", "ps/0", {})]


def test_who_was_to_end_and_did_not_is_killed() -> None:
    seen = Seen(cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
    seen.set(EVALUATOR, end_by=NOW)
    assert seen.look(NOW - 0.1) == []
    assert seen.look() == [("kill", "evaluator/0", "it did not end in time")]
    seen.set(EVALUATOR, killed_for="it did not end in time")
    assert seen.look() == []
