"""The runs that the report's benchmark makes up are like those that it stands for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headway.metrics.consistency import of_run
from headway.record.run import Run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import Made, make_run


@pytest.mark.parametrize(
    ("strategy", "servers", "rows", "updates"),
    [("ps-sync", 1, 3 * 60, 60), ("allreduce", 0, 3 * 60, 0), ("ps-async", 1, 60, 0)],
)
def test_where_tasks_are_joined_each_of_them_has_a_row_for_every_update(
    tmp_path: Path, strategy: str, servers: int, rows: int, updates: int
) -> None:
    run = Run(make_run(tmp_path, Made("made", strategy, 3, servers, steps=60)))
    assert (len(run.rows("steps")), len(run.rows("updates"))) == (rows, updates)
    figures = run.summary()
    assert (figures["steps"], figures["updates"], figures["num_training_tasks"]) == (60, 60, 3)
    assert of_run(figures) == []


def test_nodes_have_whatever_a_monitor_can_count(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path, Made(steps=60, has_all_series=True)))
    last = run.rows("node_rates")[-2]
    for series in ("cpus", "throttled", "received", "sent", "loopback_sent", "memory", "credits", "machine_cpus"):
        assert last[series] > 0
    use = run.summary()["node_use"]["worker0"]
    assert use["disk_read"]["max"] > 0
    assert use["disk_written"]["max"] > 0
