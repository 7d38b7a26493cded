"""Which trials stand beside which published curve. Unlike ones are never paired: a curve of batch 64 has nothing to say
about one of batch 128, nor one of made-up data about one of real data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.metrics.estimate import estimate
from headway.metrics.factors import Measured
from headway.metrics.published import Published, Series
from headway.metrics.shape import Shape, compare

BATCH = "workload.batch_size"
OVER = {"gpus": "tasks", "servers": "cluster.ps"}
"""What a published column is called here, where that is another name."""


@dataclass(frozen=True)
class Curve:
    """A published curve and the trials that stand beside it, one for each x: of several the best, as those who
    published did."""

    series: Series
    batch: Any
    """Which of our batch sizes stands for theirs; None where that is no matter."""
    trials: dict[float, Measured]
    shape: Shape

    @property
    def label(self) -> str:
        return (self.series.label or self.series.y) + (f" (here {self.batch})" if self.batch is not None else "")

    @property
    def words(self) -> str:
        """Where both agree and differ, with the figures."""
        cells = [
            f"{point.x:g}: {point.measured.value:.2f} measured, {point.published:.2f} published"
            for point in self.shape.points
        ]
        return self.shape.words + (f" ({'; '.join(cells)})" if cells else "")

    def samples(self, x: float) -> list[float]:
        return self.trials[x].samples(self.series.figure)


def curves(table: Published, trials: Sequence[Measured]) -> list[Curve]:
    """Of every published curve that has two points here."""
    found = (_beside(table, series, trials) for series in table.series)
    return [curve for curve in found if curve is not None]


def _beside(table: Published, series: Series, trials: Sequence[Measured]) -> Curve | None:
    if series.only.get("vcpus", 1) != 1:
        return None  # there are no such machines here
    batch = None
    if "batch_size" in series.only and (batch := _stands_for(series.only["batch_size"], table, trials)) is None:
        return None
    best: dict[float, Measured] = {}
    for trial in trials:
        at = trial.facts.get(OVER.get(series.x, series.x))
        if not isinstance(at, (int, float)) or not _belongs(trial, series, batch):
            continue
        if at not in best or _middle(trial, series) > _middle(best[at], series):
            best[float(at)] = trial
    if len(best) < 2:
        return None
    ordered = dict(sorted(best.items()))
    samples = {x: trial.samples(series.figure) for x, trial in ordered.items()}
    return Curve(series, batch, ordered, compare(samples, table.points(series), "higher", series.better))


def _belongs(trial: Measured, series: Series, batch: Any) -> bool:
    if series.y in ("synthetic", "real") and trial.data != series.y:
        return False
    if batch is not None and _batch(trial) != batch:
        return False
    # What a sweep does not vary is as its example has it.
    if any(trial.settings.get(path, value) != value for path, value in series.here.items()):
        return False
    samples = trial.samples(series.figure)
    return bool(samples) and min(samples) > 0


def _stands_for(batch: Any, table: Published, trials: Sequence[Measured]) -> Any:
    """An equal one. Where we do not have all of theirs, our smallest and largest stand for their smallest and largest;
    None: no other."""
    theirs = sorted({row["batch_size"] for row in table.rows if row.get("batch_size")})  # type: ignore[type-var]
    ours = sorted({size for trial in trials if (size := _batch(trial)) is not None})
    if len(ours) < 2 or set(theirs) <= set(ours):
        return batch if batch in ours else None
    return {theirs[0]: ours[0], theirs[-1]: ours[-1]}.get(batch)


def _batch(trial: Measured) -> Any:
    asked = trial.settings.get(BATCH)
    return asked if asked is not None else next((each.get("batch_size") for each in trial.figures), None)


def _middle(trial: Measured, series: Series) -> float:
    return estimate(trial.samples(series.figure)).value
