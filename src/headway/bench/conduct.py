"""Makes a sweep's runs, one after the other, until nothing is missing. Everything that it decides follows from the
sweep's folder, so it can end at any moment, however it ends, and go on from there.

    folder.trials() --> search: candidates, choices --> schedule.following --> one run --> judge --> trials.jsonl --.
         ^                                                                                                          |
         '----------------------------------------------------------------------------------------------------------'
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Protocol

from headway.bench import judge
from headway.bench.facts import commit_in_words
from headway.bench.folder import SweepFolder, Trial
from headway.bench.plan import Group, Plan, Planned, make_plan
from headway.bench.schedule import (
    Fit,
    Progress,
    expected_seconds,
    fit,
    following,
    need,
    of_values,
    progress_of,
    remaining_seconds,
)
from headway.bench.search import Chosen, choose, next_candidate
from headway.errors import HeadwayError, SiteError, SpecError
from headway.launch.launcher import Launcher
from headway.launch.prepare import create_run, environment, num_cores
from headway.metrics.estimate import Estimate
from headway.record.files import EventWriter
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.spec.cluster import Task
from headway.spec.load import parse_job
from headway.spec.sweep import LoadedSweep
from headway.units import format_seconds

# Of the machine that a sweep was begun on: with another one its runs could not be put side by side.
SAME = ("cpu", "cores", "python")
SAME_PACKAGES = ("tensorflow-cpu", "tensorflow", "numpy")


class Show(Protocol):
    """What the user sees of a sweep."""

    def line(self, text: str) -> None: ...
    def running(self, trial: Trial, number: int, total: int, repeat: int, left: float) -> None: ...
    def ended(self, trial: Trial, event: dict[str, Any], found: Estimate | None, left: float) -> None: ...
    def chosen(self, event: dict[str, Any]) -> None: ...


class Interrupted(Exception):
    """The user, or a signal, wants an end."""


def prepare(loaded: LoadedSweep, root: Path) -> SweepFolder:
    """A new sweep's folder. Nothing has been started."""
    plan = make_plan(loaded, num_cores())
    return SweepFolder.create(
        root,
        loaded,
        [trial.as_file() for trial in plan.trials],
        [asdict(group) for group in plan.groups],
        environment(),
    )


def plan_of(folder: SweepFolder) -> Plan:
    """As it was made when the sweep began."""
    groups = [
        Group(
            entry["key"],
            entry["path"],
            entry["settings"],
            tuple(Planned(**each) for each in entry["candidates"]),
            tuple(Planned(**each) for each in entry["finals"]),
        )
        for entry in folder.facts.get("searches", [])
    ]
    return Plan(tuple(Planned(**entry) for entry in folder.facts["plan"]), tuple(groups))


def open_searches(folder: SweepFolder) -> list[Group]:
    """Those that have not chosen yet."""
    chosen = {event["group"] for event in folder.choices}
    return [group for group in plan_of(folder).groups if group.key not in chosen]


def check_parallel(job: dict[str, Any], parallel: int) -> None:
    """Trials at the same time need nodes of their own. `job`: the sweep's, as settings."""
    kind = parse_job(job).site.kind
    if parallel > 1 and kind in ("local", "emulated"):
        raise SiteError(
            f"--parallel {parallel}: trials on site {kind} share this machine's cores, and would measure each other. "
            "Trials run at the same time only where each gets nodes of its own"
        )


def check_same_machine(folder: SweepFolder) -> None:
    """A sweep goes on where it was begun: SpecError names what is different here."""
    then, now = folder.environment, environment()
    packages = [then.get("packages", {}), now["packages"]]
    facts = [(name, then.get(name), now[name]) for name in SAME]
    facts += [(name, *(each.get(name) for each in packages)) for name in SAME_PACKAGES]
    for name, before, here in facts:
        if before != here:
            raise SpecError(
                f"{folder.name} was begun with {name}: {before}, and here it is {here}: its runs could not be put side "
                "by side. Begin a new sweep, and put both side by side with `headway compare`"
            )


def other_commit(folder: SweepFolder) -> str | None:
    """In words, where the sweep goes on with another commit than it was begun at."""
    then, now = commit_in_words(folder.environment), commit_in_words(environment())
    if then == now:
        return None
    return f"begun at commit {then}, and goes on at {now}: its runs are of both"


def conduct(folder: SweepFolder, show: Show, budget: float | None = None) -> Literal["finished", "interrupted"]:
    """Make every run that is missing. `budget`: seconds that it may take."""
    lock = folder.hold()
    try:
        return _Conductor(folder, show, budget).run()
    finally:
        os.close(lock)


class _Conductor:
    def __init__(self, folder: SweepFolder, show: Show, budget: float | None) -> None:
        self.folder, self.show, self.budget = folder, show, budget
        self.measure, self.seed = folder.spec.measure, folder.spec.seed
        self.plan = plan_of(folder)
        self.began = time.monotonic()
        self.events: EventWriter = folder.writer()
        self.machine = judge.Machine()

    def run(self) -> Literal["finished", "interrupted"]:
        self._close_open_runs()
        self.events.write("begun", budget=self.budget, environment=environment())
        try:
            with self.machine:
                while (trial := self._next()) is not None:
                    self._make(trial)
        except (KeyboardInterrupt, Interrupted):
            self.events.write("interrupted")
            return "interrupted"
        finally:
            self.events.flush()
        self.events.write("finished")
        self.events.close()
        return "finished"

    def _close_open_runs(self) -> None:
        """Runs that were under way when the last session was killed: they are made again."""
        events = self.folder.events()
        ended = {event["run"] for event in events if event["kind"] == "ended"}
        for event in events:
            if event["kind"] == "started" and event["run"] not in ended:
                fields = {key: event[key] for key in ("trial", "repeat", "run")}
                self.events.write("ended", **fields, state="interrupted", reason="the sweep was killed")

    # --- what is next ----------------------------------------------------------------------------------------
    def _next(self) -> Trial | None:
        while self._search():
            pass
        trials = {trial.key: trial for trial in self.folder.trials() if trial.state != "left_out"}
        progress = [progress_of(trial) for trial in trials.values()]
        left = self._budget_left()
        key = following(progress, self.measure, self.seed, left)
        if key is None:
            if left is not None:
                self._leave_out(progress, left)
            return None
        trial = trials[key]
        made = next(each for each in progress if each.key == key)
        if made.made >= self.measure.repeats:
            self.events.write("repeated", trial=key, reason=need(made, self.measure).reason)
        number = list(trials).index(key) + 1
        self.show.running(trial, number, len(trials), made.made, self._left(progress))
        return trial

    def _budget_left(self) -> float | None:
        return None if self.budget is None else self.budget - (time.monotonic() - self.began)

    def _left(self, progress: list[Progress]) -> float:
        """Seconds until the end, as far as can be said: a search that goes on wants at least one candidate or the best
        one on real data."""
        each = expected_seconds(Progress(""), progress) * self.measure.repeats
        wanted = remaining_seconds(progress, self.measure) + len(open_searches(self.folder)) * each
        left = self._budget_left()
        return wanted if left is None else max(0.0, min(wanted, left))

    def _leave_out(self, progress: list[Progress], left: float) -> None:
        """What the budget has no room for."""
        assert self.budget is not None
        budget, was_left = f"budget {format_seconds(self.budget)}", f"{format_seconds(max(0.0, left))} were left"
        for each in progress:
            if runs := need(each, self.measure).runs:
                what = f"{runs} more run{'s' * (runs > 1)}" if each.made else "it was not tried"
                takes = f"a run takes about {format_seconds(expected_seconds(each, progress))}"
                self.events.write("left_out", trial=each.key, reason=f"{budget}: {what}; {takes}, and {was_left}")
        for group in open_searches(self.folder):
            reason = f"{budget}: not every value that may be the best was tried, and {was_left}"
            self.events.write("not_found", group=group.key, path=group.path, reason=reason)
            self.show.line(f"{group.key}: the best {group.path} was not found within the budget")

    # --- the search for the best -----------------------------------------------------------------------------
    def _search(self) -> bool:
        """Plan what searches want tried next. Whether anything was planned or chosen."""
        if not self.plan.groups:
            return False
        trials = {trial.key: trial for trial in self.folder.trials()}
        chosen = {event["group"] for event in self.folder.choices}
        return any(self._advance(group, trials) for group in self.plan.groups if group.key not in chosen)

    def _advance(self, group: Group, trials: dict[str, Trial]) -> bool:
        found: dict[int, Estimate] = {}
        impossible = set()
        for number, candidate in enumerate(group.candidates):
            trial = trials.get(candidate.key)
            if candidate.left_out:
                impossible.add(number)
                if trial is None:
                    self._plan(candidate)
            elif trial is not None and not need(progress_of(trial), self.measure).runs:
                value = of_values(progress_of(trial).values, self.measure)
                if value is None:
                    impossible.add(number)
                else:
                    found[number] = value
            elif trial is not None:
                return False  # it is being tried
        following = next_candidate(
            len(group.candidates), {number: each.value for number, each in found.items()}, frozenset(impossible)
        )
        if following is not None:
            self._plan(group.candidates[following])
            return True
        self._choose(group, choose(len(group.candidates), found, frozenset(impossible)) if found else None)
        return True

    def _plan(self, trial: Planned) -> None:
        entry = trial.as_file()
        self.events.write("planned", trial=entry.pop("key"), **entry)

    def _choose(self, group: Group, choice: Chosen | None) -> None:
        fields: dict[str, Any] = {"group": group.key, "path": group.path, "settings": group.settings}
        if choice is None:
            self.events.write("chosen", **fields, value=None, best=None, tried=[], skipped=[], rivals=[], may_lose=None)
            self.show.line(f"{group.key}: no {group.path} could be tried")
            return
        values = [candidate.value for candidate in group.candidates]
        best = group.candidates[choice.best]
        event = self.events.write(
            "chosen",
            **fields,
            value=best.value,
            best=best.key,
            tried=[values[number] for number in choice.tried],
            skipped=[values[number] for number in choice.skipped],
            rivals=[values[number] for number in choice.rivals],
            may_lose=choice.may_lose,
            assumes="throughput rises to one peak and falls from there",
        )
        self.show.chosen(event)
        final = next((each for each in group.finals if each.value == best.value), None)
        if final is not None and all(trial.key != final.key for trial in self.folder.trials()):
            self._plan(final)

    # --- one run ---------------------------------------------------------------------------------------------
    def _make(self, trial: Trial) -> None:
        began, repeat = time.monotonic(), len(trial.runs)
        self.machine.forget()
        name = ""
        event: dict[str, Any] = {"trial": trial.key, "repeat": repeat}
        try:
            asked = parse_job(trial.job, origin=trial.key)
            run = create_run(asked.model_copy(update={"seed": asked.seed + repeat}), self.folder.runs)
            name = run.name
            self.events.write("started", trial=trial.key, repeat=repeat, run=name)
            end = Launcher(run, _Quiet(self.show)).run()
            state, reason = str(end.state), end.reason
        except HeadwayError as error:
            state, reason = "failed", " ".join(str(error).split())
        except Exception as error:  # whatever it is: the others are not to suffer from it
            state, reason = "failed", f"{type(error).__name__}: {error}"
        if state == "stopped":
            self.events.write("ended", **event, run=name, state="interrupted", reason=reason)
            raise Interrupted
        if state == "finished":
            try:
                event |= judge.judged(Run(RunFolder(self.folder.runs / name)), self.measure.figure, self.machine)
            except Exception as error:  # a record that cannot be read
                event |= {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
            state = event.pop("state", state)
            reason = event.pop("reason", reason)
        written = self.events.write(
            "ended", **event, run=name, state=state, reason=reason, seconds=time.monotonic() - began
        )
        now = self.folder.trial(trial.key)
        progress = [progress_of(each) for each in self.folder.trials() if each.state != "left_out"]
        found = of_values(progress_of(now).values, self.measure)
        self.show.ended(now, written, found, self._left(progress))


class _Quiet:
    """A run's watcher that tells only what takes long."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._told: set[str] = set()

    def fetching(self, what: str, done: int, total: int | None) -> None:
        del done, total
        if what not in self._told:
            self._told.add(what)
            self._show.line(f"  fetching {what}")

    def noted(self, kind: str, fields: dict[str, Any]) -> None: ...
    def said(self, task: Task, event: dict[str, Any]) -> None: ...
    def looked(self, status: Callable[[], dict[str, Any]]) -> None: ...


def fits(folder: SweepFolder, budget: float) -> Fit:
    """What a budget is enough for, as far as is known now. Of a search that has not chosen yet every candidate may be
    wanted, and one of them on real data."""
    everything = {trial.key: progress_of(trial) for trial in folder.trials(goes_on=True) if trial.state != "left_out"}
    for group in open_searches(folder):
        for each in (*group.candidates, *group.finals[:1]):
            if not each.left_out:
                everything.setdefault(each.key, Progress(each.key))
    return fit(list(everything.values()), folder.spec.measure, budget, folder.spec.seed)
