"""When a synchronous update is due, and whose gradients it takes. Pure: no TensorFlow, no clock, no process.

    messages of tasks                          what the updater does
    joined, arrived, left, closed  --> Barrier --> Drain, Admit, Discard, Forget, Update, Reply

The rules
- An update takes `aggregate` gradients, each of another task, all computed from the variables of the present step.
- A gradient of an older step is dropped, and so is a second one of the same task in one step (its first was sent by a
  process that died since). Dropped gradients are counted, and their task goes on with the present step.
- A task that died is waited for until it joins again; a task that left is not.
- Paused (by the chief, while it takes a snapshot): no update is made, so the snapshot is of one step.
- The update that reaches the last step, where one is asked for, closes it.
- Closed: nobody updates any more. Everybody who waits, or comes later, is told so; the chief may open it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

CHIEF = 0


class Message(IntEnum):
    """What a task says."""

    JOINED = 0
    ARRIVED = 1
    LEFT = 2
    CLOSED = 3
    PAUSED = 4
    RESUMED = 5


class Answer(IntEnum):
    """What a task is told."""

    CLOSED = -1
    DROPPED = 0
    ACCEPTED = 1
    WELCOME = 2


@dataclass(frozen=True)
class Drain:
    """Throw away whatever an earlier process of this task has sent and not announced."""

    task: int


@dataclass(frozen=True)
class Admit:
    """The task's gradient will be in the next update."""

    task: int


@dataclass(frozen=True)
class Discard:
    """The task's gradient came too late."""

    task: int


@dataclass(frozen=True)
class Forget:
    """Throw the admitted gradients of these tasks away: there will be no update."""

    tasks: tuple[int, ...]


@dataclass(frozen=True)
class Update:
    """Apply the admitted gradients and count the step."""

    tasks: tuple[int, ...]
    """In the order of their arrival."""
    examples: int
    dropped: tuple[int, ...]
    """Whose gradients were dropped since the last update."""


@dataclass(frozen=True)
class Reply:
    task: int
    answer: Answer
    step: int
    echo: int = 0
    """Of a WELCOME: the number that the task joined with, so that it knows its own welcome."""


Action = Drain | Admit | Discard | Forget | Update | Reply


@dataclass
class Barrier:
    batch_sizes: Sequence[int]
    """Of every task."""
    aggregate: int
    step: int = 0
    last_step: int | None = None
    is_closed: bool = False
    is_paused: bool = False
    admitted: list[int] = field(default_factory=list)
    """Whose gradients the next update has so far."""
    _waiting: dict[int, Answer] = field(default_factory=dict)
    """Who is to be told of the next update, and what."""
    _dropped: list[int] = field(default_factory=list)
    _left: set[int] = field(default_factory=set)

    def begin(self, step: int) -> None:
        """The variables are of this step."""
        self.step, self.is_closed = step, step == self.last_step

    @property
    def missing(self) -> list[int]:
        """Whose gradients the next update could still take."""
        return [task for task in range(len(self.batch_sizes)) if task not in self._left and task not in self.admitted]

    def hear(self, message: Message, task: int, number: int = 0) -> list[Action]:
        """`number`: of ARRIVED, the step whose variables the gradient comes from; of JOINED and PAUSED, any,
        for the echo."""
        match message:
            case Message.JOINED:
                return self._joined(task, number)
            case Message.ARRIVED:
                return self._arrived(task, number)
            case Message.LEFT:
                self._left.add(task)
                return self._update_if_due()
            case Message.CLOSED:
                return self._close()
            case Message.PAUSED:
                self.is_paused = True
                return [Reply(task, Answer.WELCOME, self.step, number)]
            case Message.RESUMED:
                self.is_paused = False
                return self._update_if_due()

    def _joined(self, task: int, echo: int) -> list[Action]:
        self._waiting.pop(task, None)  # what was due to an earlier process of this task
        self._left.discard(task)
        resumed: list[Action] = []
        if task == CHIEF:  # an earlier process of the chief may have closed or paused it
            self.is_closed, self.is_paused = self.step == self.last_step, False
            resumed = self._update_if_due()
        # At the end the chief is welcome all the same: it saves what was trained.
        answer = Answer.CLOSED if self.is_closed and task != CHIEF else Answer.WELCOME
        return [Drain(task), *resumed, Reply(task, answer, self.step, echo)]

    def _arrived(self, task: int, step: int) -> list[Action]:
        if self.is_closed:
            return [Discard(task), Reply(task, Answer.CLOSED, self.step)]
        if step != self.step:
            self._dropped.append(task)
            return [Discard(task), Reply(task, Answer.DROPPED, self.step)]
        if task in self.admitted or len(self.admitted) >= self.aggregate:  # its second one; or one too many, in a pause
            self._dropped.append(task)
            self._waiting[task] = Answer.DROPPED  # told later: there is nothing to do for it before the next update
            return [Discard(task)]
        self._waiting[task] = Answer.ACCEPTED
        self.admitted.append(task)
        return [Admit(task), *self._update_if_due()]

    def _update_if_due(self) -> list[Action]:
        # Who left after arriving still gives its gradient: else the update would not wait for one of the others.
        present = len(self.batch_sizes) - len(self._left.difference(self.admitted))
        if self.is_paused or not self.admitted or len(self.admitted) < min(self.aggregate, present):
            return []
        accepted = tuple(self.admitted)
        self.step += 1
        update = Update(accepted, sum(self.batch_sizes[task] for task in accepted), tuple(self._dropped))
        replies = [Reply(task, answer, self.step) for task, answer in sorted(self._waiting.items())]
        self.admitted, self._waiting, self._dropped = [], {}, []
        self.is_closed = self.step == self.last_step
        return [update, *replies]

    def _close(self) -> list[Action]:
        self.is_closed = True
        told = [Reply(task, Answer.CLOSED, self.step) for task in sorted(self._waiting)]
        forgotten = [Forget(tuple(self.admitted))] if self.admitted else []
        self.admitted, self._waiting = [], {}
        return [*forgotten, *told]
