"""Steps that were made in vain: recorded, and then undone, because training went on from an earlier step.

They are counted from the rows of steps and updates, not from what the launcher had heard when it happened: the last
rows of a node that dies lie in the run folder, but nobody passes them on any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.record.reader import Reader

if TYPE_CHECKING:
    import duckdb

LAST_BYTES = 2**18  # of an event file in which its last steps are looked for
# A generation begins at the step that was restored (in records without that event: where its first row began), and ends
# at its highest row. What lies between its end and the beginning of the next one is lost.
OF_GENERATIONS = """
    with rows as (select generation, step, num_steps from steps union all select generation, step, 1 from updates),
    made as (select generation, max(step) as last, min(step - num_steps) as first from rows group by generation),
    restored as (select (data->>'$.generation')::integer as generation, max((data->>'$.step')::bigint) as step
                 from events where kind = 'initialized' and data->>'$.how' != 'adopted' group by all),
    spans as (select generation, coalesce(step, first) as first, greatest(last, step) as last
              from made full join restored using (generation))
    select coalesce(sum(greatest(before - first, 0)), 0)::bigint
    from (select first, lag(last) over (order by generation) as before from spans)"""
# A user's own program says nothing of what it restores: it may have begun long before its first report, or right there.
# What is sure is what the first row itself covers. From its own highest step, a task went back at least to there.
OF_ATTEMPTS = """
    with spans as (select task, attempt, max(step) as last, greatest(arg_min(step - num_steps, own_step), 0) as first
                   from steps group by task, attempt)
    select task, first, before
    from (select task, first, lag(last) over (partition by task order by attempt) as before from spans)
    where first < before"""


def steps_lost(connection: duckdb.DuckDBPyConnection, job: dict[str, Any]) -> int:
    """Over the run's views `steps`, `updates` and `events`."""
    if "command" not in job["workload"]:
        return int(connection.execute(OF_GENERATIONS).fetchall()[0][0])
    ranges = [(str(task), int(first), int(last)) for task, first, last in connection.execute(OF_ATTEMPTS).fetchall()]
    if job["workload"]["report"]["steps"] == "own":
        return sum(last - first for _, first, last in ranges)
    return made_again(ranges)


def made_again(ranges: Sequence[tuple[str, int, int]]) -> int:
    """Global steps that were made again, where each task says so for itself: (task, first, last), the first excluded.

    A step counts as often as the task that made it again most often: all tasks of a run make the same global steps."""
    total, position = 0, 0
    times: Counter[str] = Counter()
    edges = sorted(edge for task, first, last in ranges for edge in ((first, 1, task), (last, -1, task)))
    for step, change, task in edges:
        total += (step - position) * max(times.values(), default=0)
        position = step
        times[task] += change
    return total


def reached(event: dict[str, Any]) -> tuple[int, int] | None:
    """(generation, step) that this event of a task tells of; of two, the larger is the later."""
    is_telling = event["kind"] in ("step", "update") or (event["kind"] == "initialized" and event["how"] != "adopted")
    return (int(event.get("generation") or 0), int(event["step"])) if is_telling else None


def last_reached(reader: Reader, paths: Iterable[Path], before: int) -> tuple[int, int] | None:
    """What the last rows of these event files say of generations before this one."""
    found = [
        told
        for path in paths
        for event in reader.last_lines(path, LAST_BYTES)
        if (told := reached(event)) is not None and told[0] < before
    ]
    return max(found, default=None)
