"""A sweep as a table: for each trial what came out, how sure that is, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headway.bench.folder import SweepFolder, Trial, samples
from headway.bench.schedule import need, of_values, progress_of
from headway.bench.speedups import Against, Best, best_of, speedups
from headway.metrics.estimate import jitter, mad
from headway.spec.sweep import SweepMeasure


def rows(sweep: SweepFolder, figure: str | None = None, trials: Sequence[Trial] | None = None) -> list[dict[str, Any]]:
    """`figure`: of the runs' figures; default: the one that the sweep looks at. `missing` and `lacks` are always of
    that one, for which runs are repeated. `trials`: those of the sweep, where they are at hand."""
    measure = sweep.spec.measure
    figure = figure or measure.figure
    trials = sweep.trials() if trials is None else trials
    found = speedups(trials, figure)
    return [{**row(trial, measure, figure), **_speedup(trial, found)} for trial in trials]


def best(sweep: SweepFolder, figure: str | None = None, trials: Sequence[Trial] | None = None) -> Best | None:
    """The fastest trial, against its baseline; None where nothing can be compared. `trials`: as of `rows`."""
    figure = figure or sweep.spec.measure.figure
    return best_of(speedups(sweep.trials() if trials is None else trials, figure), figure)


def _speedup(trial: Trial, found: dict[str, Against]) -> dict[str, Any]:
    one = found.get(trial.key)
    value = one.value if one else None
    return {
        "speedup": value.value if value else None,
        "speedup_low": value.low if value else None,
        "speedup_runs": value.num if value else None,
        "speedup_high": value.high if value else None,
        "efficiency": one.speedup.efficiency.value if one else None,
        "scaling": one.speedup.kind if one else None,
        "against": one.reference.key if one else None,
        "is_reference": any(each.reference.key == trial.key for each in found.values()),
    }


def row(trial: Trial, measure: SweepMeasure, figure: str) -> dict[str, Any]:
    values = samples(trial, figure)
    found = of_values(values, measure)
    lacking = need(progress_of(trial), measure)
    finished = [run for run in trial.runs if run.state == "finished"]
    is_open = trial.state in ("planned", "running", "done")
    return {
        "trial": trial.key,
        "name": trial.name,
        "settings": trial.settings,
        "tasks": trial.tasks,
        "data": trial.data,
        "is_baseline": trial.is_baseline,
        "purpose": trial.purpose,
        "group": trial.group,
        "state": trial.state,
        "reason": trial.reason,
        "figure": figure,
        "value": found.value if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "half_width": found.half_width if found and math.isfinite(found.half_width) else None,
        "confidence": found.confidence_limit if found and math.isfinite(found.half_width) else None,
        "statistic": measure.statistic,
        "error": found.error if found else None,
        "mad": mad(values) if values else None,
        "jitter": jitter(values) if values else None,
        "runs": len(finished),
        "counted": len(values),
        "failed": len(trial.runs) - len(finished),
        "missing": lacking.runs if is_open else 0,
        "lacks": lacking.reason if is_open else None,
        "is_short": lacking.is_short and trial.state == "done",
        "marks": {
            mark: sum(mark in run.marks for run in finished) for mark in sorted({m for r in finished for m in r.marks})
        },
        "samples": values,
        "run_names": [run.folder.name for run in trial.runs],
    }


def doubts(entry: dict[str, Any]) -> str:
    """Marks in words: `loaded 2 of 5`."""
    return ", ".join(f"{mark} {number} of {entry['runs']}" for mark, number in entry["marks"].items())
