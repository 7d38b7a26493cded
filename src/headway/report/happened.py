"""The events of a run that belong on its time line, in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headway.plural import counted
from headway.record import standstills
from headway.record.folder import LAUNCHER
from headway.units import format_seconds

if TYPE_CHECKING:
    import duckdb

MOST_OF_A_KIND = 60  # marks on one line of a page; of more every so-manieth is shown, and the page says so
TROUBLE = {
    "restarting", "given_up", "regrouping", "rollback", "stalled", "unresponsive", "silent", "stopped", "blocked",
    "agent_lost", "kill_overdue", "sampler_failed", "failed", "disconnected", "not_limited", "clock_jumped",
    "failure_ignored",
}  # fmt: skip
CALM = {
    "state", "task_started", "task_exited", "going_on", "unblocked", "stop_asked", "exported", "initialized",
    "cpu_limited",
}  # fmt: skip


def happened(connection: duckdb.DuckDBPyConnection, origin: float) -> list[dict[str, Any]]:
    """`t` (seconds since `origin`), `kind`, `text`, `trouble`, in the order of time."""
    wanted = ", ".join(f"'{kind}'" for kind in sorted(TROUBLE | CALM))
    rows = connection.execute(f"select t, kind, task, data from events where kind in ({wanted}) order by t").fetchall()
    found = [_mark(t, kind, _text(kind, task, json.loads(data))) for t, kind, task, data in rows]
    found += _tests_and_saves(connection)
    found += _end_of_warmup(connection)
    found.sort(key=lambda mark: float(mark["t"]))
    return [{**mark, "t": round(mark["t"] - origin, 3)} for mark in found]


def shown(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that a time line shows: all of trouble; of many others of one kind every so-manieth, each of which says how
    many there are."""
    thinned = _thinned(events)
    seen: Counter[str] = Counter()
    found = []
    for event in events:
        kind = event["kind"]
        every, few = thinned.get(kind, (1, ""))
        if seen[kind] % every == 0:
            found.append({**event, "text": f"{event['text']} (shown: {few} of this kind)"} if few else event)
        seen[kind] += 1
    return found


def not_shown(events: Sequence[dict[str, Any]]) -> str | None:
    """In words, of which kinds of events a time line shows how many; None where it shows all."""
    return "; ".join(f"{few} of kind {kind}" for kind, (_, few) in _thinned(events).items()) or None


def _thinned(events: Sequence[dict[str, Any]]) -> dict[str, tuple[int, str]]:
    """Kinds of which there are too many marks for one line: every how-manieth is shown, and `45 of 90`."""
    num_of = Counter(event["kind"] for event in events if not event["trouble"])
    every = {kind: -(-num // MOST_OF_A_KIND) for kind, num in num_of.items() if num > MOST_OF_A_KIND}
    return {kind: (step, f"{-(-num_of[kind] // step):,} of {num_of[kind]:,}") for kind, step in every.items()}


def network_got(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """What was asked of the network between nodes, and what it was measured to be."""
    rows = connection.execute("select data from events where kind = 'network_measured' order by t").fetchall()
    wanted = ("what", "node", "to", "asked", "got", "ok")
    return [{key: event.get(key) for key in wanted} for event in (json.loads(data) for (data,) in rows)]


def _mark(t: float, kind: str, text: str) -> dict[str, Any]:
    return {"t": t, "kind": kind, "text": text, "trouble": kind in TROUBLE}


def _tests_and_saves(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    found = []
    for t, step, accuracy, loss in connection.execute("select t, step, accuracy, loss from evaluations").fetchall():
        quality = f"accuracy {accuracy:.4f}" if accuracy is not None else f"loss {loss:.4g}" if loss is not None else ""
        found.append(_mark(t, "evaluation", f"evaluated at step {step:,}: {quality}".rstrip(": ")))
    for t, step, seconds in connection.execute("select t, step, seconds from checkpoints").fetchall():
        found.append(_mark(t, "checkpoint", f"saved step {step:,} in {format_seconds(seconds)}"))
    return found


def _end_of_warmup(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    (t,) = connection.execute(
        "select max(since) from (select min(t - seconds) as since from steps where not warmup group by task)"
    ).fetchall()[0]
    return [] if t is None else [_mark(t, "measured", "every task has left its warm-up: rates count from here")]


def _text(kind: str, task: str, event: dict[str, Any]) -> str:
    who = event.get("task") or (task if task != LAUNCHER else event.get("node") or "")
    if still := standstills.words(kind, event):
        return still
    if kind == "state":
        words = f"the run is {event.get('state')}"
    elif kind == "task_exited":
        words = f"{who} ended with code {event.get('code')}"
    elif kind == "rollback":
        lost = event.get("steps_lost")  # of a file that anybody may have written
        lost = counted(lost, "step") if isinstance(lost, int) else f"{lost}"
        words = f"back to step {event.get('step')}: {lost} lost"
    elif kind == "initialized":
        words = f"{who}: variables {event.get('how')}, at step {event.get('step')}"
    elif kind == "cpu_limited":
        words = f"{who}: its limit of {event.get('cpus')} CPUs holds from now on"
    else:
        words = f"{who} {kind.replace('_', ' ')}".strip()
    reason = event.get("reason") or event.get("message") or event.get("error")
    return f"{words} ({str(reason)[:200]})" if reason else words
