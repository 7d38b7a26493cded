"""The entry of one run: where it lies, what was asked and what was got, what was chosen and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headway.plural import counted
from headway.report.happened import not_shown
from headway.report.words import commit_in_words, number, say

MOST_MEASURED = 60  # rows of what the network gave
UNITS = {"cpus": "CPUs", "memory": "B", "rate": "B/s", "latency": "s", "disk read": "disk", "disk write": "disk"}


def escaped(value: Any) -> str:
    """A text that no parser of HTML takes for markup."""
    return escape(str(value), quote=True)


def run_entry(run: dict[str, Any], page: dict[str, Any]) -> str:
    """HTML. `page`: for the findings of this run."""
    name = f"<code>{escaped(run['name'])}</code>"
    if not run.get("figures"):
        return (
            f'<details class="run" id="{run["id"]}"><summary>{name}<span>cannot be read</span></summary>'
            f"<p>{escaped(run['problem'])}</p><p><code>{escaped(run['path'])}</code></p></details>"
        )
    figures = run["figures"]
    what = figures["command"] or f"{figures['model']} on {figures['dataset']}"
    short = f"{run['id'].removeprefix('run-')} · {figures['state']} · {figures['strategy']} · {what}"
    parts = [
        f'<p class="screen"><a href="#timeline" data-run="{run["id"]}">Show it on the time line</a></p>',
        _facts(run, page),
        _asked_and_got(run),
        _rows(
            "Tasks", ("task", "gradients", "dropped", "step time, median", "p95", "input", "attempts"), _tasks(figures)
        ),
        _rows(
            "Nodes: asked, and used while training",
            ("node", "tasks", "asked", "CPUs", "memory", "in", "out", "full"),
            _nodes(figures),
        ),
        _rows(
            f"Network: asked and measured{_of_how_many(run['network'])}",
            ("what", "from", "to", "asked", "got", ""),
            _network(run["network"]),
        ),
        _rows(
            "Chosen, and why",
            ("setting", "value", "reason"),
            [(c["path"], c["value"], c["reason"]) for c in run["choices"]],
        ),
    ]
    head = f"<summary>{name}<span>{escaped(short)}</span></summary>"
    return f'<details class="run" id="{run["id"]}">{head}{"".join(parts)}</details>'


def _facts(run: dict[str, Any], page: dict[str, Any]) -> str:
    figures = run["figures"]
    found = [one["title"] for one in page["findings"] if any(case["path"] == run["path"] for case in one["cases"])]
    lines = {
        "state": figures["state"] + (f": {figures['reason']}" if figures.get("reason") else ""),
        "folder": run["path"],
        "commit": commit_in_words(run["commit"]),
        "rates": _rates(figures),
        "training time": say(figures["training_seconds"], "s") if figures["training_seconds"] else None,
        "wall time": say(figures["seconds"], "s") if figures["seconds"] else None,
        "accuracy": say(figures["accuracy"], "accuracy") if figures["accuracy"] is not None else None,
        "test loss": number(figures["loss"], 4) if figures["loss"] is not None else None,
        "training loss": number(figures["train_loss"], 4) if figures["train_loss"] is not None else None,
        "restarts": f"{figures['restarts']}, {counted(figures['steps_lost'], 'step')} lost"
        if figures["restarts"]
        else None,
        "events on the time line": not_shown(run["events"]),
        "findings": "; ".join(dict.fromkeys(found)) or None,
        "contradicts itself": "; ".join(run["contradictions"]) or None,
    }
    return (
        "<dl>" + "".join(f"<dt>{key}</dt><dd>{escaped(value)}</dd>" for key, value in lines.items() if value) + "</dl>"
    )


def _rates(figures: dict[str, Any]) -> str | None:
    if figures["steps_per_s"] is None:
        return None
    examples = figures["examples_per_s"]
    return f"{number(figures['steps_per_s'])} steps/s" + (
        f", {number(examples, 4)} examples/s" if examples is not None else ""
    )


def _asked_and_got(run: dict[str, Any]) -> str:
    figures = run["figures"]
    rows = []
    if figures["asked_steps"]:
        rows.append(("global steps", f"{figures['asked_steps']:,}", f"{figures['steps']:,}"))
    asked_batch = figures["global_batch_size"] or figures["batch_size"]
    if asked_batch and figures["effective_batch"]:
        word = "batch of all tasks together" if figures["global_batch_size"] else "batch of a task; of an update"
        rows.append((word, f"{asked_batch:,}", number(figures["effective_batch"], 4)))
    rows += _disks(figures)
    rows += [("site", "", warning) for warning in figures["warnings"]]
    return _rows("Asked and got", ("what", "asked", "got"), rows)


def _disks(figures: dict[str, Any]) -> list[tuple[str, str, str]]:
    """A limit says how fast a disk may be; how fast it was is known as far as it was used."""
    rows = []
    for node in figures.get("nodes") or ():
        asked = dict(_asked(node.get("asked") or {}))
        used = (figures.get("node_use") or {}).get(node["node"]) or {}
        for limit, figure in (("disk read", "disk_read"), ("disk write", "disk_written")):
            if limit in asked:
                most = (used.get(figure) or {}).get("max")
                got = f"{say(most, 'disk')} at the most" if most else "not used"
                rows.append((f"{limit} of {node['node']}", say(asked[limit], "disk"), got))
    return rows


def _asked(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """(`disk read`, 100e6): settings in settings, too."""
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        name = f"{before}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            found += _asked(value, f"{name} ")
        elif isinstance(value, (int, float, str)) and not isinstance(value, bool):
            found.append((name, value))
    return found


def _tasks(figures: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (
            task["task"],
            f"{task['gradients']:,} ({task['share']:.0%})",
            f"{task['dropped']:,}" if task["dropped"] else "-",
            say(task["step_seconds"], "s"),
            say(task["step_seconds_p95"], "s"),
            say(task["input_share"], "share"),
            task["attempts"],
        )
        for task in figures["tasks"]
    ]


def _nodes(figures: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = []
    for node in figures.get("nodes") or ():
        said = ", ".join(f"{key} {say(value, UNITS.get(key, ''))}" for key, value in _asked(node.get("asked") or {}))
        full = ", ".join(
            f"{key.replace('_', ' ')} {share:.0%}" for key, share in (node.get("full") or {}).items() if share
        )
        rows.append(
            (
                node["node"],
                ", ".join(node.get("tasks") or ()),
                said or "-",
                say(node.get("cpus")),
                say(node.get("memory_peak"), "B"),
                say(node.get("received"), "B/s"),
                say(node.get("sent"), "B/s"),
                full or "-",
            )
        )
    return rows


def _network(measured: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            str(one["what"]).replace("_", " "),
            one["node"] or "-",
            one["to"] or "-",
            *(say(one[side], "s" if one["what"] == "round_trip" else "B/s") for side in ("asked", "got")),
            _as_asked(one),
        )
        for one in _told_of(measured)
    ]


def _told_of(measured: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that is not as asked, and of the rest as many as a reader may look at."""
    right = [one for one in measured if one["ok"]]
    wrong = [one for one in measured if not one["ok"]]
    return list(measured) if len(measured) <= MOST_MEASURED else [*wrong, *right[: max(0, MOST_MEASURED - len(wrong))]]


def _of_how_many(measured: Sequence[dict[str, Any]]) -> str:
    told = len(_told_of(measured))
    return f" ({told} of {len(measured)}; all that are not as asked)" if told < len(measured) else ""


def _as_asked(one: dict[str, Any]) -> str:
    asked, got = one["asked"], one["got"]
    if asked is None:
        return "nothing was asked"
    if one["ok"]:
        return "as asked"
    if not isinstance(asked, (int, float)) or not isinstance(got, (int, float)):
        return "not as asked"
    more, less = ("longer", "shorter") if one["what"] == "round_trip" else ("more", "less")
    return f"{more if got > asked else less} than asked"


def _rows(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escaped(each)}</th>' for each in heads)
    lines = "".join("<tr>" + "".join(f"<td>{escaped(each)}</td>" for each in row) + "</tr>" for row in rows)
    return (
        f'<h3>{title}</h3><div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    )
