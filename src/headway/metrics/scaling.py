"""Speed-up and efficiency over training tasks, each with the baseline it is measured against, and fitted trends.

A speed-up without its baseline is no figure: E1's "1 worker" is two training tasks, since its master trains too, and so
E1 called the same numbers above and below linear.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from headway.metrics.effect import ratio
from headway.metrics.estimate import Estimate, Floats

Kind = Literal["strong", "weak"]
Of = Literal["rate", "seconds"]
TIMES = ("training_seconds", "time_to_train", "seconds")
TO_ACCURACY = "time_to_accuracy"
SUPERLINEAR = 1.05  # times the rate of a task of the smallest cluster
SHORT_OF_IDEAL = 0.9  # of the ideal speed-up: what is lost then wants an explanation
SAME_WORK = 0.01  # epochs are whole steps, which are larger with more tasks


@dataclass(frozen=True)
class Point:
    """One cluster size, measured once or several times."""

    tasks: int
    """Training tasks: a chief that trains is one of them."""
    samples: tuple[float, ...]
    """Of each repeat: work per second (examples/s), or the seconds that the work took."""
    label: str
    """How the report names it: `single`, `1 ps + 2 training tasks`."""


@dataclass(frozen=True)
class Speedup:
    tasks: int
    value: Estimate
    """How many times the baseline's speed."""
    efficiency: Estimate
    """The speed-up for each training task of the baseline's size: 1 is ideal."""
    baseline: str
    """The label of what it is compared with."""
    kind: Kind = "strong"
    label: str = ""

    @property
    def is_above_linear(self) -> bool:
        """More than ideal, and not by chance: mostly a sign that the baseline is not what its name says."""
        return self.efficiency.num > 1 and self.efficiency.low > 1.0

    @property
    def is_below_linear(self) -> bool:
        """Less than ideal, and not by chance."""
        return self.efficiency.num > 1 and self.efficiency.high < 1.0

    @property
    def is_short(self) -> bool:
        """So much less than ideal that one asks why."""
        return self.efficiency.value < SHORT_OF_IDEAL


def what_is(figure: str) -> Of:
    """Whether less of a run's figure is faster: the time that its work took."""
    return "seconds" if figure in TIMES or figure.startswith(f"{TO_ACCURACY}.") else "rate"


def kind_of(
    figures: Iterable[Mapping[str, Any]], baseline: Iterable[Mapping[str, Any]] = (), figure: str = "examples_per_s"
) -> Kind:
    """Of runs' summaries, and of what they are compared with: do all tasks together have the same work there, or each
    of them?

    Of a rate it is the work of one update: a batch that all tasks share is the same for any number of them. Of a time
    it is the work of the whole run, as it was asked: 10,000 global steps are 10,000 batches under ps-async, and so many
    times the number of tasks under ps-sync. To an accuracy is the same work always. Where runs were not asked for a
    number of steps (those that are measured end when each task has made its own), the batch decides.
    """
    here = list(figures)
    if what_is(figure) == "seconds":
        if figure.startswith(f"{TO_ACCURACY}."):
            return "strong"
        work, before = _work(here), _work(baseline)
        if work is not None and before is not None:
            return "strong" if math.isclose(work, before, rel_tol=SAME_WORK) else "weak"
    return "strong" if any(each.get("global_batch_size") for each in here) else "weak"


def _work(figures: Iterable[Mapping[str, Any]]) -> float | None:
    """Examples that a run was asked to train on; None where that is not said of all."""
    found = []
    for each in figures:
        steps, batch = each.get("asked_steps"), each.get("asked_batch") or each.get("effective_batch")
        if not steps or not batch:
            return None
        found.append(float(steps) * float(batch))
    return float(np.median(found)) if found else None


def speedup(points: Sequence[Point], baseline: Point, kind: Kind, of: Of = "rate") -> list[Speedup]:
    """For each point, in the order of tasks.

    strong: all points do the same work together. weak: each task does as much as before, so the work grows with the
    tasks. Of rates (work per second) both are rate / baseline's rate. Of seconds the strong speed-up is baseline's
    seconds / seconds, and the weak one that times tasks / baseline's tasks. Efficiency = speed-up x baseline's tasks /
    tasks.
    """
    found = []
    for point in sorted(points, key=lambda point: (point.tasks, point.label)):
        share = baseline.tasks / point.tasks
        if of == "rate":
            value = ratio(point.samples, baseline.samples)
        else:
            value = ratio(baseline.samples, point.samples)
            value = value.scaled(1 / share) if kind == "weak" else value
        found.append(Speedup(point.tasks, value, value.scaled(share), baseline.label, kind, point.label))
    return found


@dataclass(frozen=True)
class Trend:
    """A fitted law: rate(n) = each * n / (1 + contention * (n - 1) + coherency * n * (n - 1)).

    Amdahl's law has no coherency: the rate only flattens out. With it (the universal scalability law) there is a number
    of tasks beyond which more of them are slower.
    """

    law: Literal["amdahl", "usl"]
    each: float
    """The rate of one task alone."""
    contention: float
    """The share of the work that tasks cannot do at the same time."""
    coherency: float
    """What every pair of tasks costs."""
    residual: float
    """Root of the mean squared relative distance between the points and the law."""
    num: int
    """How many points it was fitted to."""
    misfit: Literal["slower", "superlinear"] | None = None
    """Why the law does not describe the points, and its parameters are no shares: more tasks are slower than fewer, or
    each task is faster beside others."""

    def rate(self, tasks: float) -> float:
        return self.each * tasks / (1 + self.contention * (tasks - 1) + self.coherency * tasks * (tasks - 1))

    @property
    def peak(self) -> float | None:
        """The number of tasks with the highest rate; None where more tasks are always faster."""
        return math.sqrt(max(0.0, 1 - self.contention) / self.coherency) if self.coherency > 0 else None

    @property
    def limit(self) -> float | None:
        """The highest rate that the law ever gives; None where it grows without end."""
        if self.peak is not None:
            return self.rate(max(1.0, self.peak))
        return self.each / min(1.0, self.contention) if self.contention > 0 else None


def trend(points: Sequence[Point], law: Literal["amdahl", "usl"] = "usl") -> Trend | None:
    """The law that fits the points' medians (rates) best, in the sense of relative error; None where fewer sizes were
    measured than the law has parameters.

    n / rate is linear in the law's parameters, so there is one best fit and no search. Negative parameters mean
    nothing: whichever would be is held at zero.
    """
    sizes = sorted({point.tasks for point in points})
    num_parameters = 2 if law == "amdahl" else 3
    if len(sizes) < num_parameters or any(point.tasks < 1 for point in points):
        return None
    tasks = np.array([point.tasks for point in points], dtype=np.float64)
    rates = np.array([float(np.median(point.samples)) for point in points])
    if (rates <= 0).any():
        return None
    needed = tasks / rates  # seconds for one unit of work of each task
    columns = np.stack([np.ones_like(tasks), tasks - 1, tasks * (tasks - 1)], axis=1)[:, :num_parameters]
    best = _least_squares(columns / needed[:, None], np.ones_like(needed))
    if best is None:
        return None
    alone, contention, coherency = (*best, 0.0)[:3] if law == "amdahl" else tuple(best)
    fitted = tasks / (columns @ np.array(best))
    residual = float(np.sqrt(np.mean((fitted / rates - 1) ** 2)))
    misfit: Literal["slower", "superlinear"] | None = None
    if contention > alone:
        misfit = "slower"
    elif contention == coherency == 0 and _is_superlinear(tasks, rates):
        misfit = "superlinear"
    return Trend(law, 1 / alone, contention / alone, coherency / alone, residual, len(points), misfit)


def _is_superlinear(tasks: Floats, rates: Floats) -> bool:
    """Whether a task of some larger cluster is faster than one of the smallest, by more than noise."""
    each = rates / tasks
    return bool(np.max(each) > SUPERLINEAR * np.median(each[tasks == np.min(tasks)]))


def _least_squares(rows: Floats, wanted: Floats) -> list[float] | None:
    """The best parameters of which none is negative, and the first (a time) is positive: every choice of which are zero
    is tried. Not scipy.optimize.nnls, which may hold the first at zero, too: then there is no rate of one task."""
    best: tuple[float, list[float]] | None = None
    for kept in product([False, True], repeat=rows.shape[1] - 1):
        columns = [0, *(index + 1 for index, is_kept in enumerate(kept) if is_kept)]
        found = np.linalg.lstsq(rows[:, columns], wanted, rcond=None)[0]
        if (found < 0).any() or found[0] <= 0:
            continue
        parameters = [0.0] * rows.shape[1]
        for column, value in zip(columns, found, strict=True):
            parameters[column] = float(value)
        distance = float(np.sum((rows @ np.array(parameters) - wanted) ** 2))
        if best is None or distance < best[0] - 1e-15:
            best = distance, parameters
    return best[1] if best else None
