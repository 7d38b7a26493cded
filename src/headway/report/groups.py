"""Which runs belong together: the trials of a sweep, or runs of the same job that were given one by one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from headway.bench.search import choice_text, not_found_text
from headway.metrics.estimate import Estimate, estimate
from headway.plural import counted
from headway.report.settings import told
from headway.report.words import say

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder, Trial, TrialRun

Digests = Mapping[str, dict[str, Any]]
"""Path of a run -> what is known of it."""

# Figures of a run by which runs that were given one by one are told apart, and how they are said.
TOLD_APART = {
    "strategy": "",
    "command": "",
    "model": "",
    "dataset": "",
    "machine": "",
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
SIZE = re.compile(r"num_training_tasks|num_ps|layout|cluster(\.(chief|worker|ps|evaluator|training)(\.count)?)?")
"""Settings that say how large the cluster is: along them there is a speed-up."""
OF_A_TASK = ("workload.model", "workload.dataset", "workload.precision", "workload.data_format", "site.nodes.worker")
"""Settings that say what a training task computes, and on what machine."""
SYNTHETIC = "workload.dataset.synthetic"
UNDER_WAY = ("preparing", "starting", "running", "stopping")
"""States in which a run is no failure yet."""
UNITS = {"rate": "B/s", "memory": "B", "latency": "s", "read": "disk", "write": "disk"}


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
    others_are: str = ""
    """What became of those, in words: `1 failed: ...; 1 still running`. Empty where that is not known."""
    is_baseline: bool = False
    data: str = "real"
    state: str = "done"
    """Whether it has runs that count; else why it has none, in words."""
    reason: str | None = None
    marks: tuple[str, ...] = ()
    key: str = ""
    is_searched: bool = False
    """Whether it was tried to find the best of its size."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of runs that were given one by one, what a baseline must have, too, though no setting tells them apart by it. The
    trials of a sweep have that of one job."""
    chosen: frozenset[str] = frozenset()
    """Settings that Headway chose itself."""

    @property
    def line(self) -> str:
        """The settings besides the cluster's size: groups of one line differ in size alone."""
        rest = {name: value for name, value in self.settings.items() if not SIZE.fullmatch(name)}
        return ", ".join(said(name, value) for name, value in rest.items()) or "measured"

    @property
    def servers(self) -> Any:
        """How many, where that is a setting."""
        asked = (self.settings.get(name) for name in ("num_ps", "cluster.ps", "cluster.ps.count"))
        found = next((value for value in asked if value is not None), None)
        return found.get("count") if isinstance(found, dict) else found

    @property
    def is_single(self) -> bool:
        strategy = self.settings.get("strategy")
        return strategy == "single" or (isinstance(strategy, dict) and strategy.get("kind") == "single")

    def is_only_measured(self, digests: Digests) -> bool:
        """Whether its runs end when enough was measured (`measure.steps`): how long they took then says how long they
        warmed up, which is as long as it takes, and nothing of how long a training is."""
        settings = (digests[path].get("settings") or {} for path in self.runs)
        return any(one.get("measure.steps") is not None for one in settings)

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
        notes=(
            *(f"{_told(trial).name} was left out: {trial.reason}" for trial in left_out),
            *(choice_text(_told_choice(event)) for event in sweep.choices),
            *(not_found_text(event) for event in sweep.not_found),
        ),
    )


def _told(trial: Trial) -> Trial:
    """Without what looks secret."""
    return replace(trial, settings={path: told(path, value) for path, value in trial.settings.items()})


def _told_choice(event: dict[str, Any]) -> dict[str, Any]:
    path, value = str(event["path"]), event["value"]
    lists = {key: [told(path, one) for one in event[key]] for key in ("tried", "skipped", "rivals")}
    return {**event, **lists, "value": None if value is None else told(path, value)}


def _group(trial: Trial) -> Group:
    counting = [run for run in trial.runs if run.counts]
    marked = sorted({mark for run in counting for mark in run.marks})
    settings = _told(trial).settings
    marks = [
        f"{mark} ({sum(mark in run.marks for run in counting)} of {counted(len(counting), 'run')})" for mark in marked
    ]
    others = [run for run in trial.runs if not run.counts and (run.folder.path / "run.json").is_file()]
    return Group(
        label=_told(trial).name,
        settings=settings | ({"data": trial.data} if trial.purpose in ("search", "best") else {}),
        tasks=trial.tasks,
        runs=tuple(str(run.folder.path) for run in trial.runs if run.counts),
        # What failed before there was a run has no folder; the trial says why.
        others=tuple(str(run.folder.path) for run in others),
        others_are=_became([_end_of(run) for run in others]),
        is_baseline=trial.is_baseline,
        data=trial.data,
        state=_in_words(trial.state),
        reason=trial.reason,
        marks=tuple(marks),
        key=trial.key,
        is_searched=trial.purpose in ("search", "best"),
    )


def _end_of(run: TrialRun) -> dict[str, Any]:
    """A finished run does not count for its marks."""
    return {"state": ", ".join(run.marks)} if run.marks else {"state": run.state, "reason": run.reason}


def of_runs(digests: Digests, paths: Sequence[str]) -> Collection:
    """Runs of the same job are repeats of one another; only finished ones count."""
    known = [path for path in paths if digests[path].get("figures")]
    figures_of = {
        path: {name: digests[path]["figures"].get(name) for name in TOLD_APART} | {"machine": _machine(digests[path])}
        for path in known
    }
    alike: dict[str, list[str]] = {}
    for path in known:
        alike.setdefault(json.dumps(figures_of[path], sort_keys=True, default=str), []).append(path)
    asked = {path: settings for paths in alike.values() for path, settings in _asked(digests, paths).items()}
    names = dict.fromkeys(name for settings in asked.values() for name in settings)
    # Further settings, which tell runs apart that would else be taken for repeats.
    differing = [
        name
        for name in names
        if any(len({repr(asked[path].get(name)) for path in paths}) > 1 for paths in alike.values())
    ]
    kept: dict[str, list[str]] = {}
    settings_of: dict[str, dict[str, Any]] = {}
    for path in known:
        settings = figures_of[path] | {name: asked[path].get(name) for name in differing}
        key = json.dumps(settings, sort_keys=True, default=str)
        kept.setdefault(key, []).append(path)
        settings_of[key] = settings
    # A setting that a strategy does not have tells nothing apart.
    values = {name: {repr(one[name]) for one in settings_of.values() if one[name] is not None} for name in TOLD_APART}
    varied = [*(name for name in TOLD_APART if len(values[name]) > 1), *differing]
    groups = []
    for number, (key, members) in enumerate(kept.items()):
        own = {name: settings_of[key][name] for name in varied if settings_of[key][name] is not None}
        figures = digests[members[0]]["figures"]
        done = [path for path in members if digests[path]["figures"]["state"] in ("finished", "stopped")]
        others = [path for path in members if path not in done]
        others_are = _became([digests[path]["figures"] for path in others])
        groups.append(
            Group(
                label=_label(own) or str(figures["name"]),
                settings=own,
                tasks=figures["num_training_tasks"],
                runs=tuple(done),
                others=tuple(others),
                others_are=others_are,
                is_baseline=figures["strategy"] == "single",
                data=_data(digests[members[0]]),
                state="done" if done else others_are,
                key=f"{number}",
                facts={path: value for path, value in digests[members[0]]["settings"].items() if _is_of_a_task(path)},
                chosen=frozenset(str(choice["path"]) for choice in digests[members[0]]["choices"]),
            )
        )
    return Collection("Runs", tuple(groups))


def _became(figures: Sequence[Mapping[str, Any]]) -> str:
    """Of runs that do not count: `still running`; of several how many of each, and why."""
    known = Counter((str(one["state"]), str(one.get("reason") or "")) for one in figures)
    return "; ".join(
        f"{f'{num} ' if len(figures) > 1 else ''}{_in_words(state)}{f': {reason}' if reason else ''}"
        for (state, reason), num in known.items()
    )


def _in_words(state: str) -> str:
    """The state of a run or a trial, as a note says it."""
    if state == "created":
        return "not started yet"
    if state == "unknown":
        return "not known whether it still runs"
    return f"still {state}" if state in UNDER_WAY else state.replace("_", " ")


def _machine(digest: Mapping[str, Any]) -> str | None:
    """What a run was made on: elsewhere the same job is no repeat of it."""
    here = digest.get("environment") or {}
    return f"{here['cpu']}, {here.get('cores', '?')} cores" if here.get("cpu") is not None else None


def _data(digest: Mapping[str, Any]) -> str:
    is_made_up = digest["figures"].get("dataset") == "synthetic" or digest["settings"].get(SYNTHETIC) is True
    return "synthetic" if is_made_up else "real"


def _is_of_a_task(path: str) -> bool:
    return path != SYNTHETIC and any(path == each or path.startswith(f"{each}.") for each in OF_A_TASK)


def _asked(digests: Digests, alike: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of each run what its job says. What Headway chose in all of them follows from the rest, or from the machine."""
    chosen = {path: {str(choice["path"]) for choice in digests[path]["choices"]} for path in alike}
    settings: dict[str, dict[str, Any]] = {path: digests[path]["settings"] for path in alike}
    asked = {name for path in alike for name in settings[path] if name not in chosen[path]}
    return {path: {name: value for name, value in settings[path].items() if name in asked} for path in alike}


def _label(settings: dict[str, Any]) -> str:
    """`single`; `ps-async, 2 tasks, 1 server`."""
    hidden = ("num_training_tasks", "num_ps") if settings.get("strategy") == "single" else ()
    return ", ".join(said(name, value) for name, value in settings.items() if name not in hidden and value != 0)


def said(name: str, value: Any) -> str:
    """A setting in words: `2 tasks`, `batch 100`, `ps-async`."""
    if name in COUNTED:
        return f"{value} {COUNTED[name]}{'' if value == 1 else 's'}"
    return " ".join(word for word in named(name, value) if word)


def named(name: str, value: Any) -> tuple[str, str]:
    """What a setting is called, or nothing where its value says so itself; and the value."""
    if isinstance(value, dict):
        value = value.get("name", value.get("kind", json.dumps(value)))
    if name == "data":
        return "", f"{value} data"
    word = TOLD_APART.get(name, re.sub(r"\.(name|kind)$", "", name).rpartition(".")[2].replace("_", " "))
    if name in ("strategy", "workload.model", "workload.dataset"):
        word = ""
    if name.startswith(("site.nodes.", "cluster.")):  # whose it is: worker cpus 0.4
        word = " ".join(name.split(".")[1 if name.startswith("cluster.") else 2 :]).replace("_", " ")
        value = say(value, UNITS.get(name.rpartition(".")[2], "text"))
    return word, str(value)


def lines_of(groups: Sequence[Group], digests: Digests, how: str = "median") -> dict[str, list[Group]]:
    """Groups that differ in their size alone, one for each size. Of what a search tried at one size that is the best;
    where data or the number of servers were varied besides, each of them is a line of its own."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.line, []).append(group)
    lines: dict[str, list[Group]] = {}
    for name, members in found.items():
        is_search = all(group.is_searched for group in members)
        lines |= {name: _best_of_each_size(members, digests, how)} if is_search else _apart(name, members)
    return lines


def _apart(name: str, members: list[Group]) -> dict[str, list[Group]]:
    if has_each_size_once(members):
        return {name: members}
    for setting, of in (("data", attrgetter("data")), ("num_ps", attrgetter("servers"))):
        parts: dict[str, list[Group]] = {}
        for group in members:
            parts.setdefault(said(setting, of(group)), []).append(group)
        if len(parts) > 1:
            lines = [_apart(f"{name}, {words}", part) for words, part in parts.items()]
            return {each: groups for line in lines for each, groups in line.items()}
    return {name: members}


def has_each_size_once(groups: Sequence[Group]) -> bool:
    return len({group.tasks for group in groups}) == len(groups)


def _best_of_each_size(groups: Sequence[Group], digests: Digests, how: str) -> list[Group]:
    def rate(group: Group) -> float:
        found = group.estimate(digests, "examples_per_s", how)
        return found.value if found else 0.0

    best: dict[int, Group] = {}
    for group in groups:
        if group.tasks not in best or rate(group) > rate(best[group.tasks]):
            best[group.tasks] = group
    return list(best.values())
