"""All that a page tells of one run, as plain data: made in a process of its own where there are many runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import FormatError, HeadwayError
from headway.findings import Finding, findings
from headway.metrics.consistency import of_run
from headway.metrics.cost import EVERY_NODE, cost, kind_of, node_names
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.record.seal import result
from headway.record.tables import select_table
from headway.report.checked import checked, commit_of, environment_of
from headway.report.curves import curves, step_times
from headway.report.happened import happened, network_got
from headway.report.secrets import redacted
from headway.report.settings import settings_of
from headway.report.timeline import timeline

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
    return {"name": name, "path": path, "problem": in_words(error)}


def in_words(error: Exception) -> str:
    """The message of an error of ours; of any other also what it is."""
    words = " ".join(str(error).split())[:300]
    return words if isinstance(error, (HeadwayError, OSError)) else f"{type(error).__name__}: {words}"


def _digest(run: Run, num: int, prices: Mapping[str, float]) -> dict[str, Any]:
    import duckdb

    figures = checked(finite(result(run)), run.name)
    if figures.get("command"):
        figures["command"] = redacted(figures["command"])
    facts = run.facts
    launches = facts["launches"]
    origin = float(launches[0]["started"] if launches else facts["created"])
    if not math.isfinite(origin):
        raise FormatError(f"{run.path / 'run.json'}: it is not known when it started")
    with duckdb.connect(config={"threads": 1}) as connection:
        show_tables(connection, run.folder)
        line = timeline(connection, origin, num)
        learnt = curves(connection, origin, max(40, num // 2))
        times = step_times(connection)
        marks = happened(connection, origin)
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
            **_findings(run, figures, origin),
        }
    )
    return found


def show_tables(connection: duckdb.DuckDBPyConnection, folder: RunFolder) -> None:
    """The run's tables as views, so that the events of a run that is not sealed are read once."""
    for name in ("steps", "evaluations", "checkpoints", "events", "node_samples"):
        connection.execute(f"create temp view {name} as {select_table(folder, name, connection)}")


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


def _findings(run: Run, figures: dict[str, Any], origin: float) -> dict[str, Any]:
    """A record that no rule can read still has its figures."""
    try:
        return {"findings": [_finding(one, origin) for one in findings(run, figures)], "findings_problem": None}
    except Exception as error:  # as above
        return {"findings": [], "findings_problem": in_words(error)}


def _finding(found: Finding, origin: float) -> dict[str, Any]:
    """With times on the time line's axis."""
    plain = asdict(found)
    for evidence in plain["evidence"]:
        for end in ("start", "end"):
            if evidence[end] is not None:
                evidence[end] = round(evidence[end] - origin, 3)
    return plain


def finite(value: Any) -> Any:
    """JSON has no NaN: what is not finite is not known."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return value
