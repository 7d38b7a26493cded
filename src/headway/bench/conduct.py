"""Has a sweep's runs made until nothing is missing. Everything that it decides follows from the sweep's folder and from
what is under way, so it can end at any moment, however it ends, and go on from there.

    folder.trials() --> search: candidates, choices --> schedule.following --> lanes: a run --> trials.jsonl --.
         ^                                                                                                     |
         '-----------------------------------------------------------------------------------------------------'
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from headway.bench import figures
from headway.bench.facts import commit_in_words
from headway.bench.folder import SweepFolder, Trial
from headway.bench.lanes import Alone, Crew, Lanes, cores_here, divide
from headway.bench.making import Order
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
from headway.errors import SiteError, SpecError, StorageError
from headway.launch.prepare import environment, num_cores, placed
from headway.metrics.estimate import Estimate
from headway.plural import counted
from headway.record.files import EventWriter
from headway.spec.load import parse_job
from headway.spec.nodes import FOR_THE_EMULATION, needs_core_speed
from headway.spec.resolve import resolve
from headway.spec.sweep import LoadedSweep
from headway.units import format_seconds

# Of the machine that a sweep was begun on: with another one its runs could not be put side by side.
SAME = ("cpu", "cores", "python")
# By so much the last run may be longer than was thought: of the budget, and in seconds at least.
OVER_BUDGET = 0.1
LEAST_OVER_BUDGET = 30.0
SAME_PACKAGES = ("tensorflow-cpu", "tensorflow", "numpy")


class Show(Protocol):
    """What the user sees of a sweep."""

    def line(self, text: str) -> None: ...
    def running(self, trial: Trial, number: int, total: int, repeat: int, left: float) -> None: ...
    def ended(self, trial: Trial, event: dict[str, Any], found: Estimate | None, left: float) -> None: ...
    def chosen(self, event: dict[str, Any]) -> None: ...


def make_plan_here(loaded: LoadedSweep, parallel: int = 1) -> Plan:
    """As it can be run on this machine, so many trials at once. SiteError where they would share cores."""
    if parallel == 1:
        return make_plan(loaded, num_cores())
    cores = len(divide(cores_here(), parallel)[0])
    plan = make_plan(loaded, cores)
    for trial in (*plan.trials, *(each for group in plan.groups for each in group.candidates)):
        _check_room(trial, cores, parallel)
    return plan


def _check_room(trial: Planned, cores: int, parallel: int) -> None:
    """Emulated hosts may ask for more CPUs than one of several lanes has."""
    if trial.left_out or needs_core_speed(job := parse_job(trial.job)):  # such machines take what there is (dilation)
        return
    choices = {choice.path: choice for choice in resolve(job, cores).choices}
    if (asked := choices.get("site.cpus")) is not None:
        raise SiteError(
            f"--parallel {parallel}: {trial.key} asks for {asked.value:g} CPUs in all, and each of "
            f"{counted(parallel, 'trial')} "
            f"at once has {cores} of its own here, {FOR_THE_EMULATION:g} of them for the emulation itself"
        )


def prepare(loaded: LoadedSweep, root: Path, parallel: int = 1) -> SweepFolder:
    """A new sweep's folder. Nothing has been started."""
    plan = make_plan_here(loaded, parallel)
    groups = [
        replace(each, candidates=tuple(map(_placed, each.candidates)), finals=tuple(map(_placed, each.finals)))
        for each in plan.groups
    ]
    return SweepFolder.create(
        root,
        loaded,
        [_placed(trial).as_file() for trial in plan.trials],
        [asdict(group) for group in groups],
        environment(),
        parallel,
    )


def _placed(trial: Planned) -> Planned:
    """A sweep may be gone on with from another folder."""
    return trial if trial.left_out else replace(trial, job=placed(parse_job(trial.job)))


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


def check_parallel(folder: SweepFolder, parallel: int | None) -> None:
    """A sweep goes on with as many trials at once as it was begun with: each run had that part of the machine."""
    if parallel is not None and parallel != folder.parallel:
        raise SpecError(
            f"--parallel {parallel}: {folder.name} was begun with {folder.parallel}, and each of its runs had that "
            "part of the cores. Go on without --parallel, or begin a new sweep"
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
        crew = Alone() if folder.parallel == 1 else Lanes(divide(cores_here(), folder.parallel))
        return _Conductor(folder, show, budget, crew).run()
    except StorageError as error:
        raise StorageError(
            f"{error}\nThe sweep {folder.name} was ended. When the folder can be written again: "
            f"headway bench --resume {folder.name}"
        ) from None
    finally:
        os.close(lock)


class _Conductor:
    def __init__(self, folder: SweepFolder, show: Show, budget: float | None, crew: Crew) -> None:
        self.folder, self.show, self.budget, self.crew = folder, show, budget, crew
        self.measure, self.seed = folder.spec.measure, folder.spec.seed
        self.plan = plan_of(folder)
        self.began = time.monotonic()
        self.events: EventWriter = folder.writer()
        self.under_way: list[Order] = []
        self.was_interrupted = False
        self.storage_failed: str | None = None

    @property
    def _is_stopping(self) -> bool:
        return self.was_interrupted or self.crew.is_stopping

    def run(self) -> Literal["finished", "interrupted"]:
        self._close_open_runs()
        self.events.write("begun", budget=self.budget, environment=environment())
        try:
            with self.crew:
                while self._begin_what_can_be() or self.under_way:
                    self.crew.wait(self._heard)
        except KeyboardInterrupt:
            self.was_interrupted = True
        finally:
            self.events.flush()
        if self.storage_failed is not None:
            raise StorageError(self.storage_failed)
        end: Literal["finished", "interrupted"] = "interrupted" if self._is_stopping else "finished"
        self.events.write(end)
        self.events.close()
        return end

    def _begin_what_can_be(self) -> bool:
        begun = False
        while self.crew.num_free and not self._is_stopping and (trial := self._next()) is not None:
            runs, limit = str(self.folder.runs), self._limit()
            order = Order(trial.key, self._repeat(trial), trial.job, self.measure.figure, runs, limit)
            self.under_way.append(order)
            self.crew.begin(order)
            begun = True
        return begun

    def _repeat(self, trial: Trial) -> int:
        """The first number that no run of it has: each has a seed of its own."""
        used = {run.repeat for run in trial.runs} | {order.repeat for order in self._orders(trial)}
        return next(number for number in range(len(used) + 1) if number not in used)

    def _orders(self, trial: Trial) -> list[Order]:
        return [order for order in self.under_way if order.trial == trial.key]

    def _progress(self, trial: Trial) -> Progress:
        return replace(progress_of(trial), under_way=len(self._orders(trial)))

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
        progress = [self._progress(trial) for trial in trials.values()]
        left = self._budget_left()
        key = following(progress, self.measure, self.seed, left)
        if key is None:
            if left is not None and not self.under_way:
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

    def _limit(self) -> float | None:
        """How long a run may take that is begun now: none is stopped for the little that an estimate is off, and none
        takes the night although the budget was half an hour."""
        left = self._budget_left()
        if left is None or self.budget is None:
            return None
        return max(0.0, left) + max(LEAST_OVER_BUDGET, OVER_BUDGET * self.budget)

    def _left(self, progress: list[Progress]) -> float:
        """Seconds until the end, as far as can be said: a search that goes on wants at least one candidate or the best
        one on real data."""
        each = expected_seconds(Progress(""), progress) * self.measure.repeats
        runs = remaining_seconds(progress, self.measure) + len(open_searches(self.folder)) * each
        wanted = runs / self.folder.parallel
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
                if each.cut is not None:
                    what = "its run was stopped"
                    takes = f"a run takes more than {format_seconds(each.cut)}"
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
            elif trial is not None and not self._orders(trial) and not need(progress_of(trial), self.measure).runs:
                value = of_values(progress_of(trial).values, self.measure)
                if value is None:
                    impossible.add(number)
                else:
                    found[number] = value
            elif trial is not None:
                return False  # it is being tried
        num, is_less_better = len(group.candidates), bool(figures.is_less_better(self.measure.figure))
        following = next_candidate(num, found, frozenset(impossible), is_less_better)
        if following is not None:
            self._plan(group.candidates[following])
            return True
        self._choose(group, choose(num, found, frozenset(impossible), is_less_better) if found else None)
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
        # First: who is killed in between has the choice made again, and else would never run it on real data.
        final = next((each for each in group.finals if each.value == best.value), None)
        if final is not None and all(trial.key != final.key for trial in self.folder.trials()):
            self._plan(final)
        event = self.events.write(
            "chosen",
            **fields,
            value=best.value,
            best=best.key,
            tried=[values[number] for number in choice.tried],
            skipped=[values[number] for number in choice.skipped],
            rivals=[values[number] for number in choice.rivals],
            may_lose=choice.may_lose,
            assumes=_assumes(self.measure.figure),
        )
        self.show.chosen(event)

    # --- what runs come to -----------------------------------------------------------------------------------
    def _heard(self, order: Order, message: dict[str, Any]) -> None:
        kind = message.pop("kind")
        if kind == "line":
            self.show.line(message["text"])
        elif kind == "started":
            self.events.write("started", trial=order.trial, repeat=order.repeat, **message)
        elif kind == "stop_asked":
            self._stop()
        else:
            self._ended(order, message)

    def _stop(self) -> None:
        self.was_interrupted = True
        self.crew.stop()

    def _ended(self, order: Order, fields: dict[str, Any]) -> None:
        self.under_way.remove(order)
        if fields.pop("storage", False):
            self.storage_failed = str(fields["reason"])
        written = self.events.write("ended", trial=order.trial, repeat=order.repeat, **fields)
        if fields["state"] == "interrupted":
            if not fields.get("is_cut"):
                self._stop()
            return
        trial = self.folder.trial(order.trial)
        progress = [self._progress(each) for each in self.folder.trials() if each.state != "left_out"]
        found = of_values(progress_of(trial).values, self.measure)
        self.show.ended(trial, written, found, self._left(progress))


def _assumes(figure: str) -> str:
    name = "throughput" if figure == "examples_per_s" else figure
    if figures.is_less_better(figure):
        return f"{name} falls to one lowest value and rises from there"
    return f"{name} rises to one peak and falls from there"


def fits(folder: SweepFolder, budget: float) -> Fit:
    """What a budget is enough for, as far as is known now. Of a search that has not chosen yet every candidate may be
    wanted, and one of them on real data."""
    everything = {trial.key: progress_of(trial) for trial in folder.trials(goes_on=True) if trial.state != "left_out"}
    for group in open_searches(folder):
        for each in (*group.candidates, *group.finals[:1]):
            if not each.left_out:
                everything.setdefault(each.key, Progress(each.key))
    return fit(list(everything.values()), folder.spec.measure, budget, folder.spec.seed, folder.parallel)
