"""The charts of a page as plain data: what stands on which axis, with intervals and the runs behind each point. How
they look is the renderer's.

A chart: `id`, `title`, `note`, `kind` (`lines` over the number of tasks, `bars` of configurations), `x`, `y` (`title`,
`unit`), `series` (`name`, `style`, `color`, `x`, `y`, `low`, `high`, `runs`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headway.metrics.estimate import Estimate
from headway.metrics.scaling import Point, Trend, trend
from headway.plural import counted
from headway.report.baseline import baseline_of
from headway.report.costs import cost_at_rate, whole_cost
from headway.report.groups import Collection, Digests, Group, has_each_size_once, lines_of
from headway.report.tables import speedups

Chart = dict[str, Any]
Value = Callable[[Group], Estimate | None]
MOST_POINTS_OF_TREND = 60
BEYOND = 1.5  # how far beyond the largest cluster a trend is drawn


def charts(collection: Collection, digests: Digests) -> list[Chart]:
    """Throughput, speed-up, efficiency, time, accuracy and loss; those of which something is known. One configuration
    alone has nothing to stand beside."""
    if sum(bool(group.runs) for group in collection.groups) < 2:
        return []
    faster = speedups(collection, digests)

    def figure(name: str) -> Value:
        return lambda group: group.estimate(digests, name, collection.how)

    lines = lines_of([group for group in collection.groups if group.runs], digests, collection.how)

    def chart_of(*about: Any) -> Chart | None:
        return _chart(collection, lines, *about)

    sizes = _sizes_of_baselines(collection, list(faster))
    made = [
        chart_of("throughput", "Throughput", "examples per second", "", figure("examples_per_s"),
                 "Of all training tasks together, after the warm-up."),
        chart_of("speedup", "Speed-up", "times the baseline", "times",
                 lambda group: faster[group.key].value if group.key in faster else None, _against(faster)),
        chart_of("efficiency", "Efficiency", "speed-up per training task", "share",
                 lambda group: faster[group.key].efficiency if group.key in faster else None,
                 _ideal_in_words(sizes)),
        chart_of("time", "Training time", "seconds", "s",
                 lambda group: None if group.is_only_measured(digests) else figure("training_seconds")(group),
                 "From the first step to the last, pauses included."),
        chart_of("accuracy", "Test accuracy", "accuracy", "accuracy", figure("accuracy"),
                 "Of the final model, on the whole test set."),
        chart_of("loss", "Test loss", "loss", "", figure("loss"),
                 "Of the final model, on the whole test set."),
        chart_of("cost", "Cost", "dollars", "dollars", lambda group: whole_cost(group, digests),
                 "All nodes, from when they are asked for to their release."),
        chart_of("rate-cost", "Cost of 1,000 steps", "dollars", "dollars", lambda group: cost_at_rate(group, digests),
                 "All nodes, at the measured rate: no start and no end in it."),
    ]  # fmt: skip
    found = [chart for chart in made if chart is not None]
    for chart in found:
        if chart["kind"] == "lines":
            _add_trends(chart, lines, sizes, collection, digests)
    return found


def _sizes_of_baselines(collection: Collection, keys: list[str]) -> list[int]:
    """How many training tasks the baselines of these groups have: most have one, but a sweep may call any so."""
    against = [baseline_of(group, collection.groups) for group in collection.groups if group.key in keys]
    return sorted({one.tasks for one in against if one})


def _ideal_in_words(sizes: list[int]) -> str:
    times = " or ".join("n" if size == 1 else f"n/{size}" for size in sizes)
    whose = " or ".join("one" if size == 1 else f"{size}" for size in sizes)
    return f"1 is ideal: n tasks are {times} times as fast as the baseline's {whose}." if sizes else ""


def _against(faster: dict[str, Any]) -> str:
    return f"Against {'; '.join(sorted({one.baseline for one in faster.values()}))}." if faster else ""


def _chart(
    collection: Collection,
    lines: dict[str, list[Group]],
    name: str,
    title: str,
    y_title: str,
    unit: str,
    value: Value,
    note: str,
) -> Chart | None:
    groups = [group for group in collection.groups if group.runs and value(group) is not None]
    if not groups or (name in ("speedup", "efficiency") and len(groups) < 2):
        return None
    known = {line: [one for one in members if value(one) is not None] for line, members in lines.items()}
    known = {line: members for line, members in known.items() if members}
    along_tasks = any(len(line) > 1 for line in known.values()) and all(map(has_each_size_once, known.values()))
    chart: Chart = {
        "id": f"{name}-{collection.slug}",
        "name": name,
        "title": title,
        "note": note,
        "y": {"title": y_title, "unit": unit},
        "series": [],
    }
    if along_tasks:
        chart |= {"kind": "lines", "x": {"title": "training tasks"}}
        for color, (line, members) in enumerate(known.items()):
            ordered = sorted(members, key=lambda group: group.tasks)
            chart["series"].append(_series(line, color, [group.tasks for group in ordered], ordered, value))
    else:
        chart |= {"kind": "bars", "x": {"title": ""}}
        chart["series"].append(_series(title, 0, [group.label for group in groups], groups, value))
    return chart


def _series(name: str, color: int, x: list[Any], groups: list[Group], value: Value) -> dict[str, Any]:
    found = [value(group) for group in groups]
    return {
        "name": name,
        "style": "measured",
        "color": color,
        "x": x,
        "y": [one.value if one else None for one in found],
        "low": [one.low if one else None for one in found],
        "high": [one.high if one else None for one in found],
        "labels": [group.label for group in groups],
        "runs": [list(group.runs) for group in groups],
    }


def _add_trends(
    chart: Chart, lines: dict[str, list[Group]], sizes: list[int], collection: Collection, digests: Digests
) -> None:
    """The ideal line of each size of a baseline (`sizes`), and for every measured line of three sizes or more the law
    that fits it."""
    if chart["name"] not in ("throughput", "speedup", "efficiency"):
        return
    measured = list(chart["series"])
    most = max(max(series["x"]) for series in measured)
    if chart["name"] != "throughput":
        ends = [1, most]
        for size in sizes if chart["name"] == "speedup" else sizes[:1]:
            name = (
                "ideal"
                if chart["name"] == "efficiency" or len(sizes) == 1
                else f"ideal, against {counted(size, 'task')}"
            )
            ideal = [end / size for end in ends] if chart["name"] == "speedup" else [1, 1]
            chart["series"].append({"name": name, "style": "ideal", "color": None, "x": ends, "y": ideal})
    for series in measured:
        members = lines[series["name"]]
        law = fitted(members, digests)
        if law is None:
            continue
        tasks = np.linspace(min(series["x"]), most * BEYOND, MOST_POINTS_OF_TREND)
        rates = np.array([law.rate(float(one)) for one in tasks])
        if chart["name"] != "throughput":
            against = baseline_of(members[0], collection.groups)
            base = against.estimate(digests, "examples_per_s", collection.how) if against else None
            if base is None or against is None:
                continue
            rates = rates / base.value
            rates = rates * against.tasks / tasks if chart["name"] == "efficiency" else rates
        chart["series"].append(
            {
                "name": f"{series['name']}, fitted",
                "style": "trend",
                "color": series["color"],
                "x": [round(float(one), 3) for one in tasks],
                "y": [float(f"{one:.5g}") for one in rates],
                "about": about(law),
            }
        )


def fitted(members: list[Group], digests: Digests) -> Trend | None:
    points = [
        Point(group.tasks, tuple(samples), group.label)
        for group in members
        if (samples := group.samples(digests, "examples_per_s"))
    ]
    sizes = len({point.tasks for point in points})
    # A law with as many parameters as there are points goes through all of them and says nothing.
    return trend(points, "usl" if sizes > 3 else "amdahl") if sizes > 2 else None


MISFITS = {
    "slower": "more tasks are slower than one",
    "superlinear": "the rate grows faster than the number of tasks",
}


def about(law: Trend) -> str:
    kind = "Amdahl's law" if law.law == "amdahl" else "the universal scalability law"
    if law.misfit:
        return f"{kind} does not fit: {MISFITS[law.misfit]}"
    peak = f"; the most at {law.peak:.0f} tasks" if law.peak else ""
    return f"{kind}: {law.contention:.1%} cannot be done at the same time{peak}; off by {law.residual:.1%} on average"
