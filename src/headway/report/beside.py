"""Published tables beside measured ones: as shape, never as numbers. Other machines, other years."""

from __future__ import annotations

from typing import Any

from headway.errors import NotFound
from headway.metrics.published import Published, Series
from headway.metrics.published import table as published_table
from headway.report.groups import Collection, Digests
from headway.report.tables import Table, row

# What a published column is called in a run's summary, where the names differ.
MEASURED_AS = {
    "seconds": "training_seconds",
    "minutes": "training_seconds",
    "synthetic": "examples_per_s",
    "real": "examples_per_s",
}


def published(collection: Collection) -> list[Table]:
    """The tables that a sweep names, as they were printed, with what contradicts itself in them."""
    found = []
    for name in collection.published:
        try:
            found.append(_as_table(published_table(name)))
        except NotFound as error:
            found.append({"id": f"published-{name}", "title": name, "note": str(error), "columns": [], "rows": []})
    return found


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
        over_tasks = [series for series in one.series if series.x in ("tasks", "gpus", "workers")]
        lines = [line for number, series in enumerate(over_tasks) if (line := _published_line(one, series, number))]
        figures = {MEASURED_AS.get(series.y, series.y) for series in over_tasks}
        for figure in sorted(figures):
            lines += _measured_lines(collection, digests, figure, len(lines))
        if lines and any(line["runs"] for line in lines):
            found.append(
                {
                    "id": f"shape-{one.name}-{collection.slug}",
                    "name": "shape",
                    "title": f"{one.evaluation} and here, as shape",
                    "note": "How many times as fast as the smallest cluster of its curve. Only the shape compares.",
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


def _measured_lines(collection: Collection, digests: Digests, figure: str, color: int) -> list[dict[str, Any]]:
    lines: dict[str, list[Any]] = {}
    for group in collection.groups:
        found = group.estimate(digests, figure, collection.how)
        if found is not None and found.value > 0:
            lines.setdefault(group.line, []).append((group.tasks, found.value, list(group.runs)))
    better = "lower" if figure == "training_seconds" else "higher"
    return [
        _line(f"here, {name}", color + number, sorted((tasks, value) for tasks, value, _ in points), better,
              [runs for _, _, runs in sorted(points, key=lambda point: point[0])])
        for number, (name, points) in enumerate(lines.items())
        if len({tasks for tasks, _, _ in points}) == len(points) > 1
    ]  # fmt: skip


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
