"""A sweep as a table: for each trial what came out, how sure that is, and what is missing."""

from __future__ import annotations

import math
from typing import Any

from headway.bench.folder import SweepFolder, Trial, samples
from headway.bench.schedule import need, of_values, progress_of
from headway.metrics.estimate import jitter, mad
from headway.spec.sweep import SweepMeasure


def rows(sweep: SweepFolder, figure: str | None = None) -> list[dict[str, Any]]:
    """`figure`: of the runs' figures; default: the one that the sweep looks at. `missing` and `lacks` are always of
    that one, for which runs are repeated."""
    measure = sweep.spec.measure
    return [row(trial, measure, figure or measure.figure) for trial in sweep.trials()]


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
