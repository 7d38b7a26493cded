"""Time lines: their pace is the rate of the figures, a resumed run is as long as it ran, and small values stay."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from test_record import CHIEF, WORKER, new_run, row, write_rows
from test_record_strategies import update

from headway.record.folder import RunFolder
from headway.report.digest import digest
from headway.report.own_time import OwnTime, own_time
from headway.report.thin import packed, unpacked
from headway.spec import Task

DAY = 86_400.0
SERVER, SECOND = Task("ps", 0), Task("worker", 1)


def end(folder: RunFolder, *launches: dict[str, float]) -> dict[str, Any]:
    folder.write_facts({**folder.facts(), "state": "finished", "created": 98.0, "launches": list(launches)})
    found = digest(folder.path, 200)
    assert found["problem"] is None
    return found


def series_of(found: dict[str, Any], what: str, of: str = "all tasks") -> tuple[np.ndarray[Any, Any], list[Any]]:
    line = found["timeline"]
    (series,) = [one for one in line["series"] if one["what"] == what and one["of"] == of]
    return np.array(line["axes"][series["axis"]]), unpacked(series)


def mean_pace(found: dict[str, Any], what: str, start: float, last: float) -> float:
    times, values = series_of(found, what)
    inside = [value for t, value in zip(times.tolist(), values, strict=True) if start <= t <= last]
    assert len(inside) > 10
    return float(np.mean(inside))


# --- the pace is that of the figures -------------------------------------------------------------------------------
def program(root: Path, rows: Iterable[tuple[Task, dict[str, Any]]], **workload: Any) -> dict[str, Any]:
    settings = {
        "workload": {"command": "python train.py", **workload},
        "cluster": {"worker": 2},
        "strategy": "allreduce",
    }
    folder = new_run(root, "own", **settings)
    for task, one in rows:
        write_rows(folder, task, [one])
    return end(folder, {"started": 98.0, "ended": 150.0})


def told(t: float, step: int, **more: Any) -> dict[str, Any]:
    """A report of ten further global steps in half a second."""
    return row(t, step, num_steps=10, seconds=0.5, staleness=None, examples=None, accepted=None, **more)


@pytest.mark.parametrize("batch_size", [None, 32])
def test_a_global_step_that_every_task_tells_of_counts_once(tmp_path: Path, batch_size: int | None) -> None:
    reports = [
        (task, told(100 + 0.5 * k + late, 10 * k))
        for k in range(1, 81)
        for task, late in ((WORKER, 0.0), (SECOND, 0.02))
    ]
    found = program(tmp_path, reports, **({"batch_size": batch_size} if batch_size else {}))
    what = "examples_per_s" if batch_size else "steps_per_s"
    rate = found["figures"][what]
    assert rate == pytest.approx(20.0 * (2 * batch_size if batch_size else 1), rel=0.02)
    assert mean_pace(found, what, 4, 40) == pytest.approx(rate, rel=0.03)


def test_a_gradient_that_was_dropped_is_not_in_the_pace(tmp_path: Path) -> None:
    strategy = {"kind": "ps-sync", "aggregate": 1}
    folder = new_run(tmp_path, "backup", strategy=strategy, cluster={"chief": 1, "worker": 1, "ps": 1})
    for k in range(1, 81):
        t = 100 + 0.5 * k
        write_rows(folder, CHIEF, [row(t + 0.01, k, staleness=None, accepted=1)])
        write_rows(folder, WORKER, [row(t + 0.02, k, staleness=None, accepted=0)])
        write_rows(folder, SERVER, [update(t, k, [CHIEF], 100, [WORKER], 0.0)])
    found = end(folder, {"started": 98.0, "ended": 150.0})
    rate = found["figures"]["examples_per_s"]
    assert rate == pytest.approx(200, rel=0.03)
    assert mean_pace(found, "examples_per_s", 4, 40) == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("kind", ["ps-async", "allreduce"])
def test_where_every_gradient_counts_the_pace_is_that_of_all_tasks(tmp_path: Path, kind: str) -> None:
    cluster = {"chief": 1, "worker": 1} | ({"ps": 1} if kind == "ps-async" else {})
    folder = new_run(tmp_path, strategy=kind, cluster=cluster)
    for k in range(1, 81):
        for place, task in enumerate((CHIEF, WORKER)):
            step = 2 * k + place if kind == "ps-async" else k
            write_rows(folder, task, [row(100 + 0.5 * k, step, staleness=[0] if kind == "ps-async" else None)])
    found = end(folder, {"started": 98.0, "ended": 150.0})
    rate = found["figures"]["examples_per_s"]
    assert rate == pytest.approx(400, rel=0.03)
    assert mean_pace(found, "examples_per_s", 4, 40) == pytest.approx(rate, rel=0.03)


# --- a resumed run -------------------------------------------------------------------------------------------------
def test_own_time_leaves_out_what_lies_between_launches() -> None:
    own = OwnTime((100.0, 100.0 + DAY), (160.0,))
    assert own.at(np.array([100.0, 130.0, 160.0, 5000.0, 100.0 + DAY, 110.0 + DAY])).tolist() == [0, 30, 60, 60, 60, 70]
    assert own.breaks == [{"t": 60.0, "seconds": DAY - 60}]
    assert OwnTime((100.0,)).breaks == []


def resumed(root: Path, *ended: float) -> dict[str, Any]:
    folder = new_run(root)
    for start, first in ((100.0, 0), (100.0 + DAY, 40)):
        write_rows(folder, CHIEF, [row(start + 0.5 * k, first + k, loss=1 / (first + k)) for k in range(1, 41)])
        samples = [
            {"t": start + 0.2 * k, "kind": "node_sample", "sampler": start, "cpu_seconds": 0.1 * k, "memory": 5}
            for k in range(100)
        ]
        folder.metrics("node0").parent.mkdir(exist_ok=True)
        with folder.metrics("node0").open("a", encoding="utf-8") as file:
            file.writelines(f"{one}\n".replace("'", '"') for one in samples)
    write_rows(folder, CHIEF, [{"t": 110 + DAY, "kind": "evaluation", "step": 60, "accuracy": 0.5, "loss": 0.7}])
    launches: list[dict[str, float]] = [{"started": 98.0}, {"started": 98.0 + DAY, "ended": 121.0 + DAY}]
    if ended:
        launches[0]["ended"] = ended[0]
    return end(folder, *launches)


@pytest.mark.parametrize(("ended", "length"), [((125.0,), 27.0), ((), 22.0)])
def test_a_run_that_went_on_the_next_day_is_not_a_day_long(
    tmp_path: Path, ended: tuple[float, ...], length: float
) -> None:
    """Of a launch that was killed, the last that was recorded is its end."""
    found = resumed(tmp_path, *ended)
    line = found["timeline"]
    assert line["breaks"] == [{"t": length, "seconds": DAY - length}]
    assert line["end"] == pytest.approx(length + 22, abs=0.01)
    times, values = series_of(found, "examples_per_s")
    assert max(times) < length + 22
    steady = [value for t, value in zip(times.tolist(), values, strict=True) if 4 < t < 21 or length + 3 < t]
    assert min(steady) == pytest.approx(200, rel=0.1)
    train = found["curves"]["train"]
    assert max(train["seconds"]) == pytest.approx(length + 22, abs=0.01)
    assert found["curves"]["test"]["seconds"] == [pytest.approx(length + 12, abs=0.01)]
    assert found["curves"]["is_resumed"]
    times, values = series_of(found, "cpus", "node0")
    assert times[-1] < length + 22.5
    assert [value for value in values if value is not None] == pytest.approx([0.5] * 198, rel=1e-3)
    times, values = series_of(found, "memory", "node0")
    assert [t for t, value in zip(times.tolist(), values, strict=True) if value is None] == [length]
    assert all(0 <= mark["t"] <= length + 24 for mark in found["events"])


def test_a_launch_that_is_said_to_end_after_the_next_one_began_ends_with_its_last_record(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [row(105, 1), row(300, 2)])
    with duckdb.connect() as connection:
        for table in ("steps", "events", "node_samples"):
            connection.execute(f"create table {table} as select unnest([105.0, 300.0]) as t")
        own = own_time(connection, [{"started": 100.0, "ended": 400.0}, {"started": 200.0}], 0.0)
    assert own.ends == (105.0,)


# --- small values --------------------------------------------------------------------------------------------------
def test_one_long_step_does_not_make_the_others_nothing() -> None:
    values = np.array([0.003021, 0.002876, 60.0, 0.0, np.nan, -0.01234567, 1.5e-7])
    short = packed(values)
    assert short is not None
    again = unpacked(short)
    assert again[3] == 0
    assert again[4] is None
    for value, found in zip(values, again, strict=True):
        if found is not None:
            assert found == pytest.approx(value, rel=5e-4)


def test_packed_values_are_short() -> None:
    """Four digits each, and no more zeros than the largest needs."""
    random = np.random.default_rng(2)
    short = packed(random.normal(1.6, 0.1, 1000))
    assert short is not None
    assert all(isinstance(one, int) and len(str(one)) <= 4 for one in short["values"])
    assert packed(np.zeros(3)) == {"unit": 0.0, "values": [0, 0, 0]}
    assert packed(np.array([5e-324, 1e300])) is not None
