"""SweepFolder owns every path of a sweep's folder, and says what came out of it so far.

runs/sweeps/<name>-<date>-<time>-<4 hex digits>/
  sweep.json      the sweep as asked, its job, and the plan: written once, before anything starts
  trials.jsonl    what happened, appended: planned, started, ended, repeated, left_out, chosen ... (docs/sweeps.md)
  runs/           ordinary run folders
  lock            held by who conducts it
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from headway import clock, locks
from headway.bench.figures import finite_figure
from headway.errors import FormatError, HeadwayError
from headway.locks import Held
from headway.record.files import EventWriter, to_json, write_atomically
from headway.record.folder import RUN_NAME, RunFolder, by_name, new_run_name
from headway.record.reader import Reader
from headway.record.run import Run
from headway.record.seal import result
from headway.record.storage import probe, writing
from headway.spec.sweep import LoadedSweep, Sweep, parse_sweep
from headway.spec.words import short_names, value_in_words

FORMAT = 1
SWEEPS = "sweeps"
# Settings whose values need no name beside them.
SPOKEN_FOR_ITSELF = ("strategy", "layout", "workload.model", "workload.dataset", "model", "dataset")
NEEDED: dict[str, type] = {"sweep": dict, "plan": list}  # of sweep.json, for anything to be said of a sweep
TrialState = Literal["planned", "running", "done", "failed", "left_out"]
Data = Literal["real", "synthetic"]
Purpose = Literal["grid", "one_at_a_time", "also", "baseline", "search", "best"]


@dataclass(frozen=True)
class TrialRun:
    """One repeat of a trial."""

    folder: RunFolder
    repeat: int
    """0, 1, ...: which of the trial's runs it is."""
    counts: bool
    """Whether the trial's figures are made of it."""
    marks: tuple[str, ...]
    """Why it is doubtful: loaded, throttled, unsteady, restarted, inconsistent, short."""
    why: dict[str, str] = field(default_factory=dict)
    """For each mark what was seen, in words."""
    state: str = "finished"
    reason: str | None = None
    seconds: float | None = None
    """Wall time, from its beginning to its sealed record."""
    value: float | None = None
    """The figure that the sweep looks at, as it was when the run ended."""
    is_forgiven: bool = False
    """It failed before the sweep was gone on with: what made it fail may be gone."""

    @cached_property
    def figures(self) -> dict[str, Any] | None:
        """The run's summary (docs/formats.md); None where there is none."""
        try:
            return result(Run(self.folder))
        except (OSError, HeadwayError):
            return None


@dataclass(frozen=True)
class Trial:
    """One combination of settings."""

    key: str
    """A slug of its settings."""
    settings: dict[str, Any]
    """Dotted path -> value, only of what varies."""
    tasks: int
    """Training tasks."""
    is_baseline: bool
    data: Data
    runs: list[TrialRun]
    state: TrialState
    reason: str | None
    """Why it failed or was left out."""
    purpose: Purpose = "grid"
    group: str | None = None
    """Of a search: the key of what is searched for; its trials and the best one on real data share it."""
    job: dict[str, Any] = field(default_factory=dict)
    """The job that its runs are asked, as settings."""
    vcpus: float | None = None
    cut: float | None = None
    """Seconds after which a run of it was stopped because a budget was over."""

    @property
    def name(self) -> str:
        """For people: `ps-async, training 2, real data`."""
        names = short_names(self.settings)
        parts = [text if path in SPOKEN_FOR_ITSELF else f"{names[path]} {text}" for path, text in self._said]
        return ", ".join([*parts, *([f"{self.data} data"] if self.purpose in ("search", "best") else [])]) or self.key

    @property
    def _said(self) -> list[tuple[str, str]]:
        return [(path, value_in_words(value)) for path, value in told(self.settings).items()]


def told(settings: dict[str, Any]) -> dict[str, Any]:
    """Those that a name tells: `None` alone would say nothing."""
    return {path: value for path, value in settings.items() if value is not None or path not in SPOKEN_FOR_ITSELF}


def samples(trial: Trial, figure: str = "examples_per_s") -> list[float]:
    """That figure of the runs that count; also one by a dotted name, such as `role_use.ps.rss.max`."""
    found = [finite_figure(Run(run.folder), run.figures, figure) for run in trial.runs if run.counts and run.figures]
    return [value for value in found if value is not None]


class SweepFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.reader = Reader(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    def __repr__(self) -> str:
        return f"SweepFolder({self.name!r})"

    # --- finding and making ----------------------------------------------------------------------------------
    @staticmethod
    def create(
        root: Path,
        loaded: LoadedSweep,
        plan: list[dict[str, Any]],
        searches: list[dict[str, Any]],
        environment: dict[str, Any],
        parallel: int = 1,
    ) -> SweepFolder:
        folder = SweepFolder(root / SWEEPS / new_run_name(loaded.sweep.name))
        with writing(root):
            folder.runs.mkdir(parents=True)
        probe(folder.path)
        facts = {
            "format": FORMAT,
            "created": clock.now(),
            "full": loaded.is_full,
            "parallel": parallel,
            "environment": environment,
            "sweep": loaded.sweep.model_dump(mode="json", exclude_unset=True),
            "job": loaded.job,
            "plan": plan,
            "searches": searches,
        }
        write_atomically(folder.file, to_json(facts, indent=1))
        return folder

    @staticmethod
    def find(root: Path, name: str) -> SweepFolder:
        """By path, by name, by the unique beginning of a name, or `last`."""
        if (Path(name) / "sweep.json").is_file() and RUN_NAME.fullmatch(Path(name).absolute().name):
            return SweepFolder(Path(name))
        return by_name(SweepFolder.all(root), name, f"no sweep {name!r} in {root / SWEEPS}", "headway sweeps")

    @staticmethod
    def all(root: Path) -> list[SweepFolder]:
        """Every sweep below `root`, oldest first."""
        found = [
            SweepFolder(path.parent)
            for path in (root / SWEEPS).glob("*/sweep.json")
            if RUN_NAME.fullmatch(path.parent.name)
        ]
        return sorted(found, key=lambda each: (each.created, each.name))

    # --- files -----------------------------------------------------------------------------------------------
    @property
    def file(self) -> Path:
        return self.path / "sweep.json"

    @property
    def trials_file(self) -> Path:
        return self.path / "trials.jsonl"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @cached_property
    def facts(self) -> dict[str, Any]:
        """sweep.json: created, full, parallel, environment, sweep, job, plan, searches."""
        facts = self.reader.json(self.file, FORMAT)
        for name, kind in NEEDED.items():
            if not isinstance(facts.get(name), kind):
                raise FormatError(f"{self.file}: damaged (it has no `{name}` that could be read)")
        return facts

    @property
    def created(self) -> float:
        try:
            return float(self.facts["created"])
        except (FormatError, KeyError, TypeError, ValueError):  # one damaged sweep must not hide the others
            return self.path.stat().st_mtime

    @cached_property
    def spec(self) -> Sweep:
        return parse_sweep(self.facts["sweep"], origin=self.name)

    @property
    def environment(self) -> dict[str, Any]:
        """Machine, versions and commit that it was begun on."""
        return dict(self.facts.get("environment") or {})

    @property
    def parallel(self) -> int:
        """Trials at once, each on its own part of the cores."""
        return int(self.facts.get("parallel", 1))

    def events(self) -> list[dict[str, Any]]:
        return list(self.reader.lines(self.trials_file)) if self.reader.exists(self.trials_file) else []

    def writer(self) -> EventWriter:
        return EventWriter(self.trials_file)

    # --- what came out ---------------------------------------------------------------------------------------
    def trials(self, goes_on: bool = False) -> list[Trial]:
        """Every trial of the plan and of the search, in the plan's order. `goes_on`: as they are when the sweep is gone
        on with, and what an earlier session had no time for is open again."""
        events = [*self.events(), *([{"kind": "begun"}] if goes_on else [])]
        plan, repeats = self.facts["plan"], self.spec.measure.repeats
        try:
            return read_trials(plan, events, self._run_folder, repeats, self.is_held() is Held.HELD)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a field is missing, or something else
            what = f"{type(error).__name__}: {error}"
            raise FormatError(f"{self.path}: its sweep.json or trials.jsonl is damaged ({what})") from error

    def trial(self, key: str) -> Trial:
        return next(trial for trial in self.trials() if trial.key == key)

    def _run_folder(self, name: str) -> RunFolder:
        return RunFolder(self.runs / name)

    @property
    def choices(self) -> list[dict[str, Any]]:
        """What searches have chosen: group, path, value, tried, skipped, rivals, may_lose. One of an earlier session in
        which nothing could be tried is open again."""
        events = self.events()
        last = _last_begun(events)
        chosen = [(number, event) for number, event in enumerate(events) if event["kind"] == "chosen"]
        return [event for number, event in chosen if event["value"] is not None or number > last]

    @property
    def not_found(self) -> list[dict[str, Any]]:
        """Searches that the last session had no time to end: group, path, reason."""
        events = self.events()
        return [event for event in events[_last_begun(events) + 1 :] if event["kind"] == "not_found"]

    @property
    def is_finished(self) -> bool:
        """Whether everything that was planned is done, failed, or left out."""
        return bool(self._ends() and self._ends()[-1] == "finished")

    @property
    def state(self) -> str:
        """running, finished, interrupted, or unknown: whether anybody runs it cannot be told."""
        held = self.is_held()
        if held is Held.HELD:
            return "running"
        if self.is_finished:
            return "finished"
        return "unknown" if held is Held.UNKNOWN else "interrupted"

    def _ends(self) -> list[str]:
        return [event["kind"] for event in self.events() if event["kind"] in ("begun", "interrupted", "finished")]

    # --- who conducts it -------------------------------------------------------------------------------------
    def hold(self) -> int:
        """Take the sweep for this process."""
        with writing(self.path):
            return locks.take(self.path / "lock", f"{self.name} is being run already, by another `headway bench`")

    def is_held(self) -> Held:
        return locks.is_held(self.path / "lock")


# --- from events to trials (pure but for the run folders, which are opened only when figures are asked for) ---------
def read_trials(
    plan: list[dict[str, Any]],
    events: list[dict[str, Any]],
    run_folder: Callable[[str], RunFolder],
    repeats: int,
    is_held: bool,
) -> list[Trial]:
    planned = {entry["key"]: entry for entry in plan}
    begun = _last_begun(events)
    # What an earlier session had no time for is open again, and what failed in it may be tried again.
    earlier = {id(event) for number, event in enumerate(events) if number < begun}
    events = [event for number, event in enumerate(events) if event["kind"] != "left_out" or number > begun]
    planned |= {event["trial"]: {"key": event["trial"], **event} for event in events if event["kind"] == "planned"}
    # Not so of a search that has chosen: nobody would look at what it tries again.
    closed = {event["group"] for event in events if event["kind"] == "chosen" and event["value"] is not None}
    return [
        _trial(
            entry,
            [event for event in events if event.get("trial") == key],
            set() if entry.get("purpose") == "search" and entry.get("group") in closed else earlier,
            run_folder,
            repeats,
            is_held,
        )
        for key, entry in planned.items()
    ]


def _last_begun(events: list[dict[str, Any]]) -> int:
    """Where the last session begins; -1 where none has."""
    return max((number for number, event in enumerate(events) if event["kind"] == "begun"), default=-1)


def _trial(
    entry: dict[str, Any],
    events: list[dict[str, Any]],
    earlier: set[int],
    run_folder: Callable[[str], RunFolder],
    repeats: int,
    is_held: bool,
) -> Trial:
    ended = [event for event in events if event["kind"] == "ended" and event["state"] != "interrupted"]
    good = [event for event in ended if event["state"] == "finished"]
    counting = counted([tuple(event.get("marks", ())) for event in good], repeats)
    counting_runs = {event["run"] for event, counts in zip(good, counting, strict=True) if counts}
    runs = [
        TrialRun(
            run_folder(event["run"]),
            int(event["repeat"]),
            event["run"] in counting_runs,
            tuple(event.get("marks", ())),
            dict(event.get("why", {})),
            event["state"],
            event.get("reason"),
            event.get("seconds"),
            event.get("value"),
            is_forgiven=event["state"] != "finished" and id(event) in earlier,
        )
        for event in ended
    ]
    state, reason = _state(entry, events, bool(good), is_held)
    return Trial(
        key=entry["key"],
        settings=entry["settings"],
        tasks=entry["tasks"],
        is_baseline=entry["is_baseline"],
        data=entry["data"],
        runs=runs,
        state=state,
        reason=reason,
        purpose=entry.get("purpose", "grid"),
        group=entry.get("group"),
        job=entry.get("job", {}),
        vcpus=entry.get("vcpus"),
        cut=max((float(event["seconds"]) for event in events if event.get("is_cut")), default=None),
    )


def _state(
    entry: dict[str, Any], events: list[dict[str, Any]], has_good: bool, is_held: bool
) -> tuple[TrialState, str | None]:
    if entry.get("left_out"):
        return "left_out", entry["left_out"]
    last = next((event for event in reversed(events) if event["kind"] != "repeated"), None)
    under_way = Counter(event["kind"] for event in events if event.get("run"))  # several may be, in lanes
    failed = next(
        (event for event in reversed(events) if event["kind"] == "ended" and event["state"] == "failed"), None
    )
    if last is None or last["kind"] == "planned":
        return "planned", None
    if under_way["started"] > under_way["ended"] and is_held:
        return "running", None
    if last["kind"] == "left_out" and not has_good:
        return "left_out", last["reason"]
    if has_good:
        return "done", last["reason"] if last["kind"] == "left_out" else None
    return ("failed", failed.get("reason")) if failed else ("planned", None)


def counted(marks: list[tuple[str, ...]], repeats: int) -> list[bool]:
    """Which finished runs count: those without a mark, as soon as they are half as many as were asked; before that all
    do, for a doubtful figure that says so is better than none."""
    num_clean = sum(not each for each in marks)
    only_clean = num_clean >= max(1, math.ceil(repeats / 2))
    return [not each or not only_clean for each in marks]
