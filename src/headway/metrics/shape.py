"""A measured curve beside a published one, as shape: both relative to their first common point. Other machines, other
years: the numbers themselves say nothing about each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headway.metrics.effect import ratio
from headway.metrics.estimate import Estimate

WITHIN = 0.1  # of the published ratio: as alike as two evaluations of one thing are


@dataclass(frozen=True)
class ShapePoint:
    x: float
    measured: Estimate
    """How many times as good as the first point."""
    published: float

    @property
    def quotient(self) -> float:
        return self.measured.value / self.published

    @property
    def agrees(self) -> bool:
        """The published ratio lies within a tenth of the measured interval."""
        return self.measured.low * (1 - WITHIN) <= self.published <= self.measured.high * (1 + WITHIN)


@dataclass(frozen=True)
class Shape:
    first: float
    """The x that both are relative to."""
    points: tuple[ShapePoint, ...]
    only_measured: tuple[float, ...]
    only_published: tuple[float, ...]

    @property
    def agrees(self) -> bool:
        return bool(self.points) and all(point.agrees for point in self.points)

    @property
    def same_direction(self) -> bool:
        """Whether both go up, or down, from each point to the next."""
        measured = [1.0, *(point.measured.value for point in self.points)]
        published = [1.0, *(point.published for point in self.points)]
        pairs = zip(measured[:-1], measured[1:], published[:-1], published[1:], strict=True)
        return all((b > a) == (d > c) for a, b, c, d in pairs)

    @property
    def words(self) -> str:
        if not self.points:
            return "nothing to compare: no two points in common"
        where = [f"{point.x:g} ({point.quotient - 1:+.0%})" for point in self.points if not point.agrees]
        agreeing = [f"{point.x:g}" for point in self.points if point.agrees]
        parts = [f"relative to {self.first:g}"]
        parts += [f"agrees at {', '.join(agreeing)}"] if agreeing else []
        parts += [f"differs at {', '.join(where)}"] if where else []
        parts += [] if self.same_direction else ["one rises where the other falls"]
        left = ", ".join(f"{x:g}" for x in self.only_published)
        return "; ".join([*parts, *([f"not measured: {left}"] if left else [])])


def compare(
    measured: Mapping[float, Sequence[float]],
    published: Sequence[tuple[float, float]],
    better: Literal["higher", "lower"] = "higher",
    published_better: Literal["higher", "lower"] | None = None,
) -> Shape:
    """`measured`: x -> samples. Either may be of times (lower is better) while the other is of rates: both become `so
    many times as good`."""
    theirs = dict(published)
    common = sorted(x for x in measured if x in theirs and len(measured[x]))
    only_ours = tuple(sorted(set(measured) - set(theirs)))
    only_theirs = tuple(sorted(set(theirs) - set(measured)))
    if not common:
        return Shape(0.0, (), only_ours, only_theirs)
    first, *rest = common
    points = []
    for x in rest:
        over, under = (measured[x], measured[first]) if better == "higher" else (measured[first], measured[x])
        stated = theirs[x] / theirs[first]
        stated = stated if (published_better or better) == "higher" else 1 / stated
        points.append(ShapePoint(x, ratio(over, under), stated))
    return Shape(first, tuple(points), only_ours, only_theirs)
