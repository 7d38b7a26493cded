"""The sections of the HTML page, as HTML. Every text that comes from a page goes through `escaped`."""

from __future__ import annotations

import time
from importlib import resources
from string import Template
from typing import Any

from headway.plural import counted
from headway.report.found import no_trouble
from headway.report.page import Page
from headway.report.run_entries import escaped, run_entry
from headway.report.words import cell, commit_in_words, in_unit, interval, number, say, spread

FEW_LINKS = 8
TIGHT = ("state", "strategy", "what", "verdict")  # columns of short texts, which stay on one line
SECTIONS = {
    "findings": "Findings",
    "results": "Results",
    "learning": "Accuracy and loss",
    "timeline": "Time line",
    "published": "Published",
    "runs": "Runs",
    "environment": "Environment",
}


def asset(name: str) -> str:
    return (resources.files("headway.report") / "assets" / name).read_text(encoding="utf-8")


def fragment(name: str, **parts: str) -> str:
    return Template(asset(name)).substitute(parts)


def sections(page: Page) -> list[str]:
    """Those that this page has."""
    there = {"findings", "results", "runs", "environment"}
    if any(run.get("figures") for run in page["runs"]):
        there |= {"timeline", "learning"}
    if page["published"]:
        there.add("published")
    return [name for name in SECTIONS if name in there]


def navigation(page: Page) -> str:
    return "".join(f'<a href="#{name}">{SECTIONS[name]}</a>' for name in sections(page))


def body(page: Page) -> str:
    makers = {
        "findings": findings,
        "results": results,
        "learning": learning,
        "timeline": timeline,
        "published": published,
        "runs": runs,
        "environment": environment,
    }
    found = [
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{SECTIONS[name]}</h2>\n'
        f"{makers[name](page)}\n</section>"
        for name in sections(page)
    ]
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(page["made"]))
    traced = "Every figure is computed from the raw samples of the runs it names."
    foot = f"<footer>Made by Headway {escaped(page['headway'])}, {made}. {traced}</footer>"
    return "\n".join([head(page, made), *found, foot])


def head(page: Page, made: str) -> str:
    tiles = "".join(f"<li><b>{escaped(value)}</b><span>{escaped(words)}</span></li>" for value, words in _tiles(page))
    return f'<h1>{escaped(page["title"])}</h1><p class="lead">{made}</p><ul class="tiles">{tiles}</ul>'


def _tiles(page: Page) -> list[tuple[str, str]]:
    figures = [run["figures"] for run in page["runs"] if run.get("figures")]
    good = sum(one["state"] in ("finished", "stopped") for one in figures)
    lost = len(page["runs"]) - good
    found = [
        (
            f"{len(page['runs'])}",
            f"run{'' if len(page['runs']) == 1 else 's'}" + (f", {lost} not finished" if lost else ""),
        )
    ]
    trouble = sum(one["trouble"] for one in page["findings"])
    found.append((str(trouble), f"finding{'' if trouble == 1 else 's'} of trouble"))
    rows = [row["cells"] for one in page["collections"] for table in one["tables"][:1] for row in table["rows"]]
    if fast := [row for row in rows if row.get("examples_per_s")]:
        best = max(fast, key=lambda row: float(row["examples_per_s"]["value"]))
        found.append((f"{number(best['examples_per_s']['value'], 4)}/s", f"most examples: {best['configuration']}"))
    if faster := [row for row in rows if row.get("speedup") and row["tasks"] > 1]:
        best = max(faster, key=lambda row: float(row["speedup"]["value"]))
        found.append(
            (
                say(best["speedup"]["value"], "times"),
                f"highest speed-up, with {counted(best['tasks'], 'training task')}",
            )
        )
    if exact := [row for row in rows if row.get("accuracy")]:
        best = max(exact, key=lambda row: float(row["accuracy"]["value"]))
        found.append((say(best["accuracy"]["value"], "accuracy"), f"best test accuracy: {best['configuration']}"))
    return found


# --- findings ------------------------------------------------------------------------------------------------------
def findings(page: Page) -> str:
    trouble = [one for one in page["findings"] if one["trouble"]]
    good = [one for one in page["findings"] if not one["trouble"]]
    parts = [_finding(one, page) for one in trouble]
    if words := no_trouble(page):
        parts.append(f'<p class="none">{words}</p>')
    if page["runs_not_read"]:
        parts.append(f'<p class="note">No rule could read the record of run {links(page["runs_not_read"], page)}.</p>')
    for name, problem in page["sweeps_not_read"].items():
        said = f"No rule could read sweep {name} as a whole: {problem}"
        parts.append(f'<p class="note">{escaped(said)}</p>')
    if good:
        inner = "".join(_finding(one, page) for one in good)
        parts.append(
            f"<details{'' if trouble else ' open'}><summary>Good to know ({len(good)})</summary>{inner}</details>"
        )
    return "\n".join(parts)


def _finding(found: dict[str, Any], page: Page) -> str:
    kind = "trouble" if found["trouble"] else "good"
    cases = found["cases"]
    many = "".join(
        f'<span class="tag">in {found[what]} {what}</span>' for what in ("runs", "sweeps") if found[what] > 1
    )
    first, *rest = [_case(one, page) + ("" if found["advice"] else _advice(one["advice"])) for one in cases]
    more = ""
    if rest:
        words = f"{len(rest)} more case{'' if len(rest) == 1 else 's'}"
        more = f"<details><summary>{words}</summary>{''.join(rest)}</details>"
    return (
        f'<article class="finding {kind}"><h3>{escaped(found["title"])}'
        f'<span class="tag kind">{"trouble" if found["trouble"] else "good to know"}</span>'
        f'<span class="tag">{escaped(found["certainty"])}</span>{many}</h3>'
        f"{first}{_advice(found['advice']) if found['advice'] else ''}{more}</article>"
    )


def _advice(words: str) -> str:
    return f'<p class="advice">{escaped(words)}</p>'


def _case(case: dict[str, Any], page: Page) -> str:
    items = []
    number_of = page["ids"].get(case["path"])
    for one in case["evidence"]:
        where = f", {escaped(one['task_or_node'])}" if one["task_or_node"] else ""
        when = ""
        if one["start"] is not None and number_of:
            end = one["end"] if one["end"] is not None else one["start"]
            said = f"{one['start']:.1f} s to {end:.1f} s"
            when = f' <a href="#timeline" data-run="{number_of}" data-from="{one["start"]}" data-to="{end}">{said}</a>'
        items.append(
            f"<li>{escaped(one['what'])}{where}: <b>{escaped(in_unit(one['value'], one['unit']))}</b>{when}</li>"
        )
    name = page["names"].get(number_of)
    link = f' <a href="#{number_of}"><code>{escaped(name)}</code></a>' if name else ""
    if case["sweep"]:
        table_of = escaped(f"results-{case['sweep']}")
        link = f' <a href="#{table_of}">sweep <code>{escaped(case["sweep"])}</code></a>'
    listed = f'<ul class="evidence">{"".join(items)}</ul>' if items else ""
    return f"<p>{escaped(case['text'])}{link}</p>{listed}"


# --- results -------------------------------------------------------------------------------------------------------
def results(page: Page) -> str:
    parts = []
    for one in page["collections"]:
        if one["path"]:
            parts.append(
                f'<p class="note">Sweep <code>{escaped(one["sweep"])}</code> ({escaped(one["state"])}), in '
                f"<code>{escaped(one['path'])}</code></p>"
            )
        first, *others = one["tables"]
        parts.append(table(first, page))
        parts += [f'<p class="note">{escaped(note)}</p>' for note in one["notes"]]
        parts.append(f'<div class="charts">{"".join(_figure(chart) for chart in one["charts"])}</div>')
        parts += [table(each, page) for each in others]
    return "\n".join(parts)


def _figure(chart: dict[str, Any]) -> str:
    said = "; ".join(dict.fromkeys(series["about"] for series in chart["series"] if series.get("about")))
    about = f" Dotted: {said}." if said and chart["name"] == "throughput" else ""
    return plot(f"plot-{chart['id']}", chart["title"], f"{chart['note']}{about}")


def plot(name: str, title: str, note: str = "") -> str:
    return (
        f"<figure><figcaption><b>{escaped(title)}</b>{escaped(note)}</figcaption>"
        f'<div class="plot empty" id="{escaped(name)}" role="img" aria-label="Chart: {escaped(title)}">…</div></figure>'
    )


def table(found: dict[str, Any], page: Page) -> str:
    columns = found["columns"]
    is_text = [column["unit"] == "text" for column in columns]
    heads = "".join(
        f'<th scope="col"{"" if text else " class=number"}>'
        f'<button type="button">{escaped(column["title"])}</button></th>'
        for column, text in zip(columns, is_text, strict=True)
    )
    has_runs = any(row["runs"] for row in found["rows"])
    lines = "".join(_line(row, columns, has_runs, page) for row in found["rows"])
    source = '<th scope="col">from run</th>' if has_runs else ""
    note = f'<p class="note">{escaped(found["note"])}</p>' if found["note"] else ""
    return (
        f'<h3 id="{escaped(found["id"])}">{escaped(found["title"])}</h3>{note}'
        f'<div class="wide" tabindex="0" role="region" '
        f'aria-label="{escaped(found["title"])}"><table><thead><tr>{heads}{source}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def _line(row: dict[str, Any], columns: list[dict[str, Any]], has_runs: bool, page: Page) -> str:
    cells = []
    for place, column in enumerate(columns):
        value, unit = row["cells"].get(column["key"]), column["unit"]
        why = f'<span class="why">{escaped(row["note"])}</span>' if place == 0 and row["note"] else ""
        if unit == "text":
            kind = "name" if column["key"] in ("run", "commit") else "tight" if column["key"] in TIGHT else ""
            text = escaped(cell(value, unit))
            if column["key"] == "run" and len(row["runs"]) == 1:
                text = f'<a href="#{page["ids"][row["runs"][0]]}">{text}</a>'
            cells.append(f'<td class="{kind}">{text}{why}</td>')
        elif isinstance(value, dict):
            around: list[str] = []
            if "p95" in value:
                around = spread(value, unit)
            elif value["num"] > 1 and value["low"] != value["high"]:
                around = [interval(value["low"], value["high"], unit)]
            small = "".join(f"<small>{escaped(each)}</small>" for each in around)
            cells.append(
                f'<td class="number" data-value="{escaped(value["value"])}">'
                f"{escaped(say(value['value'], unit))}{small}</td>"
            )
        else:
            data = f' data-value="{escaped(value)}"' if isinstance(value, (int, float)) else ""
            cells.append(f'<td class="number"{data}>{escaped(say(value, unit))}</td>')
    source = f"<td>{links(row['runs'], page)}</td>" if has_runs else ""
    return f"<tr>{''.join(cells)}{source}</tr>"


def links(paths: list[str], page: Page) -> str:
    """HTML: a link to each run's entry; many of them are folded up."""
    numbers = [page["ids"][path] for path in paths if path in page["ids"]]
    listed = " ".join(
        f'<a href="#{each}" title="{escaped(page["names"][each])}" aria-label="run {escaped(page["names"][each])}">'
        f"{each.removeprefix('run-')}</a>"
        for each in numbers
    )
    if len(numbers) <= FEW_LINKS:
        return listed
    return f'<details class="many"><summary>{counted(len(numbers), "run")}</summary>{listed}</details>'


# --- learning, time line -------------------------------------------------------------------------------------------
def learning(page: Page) -> str:
    """Only what something is known of: a run that measures speed alone evaluates nothing, a program need not tell of
    its loss, and a run that failed early has told of nothing."""
    curves = [run["curves"] for run in page["runs"] if run.get("curves")]
    tests = [one["test"] for one in curves if one["test"]]
    is_tested = {what: any(one is not None for test in tests for one in test[what]) for what in ("loss", "accuracy")}
    has_loss = is_tested["loss"] or any(one["train"] for one in curves)
    if not has_loss and not is_tested["accuracy"]:
        return '<p class="note">None of these runs has told of a loss or of an accuracy.</p>'
    raw = "Training: raw (faint, with its peaks) and smoothed over 5 % of the steps. Test: with marks."
    exact = "On the whole test set, as evaluated during the training."
    return fragment(
        "learning.html",
        loss=plot("plot-learn-loss", "Loss", raw + _not_finite(page)) if has_loss else "",
        accuracy=plot("plot-learn-accuracy", "Accuracy", exact) if is_tested["accuracy"] else "",
    )


def _not_finite(page: Page) -> str:
    """Which losses became not finite: a line cannot show that."""
    trained = [(run["name"], run["curves"]["train"]) for run in page["runs"] if run.get("curves")]
    wrong = [(name, train["not_finite"]) for name, train in trained if train and train["not_finite"]]
    said = [
        f"{name} at step {one['first_step']:,} ({one['values']:,} of {counted(one['of'], 'value')})"
        for name, one in wrong
    ]
    more = f"; and of {counted(len(said) - FEW_LINKS, 'more run')}" if len(said) > FEW_LINKS else ""
    return f" The loss became not finite: {'; '.join(said[:FEW_LINKS])}{more}." if said else ""


def timeline(page: Page) -> str:
    """It begins with the run of which there is most to say."""
    cases = [case for one in page["findings"] if one["trouble"] for case in one["cases"]]
    told = next((case["path"] for case in cases if case["path"]), None)
    options = "".join(
        f'<option value="{run["id"]}"{" selected" if run["path"] == told else ""}>{escaped(run["name"])}</option>'
        for run in page["runs"]
        if run.get("figures")
    )
    behind = "How many updates of others came between a gradient's pull and its push."
    return fragment(
        "timeline.html",
        options=options,
        steps=plot("steps-plot", "Step times", "Of the run above, without warm-up."),
        servers=plot("servers-plot", "Balance of the servers", "Bytes of variables, optimizer slots included."),
        staleness=plot("staleness-plot", "Staleness", behind),
    )


def published(page: Page) -> str:
    parts = ['<p class="note">What others measured stands here as they printed it. It is compared as shape only.</p>']
    for one in page["collections"]:
        parts.append(f'<div class="charts">{"".join(_figure(chart) for chart in one["shapes"])}</div>')
    parts += [table(each, page) for each in page["published"]]
    return "\n".join(parts)


# --- runs ----------------------------------------------------------------------------------------------------------
def runs(page: Page) -> str:
    return table(page["every_run"], page) + "".join(run_entry(run, page) for run in page["runs"])


def environment(page: Page) -> str:
    parts = []
    for one in page["environments"]:
        facts = one["facts"]
        lines = {
            "machine": f"{facts.get('cpu')}, {facts.get('cores')} cores, {say(facts.get('memory'), 'B')}",
            "system": facts.get("system"),
            "Python": facts.get("python"),
            "packages": ", ".join(f"{name} {version}" for name, version in (facts.get("packages") or {}).items()),
            "commit": commit_in_words(facts.get("commit") or {}),
        }
        listed = "".join(f"<dt>{escaped(key)}</dt><dd>{escaped(value)}</dd>" for key, value in lines.items() if value)
        parts.append(f"<dl>{listed}<dt>runs</dt><dd>{links(one['runs'], page)}</dd></dl>")
    return "\n".join(parts) or "<p>Nothing is known.</p>"
