"""Figures of a run's summary, one by one, from a few rows in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from test_record import CHIEF, WORKER, new_run, row, write_rows
from test_record_distributions import finished, tell

from headway.errors import FormatError
from headway.record import summary
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.record.summary import reached_steps, updates_made
from headway.spec import Task

Connection = duckdb.DuckDBPyConnection
STEP = {
    "task": "chief/0",
    "t": 100.0,
    "launch": 1,
    "attempt": 0,
    "generation": 1,
    "step": 1,
    "num_steps": 1,
    "accepted": 1,
    "seconds": 0.5,
    "input_seconds": 0.1,
    "examples": 10,
    "warmup": False,
    "staleness": None,
}
TYPES = (
    "task varchar, t double, launch integer, attempt integer, generation integer, step bigint, num_steps integer, "
    "accepted integer, seconds double, input_seconds double, examples bigint, warmup boolean, staleness integer[]"
)


@pytest.fixture
def tables() -> Iterator[Connection]:
    with duckdb.connect() as connection:
        connection.execute(f"create table steps ({TYPES})")
        connection.execute(
            "create table updates (t double, generation integer, step bigint, spread double, examples bigint)"
        )
        connection.execute("create table events (t double, kind varchar, data json)")
        yield connection


def steps(connection: Connection, *rows: dict[str, Any]) -> None:
    for one in rows:
        connection.execute("insert into steps values (?,?,?,?,?,?,?,?,?,?,?,?,?)", list({**STEP, **one}.values()))


def events(connection: Connection, kind: str, *rows: tuple[float, dict[str, Any]]) -> None:
    for t, data in rows:
        connection.execute("insert into events values (?, ?, ?)", [t, kind, json.dumps(data)])


# --- servers ----------------------------------------------------------------------------------------------------------
def placed(**sizes: tuple[str, int]) -> dict[str, Any]:
    return {"placement": [{"name": name, "device": device, "bytes": size} for name, (device, size) in sizes.items()]}


def test_each_server_has_its_share_and_its_three_largest_variables(tables: Connection) -> None:
    here = {name: ("ps/0", size) for name, size in (("a", 10), ("b", 40), ("c", 20), ("d", 30))}
    events(tables, "variables", (2.0, placed(**here, e=("ps/1", 300))), (1.0, placed(old=("ps/0", 1))))
    found = summary._variables(tables, 2)
    assert found["variable_bytes"] == 400
    assert found["servers"] == [
        {
            "task": "ps/0",
            "bytes": 100,
            "share": 0.25,
            "variables": 4,
            "largest": [
                {"name": name, "part": None, "bytes": size} for name, size in (("b", 40), ("d", 30), ("c", 20))
            ],
        },
        {
            "task": "ps/1",
            "bytes": 300,
            "share": 0.75,
            "variables": 1,
            "largest": [{"name": "e", "part": None, "bytes": 300}],
        },
    ]


def test_a_run_that_told_of_no_variables_has_none(tables: Connection) -> None:
    assert summary._variables(tables, 2) == {"variable_bytes": None, "servers": []}
    events(tables, "variables", (1.0, placed()))
    assert [server["share"] for server in summary._variables(tables, 1)["servers"]] == [0.0]


# --- tasks ------------------------------------------------------------------------------------------------------------
def test_a_tasks_share_is_of_the_gradients_that_entered_an_update(tables: Connection) -> None:
    steps(tables, {"num_steps": 4, "accepted": 3}, {"task": "worker/0", "num_steps": 1})
    chief, worker = summary._tasks(tables)
    assert (chief["gradients"], chief["dropped"], chief["share"]) == (3, 1, 0.75)
    assert (worker["gradients"], worker["dropped"], worker["share"]) == (1, 0, 0.25)


def test_where_no_gradient_was_taken_nobody_has_a_share(tables: Connection) -> None:
    steps(tables, {"accepted": 0})
    assert [task["share"] for task in summary._tasks(tables)] == [0.0]
    assert [task["dropped"] for task in summary._tasks(tables)] == [1]


# --- steps and time ---------------------------------------------------------------------------------------------------
def test_the_step_reached_is_the_newest_generations_highest(tables: Connection) -> None:
    assert reached_steps(tables) == 0
    steps(tables, {"generation": 1, "step": 90}, {"generation": 2, "step": 40})
    assert reached_steps(tables) == 40
    tables.execute("insert into updates values (1.0, 2, 50, 0.1, 10)")
    assert reached_steps(tables) == 50


def test_the_first_step_is_that_of_the_first_initialisation_of_the_only_launch(tables: Connection) -> None:
    assert summary._first_step(tables, {"launches": [{}]}) is None
    events(tables, "initialized", (5.0, {"step": 70}), (2.0, {"step": 30}))
    assert summary._first_step(tables, {"launches": [{}]}) == 30
    assert summary._first_step(tables, {"launches": [{}, {}]}) is None


def test_time_to_train_is_summed_over_the_launches_that_trained(tables: Connection) -> None:
    launches = [{"started": 90.0}, {"started": 200.0}, {"started": 300.0}]
    assert summary._time_to_train(tables, {"launches": launches}) is None
    steps(tables, {"t": 100.0, "launch": 1}, {"t": 104.0, "launch": 1}, {"t": 305.0, "launch": 3})
    assert summary._time_to_train(tables, {"launches": launches}) == 14.0 + 5.0
    assert summary._time_to_train(tables, {"launches": [{"started": 110.0}]}) == 0.0, "a clock may have jumped"


def test_wall_time_is_that_of_the_launches_that_ended() -> None:
    launches = [{"started": 10.0, "ended": 15.0}, {"started": 30.0}, {"started": 50.0, "ended": 57.0}]
    assert summary._seconds({"launches": launches}) == 12.0
    assert summary._seconds({"launches": [{"started": 30.0}]}) is None
    assert summary._seconds({"launches": [{"started": 30.0, "ended": 20.0}]}) == 0.0


# --- staleness and spread ---------------------------------------------------------------------------------------------
def test_staleness_is_counted_gradient_by_gradient(tables: Connection) -> None:
    assert summary._staleness(tables) is None
    steps(tables, {"staleness": [0, 2]}, {"staleness": [2]}, {"staleness": None}, {"staleness": [4, None]})
    assert summary._staleness(tables) == {
        "gradients": 4,
        "mean": 2.0,
        "median": 2.0,
        "p95": 4,
        "max": 4,
        "histogram": {"0": 1, "2": 2, "4": 1},
    }


def test_a_spread_is_known_where_updates_wait_for_gradients(tables: Connection) -> None:
    assert summary._spread(tables) is None
    for spread in (0.1, 0.2, 0.3):
        tables.execute("insert into updates values (1.0, 1, 1, ?, 10)", [spread])
    found = summary._spread(tables)
    assert found is not None
    assert (found["median"], found["p95"]) == pytest.approx((0.2, 0.29))


# --- updates ----------------------------------------------------------------------------------------------------------
def job(kind: str, workload: dict[str, Any] | None = None, workers: int = 1) -> dict[str, Any]:
    cluster = {role: {"count": count} for role, count in (("chief", 1), ("worker", workers), ("ps", 1))}
    return {"workload": workload or {}, "strategy": {"kind": kind}, "cluster": cluster}


def made(connection: Connection, of: dict[str, Any]) -> list[tuple[Any, ...]]:
    return connection.execute(f"select updates, examples from ({updates_made(of)}) order by t").fetchall()


def test_each_gradient_is_an_update_unless_the_strategy_joins_them(tables: Connection) -> None:
    both = ({"t": 100.0, "num_steps": 2, "examples": 20, "accepted": 1}, {"t": 101.0, "task": "worker/0", "step": 2})
    steps(tables, *both)
    assert made(tables, job("ps-async")) == [(1, 10), (1, 10)]
    tables.execute("insert into updates values (101.0, 1, 1, 0.1, 30)")
    assert made(tables, job("ps-sync")) == [(1, 30)]


def test_an_all_reduce_whose_last_rows_are_missing_counts_whole(tables: Connection) -> None:
    for step in (1, 2):
        steps(tables, {"step": step, "t": 100.0 + step})
    steps(tables, {"step": 1, "t": 101.0, "task": "worker/0", "examples": 12})
    assert made(tables, job("allreduce")) == [(1, 22), (1, 22)]
    assert made(tables, job("allreduce", workers=0)) == [(1, 22), (1, 10)]


def test_what_else_a_program_told_of_is_its_last_word_on_it(tables: Connection) -> None:
    tables.execute("alter table events add column task varchar")
    for t, task, value in ((1.0, "worker/0", 3), (2.0, "worker/0", 4), (1.0, "chief/0", 5)):
        data = json.dumps({"values": {"rate": value}})
        tables.execute("insert into events values (?, 'reported', ?, ?)", [t, data, task])
    assert summary._reported(tables) == [{"task": "chief/0", "rate": 5}, {"task": "worker/0", "rate": 4}]


# --- a whole run ------------------------------------------------------------------------------------------------------
@pytest.fixture
def sync(tmp_path: Any) -> RunFolder:
    """ps-sync, two tasks, five updates, the first of them warm-up; an evaluation, and one of before, told later."""
    folder = new_run(tmp_path, strategy="ps-sync", cluster={"chief": 1, "worker": 1, "ps": 1})
    tell(folder, CHIEF, t=99.0, kind="initialized", how="fresh", step=0, generation=1)
    for task in (CHIEF, WORKER):
        write_rows(folder, task, [row(100.0 + k, k, own_step=k, seconds=1.0, warmup=k == 1) for k in range(1, 6)])
    for k in range(1, 6):
        update = {"step": k, "generation": 1, "examples": 200, "spread": 0.1, "dropped": [], "attempt": 0}
        tell(folder, Task("ps", 0), t=100.0 + k, kind="update", tasks=["chief/0", "worker/0"], **update)
    for t, step, accuracy in ((106.0, 5, 0.75), (107.0, 3, 0.5)):
        tell(folder, CHIEF, t=t, kind="evaluation", step=step, accuracy=accuracy, loss=0.5, attempt=0, generation=1)
    return finished(folder, 90.0, 120.0)


def test_a_synchronous_run_by_hand(sync: RunFolder) -> None:
    found = Run(sync).summary()
    assert (found["steps"], found["num_training_tasks"], found["num_ps"], found["dilation"]) == (5, 2, 1, 1.0)
    assert (found["accuracy"], found["evaluated_step"]) == (0.75, 5), "of the highest step, whenever it was made"
    assert (found["aggregate"], found["pull_ahead"], found["command"]) == (2, None, None)
    assert (found["model"], found["dataset"], found["asked_steps"]) == ("softmax", "synthetic", 8)
    assert (found["seconds"], found["time_to_train"], found["training_seconds"]) == (30.0, 15.0, 5.0)
    assert (found["restarts"], found["rollbacks"], found["dropped"]) == (0, 0, 0)


def test_a_launch_without_a_start_is_damage_that_names_its_file(sync: RunFolder) -> None:
    facts = sync.facts()
    sync.write_facts({**facts, "launches": [{"started": math.inf, "ended": 1.0}]})
    with pytest.raises(FormatError, match=r"run\.json: launches: one has no time at which it started"):
        Run(sync).summary()
