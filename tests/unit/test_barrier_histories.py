"""All rules of barrier.py at once, in any order: thousands of random histories of a whole cluster.

Tasks behave as ps_sync.py makes them, and the gradients are moved as updater.py moves them: with backup tasks through a
queue of what was admitted, else within the tasks' own queues.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable
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
SERVERS = range(2)
CALM_ROUNDS = 100  # of every task's next move: a life from its birth to its second answer has about 15


@dataclass(frozen=True)
class Gradient:
    number: int
    task: int
    pulled: int
    """The step whose variables it was really computed from."""


# --- what the updater does with gradients -----------------------------------------------------------------------------
Part = deque[Gradient]
"""A queue on one server."""
Taken = list[list[Gradient]]
"""What was taken on each server."""


def first(queue: Part) -> Gradient:
    assert queue, "an element that is not there would block the updater for ever"
    return queue.popleft()


class ThroughAdmitted:
    """With backup tasks: what is admitted goes to a queue of its own."""

    def __init__(self, num_tasks: int) -> None:
        self.own: list[list[Part]] = [[deque() for _ in SERVERS] for _ in range(num_tasks)]
        self.admitted: list[Part] = [deque() for _ in SERVERS]

    def admit(self, task: int) -> None:
        for own, admitted in zip(self.own[task], self.admitted, strict=True):
            admitted.append(first(own))

    def discard(self, task: int) -> Taken:
        return [[first(queue)] for queue in self.own[task]]

    def drain(self, task: int) -> Taken:
        return [[first(queue) for _ in range(len(queue))] for queue in self.own[task]]

    def take(self, tasks: tuple[int, ...]) -> Taken:
        """For an update, or to forget them."""
        return [[first(queue) for _ in tasks] for queue in self.admitted]


class InPlace:
    """Where every task is in every update: what is admitted stays where it is, and must be the first there when the
    update takes one element of each."""

    def __init__(self, num_tasks: int) -> None:
        self.own: list[list[Part]] = [[deque() for _ in SERVERS] for _ in range(num_tasks)]
        self.kept: set[int] = set()
        """Whose first gradient is for the next update."""
        self.saved = 0
        """How often one had to be kept from being thrown away."""

    def admit(self, task: int) -> None:
        self.kept.add(task)

    def discard(self, task: int) -> Taken:
        return self._throw_away(task, [1 for _ in SERVERS])

    def drain(self, task: int) -> Taken:
        return self._throw_away(task, [len(queue) - (task in self.kept) for queue in self.own[task]])

    def _throw_away(self, task: int, counts: list[int]) -> Taken:
        taken: Taken = []
        for queue, count in zip(self.own[task], counts, strict=True):
            if count and task in self.kept:
                queue.append(first(queue))
                self.saved += 1
            taken.append([first(queue) for _ in range(count)])
        return taken

    def take(self, tasks: tuple[int, ...]) -> Taken:
        """For an update, or to forget them."""
        self.kept.clear()
        return [[first(self.own[task][server]) for task in tasks] for server in SERVERS]


# --- the cluster ------------------------------------------------------------------------------------------------------
@dataclass
class Process:
    """A task's process, as ps_sync.py makes it behave."""

    echo: int
    """The number of its last question."""
    doing: str = "born"  # then joining, idle, sending, sent, waiting; of the chief pausing, snapshot; ended
    known_step: int = 0
    gradient: Gradient | None = None
    unsent: list[int] = field(default_factory=list)
    """Servers that do not have it yet."""
    answers: int = 0
    """Answers to its last arrival."""


@dataclass
class World:
    """Queues, servers and processes around a barrier. Messages are heard in their order, but later than said."""

    sizes: list[int]
    aggregate: int
    chance: random.Random
    last_step: int | None = None
    is_calm: bool = False
    """From now on nothing fails, and nobody leaves for good."""
    step: int = 0
    """What the variables are at."""

    def __post_init__(self) -> None:
        self.tasks = range(len(self.sizes))
        self.has_backups = self.aggregate < len(self.sizes)
        self.barrier = Barrier(self.sizes, self.aggregate, last_step=self.last_step)
        of_mode = ThroughAdmitted if self.has_backups else InPlace
        self.queues: ThroughAdmitted | InPlace = of_mode(len(self.sizes))
        self.arrivals: deque[tuple[Message, int, int]] = deque()
        self.announced: list[deque[Gradient]] = [deque() for _ in self.tasks]  # and not heard of yet
        self.chosen: dict[int, Gradient] = {}
        """What the next update must take, by task, in the order of arrival."""
        self.ends: dict[Gradient, str] = {}
        """What became of every gradient that was announced."""
        self.replies: list[deque[Reply]] = [deque() for _ in self.tasks]
        self.numbers = 0
        self.processes = [Process(self._new_number()) for _ in self.tasks]
        self.left: set[int] = set()
        """As far as the barrier has heard."""
        self.counts: Counter[str] = Counter()
        self.dropped: list[int] = []
        self.answered: Counter[int] = Counter()
        """How often each task heard what became of its gradient, and may go on."""

    def _new_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _happens(self, probability: float) -> bool:
        return not self.is_calm and self.chance.random() < probability

    # --- what tasks do -------------------------------------------------------------------------------------------
    def act(self, task: int) -> None:
        """The task's next move, or its end, or its next life."""
        process = self.processes[task]
        if process.doing == "ended":
            if self.is_calm or self._happens(0.3):
                self.processes[task] = Process(self._new_number())
            elif self._happens(0.05):
                self.arrivals.append((LEFT, task, 0))  # the launcher gives it up
            return
        if self._happens(0.03):
            process.doing = "ended"  # killed; what it has said and sent stays
            return
        match process.doing:
            case "born":
                self.arrivals.append((JOINED, task, process.echo))
                process.doing = "joining"
            case "joining":
                if self._happens(0.05):  # it has waited long and says it again
                    self._join_anew(process)
                else:
                    self._read_welcome(task)
            case "idle":
                self._go_on(task)
            case "sending":
                if self._happens(0.02):  # a server has refused its part of the step (graph.was_refused)
                    self._join_anew(process)
                else:
                    self._send(process)
            case "sent":
                assert process.gradient is not None
                self.arrivals.append((ARRIVED, task, process.known_step))
                self.announced[task].append(process.gradient)
                self.counts["arrived"] += 1
                process.doing, process.answers = "waiting", 0
            case "waiting":
                if self._happens(0.01):  # the answer was refused; whether it was taken from the queue is chance
                    if self.replies[task] and self._happens(0.5):
                        self.replies[task].popleft()
                    self._join_anew(process)
                else:
                    self._read_answer(task)
            case "pausing":
                if self._happens(0.05):  # it has waited long and says it again
                    self._ask_for_a_pause(task)
                elif self.replies[task] and self.replies[task].popleft().echo == process.echo:
                    process.doing = "snapshot"
            case "snapshot":
                if self.has_backups:
                    self.arrivals.append((RESUMED, task, 0))
                self.counts["snapshots"] += 1
                process.doing, process.answers = "idle", 0

    def _join_anew(self, process: Process) -> None:
        process.echo, process.doing, process.answers = self._new_number(), "born", 0

    def _go_on(self, task: int) -> None:
        process = self.processes[task]
        if self.last_step is not None and process.known_step >= self.last_step:
            self.arrivals.append((CLOSED, task, 0))
            process.doing = "ended"
        elif self._happens(0.02):
            self.arrivals.append((LEFT if self.chance.random() < 0.8 else CLOSED, task, 0))
            process.doing = "ended"
        elif task == CHIEF and self.has_backups and self._happens(0.2):
            self._ask_for_a_pause(task)
        elif task == CHIEF and process.answers and not self.has_backups and self._happens(0.2):
            # After an answer: then no gradient of the chief is admitted, and without one there is no update.
            process.doing = "snapshot"
        else:
            process.gradient = Gradient(self._new_number(), task, self.step)
            process.unsent = self.chance.sample(SERVERS, len(SERVERS))
            process.doing = "sending"

    def _ask_for_a_pause(self, task: int) -> None:
        process = self.processes[task]
        process.echo, process.doing = self._new_number(), "pausing"
        self.arrivals.append((PAUSED, task, process.echo))

    def _send(self, process: Process) -> None:
        assert process.gradient is not None
        self.queues.own[process.gradient.task][process.unsent.pop()].append(process.gradient)
        if not process.unsent:
            process.doing = "sent"

    def _read_welcome(self, task: int) -> None:
        process = self.processes[task]
        while self.replies[task]:
            reply = self.replies[task].popleft()
            if reply.echo == process.echo and reply.answer in (Answer.WELCOME, Answer.CLOSED):
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
            self.answered[task] += reply.answer != Answer.CLOSED

    # --- what the updater does -----------------------------------------------------------------------------------
    def hear(self) -> None:
        message, task, number = self.arrivals.popleft()
        if message == LEFT:
            self.left.add(task)
        elif message == JOINED:
            self.left.discard(task)
        self._do_all(self.barrier.hear(message, task, number))
        enough = min(self.aggregate, len(set(self.tasks) - self.left | set(self.barrier.admitted)))
        assert self.barrier.admitted == list(self.chosen)
        assert len(self.barrier.admitted) <= self.aggregate
        if self.barrier.admitted and not self.barrier.is_paused:
            assert len(self.barrier.admitted) < enough, "an update is due, and all wait"
        if self.step == self.last_step:
            assert self.barrier.is_closed

    def _do_all(self, actions: list[Action]) -> None:
        for number, action in enumerate(actions):
            if isinstance(action, Update):
                self._update(action)
                replies = {other for other in actions[number:] if isinstance(other, Reply)}
                due = {Reply(task, Answer.ACCEPTED, self.barrier.step) for task in action.tasks}
                if not self.has_backups and replies == due:  # told in the call that counts; nothing else is done
                    self.counts["told at once"] += 1
                    for task in action.tasks:
                        self._reply(Reply(task, Answer.ACCEPTED, self.step))
                    return
            else:
                self._do(action)

    def _do(self, action: Drain | Admit | Discard | Forget | Reply) -> None:
        match action:
            case Drain(task):
                for gradient in (each for taken in self.queues.drain(task) for each in taken):
                    assert gradient not in self.chosen.values(), "an admitted gradient is thrown away"
                    assert gradient not in self.ends
                    assert gradient not in self.announced[task], "its arrival is still to be heard"
            case Admit(task):
                self.chosen[task] = self.announced[task].popleft()
                self.queues.admit(task)
            case Discard(task):
                right = [self.announced[task].popleft()]
                self._end("refused" if self.barrier.is_closed else "dropped", right, self.queues.discard(task))
                if not self.barrier.is_closed:
                    self.dropped.append(task)
            case Forget(tasks):
                assert tasks == tuple(self.chosen)
                self._end("forgotten", self.chosen.values(), self.queues.take(tasks))
                self.chosen = {}
            case Reply():
                self._reply(action)

    def _end(self, how: str, right: Iterable[Gradient], taken: Taken) -> None:
        """These gradients come to their end, and they are the right ones on both servers."""
        right = list(right)
        assert taken == [right for _ in SERVERS], "others than those that were announced, or only parts of them"
        for gradient in right:
            assert gradient not in self.ends, "a gradient comes to an end twice"
            self.ends[gradient] = how
        self.counts[how] += len(right)

    def _reply(self, reply: Reply) -> None:
        self.replies[reply.task].append(reply)
        process = self.processes[reply.task]
        # Before its welcome a process reads past all that was said to an earlier one.
        if reply.answer != Answer.WELCOME and process.doing not in ("ended", "born", "joining"):
            process.answers += 1
            assert (process.doing, process.answers) == ("waiting", 1), "an answer that nobody asked for"

    def _update(self, update: Update) -> None:
        assert self.processes[CHIEF].doing != "snapshot", "the variables change while the chief takes a snapshot"
        assert self.last_step is None or self.step < self.last_step, "an update behind the last step"
        assert len(set(update.tasks)) == len(update.tasks), "two gradients of one task"
        assert update.tasks == tuple(self.chosen)
        assert {gradient.pulled for gradient in self.chosen.values()} == {self.step}, "a stale gradient"
        assert len(update.tasks) == min(self.aggregate, len(set(self.tasks) - self.left | set(update.tasks)))
        assert update.examples == sum(self.sizes[task] for task in update.tasks)
        assert list(update.dropped) == self.dropped
        self._end("accepted", self.chosen.values(), self.queues.take(update.tasks))
        self.chosen, self.dropped = {}, []
        self.step += 1
        self.counts["updates"] += 1
        assert self.barrier.step == self.step

    # --- the end -------------------------------------------------------------------------------------------------
    def calm_down(self) -> None:
        """Nothing fails any more: whatever has happened, training goes on with everybody, to its end if it has one."""
        self.is_calm = True
        self.answered.clear()
        aim = self.step + 3
        for _ in range(CALM_ROUNDS):
            while self.arrivals:
                self.hear()
            if self.step == self.last_step:
                return
            if self.step >= aim and all(self.answered[task] >= 2 for task in self.tasks):
                return
            for task in self.tasks:
                self.act(task)
        raise AssertionError("training does not go on")

    def close(self) -> None:
        """Everything said is heard, and then every gradient has come to an end and nobody is left waiting."""
        self.arrivals.append((CLOSED, self.chance.choice(self.tasks), 0))
        while self.arrivals:
            self.hear()
        assert self.barrier.is_closed
        for process, replies in zip(self.processes, self.replies, strict=True):
            if process.doing == "waiting":
                assert len(replies) == 1, "nobody waits for ever, and nobody is answered twice"
            elif process.doing in ("joining", "pausing"):
                assert [reply.echo for reply in replies].count(process.echo) == 1
        assert not any(self.announced)
        assert len(self.ends) == self.counts["arrived"]
        left = [gradient for queues in self.queues.own for queue in queues for gradient in queue]
        assert not any(gradient in self.ends for gradient in left)
        assert not (self.queues.kept if isinstance(self.queues, InPlace) else any(self.queues.admitted))


@pytest.mark.parametrize("has_backups", [False, True], ids=["every task", "backups"])
@pytest.mark.parametrize("seed", range(5))
def test_in_any_history_no_gradient_is_stale_or_taken_twice_and_everybody_is_answered_once(
    seed: int, has_backups: bool
) -> None:
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    for _ in range(500):
        num_tasks = chance.randint(2 if has_backups else 1, 4)
        sizes = [chance.randint(1, 64) for _ in range(num_tasks)]
        aggregate = chance.randint(1, num_tasks - 1) if has_backups else num_tasks
        last_step = chance.randint(1, 30) if chance.random() < 0.3 else None
        world, eagerness = World(sizes, aggregate, chance, last_step), chance.choice((0.2, 0.5, 0.8))
        for _ in range(chance.randint(20, 600)):
            if world.arrivals and chance.random() < eagerness:
                world.hear()
            else:
                world.act(chance.choice(world.tasks))
        if chance.random() < 0.5:
            world.calm_down()
        world.close()
        total += world.counts
        total["reached the last step"] += world.step == last_step
        total["saved"] += world.queues.saved if isinstance(world.queues, InPlace) else 0
    # The histories were worth looking at: all kinds of things happened in them, often.
    assert total["updates"] > 5000
    often = ["dropped", "forgotten", "refused", "snapshots", "reached the last step"]
    if not has_backups:
        assert total["told at once"] > 0.5 * total["updates"]
        total["told one by one"] = total["updates"] - total["told at once"]
        often += ["told one by one", "saved"]
    assert min(total[kind] for kind in often) > 20, total
