"""All that a page tells of one run, as plain data: made in a process of its own where there are many runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import HeadwayError
from headway.findings import Finding, findings
from headway.metrics.consistency import of_run
from headway.metrics.cost import EVERY_NODE, cost, kind_of, node_names
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.record.seal import result
from headway.record.shapes import checked
from headway.record.summary import updates_made, with_accepted
from headway.record.tables import select_table
from headway.report.checked import commit_of, environment_of, text_of
from headway.report.curves import curves, step_times
from headway.report.happened import happened, network_got
from headway.report.own_time import OwnTime, own_time
from headway.report.settings import settings_of
from headway.report.timeline import timeline
from headway.spec.secrets import redacted

if TYPE_CHECKING:
    import duckdb


def digest(path: Path, num: int, prices: Mapping[str, float] | None = None) -> dict[str, Any]:
    """`num`: into how many buckets its time line is thinned. A damaged run gives `problem` and nothing else: it must
    not hide the others."""
    run = Run(RunFolder(path))
    try:
        return _digest(run, num, prices or {})
    except Exception as error:  # there is nothing that a stranger's folder cannot make go wrong
        return damaged(run.name, str(path), error)


def damaged(name: str, path: str, error: Exception) -> dict[str, Any]:
    return {"name": text_of(name), "path": text_of(path), "problem": in_words(error)}


def in_words(error: Exception) -> str:
    """The message of an error of ours; of any other also what it is."""
    words = text_of(" ".join(str(error).split())[:300])
    return words if isinstance(error, (HeadwayError, OSError)) else f"{type(error).__name__}: {words}"


def _digest(run: Run, num: int, prices: Mapping[str, float]) -> dict[str, Any]:
    import duckdb

    figures = {**finite(result(run)), "run": run.name}
    checked(figures, "result.json")
    if figures.get("command"):
        figures["command"] = redacted(figures["command"])
    facts = run.facts
    with duckdb.connect(config={"threads": 1}) as connection:
        show_tables(connection, run)
        own = own_time(connection, facts["launches"], facts["created"])
        origin = own.starts[0]
        line = timeline(connection, own, num)
        learnt = curves(connection, own, max(40, num // 2))
        times = step_times(connection)
        marks = [{**mark, "t": own.moment(origin + mark["t"])} for mark in happened(connection, origin)]
        network = network_got(connection)
    found: dict[str, Any] = finite(
        {
            "name": run.name,
            "path": str(run.path),
            "problem": None,
            "origin": origin,
            "commit": commit_of(run.environment),
            "figures": figures,
            "contradictions": [wrong.text for wrong in of_run(figures)],
            "settings": settings_of(run.job),
            "choices": run.choices,
            "environment": environment_of(run.environment),
            "timeline": line,
            "curves": learnt,
            "step_times": times,
            **_cost(run, prices),
            "events": marks,
            "network": network,
            **_findings(run, figures, own),
        }
    )
    return found


def show_tables(connection: duckdb.DuckDBPyConnection, run: Run) -> None:
    """The run's tables as views, so that the events of a run that is not sealed are read once; and `made`, what it did
    to its variables, as its figures count that."""
    for name in ("steps", "updates", "evaluations", "checkpoints", "events", "node_samples"):
        rows = select_table(run.folder, name, connection)
        connection.execute(f"create temp view {name} as {with_accepted(rows) if name == 'steps' else rows}")
    connection.execute(f"create temp view made as {updates_made(run.job)}")


def _cost(run: Run, prices: Mapping[str, float]) -> dict[str, Any]:
    """`cost`: None where it is not known what its nodes cost. `priced`: which of the prices are of nodes that it has; a
    single machine has no server."""
    if not prices and not any(node.get("type") for node in (run.job["site"].get("nodes") or {}).values()):
        return {"cost": None, "priced": []}  # its events need not be read for that
    nodes = node_names(run.rows("events")) if prices else []
    own = {key: price for key, price in prices.items() if key in (EVERY_NODE, *nodes, *map(kind_of, nodes))}
    try:
        found = cost(run, own)
    except HeadwayError:
        return {"cost": None, "priced": list(own)}
    extra = {name: getattr(found, name) for name in ("total", "training_only", "per_1000_steps", "price_per_h")}
    known = {"dollars": found.dollars, "seconds": found.seconds, "to_accuracy": found.to_accuracy, **extra}
    return {"cost": known, "priced": list(own)}


def _findings(run: Run, figures: dict[str, Any], own: OwnTime) -> dict[str, Any]:
    """A record that no rule can read still has its figures."""
    try:
        return {"findings": [_finding(one, own) for one in findings(run, figures)], "findings_problem": None}
    except Exception as error:  # as above
        return {"findings": [], "findings_problem": in_words(error)}


def _finding(found: Finding, own: OwnTime) -> dict[str, Any]:
    """With times on the time line's axis."""
    plain = asdict(found)
    for evidence in plain["evidence"]:
        for end in ("start", "end"):
            if evidence[end] is not None:
                evidence[end] = own.moment(evidence[end])
    return plain


def finite(value: Any) -> Any:
    """JSON has no NaN: what is not finite is not known. Of a text, too, only what can be written stays."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, dict):
        return {text_of(str(key)): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return value
