"""Figures of a user's own program: of its updates and examples only what it told of, or what follows from the job.

How a program keeps its tasks in step is known where the job says so (`strategy`), or where there is one task. Without
servers it is taken for an all-reduce: each step takes a batch of every task. With servers nothing is taken for granted
(`strategy: program`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

SYNCHRONOUS = ("ps-sync", "allreduce")
# Examples in one update, from the rows that tell of examples: each task's in a step, of all tasks together. Steps that
# a restarted task makes again use their examples again: they count on both sides. Where every step takes a batch of
# every task, those that tell of none use as many as the others. The first report of a task tells of what was before
# measuring began.
TOLD_EXAMPLES = """
    (select sum(examples) {scale} from (
        select sum(examples) / nullif(sum(num_steps), 0) as examples from steps
        where seconds > 0 and examples is not null {told} group by task))"""
# Before rows named their source, each had a whole batch for every global step, also where a step took one task's alone.
REALLY_TOLD = "and source is not null"
# It says how far all tasks together are, and each of them says so: an update is what no report before has told of.
GLOBAL = """
    with heard as (select t - seconds as since, t, step, coalesce(max(step) over (
                   order by t, step rows between unbounded preceding and 1 preceding), step - num_steps) as before
                   from steps)
    select since, t, greatest(step - before, 0) as updates, coalesce({told}, {given}) as examples from heard"""
# Each task counts its own steps, and all make a step together.
OWN_TOGETHER = """
    with parts as (select unnest(range(step - num_steps + 1, step + 1)) as step, t, seconds,
                          examples / num_steps as examples from steps)
    select min(t - seconds) as since, max(t) as t, 1 as updates, avg(examples) * {tasks} as examples
    from parts group by step"""
OWN_ALONE = """
    select t - seconds as since, t, num_steps as updates, examples / num_steps as examples from steps"""


def updates_told(workload: dict[str, Any], strategy: dict[str, Any], num_tasks: int) -> str:
    """SQL for the updates of a program: `since`, `t`, `updates` and the `examples` in one of them, over `steps`."""
    is_synchronous = strategy["kind"] in SYNCHRONOUS
    if workload["report"]["steps"] == "own":
        return OWN_TOGETHER.format(tasks=num_tasks) if is_synchronous else OWN_ALONE
    size = workload["batch_size"]
    is_known = size is not None and (strategy["kind"] != "program" or num_tasks == 1)
    given = str(int(size) * (num_tasks if is_synchronous else 1)) if is_known else "null"
    if is_synchronous:
        told = TOLD_EXAMPLES.format(scale=f"* {num_tasks} / count(*)", told="")
    else:
        told = TOLD_EXAMPLES.format(scale="", told=REALLY_TOLD if num_tasks > 1 else "")
    return GLOBAL.format(told=told, given=given)


def program_warnings(
    connection: duckdb.DuckDBPyConnection, workload: dict[str, Any], strategy: dict[str, Any], training: list[str]
) -> list[str]:
    """What of its steps and examples is not known, and how it can be made known. `training`: the training tasks."""
    heard = [task for (task,) in connection.execute("select distinct task from steps order by task").fetchall()]
    silent = [task for task in training if task not in heard]
    counted = {source for (source,) in connection.execute("select distinct source from steps").fetchall()}
    found = []
    for (data,) in connection.execute("select data from events where kind = 'not_counted' order by t, task").fetchall():
        event = json.loads(data)
        if not heard or (event["is_partial"] and event["source"] in counted):  # a better source knows all steps
            text = f"not counted as steps ({event['source']}): {event['seen']!r}: {event['why']}"
            found += [] if text in found else [text]
    if heard and silent and strategy["kind"] not in SYNCHRONOUS and workload["report"]["steps"] == "own":
        found.append(f"nothing was heard of the steps of {', '.join(silent)}: rates are those of {', '.join(heard)}")
    if heard and len(training) > 1 and strategy["kind"] == "program" and workload["batch_size"] is not None:
        told = connection.execute("select count(examples) from steps").fetchall()[0][0]
        if not told:
            found.append(
                "examples/s are not known: a global step may take the batch of one task or of each. Say which: "
                "strategy=ps-async or strategy=ps-sync"
            )
    return found


def last_loss(connection: duckdb.DuckDBPyConnection) -> float | None:
    """The training loss that was reported last. What it is a mean of is the program's business: Keras reports that of
    the epoch so far."""
    row = connection.execute(
        "select loss from steps where loss is not null order by step desc, t desc limit 1"
    ).fetchone()
    return None if row is None else row[0]
