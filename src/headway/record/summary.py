"""What came out of a run, computed from its raw samples.

Rates count what was really done. Their window begins when every training task has left its warm-up for the first time
and ends with the last step, pauses for evaluation included: it is what a user of the cluster gets.
"""

from __future__ import annotations

import json
import math
import shlex
from typing import TYPE_CHECKING, Any

from headway.errors import FormatError
from headway.record.distributions import distributions, step_seconds_of
from headway.record.lost import steps_lost
from headway.record.programs import last_loss, program_warnings, updates_told
from headway.record.tables import connected, select_table
from headway.record.usage import usage, warnings
from headway.spec.cluster import ROLES

if TYPE_CHECKING:
    import duckdb

    from headway.record.run import Run

FIGURES = 11  # to be raised when a figure gets another name or meaning: results that were stored before are made again
NUM_LARGEST = 3  # variables that are named for each server
# Settings of a strategy, and the kinds for which they mean something.
SETTINGS = {
    "aggregate": ("ps-sync",),
    "replication": ("ps-sync",),
    "placement": ("ps-async", "ps-sync"),
    "pull_ahead": ("ps-async",),
    "exchange": ("ps-async",),
    "transfer": ("ps-async", "ps-sync", "allreduce"),
}
# Updates of the variables: since when, when, how many that are alike, and the examples in one of them. Each gradient is
# an update of its own, unless the strategy joins those of several tasks. All-reduce takes a gradient of every task or
# makes no step at all, so a step counts whole also where a killed task could not write its row any more. Of a
# synchronous update only its end is recorded: it was begun when the step was that ends with it or next.
EACH_GRADIENT = """
    select t - seconds as since, t, accepted as updates, examples // num_steps as examples from steps"""
SHARED = {
    "ps-sync": """
        select least(coalesce(began, t), t) as since, t, 1 as updates, examples
        from updates asof left join (select t as ended, t - seconds as began from steps) on t <= ended""",
    "allreduce": """
        with parts as (select generation, unnest(range(step - num_steps + 1, step + 1)) as step, task, t, seconds,
                              examples // num_steps as examples from steps)
        select min(t - seconds) as since, max(t) as t, 1 as updates,
               if(count(distinct task) = $tasks, sum(examples), max(sum(examples)) over ()) as examples
        from parts group by generation, step""",
}
TASKS = """
select task, sum(accepted) as gradients, sum(num_steps - accepted) as dropped,
       sum(examples // num_steps * accepted) as examples, count(distinct attempt) as attempts,
       median(seconds / num_steps) filter (not warmup) as step_seconds,
       quantile_cont(seconds / num_steps, 0.95) filter (not warmup) as step_seconds_p95,
       sum(input_seconds) filter (not warmup)
           / sum(seconds) filter (not warmup and input_seconds is not null) as input_share,
       sum(num_steps) filter (not warmup) / sum(seconds) filter (not warmup) as steps_per_s,
       sum(examples) filter (not warmup) / sum(seconds) filter (not warmup) as examples_per_s
from steps group by task order by task
"""
# A resumed run has a window for each launch: the time between them is nobody's. What ends in a window counts.
RATES = """
with warm as (select launch, task, min(t - seconds) as since from steps where not warmup group by launch, task),
     begun as (select launch, max(since) as first from warm group by launch),
     span as (select launch, first, max(t) as last from steps join begun using (launch) group by launch, first),
     joint as (select sum(updates) as updates, sum(updates * examples) as examples
               from made join span using (launch) where t > first + 1e-6 and t <= last),
     own as (select sum(num_steps) as steps from steps join span using (launch) where t > first + 1e-6)
select updates / seconds, steps / seconds, examples / seconds, seconds
from joint, own, (select sum(last - first) as seconds from span)
"""
BATCH = "select sum(updates * examples) / sum(updates), min(examples), max(examples) from made where updates > 0"
TRAINING_SECONDS = """
select sum(seconds) from (select max(t) - min(t - seconds) as seconds from steps group by launch)
"""
# Which state of the variables rows speak of. Rows of older runs do not say: then the last that was made before them.
# Times are asked last: a clock may have jumped.
MADE_BEFORE = """
    (select arg_max((data->>'$.generation')::integer, t) from events
     where kind = 'initialized' and t <= row.t)"""
FIRST_MADE = "(select min((data->>'$.generation')::integer) from events where kind = 'initialized')"
EVALUATED = f"""
    select step, accuracy, loss, t,
           coalesce(generation, {MADE_BEFORE}, {FIRST_MADE}, attempt, 0) as generation from evaluations row"""
# What the chief said at the end of the exported model; it holds if nobody trained on after it.
LAST_WORD = f"""
    select * from (
        select (data->>'$.step')::bigint as step, (data->>'$.accuracy')::double as accuracy,
               (data->>'$.loss')::double as loss, t,
               coalesce((data->>'$.generation')::integer, {MADE_BEFORE}, {FIRST_MADE}, 0) as generation
        from events row where kind = 'finished')
    where generation >= coalesce((select max(generation) from steps), 0)"""
NEWEST = "order by generation desc, step desc, t desc limit 1"
BAD_RECORDS = """
select count(distinct (data->>'$.file') || ' ' || (data->>'$.offset')) from events where kind = 'bad_record'
"""
TRAIN_LOSS = """
with latest as (select loss, penalty, num_steps, sum(num_steps) over (order by t desc, task rows unbounded preceding)
                - num_steps as later from steps)
select sum(loss * num_steps) / sum(num_steps) filter (loss is not null),
       sum(penalty * num_steps) / sum(num_steps) filter (penalty is not null)
from latest where later < 50
"""
STALENESS = """
with gradients as (select unnest(staleness) as s from steps)
select count(s), avg(s), median(s), quantile_disc(s, 0.95), max(s) from gradients
"""


def summarize(run: Run) -> dict[str, Any]:
    with connected(run.folder) as connection:
        facts, job = run.facts, run.job
        workload, cluster, strategy = job["workload"], job["cluster"], job["strategy"]
        counts = {role: int(cluster[role]["count"]) for role in ROLES}  # they go into SQL: numbers and nothing else
        num_training_tasks = counts["chief"] + counts["worker"]
        is_program = "command" in workload
        _make_views(connection, run)
        steps_per_s, task_steps_per_s, examples_per_s, window = _one(connection, RATES)
        batch, batch_min, batch_max = _one(connection, BATCH)
        tasks = _tasks(connection)
        figures = {
            "run": run.name,
            "name": facts["name"],
            "state": facts["state"],
            "reason": facts.get("reason"),
            "strategy": strategy["kind"],
            **{
                name: strategy.get(name) if strategy["kind"] in kinds and not is_program else None
                for name, kinds in SETTINGS.items()  # of the engine's strategies; a program has its own ways
            },
            "command": shlex.join(workload["command"]) if is_program else None,
            "model": None if is_program else workload["model"]["name"],
            "dataset": None if is_program else workload["dataset"]["name"],
            "batch_size": workload["batch_size"],
            "global_batch_size": workload.get("global_batch_size"),
            "num_training_tasks": num_training_tasks,
            "num_ps": counts["ps"],
            "asked_steps": None if is_program else workload["stop"].get("steps"),
            "steps": reached_steps(connection),
            "steps_per_s": steps_per_s,
            "task_steps_per_s": task_steps_per_s,
            "examples_per_s": examples_per_s,
            "window_seconds": window,
            "updates": _one(connection, "select coalesce(sum(updates), 0)::bigint from made")[0],
            "first_step": _first_step(connection, facts),
            "effective_batch": batch,
            "effective_batch_min": batch_min,
            "effective_batch_max": batch_max,
            "dropped": sum(task["dropped"] for task in tasks),
            **_quality(connection),
            **({"train_loss": last_loss(connection), "penalty": None} if is_program else _train_loss(connection)),
            "seconds": _seconds(facts),
            "training_seconds": _one(connection, TRAINING_SECONDS)[0],
            "time_to_train": _time_to_train(connection, facts),
            "staleness": _staleness(connection),
            "spread": _spread(connection),
            "tasks": tasks,
            **_variables(connection, counts["ps"]),
            **usage(connection, run, _launch(run)),
            "site": job["site"]["kind"],
            "layout": job.get("layout"),
            "dilation": job["site"].get("dilation") or 1.0,
            "warnings": [*warnings(connection, run.choices), *(_told_warnings(connection, job) if is_program else [])],
            "restarts": _count(connection, "restarting"),
            "rollbacks": _count(connection, "rollback"),
            "steps_lost": steps_lost(connection, job),
            "reported": _reported(connection),
            "bad_records": _one(connection, BAD_RECORDS)[0],
            "created": facts.get("created"),
            "path": str(run.path),
        }
        figures |= distributions(connection, job, figures, _launch(run))
        for task in figures["tasks"]:
            task["distribution"] = step_seconds_of(connection, task["task"])
        return figures


def updates_made(job: dict[str, Any]) -> str:
    """SQL for what the run did to its variables (`since`, `t`, `updates`, `examples`), over its tables `updates` and
    `steps`, in which `accepted` is known everywhere (`with_accepted`)."""
    workload, cluster, strategy = job["workload"], job["cluster"], job["strategy"]
    num_tasks = sum(int(cluster[role]["count"]) for role in ("chief", "worker"))
    if "command" in workload:
        return updates_told(workload, strategy, num_tasks)
    return SHARED.get(strategy["kind"], EACH_GRADIENT).replace("$tasks", str(num_tasks))


def with_accepted(steps: str) -> str:
    """SQL. Before there was `accepted`, every gradient entered an update."""
    return f"select * replace (coalesce(accepted, num_steps) as accepted) from ({steps})"


def _reported(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """The last of whatever else a user's own program has told of: a rate that it computed itself, say."""
    rows = connection.execute(
        "select task, arg_max(data, t) from events where kind = 'reported' group by task order by task"
    ).fetchall()
    return [{"task": task, **json.loads(data)["values"]} for task, data in rows]


def _make_views(connection: duckdb.DuckDBPyConnection, run: Run) -> None:
    """The run's tables, and `made`: the updates of its variables. Steps and updates know the launch they belong to."""
    launch = _launch(run)
    for table in ("steps", "updates", "evaluations", "events"):
        rows = select_table(run.folder, table, connection)
        if table == "steps":
            rows = f"select *, {launch} from ({with_accepted(rows)})"
        connection.execute(f"create temp view {table} as {rows}")
    connection.execute(f"create temp view made as select *, {launch} from ({updates_made(run.job)})")


def _launch(run: Run) -> str:
    """SQL for the launch that a row with time `t` belongs to."""
    starts = [float(launch["started"]) for launch in run.facts["launches"]]
    if not all(map(math.isfinite, starts)):
        raise FormatError(f"{run.path / 'run.json'}: launches: one has no time at which it started")
    return f"len(list_filter({starts}::double[], lambda started: started <= t)) as launch"


def _first_step(connection: duckdb.DuckDBPyConnection, facts: dict[str, Any]) -> int | None:
    """The global step that training began at: above 0 where it went on from a checkpoint. None of a resumed run."""
    if len(facts["launches"]) != 1:
        return None
    row = _one(connection, "select arg_min((data->>'$.step')::bigint, t) from events where kind = 'initialized'")
    return row[0] if row else None


def _time_to_train(connection: duckdb.DuckDBPyConnection, facts: dict[str, Any]) -> float | None:
    """From the command to the end of the last step, summed over launches: what a user waits for the training, with
    provisioning, starting and evaluations in it, without the last evaluation and export."""
    last = dict(connection.execute("select launch, max(t) from steps group by launch").fetchall())
    times = [max(0.0, last[n] - launch["started"]) for n, launch in enumerate(facts["launches"], 1) if n in last]
    return sum(times) if times else None


def reached_steps(connection: duckdb.DuckDBPyConnection) -> int:
    """The global step at the end: the chief's last word, else the newest generation's highest step."""
    last, *_ = _one(connection, f"{LAST_WORD} {NEWEST}") or (None,)
    if last is None:
        last, *_ = _one(
            connection,
            "with every as (select generation, step from steps union all select generation, step from updates)"
            " select arg_max(step, (coalesce(generation, 0), step)) from every",
        )
    return int(last or 0)


def _quality(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Accuracy and loss on the whole test set.

    The chief's last word is about the exported model; before that, the evaluation of the newest generation's highest
    step counts, whenever it was made.
    """
    last = _one(connection, f"{LAST_WORD} {NEWEST}") or _one(connection, f"{EVALUATED} {NEWEST}")
    step, accuracy, loss, *_ = last or (None, None, None)
    return {"accuracy": accuracy, "loss": loss, "evaluated_step": step}


def _train_loss(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The mean of the last 50 gradients of all tasks together, weight decay apart. A call of many steps has one loss,
    the mean of them all."""
    train, penalty = _one(connection, TRAIN_LOSS)
    return {"train_loss": train, "penalty": penalty}


def _told_warnings(connection: duckdb.DuckDBPyConnection, job: dict[str, Any]) -> list[str]:
    training = [
        f"{role}/{index}" for role in ("chief", "worker") for index in range(int(job["cluster"][role]["count"]))
    ]
    return program_warnings(connection, job["workload"], job["strategy"], training)


def _staleness(connection: duckdb.DuckDBPyConnection) -> dict[str, Any] | None:
    count, mean, middle, p95, most = _one(connection, STALENESS)
    if not count:
        return None
    histogram = connection.execute(
        "select s, count(*) from (select unnest(staleness) as s from steps) where s is not null group by s order by s"
    ).fetchall()
    return {
        "gradients": count,
        "mean": mean,
        "median": middle,
        "p95": p95,
        "max": most,
        "histogram": {str(staleness): number for staleness, number in histogram},
    }


def _spread(connection: duckdb.DuckDBPyConnection) -> dict[str, float] | None:
    """Seconds between the first and the last gradient of an update; None where nobody waits for gradients."""
    middle, p95 = _one(connection, "select median(spread), quantile_cont(spread, 0.95) from updates")
    return None if middle is None else {"median": middle, "p95": p95}


def _tasks(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    cursor = connection.execute(TASKS)
    columns = [column[0] for column in cursor.description or ()]
    rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    total = sum(row["gradients"] for row in rows)
    return [{**row, "share": row["gradients"] / total if total else 0.0} for row in rows]


def _variables(connection: duckdb.DuckDBPyConnection, num_ps: int) -> dict[str, Any]:
    """The bytes of one copy of all variables, and what of them the chief placed on each server."""
    last = _one(connection, "select data from events where kind = 'variables' order by t desc limit 1")
    if not last:
        return {"variable_bytes": None, "servers": []}
    placement = sorted(json.loads(last[0])["placement"], key=lambda variable: -variable["bytes"])
    total = sum(variable["bytes"] for variable in placement)
    servers = []
    for server in (f"ps/{index}" for index in range(num_ps)):
        here = [variable for variable in placement if variable["device"] == server]
        size = sum(variable["bytes"] for variable in here)
        largest = [{key: variable.get(key) for key in ("name", "part", "bytes")} for variable in here[:NUM_LARGEST]]
        share = size / total if total else 0.0
        servers.append({"task": server, "bytes": size, "share": share, "variables": len(here), "largest": largest})
    return {"variable_bytes": total, "servers": servers}


def _seconds(facts: dict[str, Any]) -> float | None:
    """Wall time of all launches together; of one that was killed, nothing is known but its beginning."""
    times = [max(0.0, launch["ended"] - launch["started"]) for launch in facts["launches"] if "ended" in launch]
    return sum(times) if times else None


def _count(connection: duckdb.DuckDBPyConnection, kind: str) -> int:
    return int(connection.execute("select count(*) from events where kind = ?", [kind]).fetchall()[0][0])


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(sql).fetchone()
    return row if row is not None else ()
