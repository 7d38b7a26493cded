"""A run that is made to be measured (`measure.steps`): when its warm-up is over, and when it has been measured for long
enough. Pure, like the supervisor: it keeps no time of its own.

A task that joins late slows the others down, so the warm-up of all begins when the last of them has made a step. It
ends for all of them at once: the launcher tells them, and from then on their rows are no warm-up any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from headway.spec.cluster import Task
from headway.spec.job import Job

PIECES = 6  # pieces of the step time's history that are compared, the later half with the earlier one
TOLERANCE = 0.1  # share by which the halves may differ
LEAST_SECONDS = 5.0  # a warm-up is not given up sooner, however many steps it has made
TO_DEVIATION = 1.4826  # of a median absolute deviation, for a normal distribution


def is_steady(pace: Sequence[float], pieces: int = PIECES) -> bool:
    """Whether the last seconds-per-step are as the ones before them: their medians differ by less than a tenth, or by
    less than their own noise makes likely."""
    if len(pace) < pieces:
        return False
    recent = list(pace[-pieces:])
    before, after = recent[: pieces // 2], recent[pieces // 2 :]
    first, second = median(before), median(after)
    noise = median([abs(value - first) for value in before] + [abs(value - second) for value in after])
    allowed: float = max(TOLERANCE * first, 2 * TO_DEVIATION * noise * (4 / pieces) ** 0.5)
    return abs(second - first) <= allowed


@dataclass
class _Heard:
    """What was heard of one task's steps since all tasks step."""

    steps: list[tuple[float, int]] = field(default_factory=list)
    """When, and how many own steps it had made."""
    measured_since: tuple[float, int] | None = None
    """The first row that is no warm-up."""

    @property
    def made(self) -> int:
        return self.steps[-1][1] - self.steps[0][1] if self.steps else 0

    @property
    def pace(self) -> list[float]:
        """Seconds per step between what was heard: of fast tasks only every so many steps are."""
        return [
            (later - earlier) / (after - before)
            for (earlier, before), (later, after) in zip(self.steps, self.steps[1:], strict=False)
            if after > before
        ]

    @property
    def measured(self) -> tuple[float, int]:
        """Seconds and steps since its warm-up ended."""
        if self.measured_since is None:
            return 0.0, 0
        return self.steps[-1][0] - self.measured_since[0], self.steps[-1][1] - self.measured_since[1]


class Measuring:
    def __init__(self, job: Job) -> None:
        self._measure = job.measure
        self._tasks = {task: _Heard() for task in job.cluster.training_tasks()}
        self._all_since: float | None = None
        self.has_begun = False
        """Whether the tasks were told that their warm-up is over."""

    @property
    def is_asked(self) -> bool:
        return self._measure.steps is not None

    def heard(self, task: Task, said: dict[str, Any], now: float) -> None:
        """A step of a training task."""
        if not self.is_asked or task not in self._tasks:
            return
        state = self._tasks[task]
        is_first = not state.steps
        state.steps.append((float(said.get("t", now)), int(said["own_step"])))
        if is_first and all(each.steps for each in self._tasks.values()):
            self._all_since = now
            for each in self._tasks.values():
                del each.steps[:-1]
        if self.has_begun and not said.get("warmup") and state.measured_since is None:
            # What was heard is the end of its first measured steps: at worst a few more are made than asked.
            state.measured_since = state.steps[-1]

    def left(self, task: Task) -> None:
        """Its process is gone: what it did is none of the next one's."""
        if self.is_asked and task in self._tasks:
            self._tasks[task] = _Heard()

    def look(self, now: float) -> Literal["begin", "stop"] | None:
        """What is due: to begin measuring, or to stop, because enough was measured."""
        if not self.is_asked or self._all_since is None or not all(each.steps for each in self._tasks.values()):
            return None
        if not self.has_begun:
            return "begin" if self._is_warm(now) else None
        return "stop" if self._is_enough() else None

    def begin(self, now: float) -> dict[str, Any]:
        """What the record says of the warm-up."""
        self.has_begun = True
        return {
            "is_steady": self._is_steady(),
            "warmup_seconds": round(now - (self._all_since or now), 3),
            "warmup_steps": {str(task): each.made for task, each in self._tasks.items()},
        }

    def _is_warm(self, now: float) -> bool:
        fewest = min(each.made for each in self._tasks.values())
        if fewest < self._measure.warmup:
            return False
        is_over = fewest >= self._measure.most_warmup and now - (self._all_since or now) >= LEAST_SECONDS
        return is_over or self._is_steady()

    def _is_steady(self) -> bool:
        return all(is_steady(each.pace) for each in self._tasks.values())

    def _is_enough(self) -> bool:
        wanted = self._measure.steps or 0
        return all(
            seconds >= self._measure.seconds and steps >= wanted
            for seconds, steps in (each.measured for each in self._tasks.values())
        )
