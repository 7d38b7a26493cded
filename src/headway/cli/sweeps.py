"""Commands that look at sweeps: sweeps, compare. What makes them is in bench.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.output import number, print_json, print_table
from headway.cli.reading import careful
from headway.cli.training import Root, root_of
from headway.plural import counted

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder, Trial
    from headway.metrics.estimate import Estimate


MOST_NAMES = 5  # trials that are named in one line
CONFIDENCE = 0.95  # what an interval is asked for
FEWEST_FOR_CONFIDENCE = 6  # runs from which on that of a median can be so sure: 1 - 2 ** (1 - 6) is 0.97


class TableFormat(StrEnum):
    text = "text"
    json = "json"
    csv = "csv"


TableOutput = Annotated[TableFormat, typer.Option("--output", "-o", help="text for people, json or csv for programs.")]
SweepName = Annotated[
    str, typer.Argument(help="A sweep's name, its beginning, its path, or `last`.", show_default=False)
]
sweeps_app = typer.Typer(help="List sweeps, and show what came out of them.", invoke_without_command=True)


def add_to(app: typer.Typer) -> None:
    app.add_typer(sweeps_app, name="sweeps")
    app.command()(careful(compare))


# --- in words ---------------------------------------------------------------------------------------------------------
def unit(figure: str) -> str:
    return figure.replace("_per_s", "/s").replace("_", " ")


def interval_text(found: Estimate) -> str:
    """`1,234 +/- 1.2 %`, and what it is."""
    import math

    if found.how == "mean" and found.error is not None:
        return f"{number(found.value, 4)} +/- {number(found.error)} (mean, standard error)"
    unknown = "(one run)" if found.num == 1 else "(interval not known)"
    wide = f"+/- {found.half_width:.1%}" if math.isfinite(found.half_width) else unknown
    return f"{number(found.value, 4)} {wide}"


# --- sweeps ---------------------------------------------------------------------------------------------------------
@sweeps_app.callback()
def sweeps(context: typer.Context, root: Root = None, output: TableOutput = TableFormat.text) -> None:
    """Every sweep, oldest first."""
    if context.invoked_subcommand is not None:
        return
    from headway.bench.folder import SweepFolder
    from headway.errors import HeadwayError

    found = []
    for folder in SweepFolder.all(root_of(root)):
        try:
            trials = folder.trials()
            found.append(
                {
                    "sweep": folder.name,
                    "state": folder.state,
                    "trials": len(trials),
                    "done": sum(trial.state == "done" for trial in trials),
                    "failed": sum(trial.state == "failed" for trial in trials),
                    "left_out": sum(trial.state == "left_out" for trial in trials),
                    "runs": sum(len(trial.runs) for trial in trials),
                    "created": folder.created,
                    "path": str(folder.path),
                }
            )
        except HeadwayError as error:  # one damaged sweep must not hide the others
            print(f"headway: {error}", file=sys.stderr)
    if output is TableFormat.json:
        print_json(found)
    elif output is TableFormat.csv:
        print_csv(found)
    elif not found:
        print(f"no sweeps in {root_of(root) / 'sweeps'} yet; try: headway bench examples/demo-sweep.yaml")
    else:
        columns = ["sweep", "state", "trials", "done", "failed", "left_out", "runs"]
        print_table([name.replace("_", " ") for name in columns], [[each[name] for name in columns] for each in found])


@sweeps_app.command()
def show(
    sweep: SweepName,
    figure: Annotated[
        str | None,
        typer.Option(
            help="Another figure of the runs, such as accuracy, seconds or role_use.ps.rss.max.", show_default=False
        ),
    ] = None,
    runs: Root = None,
    output: TableOutput = TableFormat.text,
) -> None:
    """A sweep's table: medians with intervals, how often, what is doubtful, what is missing or left out."""
    from headway.bench.figures import check_figure
    from headway.bench.folder import SweepFolder

    if figure is not None:
        check_figure(figure, "--figure")
    show_sweep(SweepFolder.find(root_of(runs), sweep), output, figure)


@sweeps_app.command()
def path(sweep: SweepName, runs: Root = None) -> None:
    """A sweep's folder, for other commands: headway report $(headway sweeps path last)"""
    from headway.bench.folder import SweepFolder

    print(SweepFolder.find(root_of(runs), sweep).path)


def show_sweep(folder: SweepFolder, output: TableFormat, figure: str | None = None) -> None:
    from headway.bench.search import choice_text, not_found_text
    from headway.bench.table import best, doubts, rows

    trials = folder.trials()  # once: they keep what was read of their runs
    found = rows(folder, figure, trials)
    fastest = best(folder, figure, trials)
    measure = folder.spec.measure
    what = unit(figure or measure.figure)
    if output is TableFormat.json:
        facts = {"sweep": folder.name, "state": folder.state, "path": str(folder.path)}
        outcome = {"best": fastest.as_value(what) if fastest else None, "chosen": folder.choices}
        print_json({**facts, "trials": found, **outcome, "not_found": folder.not_found})
        return
    if output is TableFormat.csv:
        print_csv(found)
        return
    done = sum(entry["state"] == "done" for entry in found)
    print(f"\n{folder.name}: {folder.state}, {done} of {counted(len(found), 'trial')} with results\n")
    has_speedups = any(entry["speedup"] is not None for entry in found)
    print_table(
        [
            "trial",
            "tasks",
            "data",
            what,
            "interval",
            *(["speed-up"] if has_speedups else []),
            "MAD",
            "runs",
            "missing",
            "doubts",
        ],
        [
            [
                entry["name"] + (" (baseline)" if entry["is_baseline"] else ""),
                entry["tasks"],
                entry["data"],
                number(entry["value"], 4),
                _interval(entry),
                *([_speedup(entry)] if has_speedups else []),
                number(entry["mad"]) if entry["counted"] > 1 else "-",
                f"{entry['counted']} of {entry['runs']}" if entry["counted"] != entry["runs"] else entry["runs"],
                entry["missing"] or "",
                doubts(entry),
            ]
            for entry in found
            if entry["state"] not in ("left_out", "failed")
        ],
        right=["tasks", what, "MAD", "runs", "missing"],
    )
    print(
        f"\n{what}: {_statistic_in_words(measure.statistic)}; missing: runs until the 95 % interval of "
        f"{unit(measure.figure)} is within +/- {measure.interval * 100:g} %"
    )
    if has_speedups:
        print(f"speed-up: {_against(found)}")
    if text := _doubtful_confidence(found):
        print(text)
    for entry in found:
        if entry["state"] == "failed":
            print(f"failed     {entry['name']}: {entry['reason']}")
    for entry in found:
        if entry["reason"] and entry["state"] != "failed":
            print(f"left out   {entry['name']}: {entry['reason']}")
        elif entry["is_short"]:
            print(f"too few    {entry['name']}: {entry['lacks']}")
    for event in folder.choices:
        print(f"search     {choice_text(event)}")
    for event in folder.not_found:
        print(f"search     {not_found_text(event)}")
    for text in _unexplained(folder, trials):
        print(f"loss       {text}")
    print(f"runs       {folder.runs}")
    if fastest is not None:
        print(f"best       {fastest.words(what)}")


def _speedup(entry: dict[str, Any]) -> str:
    from headway.bench.speedups import plus_minus
    from headway.metrics.estimate import Estimate

    if entry["speedup"] is None:
        return "1" if entry["is_reference"] else "-"
    if entry["speedup_runs"] < 2:
        return f"{entry['speedup']:.2f}"
    value = Estimate(entry["speedup"], entry["speedup_low"], entry["speedup_high"], entry["speedup_runs"], "ratio")
    return plus_minus(value)


def _against(found: list[dict[str, Any]]) -> str:
    """What speed-ups are against, in words."""
    references = [entry for entry in found if entry["is_reference"]]
    if len(references) > 1:
        what = "baseline" if all(entry["is_baseline"] for entry in references) else "reference"
        return f"times the {what} with the same workload and data: {some([entry['name'] for entry in references])}"
    (one,) = references
    why = "" if one["is_baseline"] else "; the sweep has no baseline, so its first trial is the reference"
    return f"times {one['name']}{why}"


def some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def _unexplained(folder: SweepFolder, trials: Sequence[Trial]) -> list[str]:
    """Speed-ups that fall short of ideal, and no finding says why. Of a sweep with a damaged run nothing is said here:
    `headway findings` names it."""
    from headway.findings import of_sweep
    from headway.findings.catalogue.unexplained import RULE

    try:
        return [one.text for one in of_sweep(folder, trials=trials) if one.rule == RULE.name]
    except Exception:  # a run folder may be damaged in any way
        return []


def _statistic_in_words(statistic: str) -> str:
    return {
        "median": "median of the runs, with a 95 % bootstrap interval",
        "mean": "mean of the runs, +/- its standard error",
        "mlperf": "mean without the best and the worst run, with a 95 % interval",
    }[statistic]


def _doubtful_confidence(found: list[dict[str, Any]]) -> str | None:
    """Of few runs no interval of a median is as sure as it was asked to be."""
    few = [entry for entry in found if entry["confidence"] is not None and entry["confidence"] < CONFIDENCE]
    if not few:
        return None
    least = min(few, key=lambda entry: float(entry["confidence"]))
    return (
        f"of {counted(least['counted'], 'run')} such an interval is sure to "
        f"{least['confidence']:.0%} at most, not to 95 % "
        f"({len(few)} of {counted(len(found), 'trial')} with fewer than {FEWEST_FOR_CONFIDENCE} runs that count)"
    )


def _interval(entry: dict[str, Any]) -> str:
    if entry["half_width"] is None:  # too few runs, or a value of 0, of which nothing is a share
        return "-" if entry["counted"] < 2 else "not known"
    if entry["error"] is not None and entry["statistic"] == "mean":  # as tf_cnn_benchmarks prints it
        return f"+/- {number(entry['error'])} (jitter = {number(entry['jitter'])})"
    return f"{number(entry['low'], 4)} to {number(entry['high'], 4)} (+/- {entry['half_width']:.1%})"


def print_csv(found: list[dict[str, Any]]) -> None:
    import csv
    import json

    if not found:
        return
    columns = dict.fromkeys(key for entry in found for key in entry)  # not every row has all of them
    writer = csv.DictWriter(sys.stdout, list(columns), lineterminator="\n")
    writer.writeheader()
    for entry in found:
        writer.writerow(
            {key: json.dumps(value) if isinstance(value, (dict, list)) else value for key, value in entry.items()}
        )


# --- compare --------------------------------------------------------------------------------------------------------
def compare(
    a: Annotated[str, typer.Argument(help="A sweep or a run: name, beginning, or path.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Another one.", show_default=False)],
    across: Annotated[
        list[str] | None,
        typer.Option(help="What may differ: a setting such as workload.model, or `machine`.", show_default=False),
    ] = None,
    figure: Annotated[str, typer.Option(help="Which figure of the runs.")] = "examples_per_s",
    runs: Root = None,
    output: TableOutput = TableFormat.text,
) -> None:
    """How much more or less B does than A, with an interval; refused where they are not alike.

    Example: headway compare mnist-20261101 mnist-20261116

    Sweeps are compared trial by trial. A commit may differ: that is what one compares. Anything else (model, batch
    size, machine, versions) must be the same, or be named with --across.
    """
    from headway.bench.compare import compare_all, open_side

    root = root_of(runs)
    found = compare_all(open_side(root, a), open_side(root, b), tuple(across or ()), figure)
    if output is TableFormat.json:
        print_json(found.as_value())
        return
    if output is TableFormat.csv:
        print_csv([each.as_value() for each in found.effects])
        return
    for line in found.lines():
        print(line)
    print_table(
        ["trial", f"A {unit(figure)}", f"B {unit(figure)}", "B against A"],
        [[each.name, number(each.a, 4), number(each.b, 4), each.in_words] for each in found.effects],
        right=[f"A {unit(figure)}", f"B {unit(figure)}"],
    )
