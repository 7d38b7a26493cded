"""The command that makes sweeps: bench."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.output import is_terminal, number, print_json, print_table
from headway.cli.sweeps import TableFormat, TableOutput, interval_text, print_csv, show_sweep, some, unit
from headway.cli.training import Root, root_of
from headway.errors import INTERRUPTED_EXIT_CODE, RunFailed, SpecError
from headway.plural import counted

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder, Trial
    from headway.bench.plan import Plan
    from headway.bench.schedule import Fit
    from headway.metrics.estimate import Estimate
    from headway.spec.sweep import LoadedSweep


def bench(
    sweep: Annotated[
        Path | None, typer.Argument(help="The sweep: a YAML file, see examples/.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Settings to change: of the sweep (measure.repeats=3) or of its job (workload.batch_size=50).",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="How long it may take, such as 30m or 2h.", show_default=False)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="The original method instead of its local form.")] = False,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help="Trials at once, each on its own part of the cores.", show_default="1"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show every trial, and start nothing.")] = False,
    resume: Annotated[
        str | None,
        typer.Option(help="Go on with a sweep that was interrupted: its name, or `last`.", show_default=False),
    ] = None,
    runs: Root = None,
    output: TableOutput = TableFormat.text,
) -> None:
    """Try a job with many settings, each several times, and say how sure the results are.

    Example: headway bench examples/demo-sweep.yaml --budget 10m measure.repeats=3

    Trials run in shuffled order and take turns; each is repeated until its interval is narrow enough. Ctrl-C stops in
    order; `headway bench --resume last` goes on. More: docs/sweeps.md
    """
    from headway.bench.conduct import (
        check_parallel,
        check_same_machine,
        conduct,
        fits,
        make_plan_here,
        other_commit,
        prepare,
    )
    from headway.bench.folder import SweepFolder
    from headway.spec.sweep import load_sweep

    seconds = _budget(budget)
    show = Show(sys.stdout if output is TableFormat.text else sys.stderr)
    if resume is not None:
        if sweep is not None or full:
            raise SpecError("--resume goes on with a sweep as it was asked: give no file, no override and no --full")
        folder = SweepFolder.find(root_of(runs), resume)
        check_parallel(folder, parallel)
        check_same_machine(folder)
        if dry_run:
            show_open(folder, output)
            return
    else:
        if sweep is None:
            raise SpecError("which sweep? For example: headway bench examples/demo-sweep.yaml")
        loaded = load_sweep(sweep, overrides or [], full)
        if dry_run:
            show_plan(loaded, make_plan_here(loaded, parallel or 1), output)
            return
        folder = prepare(loaded, root_of(runs), parallel or 1)
    show.begin(folder)
    if resume is not None and (text := other_commit(folder)):
        show.line(text)
    if seconds is not None:
        for text in budget_lines(fits(folder, seconds), seconds):
            show.line(text)
    end = conduct(folder, show, seconds)
    show.finish()
    show_sweep(folder, output)
    if end == "interrupted":
        print(f"\ninterrupted; go on with: headway bench --resume {folder.name}", file=sys.stderr)
        sys.exit(INTERRUPTED_EXIT_CODE)
    trials = folder.trials()
    if all(trial.state in ("failed", "left_out") for trial in trials):
        raise RunFailed(f"{folder.name}: no trial succeeded")


def _budget(text: str | None) -> float | None:
    from headway.units import seconds

    if text is None:
        return None
    try:
        value = seconds(text)
    except ValueError as error:
        raise SpecError(f"--budget {text!r}: {error}") from None
    if value <= 0:
        raise SpecError(f"--budget {text!r}: it is more than nothing")
    return value


def budget_lines(fitting: Fit, budget: float) -> list[str]:
    """What a budget is probably enough for, and who gets less than was asked."""
    from headway.bench.schedule import GUESS
    from headway.units import format_seconds

    wanted = counted(fitting.wanted, "run")
    how_many = f"all of {wanted}" if fitting.runs == fitting.wanted else f"about {fitting.runs} of {wanted}"
    first = f"budget {format_seconds(budget)}: {how_many} will fit"
    if fitting.is_guess:
        first += f"; a run is guessed to take {format_seconds(GUESS)}, for there was none yet"
    return [
        first,
        *([f"  no run at all: {some(fitting.left_out)}"] if fitting.left_out else []),
        *([f"  fewer runs than asked: {some(fitting.cut)}"] if fitting.cut else []),
    ]


def show_plan(loaded: LoadedSweep, plan: Plan, output: TableFormat) -> None:
    """What --dry-run prints."""
    searched = [each for group in plan.groups for each in (*group.candidates, *group.finals[:1])]
    if output is TableFormat.csv:
        print_csv([trial.as_file() for trial in (*plan.trials, *searched)])
        return
    if output is TableFormat.json:
        print_json(
            {
                "sweep": loaded.sweep.name,
                "trials": [trial.as_file() for trial in plan.trials],
                "searches": [{"key": group.key, "path": group.path} for group in plan.groups],
                "candidates": [trial.as_file() for trial in searched],
            }
        )
        return
    measure = loaded.sweep.measure
    what = (
        "to the job's own end" if measure.steps is None else f"{counted(measure.steps, 'measured step')} of each task"
    )
    trials, runs = counted(len(plan.trials), "trial"), counted(measure.repeats, "run")
    print(f"{loaded.sweep.name}: {trials}, {runs} of each, {what}")
    print_table(
        ["trial", "tasks", "vCPUs", "data", "for", "left out because"],
        [
            [
                trial.key,
                trial.tasks,
                number(trial.vcpus),
                trial.data,
                trial.purpose.replace("_", " "),
                trial.left_out or "",
            ]
            for trial in plan.trials
        ],
        right=["tasks", "vCPUs"],
    )
    for group in plan.groups:
        values = ", ".join(str(each.value) for each in group.candidates)
        then = ", then the best on real data" if group.finals else ""
        print(f"search {group.key}: the best {group.path} of {values} on synthetic data{then}")


def left_out_lines(folder: SweepFolder) -> list[str]:
    """What the plan leaves out, and why: a mistake is to be seen before hours of runs."""
    from headway.bench.conduct import plan_of

    plan = plan_of(folder)
    searched = [each for group in plan.groups for each in (*group.candidates, *group.finals)]
    names: dict[str, list[str]] = {}
    for trial in (*plan.trials, *searched):
        if trial.left_out:
            names.setdefault(trial.left_out, []).append(trial.key)
    return [f"left out   {some(list(dict.fromkeys(keys)))}: {reason}" for reason, keys in names.items()]


def show_open(folder: SweepFolder, output: TableFormat) -> None:
    """What --resume with --dry-run prints: the trials that are open, and how many runs each probably gets."""
    from headway.bench.conduct import open_searches
    from headway.bench.schedule import need, progress_of

    found: list[dict[str, Any]] = []
    for trial in folder.trials(goes_on=True):
        lacking = need(progress_of(trial), folder.spec.measure)
        if trial.state != "left_out" and lacking.runs:
            made = {"trial": trial.key, "name": trial.name, "made": len(trial.runs)}
            found.append({**made, "open": lacking.runs, "because": lacking.reason})
    searches = open_searches(folder)
    if output is TableFormat.json:
        print_json({"sweep": folder.name, "trials": found, "searches": [group.key for group in searches]})
    elif output is TableFormat.csv:
        print_csv(found)
    else:
        runs = counted(sum(entry["open"] for entry in found), "run")
        print(f"{folder.name}: open are {counted(len(found), 'trial')}, {runs} in all")
        if found:
            columns = ["name", "made", "open", "because"]
            print_table(
                ["trial", "runs made", "open", "because"],
                [[entry[name] for name in columns] for entry in found],
                right=["runs made", "open"],
            )
        for group in searches:
            print(f"search {group.key}: the best {group.path} is not known yet")


class Show:
    """A line for each run, and what runs now."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.began = time.monotonic()
        self._is_drawn = False
        self._where: dict[str, str] = {}

    def begin(self, folder: SweepFolder) -> None:
        self.figure = folder.spec.measure.figure
        self.repeats = folder.spec.measure.repeats
        at_once = f": {folder.parallel} trials at once, each on its own cores" if folder.parallel > 1 else ""
        self.line(f"{folder.name}{at_once}")
        for text in left_out_lines(folder):
            self.line(text)

    def finish(self) -> None:
        self._clear()

    def line(self, text: str) -> None:
        self._clear()
        print(text, file=self.stream, flush=True)

    def running(self, trial: Trial, number: int, total: int, repeat: int, left: float) -> None:
        from headway.units import format_seconds

        self._where[trial.key] = f"trial {number} of {total}"
        if self.stream is sys.stdout and is_terminal():
            text = f"{self._where[trial.key]}: {trial.name}, run {repeat + 1} ... about {format_seconds(left)} left"
            print(text[:110], end="\r", file=self.stream, flush=True)
            self._is_drawn = True

    def ended(self, trial: Trial, event: dict[str, Any], found: Estimate | None, left: float) -> None:
        from headway.units import format_seconds

        made = len(trial.runs)
        run = f"run {made}" + (
            f" of {self.repeats}" if made <= self.repeats else f", {made - self.repeats} more than asked"
        )
        if event["state"] == "failed":
            what = f"failed: {event['reason']}"
        else:
            what = f"{number(event['value'], 4)} {unit(self.figure)}"
            if found is not None and found.num > 1:
                what += f"   so far {interval_text(found)}"
            what += "".join(f"   {mark}: {why}" for mark, why in event.get("why", {}).items())
        rest = f"   (about {format_seconds(left)} left)" if left else ""
        clock = f"[{time.monotonic() - self.began:6.0f} s]"
        self.line(f"{clock} {self._where[trial.key]}, {run}: {trial.name}: {what}{rest}")

    def chosen(self, event: dict[str, Any]) -> None:
        from headway.bench.search import choice_text

        self.line(f"{'':10} {choice_text(event)}")

    def _clear(self) -> None:
        if self._is_drawn:
            print(" " * 110, end="\r", file=self.stream)
            self._is_drawn = False
