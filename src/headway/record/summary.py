"""What came out of a run, computed from its raw samples.

Rates count updates that were really made. Their window begins when every training task has left its warm-up for
the first time and ends with the last step, pauses for evaluation included: it is what a user of the cluster gets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headway.record.tables import select_table
from headway.spec.cluster import ROLES

if TYPE_CHECKING:
    import duckdb

    from headway.record.run import Run

TASKS = """
select task, sum(num_steps) as updates, sum(examples) as examples, count(distinct attempt) as attempts,
       median(seconds / num_steps) filter (not warmup) as step_seconds,
       quantile_cont(seconds / num_steps, 0.95) filter (not warmup) as step_seconds_p95,
       sum(input_seconds) filter (not warmup)
           / sum(seconds) filter (not warmup and input_seconds is not null) as input_share,
       sum(num_steps) filter (not warmup) / sum(seconds) filter (not warmup) as steps_per_s
from steps group by task order by task
"""
# A resumed run has a window for each launch: the time between them is nobody's.
RATES = """
with warm as (select launch, task, min(t - seconds) as since from steps where not warmup group by launch, task),
     span as (select launch, max(since) as first from warm group by launch),
     part as (select launch, sum(num_steps) as updates, sum(examples) as examples, max(t) - any_value(first) as seconds
              from steps join span using (launch) where t - seconds >= first - 1e-6 group by launch)
select sum(updates) / sum(seconds), sum(examples) / sum(seconds) from part
"""
TRAINING_SECONDS = """
select sum(seconds) from (select max(t) - min(t - seconds) as seconds from steps group by launch)
"""
IS_LAST_WORD = "kind = 'finished' and t >= coalesce((select max(t) from steps), 0)"
STALENESS = """
with updates as (select unnest(staleness) as s from steps)
select count(s), avg(s), median(s), quantile_disc(s, 0.95), max(s) from updates
"""


def summarize(run: Run) -> dict[str, Any]:
    import duckdb

    with duckdb.connect() as connection:
        facts, job = run.facts, run.job
        starts = [launch["started"] for launch in facts["launches"]]
        for table in ("steps", "evaluations", "events"):
            connection.execute(f"create temp view {table}_ as {select_table(run.folder, table, connection)}")
        launch = f"len(list_filter({starts}::double[], lambda started: started <= t))"
        connection.execute(f"create temp view steps as select *, {launch} as launch from steps_")
        connection.execute("create temp view evaluations as from evaluations_")
        connection.execute("create temp view events as from events_")
        workload, cluster = job["workload"], job["cluster"]
        counts = {role: cluster[role]["count"] for role in ROLES}
        steps = reached_steps(connection)
        training = _one(connection, TRAINING_SECONDS)[0]
        rates = _one(connection, RATES)
        return {
            "run": run.name,
            "name": facts["name"],
            "state": facts["state"],
            "reason": facts.get("reason"),
            "strategy": job["strategy"]["kind"],
            "model": workload["model"]["name"],
            "dataset": workload["dataset"]["name"],
            "batch_size": workload["batch_size"],
            "num_training_tasks": counts["chief"] + counts["worker"],
            "num_ps": counts["ps"],
            "asked_steps": workload["stop"].get("steps"),
            "steps": steps,
            "steps_per_s": rates[0],
            "examples_per_s": rates[1],
            **_quality(connection),
            "seconds": _seconds(facts),
            "training_seconds": training,
            "staleness": _staleness(connection),
            "tasks": _tasks(connection),
            "servers": _servers(connection),
            "restarts": _count(connection, "restarting"),
            "rollbacks": _count(connection, "rollback"),
            "steps_lost": _one(
                connection,
                "select coalesce(sum((data->>'$.steps_lost')::bigint), 0) from events where kind = 'rollback'",
            )[0],
            "created": facts.get("created"),
            "path": str(run.path),
        }


def reached_steps(connection: duckdb.DuckDBPyConnection) -> int:
    """The global step at the end: the chief's last word, else the newest generation's highest step."""
    last = _one(
        connection,
        f"select arg_max((data->>'$.step')::bigint, t) from events where {IS_LAST_WORD}",
    )[0]
    if last is None:
        last = _one(
            connection,
            "select max(step) from steps"
            " where coalesce(generation, 0) = (select max(coalesce(generation, 0)) from steps)",
        )[0]
    return int(last or 0)


def _quality(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Accuracy and loss on the whole test set, and the mean training loss at the end.

    The chief's last word is about the exported model; before that, the last evaluation counts. (An evaluator that lags
    behind may evaluate an older checkpoint after the chief's last word.)
    """
    last = _one(
        connection,
        "select (data->>'$.accuracy')::double, (data->>'$.loss')::double, (data->>'$.step')::bigint from events"
        f" where {IS_LAST_WORD} order by t desc limit 1",
    ) or _one(connection, "select accuracy, loss, step from evaluations order by t desc limit 1")
    train = _one(connection, "select avg(loss) from (select loss from steps order by t desc limit 50)")[0]
    accuracy, loss, step = last or (None, None, None)
    return {"accuracy": accuracy, "loss": loss, "evaluated_step": step, "train_loss": train}


def _staleness(connection: duckdb.DuckDBPyConnection) -> dict[str, Any] | None:
    count, mean, middle, p95, most = _one(connection, STALENESS)
    if not count:
        return None
    histogram = connection.execute(
        "select s, count(*) from (select unnest(staleness) as s from steps) where s is not null group by s order by s"
    ).fetchall()
    return {
        "updates": count,
        "mean": mean,
        "median": middle,
        "p95": p95,
        "max": most,
        "histogram": {str(staleness): number for staleness, number in histogram},
    }


def _tasks(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    cursor = connection.execute(TASKS)
    columns = [column[0] for column in cursor.description or ()]
    rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    total = sum(row["updates"] for row in rows)
    return [{**row, "updates": int(row["updates"]), "share": row["updates"] / total} for row in rows]


def _servers(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """The bytes of variables on each server, as the chief placed them."""
    last = _one(connection, "select data from events where kind = 'variables' order by t desc limit 1")
    sizes: dict[str, int] = {}
    for variable in json.loads(last[0])["placement"] if last else ():
        sizes[variable["device"]] = sizes.get(variable["device"], 0) + variable["bytes"]
    return [{"task": device, "bytes": size} for device, size in sorted(sizes.items())]


def _seconds(facts: dict[str, Any]) -> float | None:
    """Wall time of all launches together; of one that was killed, nothing is known but its beginning."""
    times = [launch["ended"] - launch["started"] for launch in facts["launches"] if "ended" in launch]
    return sum(times) if times else None


def _count(connection: duckdb.DuckDBPyConnection, kind: str) -> int:
    return int(connection.execute("select count(*) from events where kind = ?", [kind]).fetchall()[0][0])


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(sql).fetchone()
    return row if row is not None else ()
