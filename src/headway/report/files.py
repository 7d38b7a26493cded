"""The page's numbers as tables for other programs: a folder of CSV or Parquet files.

Every table of the page is a file; besides there are `runs` (every figure of every run), `findings`, `timeline` (the
thinned series), `curves` and `events`. Quantities are SI.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway.errors import SpecError
from headway.record.tables import quoted
from headway.report.page import Page
from headway.report.thin import unpacked

Rows = list[dict[str, Any]]
COLUMN = re.compile(r"[a-z0-9_]+")  # of a run's figures: their names may come from anybody's run folder
MARK = "headway-report.json"  # in folders that we wrote: only such a one is written over


def tables(page: Page) -> Iterator[tuple[str, Rows]]:
    """(name, rows) of everything; every row names its run or runs, and says their ids: two may have one name."""
    names = {path: path.rsplit("/", 1)[-1] for path in page["ids"]}
    for table in [*(table for one in page["collections"] for table in one["tables"]), *page["published"]]:
        yield table["id"], [_row(table, row, names, page["ids"]) for row in table["rows"]]
    yield "runs", [{"id": run["id"], **_figures(run["figures"])} for run in page["runs"] if run.get("figures")]
    yield "findings", [
        {**{key: found[key] for key in ("rule", "title", "trouble")}, "advice": case["advice"],
         "run": names.get(case["path"]), "id": page["ids"].get(case["path"]), "sweep": case["sweep"],
         **{key: case[key] for key in ("resource", "certainty", "text")}, "evidence": json.dumps(case["evidence"])}
        for found in page["findings"]
        for case in found["cases"]
    ]  # fmt: skip
    whole = [run for run in page["runs"] if run.get("figures")]
    yield "timeline", [row for run in whole for row in _timeline(run)]
    yield "curves", [row for run in whole for row in _curves(run)]
    yield "events", [{**_who(run), **event} for run in whole for event in run["events"]]


def _who(run: dict[str, Any]) -> dict[str, str]:
    return {"run": run["name"], "id": run["id"]}


def _figures(figures: dict[str, Any]) -> dict[str, Any]:
    scalars = (str, int, float, bool, type(None))
    return {key: value for key, value in figures.items() if isinstance(value, scalars) and COLUMN.fullmatch(key)}


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
    _prepare(folder, page)
    for name, rows in tables(page):
        with (folder / f"{_file_name(name)}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, _columns(rows), restval="")
            writer.writeheader()
            writer.writerows({key: _harmless(value) for key, value in row.items()} for row in rows)


def _harmless(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula is given as text: it may come from anybody's run folder."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def write_parquet(page: Page, folder: Path) -> None:
    import duckdb

    _prepare(folder, page)
    with duckdb.connect() as connection:
        connection.execute(f"set allowed_directories = [{quoted(f'{folder.absolute()}/')}]")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        for name, rows in tables(page):
            lines = folder.absolute() / f".{_file_name(name)}.jsonl"
            if not (columns := _columns(rows)):
                continue
            lines.write_text("".join(json.dumps({key: row.get(key) for key in columns}) + "\n" for row in rows))
            types = ", ".join(f"{quoted(key)}: {quoted(_type([row.get(key) for row in rows]))}" for key in columns)
            final = quoted(folder.absolute() / f"{_file_name(name)}.parquet")
            connection.execute(
                f"copy (from read_json({quoted(lines)}, format = 'newline_delimited', columns = {{{types}}})) "
                f"to {final} (format parquet, compression zstd)"
            )
            lines.unlink()


def _type(values: list[Any]) -> str:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return "BOOLEAN"
    if known and all(isinstance(value, int) and not isinstance(value, bool) for value in known):
        return "BIGINT"
    return "DOUBLE" if known and all(isinstance(value, (int, float)) for value in known) else "VARCHAR"


def _columns(rows: Rows) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).lstrip(".") or "table"


def _prepare(folder: Path, page: Page) -> None:
    """An empty folder. One that we wrote before is emptied, any other is left alone."""
    if folder.exists():
        if not (folder / MARK).is_file():
            raise SpecError(f"{folder}: is there already, and is no report of ours; give another name")
        shutil.rmtree(folder)
    folder.mkdir()
    (folder / MARK).write_text(json.dumps({"format": page["format"], "title": page["title"]}) + "\n", encoding="utf-8")
