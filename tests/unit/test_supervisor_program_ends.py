"""How a run of a user's own program ends, whoever fails, and when: the supervisor with programs that are played.

A program lives for some seconds and ends with a code. What happens between its end and the supervisor is played as
engines/command/program.py does it: `done` or `failed`, the chief waits for `finalize`, a stop is a SIGTERM.
"""

from __future__ import annotations

import itertools
import signal
from dataclasses import dataclass, field
from typing import Any

import pytest
from supervising import CHIEF, EVALUATOR, KILL, PS0, WORKER, WORKER1, World

from headway.launch.messages import (
    Action,
    End,
    Event,
    Heartbeat,
    SignalTask,
    StartTask,
    StopAsked,
    TaskExited,
    TaskSaid,
    TaskStarted,
    TellTask,
    Tick,
)
from headway.launch.restarts import TWICE
from headway.spec import Task
from headway.spec.command import CHIEF_ENDED, ENDED

TICK = 0.5
FOREVER = 1e9
LIMIT = 3600.0  # seconds of played time in which every run must have ended
Life = tuple[float, int]
"""How long a program lives, and its exit code."""


@dataclass
class Playing:
    life: Life
    ends_at: float
    attempt: int
    code: int | None = None
    """Of the program; None: it runs. The task may wait for `finalize` after that."""


@dataclass
class Play:
    """Plays programs to the end of the run. `lives`: of each task, one for each attempt; the last one repeats."""

    world: World
    lives: dict[Task, list[Life]]
    stop_at: float = FOREVER
    steps: bool = False
    """Whether programs tell of a step as soon as they run."""
    running: dict[Task, Playing] = field(default_factory=dict)
    codes: dict[Task, list[int]] = field(default_factory=dict)
    """With which each program ended by itself, attempt for attempt."""
    end: End | None = None

    def __post_init__(self) -> None:
        self.job = self.world.supervisor.job
        self.chief = self.job.cluster.chief_task()
        self.training = self.job.cluster.training_tasks()

    def to_the_end(self) -> End:
        began = self.world.now
        while self.end is None:
            assert self.world.now - began < LIMIT, "the run never ends"
            self.world.now += TICK
            if self.world.now - began >= self.stop_at:
                self.stop_at = FOREVER
                self.tell(StopAsked("Ctrl-C"))
            for task in list(self.running):
                self.tell(Heartbeat(task, 0.0))
                playing = self.running.get(task)
                if playing and playing.code is None and self.world.now >= playing.ends_at:
                    self.ended(task, playing.life[1])
            self.tell(Tick())
        return self.end

    def tell(self, event: Event) -> None:
        for action in self.world.tell(event):
            self.do(action)

    def say(self, task: Task, kind: str, **fields: Any) -> None:
        self.tell(TaskSaid(task, {"kind": kind, "attempt": self.running[task].attempt, **fields}))

    def do(self, action: Action) -> None:
        match action:
            case StartTask(task, attempt, own_steps):
                lives = self.lives.get(task, [(FOREVER, 0)])
                life = lives[min(attempt, len(lives) - 1)]
                self.running[task] = Playing(life, self.world.now + life[0], attempt)
                self.tell(TaskStarted(task, attempt, 1))
                self.say(task, "ready")
                if task in self.training:
                    self.say(task, "joined", step=0, generation=0)
                    if self.steps:
                        self.say(task, "step", step=1, own_step=own_steps + 1, num_steps=1, seconds=0.0, loss=1.0)
            case SignalTask(task, number) if task in self.running:
                self.gone(task, -number)
            case TellTask(task, {"do": "stop"}) if task in self.running and self.running[task].code is None:
                self.running[task].code = 0
                self.say(task, "done", reason="stopped", step=0, own_steps=0, failure=None)
                self.leave(task)
            case TellTask(task, {"do": "finalize"}) if task in self.running:
                self.gone(task, 0)
            case End():
                self.end = action

    def ended(self, task: Task, code: int) -> None:
        """The program ends by itself."""
        self.codes.setdefault(task, []).append(code)
        self.running[task].code = code
        if code == 0:
            assert self.job.program
            ends_all = task == self.chief and self.job.program.ends_with == "chief"
            self.say(task, "done", reason=CHIEF_ENDED if ends_all else ENDED, step=0, own_steps=0, failure=None)
            self.leave(task)
        else:
            self.say(task, "failed", error=f"exit code {code}", message="its last line")
            if task in self.running:
                self.gone(task, code)

    def leave(self, task: Task) -> None:
        if task in self.running and (task != self.chief or len(self.training) == 1):
            self.gone(task, 0)

    def gone(self, task: Task, code: int) -> None:
        attempt = self.running.pop(task).attempt
        self.tell(TaskExited(task, attempt, code))

    @property
    def ignored(self) -> set[str]:
        return {note.fields["task"] for note in self.world.notes if note.kind == "failure_ignored"}

    @property
    def unexpected(self) -> set[str]:
        """Training tasks whose last program did not end with code 0 by itself."""
        return {str(task) for task in self.training if self.codes.get(task, [1])[-1] != 0}


def play(
    cluster: dict[str, int],
    lives: dict[Task, list[Life]],
    ends_with: str | None = None,
    attempts: int = 3,
    stop_at: float = FOREVER,
    steps: bool = False,
    **changes: Any,
) -> Play:
    workload = {"command": "python train.py", **({"ends_with": ends_with} if ends_with else {})}
    strategy = {"strategy": "ps-async" if "ps" in cluster else "single" if sum(cluster.values()) == 1 else "allreduce"}
    world = World(
        **{**strategy, "workload": workload, "cluster": cluster, "restart": {"attempts": attempts}, **changes}
    )
    played = Play(world, lives, stop_at, steps)
    played.tell(Tick())
    played.to_the_end()
    return played


OK, BAD, LATE, LATE_BAD = (1.0, 0), (1.0, 3), (9.0, 0), (9.0, 3)
ALONE, RING, SERVED, NAMED = {"worker": 1}, {"worker": 2}, {"worker": 2, "ps": 1}, {"chief": 1, "worker": 1, "ps": 1}


@pytest.mark.parametrize(
    ("cluster", "ends_with", "attempts", "lives", "end", "ignored"),
    [
        # The run succeeds only if every training task's program did, whoever fails first or last.
        (ALONE, None, 0, [[OK]], "finished", set()),
        (ALONE, None, 0, [[BAD]], "failed", set()),
        (RING, None, 0, [[OK], [LATE_BAD]], "failed", set()),  # rank 0 was done long before
        (RING, None, 0, [[LATE], [BAD]], "failed", set()),
        (RING, None, 0, [[BAD], [LATE]], "failed", set()),
        (RING, None, 0, [[LATE_BAD], [OK]], "failed", set()),
        (RING, None, 0, [[LATE], [OK]], "finished", set()),
        (SERVED, None, 0, [[OK], [LATE_BAD]], "failed", set()),
        (SERVED, None, 0, [[LATE], [BAD]], "failed", set()),
        (SERVED, None, 0, [[LATE_BAD], [OK]], "failed", set()),
        (NAMED, "everybody", 0, [[OK], [LATE_BAD]], "failed", set()),
        # Started again, it is the last attempt that counts.
        (RING, None, 1, [[OK], [LATE_BAD, OK]], "finished", set()),
        (RING, None, 1, [[BAD, OK], [OK]], "finished", set()),
        (RING, None, 1, [[OK, BAD], [LATE_BAD, OK]], "failed", set()),
        (SERVED, None, 1, [[OK], [LATE_BAD, OK]], "finished", set()),
        (SERVED, None, 1, [[LATE], [BAD, OK]], "finished", set()),
        # Only the chief decides where that was asked for, or chosen; the others are a warning.
        (RING, "chief", 0, [[OK], [LATE_BAD]], "finished", set()),  # it is stopped before it could fail
        (RING, "chief", 0, [[LATE], [BAD]], "finished", {"worker/1"}),
        (RING, "chief", 0, [[LATE_BAD], [OK]], "failed", set()),
        (RING, "chief", 0, [[LATE_BAD], [BAD]], "failed", set()),
        (NAMED, None, 0, [[LATE], [BAD]], "finished", {"worker/0"}),
        (NAMED, None, 3, [[LATE], [BAD]], "finished", {"worker/0"}),  # the same way twice: it is given up
        (NAMED, None, 0, [[LATE_BAD], [OK]], "failed", set()),
        (NAMED, None, 1, [[LATE], [BAD, OK]], "finished", set()),
    ],
)
def test_how_a_run_of_a_program_ends(
    cluster: dict[str, int], ends_with: str | None, attempts: int, lives: list[list[Life]], end: str, ignored: set[str]
) -> None:
    training = [CHIEF, WORKER] if "chief" in cluster else [WORKER, WORKER1]
    played = play(cluster, dict(zip(training, lives, strict=False)), ends_with, attempts)
    assert played.end is not None
    assert played.end.state == end, played.end
    assert played.ignored == ignored


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("attempts", [0, 2])
@pytest.mark.parametrize("ends_with", ["everybody", "chief"])
@pytest.mark.parametrize("cluster", [RING, SERVED, NAMED, {"worker": 3}], ids=str)
def test_every_run_ends_by_what_its_programs_ended_with(
    cluster: dict[str, int], ends_with: str, attempts: int, steps: bool
) -> None:
    """Whatever the order in which they end: finished means that each that decides has ended with code 0."""
    training = [CHIEF, WORKER] if "chief" in cluster else [WORKER, WORKER1]
    lives = ([OK], [BAD], [BAD, OK]), ([OK], [LATE], [LATE_BAD], [BAD, OK], [LATE_BAD, OK])
    for first, second, (one, other) in itertools.product(*lives, (training, training[::-1])):
        played = play(cluster, {one: first, other: second, Task("worker", 2): [OK]}, ends_with, attempts, steps=steps)
        assert played.end is not None
        decides = {str(played.chief)} if ends_with == "chief" else {str(task) for task in played.training}
        assert (played.end.state == "finished") == (not decides & played.unexpected), (played.end, played.codes)
        assert played.end.state in ("finished", "failed")
        assert played.ignored <= played.unexpected - decides
        made = sum(note.kind == "restarting" for note in played.world.notes)
        bound = 1 if "ps" not in cluster else len(training)
        assert made <= attempts * bound, "restarts are counted for all that begin anew together"


@pytest.mark.parametrize("cluster", [RING, SERVED, NAMED])
def test_a_users_stop_is_no_failure(cluster: dict[str, int]) -> None:
    played = play(cluster, {}, stop_at=5.0)
    assert played.end == End("stopped", "Ctrl-C")
    assert played.ignored == set()


@pytest.mark.parametrize("cluster", [RING, SERVED])
def test_a_stop_while_one_is_done_and_one_waits_for_its_restart(cluster: dict[str, int]) -> None:
    played = play(cluster, {WORKER: [OK], WORKER1: [BAD]}, stop_at=1.5, restart={"attempts": 3, "delay": 20})
    assert played.end == End("stopped", "Ctrl-C")


def test_a_done_chief_whose_node_dies_is_not_made_again_and_the_others_go_on() -> None:
    played = play({"worker": 2}, {WORKER: [OK], WORKER1: [OK]})
    assert played.end == End("finished", ENDED)
    world = World(workload={"command": "x"}, cluster={"worker": 2}, strategy="allreduce")
    again = Play(world, {WORKER: [OK], WORKER1: [(30.0, 0)]})
    again.tell(Tick())
    while again.running[WORKER].code is None:
        world.now += TICK
        again.ended(WORKER, 0)
    again.gone(WORKER, -KILL)
    assert again.to_the_end() == End("finished", ENDED)
    assert again.codes[WORKER1] == [0]  # by itself, not because it was ended
    assert [world.supervisor.tasks[task].attempt for task in (WORKER, WORKER1)] == [0, 0]


def test_an_evaluator_that_fails_is_a_warning() -> None:
    lives = {CHIEF: [LATE], WORKER: [LATE], EVALUATOR: [BAD]}
    played = play({"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}, lives)
    assert played.end == End("finished", CHIEF_ENDED)
    assert played.ignored == {"evaluator/0"}
    lives[EVALUATOR] = [(12.0, 1)]  # after the chief's end, when it evaluates the last checkpoint
    assert play({"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}, lives).ignored == {"evaluator/0"}


def test_a_worker_that_fails_while_all_are_being_stopped_is_a_warning() -> None:
    world = World(workload={"command": "x"}, cluster=NAMED, strategy="ps-async")
    played = Play(world, {})
    played.tell(Tick())
    played.ended(CHIEF, 0)
    assert WORKER not in played.running  # it was told to stop, and did
    world = World(workload={"command": "x"}, cluster=NAMED, strategy="ps-async")
    world.tell(Tick())
    world.up(CHIEF, WORKER, PS0)
    world.say(CHIEF, "done", reason=CHIEF_ENDED, step=0, own_steps=0, failure=None)
    world.say(WORKER, "done", reason="stopped", step=0, own_steps=0, failure="exit code 3: no space left")
    world.exit(WORKER, 0)
    world.exit(CHIEF, 0)
    assert world.exit(PS0, -signal.SIGTERM) == [End("finished", CHIEF_ENDED)]
    assert world.note("failure_ignored")["reason"] == "exit code 3: no space left"


# --- what would fail again ---------------------------------------------------------------------------------------
def starts_of(played: Play, task: Task) -> int:
    return sum(isinstance(action, StartTask) and action.task == task for action in played.world.actions)


@pytest.mark.parametrize("cluster", [ALONE, RING, SERVED])
def test_the_same_exit_twice_without_a_step_is_not_tried_a_third_time(cluster: dict[str, int]) -> None:
    played = play(cluster, {WORKER: [BAD]}, attempts=10)
    assert played.end is not None
    assert played.end.reason == f"worker/0 failed after 1 restart: exit code 3: its last line ({TWICE})"
    assert starts_of(played, WORKER) == 2


@pytest.mark.parametrize(
    ("lives", "steps", "starts"),
    [
        ([BAD], True, 4),  # it makes steps in between: it has its restarts
        ([BAD, (1.0, 4), BAD, (1.0, 4)], False, 4),  # another exit each time
        ([(60.0, 3)], False, 4),  # who tells of no steps, and lives for a minute, may have made some
        ([(1.0, -signal.SIGSEGV)], False, 2),  # a crash is the program's own
    ],
)
def test_but_others_are(lives: list[Life], steps: bool, starts: int) -> None:
    played = play(ALONE, {WORKER: lives}, attempts=3, steps=steps)
    assert played.end is not None
    assert played.end.state == "failed"
    assert starts_of(played, WORKER) == starts


def test_a_single_step_before_the_first_of_two_failures_does_not_help() -> None:
    world = World(workload={"command": "x"}, cluster=ALONE, strategy="single", restart={"attempts": 3, "delay": 0})
    world.tell(Tick())
    world.up(WORKER)
    world.train(WORKER, 1)
    world.wait(100, alive=[WORKER])
    world.exit(WORKER, 3)
    world.wait(2)
    world.up(WORKER)
    world.wait(100, alive=[WORKER])
    assert world.exit(WORKER, 3) == [End("failed", f"worker/0 failed after 1 restart: exit code 3 ({TWICE})")]


def test_a_kill_from_outside_says_nothing_of_the_program() -> None:
    world = World(workload={"command": "x"}, cluster=ALONE, strategy="single", restart={"attempts": 3, "delay": 0})
    world.tell(Tick())
    for attempt in range(4):
        assert world.supervisor.tasks[WORKER].attempt == attempt
        world.up(WORKER)
        world.exit(WORKER)
        world.wait(2)
    assert world.supervisor.end == End("failed", "worker/0 failed after 3 restarts: signal SIGKILL")


def test_what_the_program_cannot_do_is_not_tried_again_and_nobody_is_waited_for() -> None:
    world = World(workload={"command": "x"}, cluster=RING, strategy="allreduce")
    world.tell(Tick())
    world.up(WORKER, WORKER1)
    world.say(WORKER1, "failed", error="exit code 1", message="No module named 'x'", hopeless=True)
    assert world.exit(WORKER1, 1) == [SignalTask(WORKER, KILL)]
    assert world.exit(WORKER)[-1] == End("failed", "worker/1 failed: exit code 1: No module named 'x'")


def test_a_ring_that_has_lost_a_member_is_not_started_again_without_it() -> None:
    played = play(RING, {WORKER: [(30.0, 4), (30.0, 4), OK], WORKER1: [BAD]}, ends_with="chief", attempts=5)
    assert played.end == End("failed", "worker/0 failed after 1 restart: exit code 4: its last line")
    assert starts_of(played, WORKER) == 2


def test_restarts_of_a_ring_are_counted_together_and_said_so() -> None:
    lives: list[Life] = [(1.0, 3), (1.0, 4), (1.0, 5), OK]
    played = play(RING, {WORKER: [(9.0, 7), lives[1], (9.0, 7), OK], WORKER1: [BAD, (9.0, 8), lives[2], OK]})
    assert played.end == End("finished", ENDED)
    notes = [note.fields for note in played.world.notes if note.kind == "restarting"]
    assert [(note["task"], note["restart"], note["allowed"]) for note in notes] == [
        ("worker/1", 1, 3),
        ("worker/0", 2, 3),
        ("worker/1", 3, 3),
    ]
