"""Where a user's own program tells of its steps, and which of several sources counts.

Each task may be heard in several ways at once: it calls headway.log(), writes TensorBoard files and prints lines. All
tell of the same steps, so the best source of each attempt counts and the others do not. Everything that was heard stays
in the events (`step`, with its `source`, and `told`); the table `steps` has the rows that count. A loss that only a
worse source knew is put into the row that is nearest in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

LOG, BOARD, LINE = "headway.log()", "TensorBoard files", "its output"
BEST_FIRST = (LOG, BOARD, LINE)


def rank(source: str | None) -> int:
    """0 is the best."""
    return BEST_FIRST.index(source) if source in BEST_FIRST else len(BEST_FIRST)


def that_count(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One task's events without the steps that a better source of the same attempt told of, too."""
    everything = list(events)
    best: dict[int, int] = {}
    for event in everything:
        if event["kind"] == "step":  # before there was `source`, the reports of one counted
            attempt, its_rank = event.get("attempt", 0), rank(event.get("source"))
            best[attempt] = min(its_rank, best.get(attempt, its_rank))
    for event in everything:
        if event["kind"] != "step" or rank(event.get("source")) == best[event.get("attempt", 0)]:
            yield event


def merged(rows: str) -> str:
    """SQL: of the rows of `step` and `told` events (which have no `num_steps`), the steps that count. A row without a
    source is our own engine's, or of a run from before there were sources: it counts."""
    ranks = " ".join(f"when '{source}' then {place}" for place, source in enumerate(BEST_FIRST))
    nearest = """
        select told.row, told.t, told.loss, {side}.row as place, abs(told.t - {side}.t) as distance
        from told asof join counted {side}
          on told.task = {side}.task and told.attempt = {side}.attempt and told.t {compares} {side}.t"""
    return f"""
        with everything as materialized ({rows}),
        heard as (
            select *, row_number() over () as row, case source {ranks} else {len(BEST_FIRST)} end as rank
            from everything where source is not null),
        best as (
            select task, attempt, min(rank) as rank from heard where num_steps is not null group by task, attempt),
        counted as (
            select heard.* from heard join best
              on heard.task = best.task and heard.attempt is not distinct from best.attempt and heard.rank = best.rank
            where num_steps is not null),
        told as (
            select heard.* from heard anti join counted on heard.row = counted.row
            where loss is not null),
        nearest as (
            select row, arg_min(place, distance) as place, any_value(t) as t, any_value(loss) as loss
            from ({nearest.format(side="before", compares=">=")} union all
                  {nearest.format(side="behind", compares="<=")}) group by row),
        losses as (select place, arg_max(loss, t) as heard_loss from nearest group by place)
        from everything where source is null
        union all by name
        select counted.* exclude (row, rank) replace (coalesce(loss, heard_loss) as loss)
        from counted left join losses on counted.row = losses.place"""
