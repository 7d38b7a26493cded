"""Published tables beside measured ones: as shape, never as numbers. Other machines, other years."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.errors import NotFound
from headway.metrics.conclusions import judge
from headway.metrics.curves import Curve, curves
from headway.metrics.factors import Measured, effects
from headway.metrics.published import Published
from headway.metrics.published import table as published_table
from headway.report.groups import Collection, Digests, said
from headway.report.tables import Table, as_cell, row, table

RELATIVE = "How many times as fast as at the first point that both curves have."
HOW_SURE = (
    "Intervals decide: re-found is what is so beyond chance. The interval of a median of two runs holds the true one "
    "with 50 % at most, of three with 75 %, of five with 94 %."
)


def published(collections: Sequence[Collection], digests: Digests) -> list[Table]:
    """The tables that sweeps name, each once, as they were printed, with what contradicts itself in them; what they
    conclude, and whether that is so here. Several sweeps may be about one table: each has the trials for some of its
    conclusions."""
    found = []
    for name in dict.fromkeys(name for one in collections for name in one.published):
        try:
            one = published_table(name)
        except NotFound as error:
            found.append({"id": f"published-{name}", "title": name, "note": str(error), "columns": [], "rows": []})
            continue
        if one.rows:
            found.append(_as_table(one))
        if (shape := _shape_table(one, collections, digests)) is not None:
            found.append(shape)
        if one.conclusions:
            found.append(_conclusions(one, collections, digests))
    return found


def measured(collection: Collection, digests: Digests) -> list[Measured]:
    """The groups, as metrics takes them."""
    return [
        Measured(group.settings, group.tasks, group.is_baseline, group.data, tuple(group.figures(digests)), group.label)
        for group in collection.groups
    ]


def _runs_of(trials: Sequence[Measured], collection: Collection) -> dict[int, list[str]]:
    """`id` of a trial, as `measured` made it -> paths of its runs."""
    return {id(trial): list(group.runs) for trial, group in zip(trials, collection.groups, strict=True)}


def _conclusions(one: Published, collections: Sequence[Collection], digests: Digests) -> Table:
    """A row for each, or, where a sweep was run several times, for each of these."""
    rows = []
    for each in one.conclusions:
        known = [sweep for sweep in collections if each.sweep is not None and sweep.asked_name == each.sweep]
        sweeps: list[Collection | None] = [*known] or [None]
        for sweep in sweeps:
            trials = measured(sweep, digests) if sweep else []
            runs = _runs_of(trials, sweep) if sweep else {}
            judged = judge(each, trials)
            cells = {"conclusion": each.text, "verdict": judged.verdict, "why": judged.words}
            paths = [path for trial in judged.trials for path in runs[id(trial)]]
            rows.append(row(cells, paths, f"sweep {sweep.sweep}" if sweep and len(sweeps) > 1 else ""))
    columns = [
        {"key": "conclusion", "title": f"{one.evaluation} concludes", "unit": "text"},
        {"key": "verdict", "title": "here", "unit": "text"},
        {"key": "why", "title": "because", "unit": "text"},
    ]
    title = f"Conclusions of {one.evaluation}, and whether they are so here"
    return {"id": f"conclusions-{one.name}", "title": title, "note": HOW_SURE, "columns": columns, "rows": rows}


def one_at_a_time(collection: Collection, digests: Digests) -> Table | None:
    """What each setting does to the throughput, over all pairs of configurations that differ in it alone (E4)."""
    found = effects(measured(collection, digests), "examples_per_s") if collection.sweep else []
    if len({name for each in found for name in each.when}) < 2:
        return None  # with one setting alone that is what the first table says
    rows = []
    for each in found:
        ((name, value),) = each.when.items()
        cells = {
            "setting": name,
            "value": said(name, value),
            "than": said(name, each.than[name]),
            "effect": as_cell(each.value),
            "pairs": len(each.pairs),
        }
        note = "some pairs say more and others less: it depends on the other settings" if each.is_mixed else ""
        labels = {trial.name for pair in each.pairs for trial in (pair.when, pair.than)}
        runs = [path for group in collection.groups if group.label in labels for path in group.runs]
        rows.append(row(cells, runs, note))
    columns = [
        ("setting", "setting", "text"),
        ("value", "with", "text"),
        ("than", "against", "text"),
        ("effect", "examples/s, times", "times"),
        ("pairs", "pairs", "count"),
    ]
    note = "Means over every pair of configurations that differ in this setting alone, all else equal."
    return table(f"factors-{collection.slug}", f"{collection.title}: one setting at a time", columns, rows, note)


def _as_table(one: Published) -> Table:
    wrong: dict[str, list[str]] = {}
    for problem in one.inconsistencies:
        wrong.setdefault(problem.where, []).append(problem.text)
    columns = [{"key": column.name, "title": column.title, "unit": "text"} for column in one.columns]
    rows = [
        row(
            {column.name: one.text(cells, column) for column in one.columns},
            [],
            "; ".join(wrong.get(name, ())),
        )
        for cells, name in zip(one.rows, one.row_names, strict=True)
    ]
    note = " ".join([f"{one.evaluation}: {one.source}.", *(f"Note: {each}" for each in one.notes)])
    return {
        "id": f"published-{one.name}",
        "title": f"Published: {one.title}",
        "note": note,
        "columns": columns,
        "rows": rows,
    }


@dataclass(frozen=True)
class _Pair:
    """A published curve and the one of a sweep that stands beside it."""

    sweep: Collection
    curve: Curve
    runs: list[list[str]]
    """Of each of its points."""


def _pairs(one: Published, collections: Sequence[Collection], digests: Digests) -> list[_Pair]:
    found = []
    for sweep in collections:
        if one.name not in sweep.published:
            continue
        trials = measured(sweep, digests)
        runs = _runs_of(trials, sweep)
        for curve in curves(one, trials):
            found.append(_Pair(sweep, curve, [runs[id(trial)] for trial in curve.trials.values()]))
    return found


def _shape_table(one: Published, collections: Sequence[Collection], digests: Digests) -> Table | None:
    """Where each pair of curves agrees and differs. A published curve that has none beside it is named, too."""
    pairs = _pairs(one, collections, digests)
    if not pairs:
        return None
    rows = []
    for series in one.series:
        own = [pair for pair in pairs if pair.curve.series == series]
        name = _name(one.evaluation, series.label)
        if not own:
            rows.append(row({"curve": name, "words": "nothing here stands beside it"}, []))
        for pair in own:
            cells = {"curve": name, "words": pair.curve.words, "sweep": pair.sweep.sweep, "batch": pair.curve.batch}
            rows.append(row(cells, [path for paths in pair.runs for path in paths]))
    columns = [("curve", "curve", "text"), ("batch", "batch here", "count"), ("words", "here", "text")]
    if len({pair.sweep.sweep for pair in pairs}) > 1:
        columns.insert(1, ("sweep", "sweep", "text"))
    note = f"{RELATIVE} {one.why or ''}".strip()
    return table(f"shape-{one.name}", f"{one.evaluation} and here, as shape", columns, rows, note)


def shapes(collection: Collection, digests: Digests) -> list[dict[str, Any]]:
    """A chart for each published table with curves that have one beside them here: both relative to the first point
    that they have in common."""
    found = []
    for name in collection.published:
        try:
            one = published_table(name)
        except NotFound:
            continue
        lines: list[dict[str, Any]] = []
        for pair in _pairs(one, [collection], digests):
            lines += [_published_line(one, pair.curve, len(lines)), _measured_line(pair, len(lines) + 1)]
        if lines:
            found.append(
                {
                    "id": f"shape-{one.name}-{collection.slug}",
                    "name": "shape",
                    "title": f"{one.evaluation} and here, as shape",
                    "note": f"{RELATIVE} {one.why or ''}".strip(),
                    "kind": "lines",
                    "x": {"title": "training tasks" if one.series[0].x != "servers" else "servers"},
                    "y": {"title": "times the first", "unit": "times"},
                    "series": lines,
                }
            )
    return found


def _name(whose: str, label: str) -> str:
    return f"{whose}, {label}" if label else whose


def _published_line(one: Published, curve: Curve, color: int) -> dict[str, Any]:
    points = one.points(curve.series)
    return _line(_name(one.evaluation, curve.series.label), color, points, curve, curve.series.better, [])


def _measured_line(pair: _Pair, color: int) -> dict[str, Any]:
    curve = pair.curve
    points = [(x, float(np.median(curve.samples(x)))) for x in curve.trials]
    batch = f" (batch {curve.batch})" if curve.batch is not None else ""
    return _line(_name("here", curve.series.label) + batch, color, points, curve, "higher", pair.runs)


def _line(
    name: str, color: int, points: list[tuple[float, float]], curve: Curve, better: str, runs: list[list[str]]
) -> dict[str, Any]:
    first = dict(points).get(curve.shape.first, points[0][1])
    y = [first / value if better == "lower" else value / first for _, value in points]
    return {
        "name": name,
        "style": "measured",
        "color": color,
        "x": [x for x, _ in points],
        "y": y,
        "low": y,
        "high": y,
        "labels": [name] * len(points),
        "runs": runs or [[] for _ in points],
    }
