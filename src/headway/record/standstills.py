"""Tasks that stood still: the launcher's notes on them in words, and what a summary warns of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headway.units import format_seconds

if TYPE_CHECKING:
    import duckdb

SHORT = 10.0  # seconds: silence that ends sooner may be a busy machine's, and is no warning
DOING = {
    "nothing": "uses no CPU",
    "computing": "computes",
    "disk": "waits in the kernel for a disk or a network file system (state D)",
}
ENDINGS = {"going_on": "and went on", "restarting": "and was started again", "task_exited": "and was ended"}


def words(kind: str, fields: dict[str, Any]) -> str | None:
    """A note of the launcher; None where it is of another kind."""
    task, seconds = fields.get("task"), format_seconds(fields.get("seconds") or 0.0)
    match kind:
        case "stopped" if fields.get("by_debugger"):
            return f"{task} is held by a debugger: process {fields.get('process')}, for {seconds}"
        case "stopped":
            return f"{task} is stopped: process {fields.get('process')} is in state T (SIGSTOP?) for {seconds}"
        case "silent":
            return f"{task} is silent: no heartbeat for {seconds}"
        case "stalled":
            doing = DOING.get(str(fields.get("doing")))
            text = f"{task} has made no step for {seconds}" + (f" and {doing}" if doing else "")
            among = fields.get("among", [])
            return text + ("; which task keeps the others waiting is not known" if len(among) > 1 else "")
        case "blocked":
            kept = ", ".join(fields.get("waiting", [])) or "the others"
            return f"{task} keeps {kept} waiting: no update for {seconds}"
        case _:
            return None


def warnings(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Who stood still, for how long, and what came of it; and who took part in nothing."""
    rows = connection.execute(
        "select t, kind, data from events where task = 'launcher' and kind in "
        "('stopped', 'silent', 'stalled', 'blocked', 'going_on', 'restarting', 'task_exited') order by t"
    ).fetchall()
    notes = [(float(t), str(kind), json.loads(data)) for t, kind, data in rows]
    found: dict[tuple[str, str], list[str]] = {}
    for number, (t, kind, fields) in enumerate(notes):
        if (happened := _happened(kind, fields)) is None:
            continue
        later = [(at, what) for at, what, about in notes[number + 1 :] if about.get("task") == fields["task"]]
        end = next(((at, what) for at, what in later if what in ("going_on", "task_exited")), None)
        if end is None:
            text = f"{happened}, until the run ended"
        else:
            seconds = end[0] - t + fields.get("seconds", 0.0)
            if kind == "silent" and end[1] == "going_on" and seconds < SHORT:
                continue
            is_again = end[1] == "task_exited" and any(what == "restarting" for _, what in later)
            text = f"{happened} for {format_seconds(seconds)}, {ENDINGS['restarting' if is_again else end[1]]}"
        found.setdefault((fields["task"], kind), []).append(text)
    counted = [texts[0] + (f" ({len(texts)} times)" if len(texts) > 1 else "") for texts in found.values()]
    return counted + _without_steps(connection)


def _happened(kind: str, fields: dict[str, Any]) -> str | None:
    task = fields.get("task")
    match kind:
        case "stopped" if fields.get("by_debugger"):
            return f"{task} was held by a debugger"
        case "stopped":
            return f"{task} was stopped (process {fields.get('process')}, state T)"
        case "silent":
            return f"{task} gave no heartbeat"
        case "stalled":
            return f"{task} made no step"
        case "blocked":
            return f"{task} kept others waiting"
        case _:
            return None


def _without_steps(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """A user's program may tell of one task's steps only; ours tells of each. In a run that has just begun, a task
    may still be starting."""
    rows = connection.execute(
        f"""
        select distinct data->>'$.task' as started from events
        where kind = 'task_started' and regexp_matches(data->>'$.task', '^(chief|worker)/')
          and data->>'$.task' not in (select task from steps)
          and exists (select 1 from steps)
          and ((select max(t) - min(t) from steps) > {SHORT} or exists
               (select 1 from events where kind = 'state' and data->>'$.state' in ('finished', 'stopped', 'failed')))
          and not exists (select 1 from events where kind = 'ready' and data->>'$.program' is not null)
        order by started
        """
    ).fetchall()
    return [f"{task} made no step: the others trained without it" for (task,) in rows]
