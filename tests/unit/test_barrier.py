"""The rules of barrier.py, one by one, and then all of them in thousands of random histories of a whole cluster."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from headway.engines.tensorflow.barrier import (
    CHIEF,
    Action,
    Admit,
    Answer,
    Barrier,
    Discard,
    Drain,
    Forget,
    Message,
    Reply,
    Update,
)

JOINED, ARRIVED, LEFT, CLOSED, PAUSED, RESUMED = Message


def barrier(*sizes: int, aggregate: int | None = None, step: int = 0) -> Barrier:
    return Barrier(sizes, aggregate or len(sizes), step)


def arrive(of: Barrier, *tasks: int, step: int = 0) -> list[Action]:
    """Each task's gradient of `step`; what the last of them brings about."""
    actions: list[Action] = []
    for task in tasks:
        actions = of.hear(ARRIVED, task, step)
    return actions


# --- an update --------------------------------------------------------------------------------------------------------
def test_an_update_takes_one_gradient_of_every_task_and_then_all_are_told() -> None:
    three = barrier(10, 20, 30, step=7)
    assert three.hear(ARRIVED, 2, 7) == [Admit(2)]
    assert three.hear(ARRIVED, 0, 7) == [Admit(0)]
    assert three.missing == [1]
    assert three.hear(ARRIVED, 1, 7) == [
        Admit(1),
        Update(tasks=(2, 0, 1), examples=60, dropped=()),
        *(Reply(task, Answer.ACCEPTED, 8) for task in range(3)),
    ]
    assert (three.step, three.admitted, three.missing) == (8, [], [0, 1, 2])


def test_the_first_gradients_make_the_update_and_a_late_one_is_dropped_and_counted_once() -> None:
    three = barrier(10, 20, 30, aggregate=2)
    assert arrive(three, 0, 2)[1:] == [
        Update((0, 2), 40, ()),
        Reply(0, Answer.ACCEPTED, 1),
        Reply(2, Answer.ACCEPTED, 1),
    ]
    assert three.hear(ARRIVED, 1, 0) == [Discard(1), Reply(1, Answer.DROPPED, 1)], "it goes on at once"
    assert arrive(three, 1, 2, step=1)[1] == Update((1, 2), 50, dropped=(1,))
    assert three.hear(ARRIVED, 0, 1) == [Discard(0), Reply(0, Answer.DROPPED, 2)]
    assert three.hear(ARRIVED, 0, 0) == [Discard(0), Reply(0, Answer.DROPPED, 2)]
    assert arrive(three, 2, 1, step=2)[1] == Update((2, 1), 50, dropped=(0, 0))
    assert arrive(three, 2, 1, step=3)[1] == Update((2, 1), 50, dropped=())


def test_a_task_alone_updates_with_each_gradient() -> None:
    alone = barrier(10)
    assert alone.hear(ARRIVED, 0, 0) == [Admit(0), Update((0,), 10, ()), Reply(0, Answer.ACCEPTED, 1)]
    assert alone.hear(ARRIVED, 0, 1)[1] == Update((0,), 10, ())


def test_a_gradient_of_a_step_that_is_not_the_present_one_is_never_taken() -> None:
    two = barrier(10, 10, step=5)
    for step in (0, 4, 6):  # 6: of variables that were rolled back since
        assert two.hear(ARRIVED, 0, step) == [Discard(0), Reply(0, Answer.DROPPED, 5)]
    assert two.admitted == []


# --- a task dies ------------------------------------------------------------------------------------------------------
def test_a_task_that_died_after_arriving_counts_once_and_its_second_gradient_is_dropped() -> None:
    two = barrier(10, 20)
    arrive(two, 1)
    assert two.hear(JOINED, 1, 99) == [Drain(1), Reply(1, Answer.WELCOME, 0, echo=99)]
    assert two.hear(ARRIVED, 1, 0) == [Discard(1)], "it is told when there is something to do for it"
    assert two.missing == [0]
    assert two.hear(ARRIVED, 0, 0) == [
        Admit(0),
        Update((1, 0), 30, dropped=(1,)),
        Reply(0, Answer.ACCEPTED, 1),
        Reply(1, Answer.DROPPED, 1),
    ]


def test_what_was_due_to_a_dead_process_is_not_told_to_the_next_one() -> None:
    two = barrier(10, 10)
    arrive(two, 1)
    two.hear(JOINED, 1, 99)
    assert [action for action in arrive(two, 0) if isinstance(action, Reply)] == [Reply(0, Answer.ACCEPTED, 1)]


def test_a_task_that_died_is_waited_for() -> None:
    two = barrier(10, 10)
    two.hear(JOINED, 1, 1)
    two.hear(JOINED, 1, 2)
    arrive(two, 0)
    assert two.missing == [1]
    assert two.step == 0
    assert arrive(two, 1)[1] == Update((0, 1), 20, ())


def test_a_welcome_echoes_the_number_and_tells_the_present_step() -> None:
    two = barrier(10, 10, step=3)
    assert two.hear(JOINED, 0, 17) == [Drain(0), Reply(0, Answer.WELCOME, 3, echo=17)]
    assert two.hear(JOINED, 0, 18) == [Drain(0), Reply(0, Answer.WELCOME, 3, echo=18)], "as often as it asks"


# --- a task leaves ----------------------------------------------------------------------------------------------------
def test_a_task_that_left_is_not_waited_for() -> None:
    three = barrier(10, 20, 30)
    assert three.hear(LEFT, 0) == []
    assert three.missing == [1, 2]
    assert arrive(three, 1, 2)[1] == Update((1, 2), 50, ())


def test_leaving_makes_the_update_that_all_others_wait_for() -> None:
    three = barrier(10, 20, 30)
    arrive(three, 1, 2)
    assert three.hear(LEFT, 0) == [
        Update((1, 2), 50, ()),
        Reply(1, Answer.ACCEPTED, 1),
        Reply(2, Answer.ACCEPTED, 1),
    ]
    assert three.hear(LEFT, 0) == [], "said twice, it changes nothing"
    assert three.hear(LEFT, 1) == []
    assert arrive(three, 2, step=1)[1] == Update((2,), 30, ())


def test_a_backup_that_leaves_changes_nothing_as_long_as_there_are_enough() -> None:
    three = barrier(10, 20, 30, aggregate=2)
    three.hear(LEFT, 0)
    assert arrive(three, 1) == [Admit(1)]
    assert arrive(three, 2)[1] == Update((1, 2), 50, ())
    arrive(three, 1, step=1)
    assert three.hear(LEFT, 2)[0] == Update((1,), 20, ())


def test_a_task_that_left_after_arriving_still_counts_and_nobody_else_is_left_out() -> None:
    """The launcher gives a task up whose gradient is there already. The update takes it, and waits for the living."""
    three = barrier(10, 20, 30)
    arrive(three, 0)
    assert three.hear(LEFT, 0) == []
    assert arrive(three, 1) == [Admit(1)], "task 2 lives: its gradient must not come too late"
    assert three.missing == [2]
    assert arrive(three, 2)[1] == Update((0, 1, 2), 60, ())
    assert arrive(three, 1, 2, step=1)[1] == Update((1, 2), 50, ())


def test_a_task_that_left_and_joins_again_is_waited_for_again() -> None:
    two = barrier(10, 10)
    two.hear(LEFT, 1)
    two.hear(JOINED, 1, 5)
    assert arrive(two, 0) == [Admit(0)]
    assert two.missing == [1]


# --- paused -----------------------------------------------------------------------------------------------------------
def test_paused_gradients_are_admitted_and_the_update_waits_for_the_end_of_the_pause() -> None:
    three = barrier(10, 20, 30, aggregate=2, step=4)
    assert three.hear(PAUSED, 0, 77) == [Reply(0, Answer.WELCOME, 4, echo=77)]
    assert arrive(three, 1, step=4) == [Admit(1)]
    assert arrive(three, 2, step=4) == [Admit(2)]
    assert three.hear(LEFT, 0) == []
    assert three.step == 4
    assert three.hear(RESUMED, 0) == [
        Update((1, 2), 50, ()),
        Reply(1, Answer.ACCEPTED, 5),
        Reply(2, Answer.ACCEPTED, 5),
    ]
    assert three.hear(RESUMED, 0) == []


def test_after_a_pause_an_update_has_no_more_gradients_than_it_should() -> None:
    three = barrier(10, 20, 30, aggregate=1)
    three.hear(PAUSED, 0, 77)
    assert arrive(three, 2) == [Admit(2)]
    assert arrive(three, 1) == [Discard(1)], "one too many; there is nothing to do for it before the update"
    assert three.hear(RESUMED, 0) == [
        Update((2,), 30, dropped=(1,)),
        Reply(1, Answer.DROPPED, 1),
        Reply(2, Answer.ACCEPTED, 1),
    ]


def test_a_chief_that_died_in_the_pause_ends_it_by_joining_again() -> None:
    three = barrier(10, 20, 30, aggregate=2)
    three.hear(PAUSED, 0, 77)
    arrive(three, 1, 2)
    assert three.hear(JOINED, 0, 78) == [
        Drain(0),
        Update((1, 2), 50, ()),
        Reply(1, Answer.ACCEPTED, 1),
        Reply(2, Answer.ACCEPTED, 1),
        Reply(0, Answer.WELCOME, 1, echo=78),
    ]
    three.hear(PAUSED, 0, 79)
    assert three.hear(JOINED, 1, 80) == [Drain(1), Reply(1, Answer.WELCOME, 1, echo=80)]
    assert arrive(three, 1, 2, step=1) == [Admit(2)], "another task's joining does not end it"


# --- closed -----------------------------------------------------------------------------------------------------------
def test_closing_tells_everybody_who_waits_and_forgets_their_gradients() -> None:
    three = barrier(10, 10, 10)
    arrive(three, 2)
    three.hear(JOINED, 2, 1)
    arrive(three, 2, 1)  # the second one of task 2 waits too
    assert three.hear(CLOSED, 0) == [Forget((2, 1)), Reply(1, Answer.CLOSED, 0), Reply(2, Answer.CLOSED, 0)]
    assert three.hear(CLOSED, 0) == []
    assert three.step == 0


def test_closed_nobody_updates_and_whoever_comes_is_told() -> None:
    two = barrier(10, 10, step=4)
    assert two.hear(CLOSED, 1) == []
    for step in (3, 4):
        assert two.hear(ARRIVED, 1, step) == [Discard(1), Reply(1, Answer.CLOSED, 4)]
    assert two.hear(JOINED, 1, 8) == [Drain(1), Reply(1, Answer.CLOSED, 4, echo=8)]
    assert two.hear(LEFT, 0) == []
    assert two.step == 4


def test_the_chief_opens_it_again_and_nothing_of_before_is_left() -> None:
    two = barrier(10, 10)
    arrive(two, 1)
    two.hear(CLOSED, 1)
    assert two.hear(JOINED, 0, 3) == [Drain(0), Reply(0, Answer.WELCOME, 0, echo=3)]
    assert two.hear(JOINED, 1, 4) == [Drain(1), Reply(1, Answer.WELCOME, 0, echo=4)]
    assert arrive(two, 0) == [Admit(0)], "the forgotten gradient of task 1 does not count"
    assert arrive(two, 1)[1:] == [
        Update((0, 1), 20, ()),
        Reply(0, Answer.ACCEPTED, 1),
        Reply(1, Answer.ACCEPTED, 1),
    ]


# --- all rules at once, in any order ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Gradient:
    task: int
    process: int
    pulled: int
    """The step whose variables it was really computed from."""


@dataclass
class Process:
    """A task's process, as ps_sync.py makes it behave."""

    number: int
    doing: str = "born"  # then joining, idle, pulled, half sent, sent, waiting; of the chief pausing, paused; ended
    known_step: int = 0
    pulled: int = 0
    answers: int = 0
    """Answers to its last arrival."""


@dataclass
class World:
    """Queues, servers and processes around a barrier. Messages are heard in their order, but later than said."""

    sizes: list[int]
    aggregate: int
    chance: random.Random
    barrier: Barrier = field(init=False)
    step: int = 0
    """What the variables are at."""

    def __post_init__(self) -> None:
        tasks = range(len(self.sizes))
        self.barrier = Barrier(self.sizes, self.aggregate)
        self.arrivals: deque[tuple[Message, int, int]] = deque()
        self.sent: list[list[deque[Gradient]]] = [[deque(), deque()] for _ in tasks]  # of each task, on two servers
        self.admitted: list[deque[Gradient]] = [deque(), deque()]
        self.replies: list[deque[Reply]] = [deque() for _ in tasks]
        self.processes = [Process(number) for number in tasks]
        self.born = len(self.sizes)
        self.left: set[int] = set()
        """As far as the barrier has heard."""
        self.counts: Counter[str] = Counter()
        self.dropped: list[int] = []

    # --- what tasks do -------------------------------------------------------------------------------------------
    def act(self, task: int) -> None:
        """The task's next move, or its end, or its next life."""
        process, chance = self.processes[task], self.chance
        if process.doing == "ended":
            if chance.random() < 0.3:
                self._bear(task)
            elif chance.random() < 0.05:
                self.arrivals.append((LEFT, task, 0))  # the launcher gives it up
            return
        if chance.random() < 0.03:
            process.doing = "ended"  # killed; what it has said and sent stays
            return
        match process.doing:
            case "born":
                self.arrivals.append((JOINED, task, process.number))
                process.doing = "joining"
            case "joining":
                if chance.random() < 0.05:  # it has waited long and says it again
                    process.number, self.born = self.born, self.born + 1
                    process.doing = "born"
                else:
                    self._read_welcome(task)
            case "idle":
                if chance.random() < 0.02:
                    self.arrivals.append((LEFT if chance.random() < 0.8 else CLOSED, task, 0))
                    process.doing = "ended"
                elif task == CHIEF and chance.random() < 0.2:
                    process.number, self.born = self.born, self.born + 1
                    self.arrivals.append((PAUSED, task, process.number))
                    process.doing = "pausing"
                else:
                    process.pulled = self.step
                    process.doing = "pulled"
            case "pulled" | "half sent":
                server = ("pulled", "half sent").index(process.doing)
                self.sent[task][server].append(Gradient(task, process.number, process.pulled))
                process.doing = ("half sent", "sent")[server]
            case "sent":
                self.arrivals.append((ARRIVED, task, process.known_step))
                self.counts["arrived"] += 1
                process.doing, process.answers = "waiting", 0
            case "waiting":
                self._read_answer(task)
            case "pausing":
                if self.replies[task] and self.replies[task].popleft().echo == process.number:
                    process.doing = "paused"
            case "paused":  # the snapshot is taken
                self.arrivals.append((RESUMED, task, 0))
                self.counts["snapshots"] += 1
                process.doing = "idle"

    def _bear(self, task: int) -> None:
        self.processes[task] = Process(self.born)
        self.born += 1

    def _read_welcome(self, task: int) -> None:
        process = self.processes[task]
        while self.replies[task]:
            reply = self.replies[task].popleft()
            if reply.echo == process.number and reply.answer in (Answer.WELCOME, Answer.CLOSED):
                process.known_step = reply.step
                process.doing = "idle" if reply.answer == Answer.WELCOME else "ended"
                assert not self.replies[task], "nothing may come between a welcome and the first step"
                return

    def _read_answer(self, task: int) -> None:
        process = self.processes[task]
        if self.replies[task]:
            reply = self.replies[task].popleft()
            assert reply.answer in (Answer.ACCEPTED, Answer.DROPPED, Answer.CLOSED)
            process.known_step = reply.step
            process.doing = "ended" if reply.answer == Answer.CLOSED else "idle"

    # --- what the updater does -----------------------------------------------------------------------------------
    def hear(self) -> None:
        message, task, number = self.arrivals.popleft()
        if message == LEFT:
            self.left.add(task)
        elif message == JOINED:
            self.left.discard(task)
        for action in self.barrier.hear(message, task, number):
            self._do(action)
        enough = min(self.aggregate, len(set(range(len(self.sizes))) - self.left | set(self.barrier.admitted)))
        assert len(self.barrier.admitted) <= self.aggregate
        if self.barrier.admitted and not self.barrier.is_paused:
            assert len(self.barrier.admitted) < enough, "an update is due, and all wait"

    def _do(self, action: Action) -> None:
        match action:
            case Drain(task):
                for queue in self.sent[task]:
                    queue.clear()
            case Admit(task) | Discard(task):
                # An element that is not there would block the updater for ever.
                taken = [queue.popleft() for queue in self.sent[task]]
                assert taken[0] == taken[1], "the servers' parts belong to different gradients"
                if isinstance(action, Admit):
                    for queue, gradient in zip(self.admitted, taken, strict=True):
                        queue.append(gradient)
                elif self.barrier.is_closed:
                    self.counts["refused"] += 1
                else:
                    self.dropped.append(task)
                    self.counts["dropped"] += 1
            case Forget(tasks):
                assert len(tasks) == len(self.admitted[0]) == len(self.admitted[1])
                self.counts["forgotten"] += len(tasks)
                for queue in self.admitted:
                    queue.clear()
            case Update():
                self._update(action)
            case Reply(task, answer):
                self.replies[task].append(action)
                process = self.processes[task]
                # Before its welcome a process reads past all that was said to an earlier one.
                if answer != Answer.WELCOME and process.doing not in ("ended", "born", "joining"):
                    process.answers += 1
                    assert (process.doing, process.answers) == ("waiting", 1), "an answer that nobody asked for"

    def _update(self, update: Update) -> None:
        tasks = range(len(self.sizes))
        taken = [[queue.popleft() for _ in update.tasks] for queue in self.admitted]
        assert taken[0] == taken[1]
        assert self.processes[CHIEF].doing != "paused", "the variables change while the chief takes a snapshot"
        assert not self.admitted[0], "a gradient stays behind and would enter the next update"
        assert tuple(gradient.task for gradient in taken[0]) == update.tasks
        assert len(set(update.tasks)) == len(update.tasks), "two gradients of one task"
        assert {gradient.pulled for gradient in taken[0]} == {self.step}, "a stale gradient"
        assert len(update.tasks) == min(self.aggregate, len(set(tasks) - self.left | set(update.tasks)))
        assert update.examples == sum(self.sizes[task] for task in update.tasks)
        assert list(update.dropped) == self.dropped
        self.dropped = []
        self.step += 1
        self.counts["updates"] += 1
        self.counts["accepted"] += len(update.tasks)
        assert self.barrier.step == self.step


@pytest.mark.parametrize("seed", range(5))
def test_in_any_history_no_gradient_is_stale_or_taken_twice_and_everybody_is_answered_once(seed: int) -> None:
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    for _ in range(500):
        sizes = [chance.randint(1, 64) for _ in range(chance.randint(1, 4))]
        world = World(sizes, chance.randint(1, len(sizes)), chance)
        tasks, eagerness = range(len(sizes)), chance.choice((0.2, 0.5, 0.8))
        for _ in range(chance.randint(20, 600)):
            if world.arrivals and chance.random() < eagerness:
                world.hear()
            else:
                world.act(chance.choice(tasks))
        # The end of training: everything said is heard, and nobody is left waiting.
        world.arrivals.append((CLOSED, chance.choice(tasks), 0))
        while world.arrivals:
            world.hear()
        assert world.barrier.is_closed
        for task, process in enumerate(world.processes):
            if process.doing == "waiting":
                assert len(world.replies[task]) == 1, "nobody waits for ever, and nobody is answered twice"
            elif process.doing in ("joining", "pausing"):
                assert [reply.echo for reply in world.replies[task]].count(process.number) == 1
        ends = ("accepted", "dropped", "forgotten", "refused")
        assert world.counts["arrived"] == sum(world.counts[end] for end in ends), "every gradient has one end"
        assert not world.admitted[0]
        total += world.counts
    # The histories were worth looking at: all kinds of things happened in them, often.
    assert total["updates"] > 5000
    assert min(total[often] for often in ("dropped", "forgotten", "refused", "snapshots")) > 20, total
