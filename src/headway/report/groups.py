"""Which runs belong together: the trials of a sweep, or runs of the same job that were given one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headway.metrics.estimate import Estimate, estimate

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder, Trial

Digests = Mapping[str, dict[str, Any]]
"""Path of a run -> what is known of it."""

# Figures of a run by which runs that were given one by one are told apart, and how they are said.
TOLD_APART = {
    "strategy": "",
    "command": "",
    "model": "",
    "dataset": "",
    "batch_size": "batch",
    "global_batch_size": "global batch",
    "num_training_tasks": "tasks",
    "num_ps": "servers",
    "layout": "",
    "site": "",
    "placement": "",
    "replication": "",
    "aggregate": "aggregate",
    "pull_ahead": "pull ahead",
    "exchange": "",
    "transfer": "",
}
COUNTED = {"num_training_tasks": "task", "num_ps": "server"}
SIZE = ("num_training_tasks", "num_ps", "cluster.", "layout")
"""Settings that say how large the cluster is: along them there is a speed-up."""


@dataclass(frozen=True)
class Group:
    """Runs that are repeats of one another."""

    label: str
    settings: dict[str, Any]
    tasks: int
    runs: tuple[str, ...]
    """Paths of those that count."""
    others: tuple[str, ...] = ()
    """Paths of those that do not."""
    is_baseline: bool = False
    data: str = "real"
    state: str = "done"
    reason: str | None = None
    marks: tuple[str, ...] = ()
    key: str = ""

    @property
    def line(self) -> str:
        """The settings besides the cluster's size: groups of one line differ in size alone."""
        rest = {name: value for name, value in self.settings.items() if not name.startswith(SIZE)}
        return ", ".join(said(name, value) for name, value in rest.items()) or "measured"

    @property
    def is_single(self) -> bool:
        strategy = self.settings.get("strategy")
        return strategy == "single" or (isinstance(strategy, dict) and strategy.get("kind") == "single")

    def figures(self, digests: Digests) -> list[dict[str, Any]]:
        return [digests[path]["figures"] for path in self.runs if digests[path].get("figures")]

    def samples(self, digests: Digests, figure: str) -> list[float]:
        found = [figures.get(figure) for figures in self.figures(digests)]
        return [float(value) for value in found if isinstance(value, (int, float))]

    def estimate(self, digests: Digests, figure: str, how: str = "median") -> Estimate | None:
        found = self.samples(digests, figure)
        return estimate(found, how) if found else None


@dataclass(frozen=True)
class Collection:
    """A sweep, or the runs that were given one by one."""

    title: str
    groups: tuple[Group, ...]
    how: str = "median"
    """How repeats become one number."""
    sweep: str | None = None
    asked_name: str | None = None
    """The sweep's name in its file."""
    path: str | None = None
    state: str = ""
    published: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def slug(self) -> str:
        return self.sweep or "runs"


def of_sweep(sweep: SweepFolder) -> Collection:
    trials = sweep.trials()
    left_out = [trial for trial in trials if trial.state == "left_out"]
    return Collection(
        title=f"Sweep {sweep.spec.name}",
        groups=tuple(_group(trial) for trial in trials),
        how=sweep.spec.measure.statistic,
        sweep=sweep.name,
        asked_name=sweep.spec.name,
        path=str(sweep.path),
        state=sweep.state,
        published=tuple(sweep.spec.published_tables),
        notes=tuple(f"{trial.name} was left out: {trial.reason}" for trial in left_out)
        + tuple(_choice(choice) for choice in sweep.choices),
    )


def _choice(choice: dict[str, Any]) -> str:
    """What a search has found, and what it saved."""
    if choice.get("value") is None:
        return f"{choice.get('path')}: nothing could be tried"
    skipped = len(choice.get("skipped") or ())
    at_most = choice.get("may_lose")
    loss = f"; that may have lost at most {at_most:.1%}" if at_most else ""
    return (
        f"{choice['path']}: {choice['value']} is best of {len(choice['tried'])} tried, {skipped} were not needed{loss}"
    )


def _group(trial: Trial) -> Group:
    counting = [run for run in trial.runs if run.counts]
    marked = sorted({mark for run in counting for mark in run.marks})
    marks = [f"{mark} ({sum(mark in run.marks for run in counting)} of {len(counting)} runs)" for mark in marked]
    return Group(
        label=trial.name,
        settings=trial.settings | ({"data": trial.data} if trial.purpose in ("search", "best") else {}),
        tasks=trial.tasks,
        runs=tuple(str(run.folder.path) for run in trial.runs if run.counts),
        # What failed before there was a run has no folder; the trial says why.
        others=tuple(
            str(run.folder.path) for run in trial.runs if not run.counts and (run.folder.path / "run.json").is_file()
        ),
        is_baseline=trial.is_baseline,
        data=trial.data,
        state=trial.state,
        reason=trial.reason,
        marks=tuple(marks),
        key=trial.key,
    )


def of_runs(digests: Digests, paths: Sequence[str]) -> Collection:
    """Runs that differ in nothing that is told apart are taken for repeats; only finished ones count."""
    kept: dict[str, list[str]] = {}
    settings_of: dict[str, dict[str, Any]] = {}
    for path in paths:
        figures = digests[path].get("figures")
        if figures is None:
            continue
        settings = {name: figures.get(name) for name in TOLD_APART}
        key = json.dumps(settings, sort_keys=True, default=str)
        kept.setdefault(key, []).append(path)
        settings_of[key] = settings
    # A setting that a strategy does not have tells nothing apart.
    known = {name: {repr(one[name]) for one in settings_of.values() if one[name] is not None} for name in TOLD_APART}
    varied = [name for name in TOLD_APART if len(known[name]) > 1]
    groups = []
    for number, (key, members) in enumerate(kept.items()):
        own = {name: settings_of[key][name] for name in varied if settings_of[key][name] is not None}
        figures = digests[members[0]]["figures"]
        done = [path for path in members if digests[path]["figures"]["state"] in ("finished", "stopped")]
        reasons = [digests[path]["figures"].get("reason") for path in members if path not in done]
        groups.append(
            Group(
                label=_label(own) or str(figures["name"]),
                settings=own,
                tasks=figures["num_training_tasks"],
                runs=tuple(done),
                others=tuple(path for path in members if path not in done),
                is_baseline=figures["strategy"] == "single",
                data="synthetic" if figures.get("dataset") == "synthetic" else "real",
                state="done" if done else "failed",
                reason=None if done else next((str(reason) for reason in reasons if reason), None),
                key=f"{number}",
            )
        )
    return Collection("Runs", tuple(groups))


def _label(settings: dict[str, Any]) -> str:
    """`single`; `ps-async, 2 tasks, 1 server`."""
    hidden = ("num_training_tasks", "num_ps") if settings.get("strategy") == "single" else ()
    return ", ".join(said(name, value) for name, value in settings.items() if name not in hidden and value != 0)


def said(name: str, value: Any) -> str:
    """A setting in words: `2 tasks`, `batch 100`, `ps-async`."""
    if isinstance(value, dict):
        value = value.get("name", value.get("kind", json.dumps(value)))
    if name in COUNTED:
        return f"{value} {COUNTED[name]}{'' if value == 1 else 's'}"
    word = TOLD_APART.get(name, name.rpartition(".")[2].replace("_", " "))
    if name in ("strategy", "workload.model", "workload.dataset"):
        word = ""
    return f"{word} {value}".strip()


def baseline_of(group: Group, groups: Sequence[Group]) -> Group | None:
    """What a group's speed-up is against: the baseline (or else a single machine) that has the same data and settings
    besides the cluster's size and the strategy, else the one task of its own line. None where there is none."""
    same_data = [one for one in groups if one.runs and one.data == group.data]
    named = [one for one in same_data if (one.is_baseline or one.is_single) and _agree(one, group)]
    named.sort(key=lambda one: not one.is_baseline)
    return next(iter(named), next((one for one in same_data if one.tasks == 1 and one.line == group.line), None))


def _agree(one: Group, other: Group) -> bool:
    shared = [name for name in one.settings if name in other.settings and not name.startswith((*SIZE, "strategy"))]
    return all(one.settings[name] == other.settings[name] for name in shared)
