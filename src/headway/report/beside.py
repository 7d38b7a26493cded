"""Published tables beside measured ones: as shape, never as numbers. Other machines, other years."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headway.errors import NotFound
from headway.metrics.conclusions import judge
from headway.metrics.factors import Measured, effects
from headway.metrics.published import Published, Series
from headway.metrics.published import table as published_table
from headway.metrics.shape import compare
from headway.report.groups import Collection, Digests, said
from headway.report.tables import Table, as_cell, row, table

NOT_OF_SPEED = ("accuracy", "loss", "overhead")
Rates = dict[str, dict[int, tuple[list[float], list[str]]]]
"""Line -> tasks -> the rates of its runs, and these."""


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
        if one.conclusions:
            found.append(_conclusions(one, collections, digests))
    return found


def measured(collection: Collection, digests: Digests) -> list[Measured]:
    """The groups, as metrics takes them."""
    return [
        Measured(group.settings, group.tasks, group.is_baseline, group.data, tuple(group.figures(digests)), group.label)
        for group in collection.groups
    ]


def _conclusions(one: Published, collections: Sequence[Collection], digests: Digests) -> Table:
    """A row for each, or, where a sweep was run several times, for each of these."""
    rows = []
    for each in one.conclusions:
        known = [sweep for sweep in collections if each.sweep is not None and sweep.asked_name == each.sweep]
        sweeps: list[Collection | None] = [*known] or [None]
        for sweep in sweeps:
            judged = judge(each, measured(sweep, digests) if sweep else None)
            cells = {"conclusion": each.text, "verdict": judged.verdict, "why": judged.words}
            rows.append(row(cells, [], f"sweep {sweep.sweep}" if sweep and len(sweeps) > 1 else ""))
    columns = [
        {"key": "conclusion", "title": f"{one.evaluation} concludes", "unit": "text"},
        {"key": "verdict", "title": "here", "unit": "text"},
        {"key": "why", "title": "because", "unit": "text"},
    ]
    title = f"Conclusions of {one.evaluation}, and whether they are so here"
    return {"id": f"conclusions-{one.name}", "title": title, "note": "", "columns": columns, "rows": rows}


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
    wrong = {problem.where: problem for problem in one.inconsistencies}
    columns = [{"key": column.name, "title": column.title, "unit": "text"} for column in one.columns]
    rows = [
        row(
            {column.name: one.text(cells, column) for column in one.columns},
            [],
            wrong[name].text if name in wrong else "",
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


def shapes(collection: Collection, digests: Digests) -> list[dict[str, Any]]:
    """A chart for each published table with a curve over training tasks: both curves relative to their first point."""
    found = []
    for name in collection.published:
        try:
            one = published_table(name)
        except NotFound:
            continue
        over_tasks = [
            series for series in one.series if series.x in ("tasks", "gpus", "workers") and series.y not in NOT_OF_SPEED
        ]
        lines = [line for number, series in enumerate(over_tasks) if (line := _published_line(one, series, number))]
        ours = _rates(collection, digests)
        lines += [
            _measured_line(name, len(lines) + number, points) for number, (name, points) in enumerate(ours.items())
        ]
        words = _words(one, over_tasks, ours)
        if lines and any(line["runs"] for line in lines):
            found.append(
                {
                    "id": f"shape-{one.name}-{collection.slug}",
                    "name": "shape",
                    "title": f"{one.evaluation} and here, as shape",
                    "note": f"How many times as fast as the smallest cluster of its curve. {words}",
                    "kind": "lines",
                    "x": {"title": "training tasks"},
                    "y": {"title": "times the smallest", "unit": "times"},
                    "series": lines,
                }
            )
    return found


def _published_line(one: Published, series: Series, color: int) -> dict[str, Any] | None:
    points = one.points(series)
    if len(points) < 2:
        return None
    return _line(f"{one.evaluation}{f', {series.label}' if series.label else ''}", color, points, series.better, [])


def _rates(collection: Collection, digests: Digests) -> Rates:
    """Of several configurations of one size the best, as those who published did. Lines of one size alone have no
    shape."""
    lines: Rates = {}
    for group in collection.groups:
        if samples := [one for one in group.samples(digests, "examples_per_s") if one > 0]:
            line = lines.setdefault(group.line, {})
            if group.tasks not in line or np.median(samples) > np.median(line[group.tasks][0]):
                line[group.tasks] = (samples, list(group.runs))
    return {name: points for name, points in lines.items() if len(points) > 1}


def _words(one: Published, over_tasks: list[Series], ours: Rates) -> str:
    """Where each pair of curves agrees and differs."""
    found = []
    for series in over_tasks:
        label = f"{one.evaluation}{f', {series.label}' if series.label else ''}"
        for name, points in ours.items():
            samples = {float(tasks): rates for tasks, (rates, _) in points.items()}
            shape = compare(samples, one.points(series), "higher", series.better)
            found.append(f"{name} and {label}: {shape.words}.")
    return " ".join(found[:4])


def _measured_line(name: str, color: int, points: dict[int, tuple[list[float], list[str]]]) -> dict[str, Any]:
    ordered = sorted(points.items())
    middles = [(float(tasks), float(np.median(samples))) for tasks, (samples, _) in ordered]
    return _line(f"here, {name}", color, middles, "higher", [runs for _, (_, runs) in ordered])


def _line(
    name: str, color: int, points: list[tuple[float, float]], better: str, runs: list[list[str]]
) -> dict[str, Any]:
    first = points[0][1]
    y = [first / value if better == "lower" else value / first for _, value in points]
    return {
        "name": name,
        "style": "measured",
        "color": color,
        "x": [tasks for tasks, _ in points],
        "y": y,
        "low": y,
        "high": y,
        "labels": [name] * len(points),
        "runs": runs or [[] for _ in points],
    }
