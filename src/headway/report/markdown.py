"""The page as Markdown: findings and tables, for a wiki, an issue or a terminal."""

from __future__ import annotations

import re
import time
from typing import Any

from headway.report.found import no_trouble
from headway.report.page import Page
from headway.report.words import cell, in_unit

_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~$])")


def markdown(page: Page) -> str:
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(page["made"]))
    parts = [f"# {text(page['title'])}", f"Made by Headway {text(page['headway'])}, {made}.", "## Findings"]
    parts += [*([words] if (words := no_trouble(page)) else []), *_not_read(page)]
    parts += [_finding(one, page) for one in page["findings"]]
    for one in page["collections"]:
        parts.append(f"## {text(one['title'])}")
        parts += [_table(each, page) for each in one["tables"]]
        parts += [f"- {text(note)}" for note in one["notes"]]
        for chart in one["charts"]:
            for series in chart["series"]:
                if series.get("about"):
                    parts.append(f"- {text(chart['title'])}, {text(series['name'])}: {text(series['about'])}")
    parts += ["## Published", *(_table(each, page) for each in page["published"])] if page["published"] else []
    parts += ["## Runs", _table(page["every_run"], page)]
    parts.append("\n".join(f"{run['id'].removeprefix('run-')}. {text(run['path'])}" for run in page["runs"]))
    return "\n\n".join(parts) + "\n"


def text(value: Any) -> str:
    """What comes from a run folder is text and no markup; between two dollars Jupyter sees mathematics."""
    return _MARKUP.sub(r"\\\1", " ".join(str(value).split()))


def _not_read(page: Page) -> list[str]:
    runs = ", ".join(_run(path, page) for path in page["runs_not_read"])
    sweeps = [
        f"No rule could read sweep {text(name)} as a whole: {text(why)}"
        for name, why in page["sweeps_not_read"].items()
    ]
    return [*([f"No rule could read the record of run {runs}."] if runs else []), *sweeps]


def _run(path: str, page: Page) -> str:
    """Its number in the list of runs, and its name."""
    known = page["ids"][path]
    return f"{known.removeprefix('run-')} {text(page['names'][known])}"


def _finding(found: dict[str, Any], page: Page) -> str:
    kind = "trouble" if found["trouble"] else "good to know"
    lines = [f"### {text(found['title'])} ({kind}, {found['certainty']})", ""]
    for case in found["cases"]:
        of = f"run {_run(case['path'], page)}" if case["path"] else f"sweep {text(case['sweep'])}"
        lines.append(f"- {text(case['text'])} ({of})")
        for one in case["evidence"]:
            where = f", {text(one['task_or_node'])}" if one["task_or_node"] else ""
            lines.append(f"  - {text(one['what'])}{where}: {text(in_unit(one['value'], one['unit']))}")
        if not found["advice"]:
            lines.append(f"  - What to do: {text(case['advice'])}")
    shared = ["", f"What to do: {text(found['advice'])}"] if found["advice"] else []
    return "\n".join([*lines, *shared])


def _table(found: dict[str, Any], page: Page) -> str:
    columns = found["columns"]
    heads = [*(text(column["title"]) for column in columns), "from"]
    lines = [f"| {' | '.join(heads)} |"]
    lines.append("|" + "|".join("---" if column["unit"] == "text" else "---:" for column in columns) + "|---|")
    for row in found["rows"]:
        cells = [text(cell(row["cells"].get(column["key"]), column["unit"])) for column in columns]
        cells[0] += f" ({text(row['note'])})" if row["note"] else ""
        numbers = " ".join(page["ids"][path].removeprefix("run-") for path in row["runs"] if path in page["ids"])
        lines.append(f"| {' | '.join([*cells, numbers])} |")
    note = [text(found["note"])] if found["note"] else []
    return "\n\n".join([f"### {text(found['title'])}", *note, "\n".join(lines)])
