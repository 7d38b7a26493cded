"""What the loop asks of a strategy. A strategy is one file in strategies/ that gives a Trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from headway.engines.tensorflow.initial import Values


class Disconnected(Exception):
    """The servers (or the other members) went away; the same Trainer can be started again."""


class Stopped(Exception):
    """A stop was asked for while the task waited for others, or they ended training."""

    def __init__(self, step: int | None = None) -> None:
        super().__init__(f"at step {step}")
        self.step = step
        """The global step at which training ended, where it is known."""


@dataclass(frozen=True)
class Started:
    """How training begins, or goes on after a disconnection."""

    how: Literal["fresh", "restored", "adopted"] | None
    """What the chief did with the variables; None for other tasks, which wait until it has been done."""
    step: int
    generation: int
    """Counts the times that the variables were made or restored in this run: steps of different generations do
    not follow one another."""
    checkpoint: str | None = None
    """The checkpoint that was restored."""


class StepResult(NamedTuple):
    step: int
    """The global step after the last of the updates."""
    num_steps: int
    loss: float
    """Mean over the examples of all the steps of the call; the data's alone."""
    penalty: float | None
    """Mean of what weight decay adds to the loss; None without it."""
    accepted: int
    """Gradients of the call that entered an update: all of them, unless synchronous training dropped late ones."""
    staleness: list[int] | None
    """For each update: how many updates of other tasks came between its pull and its push."""
    input_seconds: float | None
    """Wait for input; None where it cannot be seen."""


@dataclass(frozen=True)
class Snapshot:
    """All variables (model, optimizer, global step) by name. Evaluation, checkpoint and export all start here."""

    step: int
    generation: int
    values: Values


class Trainer(Protocol):
    def start(self, own_steps: int) -> Started:
        """Connect, and wait until (chief: see to it that) the variables are ready.

        `own_steps` is how many steps this task has made already: its input goes on behind them. Raises Stopped
        when a stop is asked for meanwhile, and HeadwayError when the wait's limit is reached.
        """

    def step(self, num_steps: int) -> StepResult:
        """Make `num_steps` training steps in one call. Raises Disconnected; and Stopped when training was ended by
        another task, which this one was waiting for."""

    def leave(self, reason: str) -> None:
        """This task will make no further step, for that reason (see loop.py). Where others wait for it in every step,
        they are told. Never raises, and never takes long."""

    def snapshot(self) -> Snapshot:
        """The variables as they are now. Raises Disconnected."""

    def placement(self) -> list[dict[str, Any]]:
        """Where each variable lives: name, device, bytes, shape, trainable."""

    def graph(self) -> Any | None:
        """The tf.Graph for TensorBoard, if there is one."""

    def close(self) -> None:
        """Give up the connection; never blocks."""
