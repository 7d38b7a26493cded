"""The tables of a page, as the evaluations have them. Cells are plain SI values or estimates; every row names its runs.

A table: `id`, `title`, `note`, `columns` (`key`, `title`, `unit`), `rows` (`cells`, `runs`, `note`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headway.metrics.estimate import Estimate
from headway.metrics.scaling import Point, Speedup, kind_of, speedup
from headway.plural import counted
from headway.report.baseline import baseline_of, why_none
from headway.report.groups import SYNTHETIC, Collection, Digests, Group
from headway.report.words import commit_in_words

Table = dict[str, Any]


NO_TIMES = (
    "Runs with measure.steps end when enough was measured. How long that took says only how long they warmed up, so "
    "their times and whole costs are left out; rates are what they were made for."
)
KINDS = {"strong": "strong scaling: all tasks share one batch", "weak": "weak scaling: every task has its own batch"}


def table(
    id_: str, title: str, columns: Sequence[tuple[str, str, str]], rows: list[dict[str, Any]], note: str = ""
) -> Table:
    """Columns in which no row has anything are left out."""
    used = [column for column in columns if any(row["cells"].get(column[0]) is not None for row in rows)]
    shown = [{"key": key, "title": words, "unit": unit} for key, words, unit in used]
    return {"id": id_, "title": title, "note": note, "columns": shown, "rows": rows}


def row(cells: Mapping[str, Any], runs: Sequence[str], note: str = "") -> dict[str, Any]:
    return {"cells": dict(cells), "runs": list(runs), "note": note}


def as_cell(found: Estimate | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"value": found.value, "low": found.low, "high": found.high, "num": found.num, "how": found.how}


def speedups(collection: Collection, digests: Digests) -> dict[str, Speedup]:
    """Of each group (by its key) that has a baseline."""
    found = {}
    for group in collection.groups:
        against = baseline_of(group, collection.groups)
        samples = group.samples(digests, "examples_per_s")
        if against is None or not samples:
            continue
        base = Point(against.tasks, tuple(against.samples(digests, "examples_per_s")), against.label)
        if base.samples and min(base.samples) > 0:
            point, kind = Point(group.tasks, tuple(samples), group.label), kind_of(group.figures(digests))
            (found[group.key],) = speedup([point], base, kind)
    return found


def _at_most(collection: Collection, digests: Digests) -> str:
    """Of a few runs no interval of a median is as sure as that."""
    known = [group.estimate(digests, "examples_per_s", collection.how) for group in collection.groups]
    least = min((one for one in known if one and one.num > 1), key=lambda one: one.confidence_limit, default=None)
    if least is None or least.confidence_limit >= 0.95:
        return ""
    return f" (of {counted(least.num, 'run')} with {least.confidence_limit:.0%} at most)"


def results(collection: Collection, digests: Digests) -> Table:
    """Speed, time and accuracy of every configuration (as E1, E2, E3 and E5 print them)."""
    faster = speedups(collection, digests)
    missing = _without_baseline(collection)
    is_same = len(set(missing.values())) == 1 and len(missing) == sum(bool(group.runs) for group in collection.groups)
    rows = []
    for group in collection.groups:
        cells: dict[str, Any] = {"configuration": group.label, "tasks": group.tasks, "repeats": len(group.runs)}
        if len({one.data for one in collection.groups}) > 1:
            cells["data"] = group.data
        for figure in ("steps_per_s", "examples_per_s", "accuracy", "loss"):
            cells[figure] = as_cell(group.estimate(digests, figure, collection.how))
        if not group.is_only_measured(digests):
            cells["training_seconds"] = as_cell(group.estimate(digests, "training_seconds", collection.how))
        cells["servers"] = next((one["num_ps"] for one in group.figures(digests)), None)
        cells["step_seconds"] = _step_seconds(group, digests)
        if group.key in faster:
            one = faster[group.key]
            cells |= {"speedup": as_cell(one.value), "efficiency": as_cell(one.efficiency)}
        why = f"no speed-up: {missing[group.key]}" if group.key in missing and not is_same else ""
        rows.append(row(cells, [*group.runs, *group.others], "; ".join(filter(None, (_note(group), why)))))
    baselines = sorted({one.baseline for one in faster.values()})
    kinds = " and ".join(KINDS[kind] for kind in sorted({one.kind for one in faster.values()}))
    against = f"Speed-up and efficiency ({kinds}) are against: {'; '.join(baselines)}. " if baselines else ""
    against += f"No speed-up: {next(iter(missing.values()))}. " if is_same else ""
    doing = {"median": "medians", "mean": "means", "mlperf": "means without the best and the worst"}[collection.how]
    has_times = any(one["cells"].get("training_seconds") for one in rows)
    times = " Time: from the first step to the last." if has_times else ""
    columns_mean = f"Tasks: those that train.{times} Accuracy and loss: on the test set."
    sure = f"95 %{_at_most(collection, digests)}"
    repeated = f"Of several repeats: {doing}, with the interval in which the true value lies with {sure}."
    note = f"{against}{columns_mean} Rates begin after the warm-up. {repeated}{no_times(collection, digests)}"
    columns = [
        ("configuration", "configuration", "text"),
        ("data", "data", "text"),
        ("tasks", "tasks", "count"),
        ("servers", "servers", "count"),
        ("repeats", "runs", "count"),
        ("steps_per_s", "steps/s", ""),
        ("examples_per_s", "examples/s", ""),
        ("speedup", "speed-up", "times"),
        ("efficiency", "efficiency", "share"),
        ("step_seconds", "step time", "s"),
        ("training_seconds", "time", "s"),
        ("accuracy", "accuracy", "accuracy"),
        ("loss", "loss", ""),
    ]
    return table(f"results-{collection.slug}", collection.title, columns, rows, note)


def no_times(collection: Collection, digests: Digests) -> str:
    """Said where one would look for them."""
    return f" {NO_TIMES}" if any(group.is_only_measured(digests) for group in collection.groups) else ""


def _without_baseline(collection: Collection) -> dict[str, str]:
    """Groups (by their key) that have no speed-up, and why. What stands alone has nothing to be faster than."""
    known = [group for group in collection.groups if group.runs]
    found = {group.key: why_none(group, known) for group in known} if len(known) > 1 else {}
    return {key: why for key, why in found.items() if why is not None}


def _step_seconds(group: Group, digests: Digests) -> float | None:
    """The median over runs and tasks of a task's median step."""
    found = [task["step_seconds"] for one in group.figures(digests) for task in one["tasks"] if task["step_seconds"]]
    return float(np.median(found)) if found else None


def _note(group: Group) -> str:
    parts = []
    if group.state != "done":
        parts.append(f"{group.state}{f': {group.reason}' if group.reason else ''}")
    if group.marks:
        parts.append(f"doubtful: {', '.join(group.marks)}")
    if group.others and group.state not in ("failed", group.others_are):  # else the state is theirs
        why = f" ({group.others_are})" if group.others_are else ""
        parts.append(f"{len(group.others)} more that {'does' if len(group.others) == 1 else 'do'} not count{why}")
    return "; ".join(parts)


RESOURCES = {
    "cpus": ("CPUs in use", ""),
    "memory": ("memory", "B"),
    "received": ("network in", "B/s"),
    "sent": ("network out", "B/s"),
    "loopback_sent": ("loopback", "B/s"),
    "disk_read": ("disk read", "disk"),
    "disk_written": ("disk written", "disk"),
}


def resources(collection: Collection, digests: Digests) -> Table | None:
    """What each role's nodes used while they trained (E3, E4): mean over nodes and runs, the medians of the nodes' 95th
    percentiles and variabilities, and the most of any."""
    rows = []
    for group in collection.groups:
        by_role: dict[str, list[dict[str, Any]]] = {}
        for figures in group.figures(digests):
            for node in figures.get("nodes") or ():
                used = (figures.get("node_use") or {}).get(node["node"])
                if used:
                    by_role.setdefault(role_of(node.get("tasks") or ()), []).append(used)
        for role, nodes in by_role.items():
            cells: dict[str, Any] = {"configuration": group.label, "role": role}
            cells |= {name: _used([node[name] for node in nodes if node.get(name)]) for name in RESOURCES}
            rows.append(row(cells, group.runs))
    if not rows:
        return None
    columns = [("configuration", "configuration", "text"), ("role", "nodes with", "text")]
    columns += [(name, words, unit) for name, (words, unit) in RESOURCES.items()]
    note = (
        "Per node, while every task trained, after the warm-up: the mean, below it the 95th percentile, the most, and "
        "by how much samples vary (standard deviation / mean)."
    )
    return table(f"resources-{collection.slug}", f"{collection.title}: what the nodes used", columns, rows, note)


def _used(nodes: list[dict[str, Any]]) -> dict[str, float | None] | None:
    """None where nobody ever used it: that is no column."""
    if not nodes or not any(node["max"] for node in nodes):
        return None
    found = {name: [node[name] for node in nodes if node[name] is not None] for name in ("mean", "p95", "max")}
    if not all(found.values()):
        return None
    return {
        "value": float(np.mean(found["mean"])),
        "p95": float(np.median(found["p95"])),
        "max": float(max(found["max"])),
        "variability": median(node.get("variability") for node in nodes),
    }


def details(collection: Collection, digests: Digests) -> Table | None:
    """What a step is made of, and how long it takes until something is learnt."""
    figures_of_all = [one for group in collection.groups for one in group.figures(digests)]
    common = highest_common(one.get("time_to_accuracy") or () for one in figures_of_all)
    rows = []
    for group in collection.groups:
        figures = group.figures(digests)
        if not figures:
            continue
        times = [one.get("step_seconds") or {} for one in figures]
        cells: dict[str, Any] = {
            "configuration": group.label,
            "p95": median(one.get("p95") for one in times),
            "variability": median(one.get("variability") for one in times),
            "communication": median(one.get("communication_share") for one in figures),
            "straggling": median((one.get("straggling") or {}).get("ratio") for one in figures),
            "staleness": median((one.get("staleness") or {}).get("mean") for one in figures),
            "effective_batch": median(one.get("effective_batch") for one in figures),
            "bytes_per_step": median(one.get("bytes_per_step") for one in figures),
        }
        if not group.is_only_measured(digests):
            cells["time_to_train"] = median(one.get("time_to_train") for one in figures)
        if common is not None:
            to_it = [(one.get("time_to_accuracy") or {}).get(common, {}).get("seconds") for one in figures]
            cells["to_accuracy"] = median(to_it)
        rows.append(row(cells, group.runs))
    if not rows:
        return None
    columns = [
        ("configuration", "configuration", "text"),
        ("p95", "step time, p95", "s"),
        ("variability", "its variability", "share"),
        ("communication", "communication", "share"),
        ("straggling", "slowest task", "times"),
        ("staleness", "staleness", ""),
        ("effective_batch", "effective batch", ""),
        ("bytes_per_step", "sent per step", "B"),
        ("time_to_train", "command to last step", "s"),
        ("to_accuracy", f"training to accuracy {common}", "s"),
    ]
    note = "Medians over runs. Each is defined in docs/metrics.md. Slowest task: against the median one."
    note += no_times(collection, digests)
    return table(f"details-{collection.slug}", f"{collection.title}: what steps are made of", columns, rows, note)


def highest_common(reached: Iterable[Iterable[str]]) -> str | None:
    """Of the accuracies that runs reached, the highest that all of them did."""
    known = [set(one) for one in reached]
    return max(set.intersection(*known), key=float, default=None) if known else None


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def role_of(tasks: Sequence[str]) -> str:
    """ps/0 and worker/1 on one node -> `ps + worker`."""
    return " + ".join(dict.fromkeys(task.split("/")[0] for task in tasks)) or "all tasks"


def io_overhead(collection: Collection, digests: Digests) -> Table | None:
    """(synthetic - real) / synthetic, of groups that differ in their data alone (E2)."""
    rows = []
    for real in (group for group in collection.groups if group.data == "real"):
        for made in (group for group in collection.groups if group.data == "synthetic"):
            if not _differ_in_data_alone(real, made):
                continue
            with_input = real.estimate(digests, "examples_per_s", collection.how)
            without = made.estimate(digests, "examples_per_s", collection.how)
            if with_input is None or without is None or not without.value:
                continue
            cells = {
                "configuration": real.label,
                "synthetic": as_cell(without),
                "real": as_cell(with_input),
                "overhead": (without.value - with_input.value) / without.value,
            }
            rows.append(row(cells, [*real.runs, *made.runs]))
    columns = [
        ("configuration", "configuration", "text"),
        ("synthetic", "synthetic data, examples/s", ""),
        ("real", "real data, examples/s", ""),
        ("overhead", "I/O overhead", "share"),
    ]
    note = "I/O overhead = (synthetic - real) / synthetic, as E2 has it."
    return (
        table(f"input-{collection.slug}", f"{collection.title}: the price of real data", columns, rows, note)
        if rows
        else None
    )


def _differ_in_data_alone(real: Group, made: Group) -> bool:
    """Whether the one has the other's data made up, or the made-up data set in its place; all else equal."""
    names = [_dataset(group) for group in (real, made)]
    is_in_its_place = names[0] != names[1] and names[1] == "synthetic"
    if names[0] != names[1] and not is_in_its_place:
        return False
    chosen = real.chosen & made.chosen

    def besides(group: Group) -> dict[str, Any]:
        both = {**{name: value for name, value in group.facts.items() if name not in chosen}, **group.settings}
        if isinstance(given := both.get("workload.dataset"), dict):
            both |= {f"workload.dataset.{key}": value for key, value in given.items()}
        return {
            name: value
            for name, value in both.items()
            if name not in ("data", "dataset", "workload.dataset", "workload.dataset.name", SYNTHETIC)
            and not (is_in_its_place and name.startswith("workload.dataset."))  # it has settings of its own
        }

    return real.tasks == made.tasks and besides(real) == besides(made)


def _dataset(group: Group) -> Any:
    """Its name, where that is a setting or known from the run."""
    known = [group.settings.get(name) for name in ("dataset", "workload.dataset", "workload.dataset.name")]
    found = next((one for one in known if one is not None), group.facts.get("workload.dataset.name"))
    return found.get("name") if isinstance(found, dict) else found


def every_run(digests: Digests) -> Table:
    """Where every number comes from."""
    rows = []
    for path, digest in digests.items():
        figures = digest.get("figures")
        if figures is None:
            rows.append(row({"run": digest["name"], "state": "damaged"}, [path], digest["problem"]))
            continue
        cells = {
            "run": figures["run"],
            "state": figures["state"],
            "strategy": figures["strategy"],
            "what": figures["command"] or f"{figures['model']} on {figures['dataset']}",
            "tasks": figures["num_training_tasks"],
            "servers": figures["num_ps"],
            "steps": figures["steps"],
            "steps_per_s": figures["steps_per_s"],
            "examples_per_s": figures["examples_per_s"],
            "accuracy": figures["accuracy"],
            "seconds": figures["seconds"],
            "commit": commit_in_words(digest["commit"], 10),
        }
        is_done = figures.get("state") == "finished"  # then its reason is no trouble, and stands in its entry
        rows.append(row(cells, [path], "" if is_done else figures.get("reason") or ""))
    columns = [
        ("run", "run", "text"),
        ("state", "state", "text"),
        ("strategy", "strategy", "text"),
        ("what", "trained", "text"),
        ("tasks", "tasks", "count"),
        ("servers", "servers", "count"),
        ("steps", "steps", "count"),
        ("steps_per_s", "steps/s", ""),
        ("examples_per_s", "examples/s", ""),
        ("accuracy", "accuracy", "accuracy"),
        ("seconds", "wall time", "s"),
        ("commit", "commit", "text"),
    ]
    return table("every-run", "Every run", columns, rows)
