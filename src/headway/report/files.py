"""The page's numbers as tables for other programs: a folder of CSV or Parquet files.

Every table of the page is a file; besides there are `runs` (every figure of every run), `findings`, `timeline` (the
thinned series), `curves` and `events`, which have the same columns in every report, also where there are no rows.
Quantities are SI.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.record.reader import LARGEST
from headway.record.shapes import RUN_COLUMNS
from headway.record.tables import quoted
from headway.report.folders import written_whole
from headway.report.page import Page
from headway.report.thin import unpacked

TEXT, WHOLE, NUMBER, YES_OR_NO = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN"
_OF_RUN = {"run": TEXT, "id": TEXT}
_MORE_FIGURES = {
    **dict.fromkeys(("reason", "layout"), TEXT),
    **dict.fromkeys(("first_step", "evaluated_step", "bad_records"), WHOLE),
    **dict.fromkeys(("nobody_full", "fabric_full", "rate_change"), NUMBER),
}
COLUMNS: dict[str, dict[str, str]] = {
    "runs": {
        "id": TEXT,
        **{name: WHOLE if kind == "INTEGER" else kind for name, kind in RUN_COLUMNS.items()},
        **_MORE_FIGURES,
    },
    "findings": {
        **dict.fromkeys(("rule", "title"), TEXT),
        "trouble": YES_OR_NO,
        **dict.fromkeys(("advice", "run", "id", "sweep", "resource", "certainty", "text", "evidence"), TEXT),
    },
    "timeline": {**_OF_RUN, "of": TEXT, "what": TEXT, "seconds": NUMBER, "value": NUMBER},
    "curves": {**_OF_RUN, "what": TEXT, "step": WHOLE, "seconds": NUMBER, "value": NUMBER},
    "events": {**_OF_RUN, "t": NUMBER, "kind": TEXT, "text": TEXT, "trouble": YES_OR_NO},
}
"""Of the tables that every report has: name -> column -> its type in Parquet."""
NO_ROW: dict[str, Any] = {"cells": {}, "runs": (), "note": ""}


@dataclass(frozen=True)
class Table:
    name: str
    columns: dict[str, str]
    """Column -> its type in Parquet."""
    rows: list[dict[str, Any]]
    """Each has every column."""


def tables(page: Page) -> Iterator[Table]:
    """Everything; every row names its run or runs, and says their ids: two may have one name."""
    names = {path: path.rsplit("/", 1)[-1] for path in page["ids"]}
    for table in [*(table for one in page["collections"] for table in one["tables"]), *page["published"]]:
        yield _of_page(table, names, page["ids"])
    for name, rows in _always(page, names):
        columns = COLUMNS[name]
        yield Table(name, columns, [{key: _as(kind, row.get(key)) for key, kind in columns.items()} for row in rows])


def _always(page: Page, names: dict[str, str]) -> Iterator[tuple[str, Iterable[dict[str, Any]]]]:
    whole = [run for run in page["runs"] if run.get("figures")]
    yield "runs", [{**run["figures"], "id": run["id"]} for run in whole]
    yield "findings", [
        {**{key: found[key] for key in ("rule", "title", "trouble")}, "advice": case["advice"],
         "run": names.get(case["path"]), "id": page["ids"].get(case["path"]), "sweep": case["sweep"],
         **{key: case[key] for key in ("resource", "certainty", "text")}, "evidence": json.dumps(case["evidence"])}
        for found in page["findings"]
        for case in found["cases"]
    ]  # fmt: skip
    yield "timeline", (row for run in whole for row in _timeline(run))
    yield "curves", (row for run in whole for row in _curves(run))
    yield "events", ({**_who(run), **event} for run in whole for event in run["events"])


def _who(run: dict[str, Any]) -> dict[str, str]:
    return {"run": run["name"], "id": run["id"]}


def _as(kind: str, value: Any) -> Any:
    """The value in its column's type; None where it is of another: a run folder may come from anybody."""
    if kind == TEXT:
        return value if isinstance(value, str) else None
    if kind == YES_OR_NO:
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < LARGEST:
        return None
    return float(value) if kind == NUMBER else int(value) if value == int(value) else None


def _of_page(table: dict[str, Any], names: dict[str, str], ids: dict[str, str]) -> Table:
    """A table of the page has the columns of which anything is known."""
    rows = [_row(table, row, names, ids) for row in table["rows"]]
    columns = dict.fromkeys(key for row in rows for key in row) or dict.fromkeys(_row(table, NO_ROW, names, ids))
    types = {key: _type([row.get(key) for row in rows]) for key in columns}
    return Table(table["id"], types, [{key: row.get(key) for key in columns} for row in rows])


def _row(table: dict[str, Any], row: dict[str, Any], names: dict[str, str], ids: dict[str, str]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for column in table["columns"]:
        value = row["cells"].get(column["key"])
        if isinstance(value, dict):
            cells[column["key"]] = value["value"]
            ends = ("p95", "max", "variability") if "p95" in value else ("low", "high")
            cells |= {f"{column['key']}_{end}": value[end] for end in ends}
        else:
            cells[column["key"]] = value
    from_runs, from_ids = (" ".join(known.get(path, path) for path in row["runs"]) for known in (names, ids))
    return {**cells, "note": row["note"], "from_runs": from_runs, "from_ids": from_ids}


def _timeline(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for series in (run["timeline"] or {"series": ()})["series"]:
        times = run["timeline"]["axes"][series["axis"]]
        for t, value in zip(times, unpacked(series), strict=True):
            if value is not None:
                yield {**_who(run), "of": series["of"], "what": series["what"], "seconds": t, "value": value}


def _curves(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, figures in (("train", ("raw", "smooth")), ("test", ("loss", "accuracy"))):
        curve = run["curves"][kind] or {"step": (), "seconds": ()}
        for place, (step, seconds) in enumerate(zip(curve["step"], curve["seconds"], strict=True)):
            for figure in figures:
                what = f"{kind} {figure}" if kind == "test" else f"train loss, {figure}"
                yield {
                    **_who(run),
                    "what": what,
                    "step": step,
                    "seconds": seconds,
                    "value": curve[figure][place],
                }


def write_csv(page: Page, folder: Path) -> None:
    with written_whole(folder, _about(page)) as fresh:
        for table in tables(page):
            with (fresh / f"{_file_name(table.name)}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(table.columns))
                writer.writeheader()
                writer.writerows({key: _harmless(value) for key, value in row.items()} for row in table.rows)


def _harmless(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula is given as text: it may come from anybody's run folder."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def write_parquet(page: Page, folder: Path) -> None:
    import duckdb

    try:
        with written_whole(folder, _about(page)) as fresh, duckdb.connect() as connection:
            connection.execute(f"set allowed_directories = [{quoted(f'{fresh}/')}]")
            connection.execute("set enable_external_access = false")
            connection.execute("set lock_configuration = true")
            for table in tables(page):
                lines, final = fresh / f".{_file_name(table.name)}.jsonl", fresh / f"{_file_name(table.name)}.parquet"
                lines.write_text("".join(json.dumps(row) + "\n" for row in table.rows), encoding="utf-8")
                types = ", ".join(f"{quoted(key)}: {quoted(kind)}" for key, kind in table.columns.items())
                connection.execute(
                    f"copy (from read_json({quoted(lines)}, format = 'newline_delimited', columns = {{{types}}})) "
                    f"to {quoted(final)} (format parquet, compression zstd)"
                )
                lines.unlink()
    except duckdb.Error as error:
        raise HeadwayError(f"{folder}: cannot be written as Parquet ({' '.join(str(error).split())[:300]})") from None


def _type(values: list[Any]) -> str:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return "BOOLEAN"
    if known and all(isinstance(value, int) and not isinstance(value, bool) for value in known):
        return "BIGINT"
    return "DOUBLE" if known and all(isinstance(value, (int, float)) for value in known) else "VARCHAR"


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).lstrip(".") or "table"


def _about(page: Page) -> dict[str, Any]:
    return {"format": page["format"], "title": page["title"]}
