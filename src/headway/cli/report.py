"""`headway report`: runs and sweeps as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.reading import careful
from headway.cli.training import Root, root_of
from headway.errors import NotFound, SpecError
from headway.plural import counted

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder
    from headway.record.run import Run


def add_to(app: typer.Typer) -> None:
    app.command()(careful(report))


def report(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Runs and sweeps: by name, its beginning, by path, or `last`; a folder stands for all in it.",
            show_default=False,
            metavar="RUNS-or-SWEEPS...",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Its suffix says the form: .html, .md, .ipynb, or a folder .csv or .parquet."
        ),
    ] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="What stands above it.")] = None,
    price: Annotated[
        list[str] | None, typer.Option("--price", help="What nodes cost: worker=0.90/h, or 0.10/h for every node.")
    ] = None,
    runs: Root = None,
) -> None:
    """Runs and sweeps as one page: findings, tables, charts and time lines.

    An HTML file needs nothing else and opens offline. Example: headway report last -o report.html
    """
    import os

    from headway.metrics.cost import parse_price
    from headway.report.page import page
    from headway.report.write import check_form, write

    check_form(output)  # before anything is read: that may take a while
    chosen, sweeps = find_all(what, root_of(runs))
    prices = dict(parse_price(each) for each in price or ())
    made = page(chosen, sweeps, title, os.cpu_count() or 1, prices)
    check_prices(prices, made["runs"])
    for run in made["runs"]:
        if run["problem"]:
            typer.echo(f"headway: {run['name']}: {run['problem']}; the report says so", err=True)
    write(made, output)
    typer.echo(
        f"{output}: {counted(len(made['runs']), 'run')}, "
        f"{counted(len(made['findings']), 'finding')}, {size_of(output) / 1e6:.1f} MB"
    )


def check_prices(prices: dict[str, float], runs: list[dict[str, Any]]) -> None:
    """A price that no run has a node for is a mistake; a single machine among others that has no server is none."""
    if unused := sorted(set(prices) - {key for run in runs for key in run.get("priced", ())}):
        raise SpecError(f"--price: no run has a node {', '.join(unused)}")
    if prices and not any(run.get("cost") for run in runs):
        raise SpecError(
            f"--price: no run has all of its nodes priced by {', '.join(prices)}; try 0.10/h for every node"
        )


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size


def find_all(names: list[str], root: Path) -> tuple[list[Run], list[SweepFolder]]:
    """Each name once, in the order in which they were given."""
    from headway.bench.folder import SweepFolder
    from headway.record.folder import RunFolder
    from headway.record.run import Run, load_all

    runs: dict[Path, Run] = {}
    sweeps: dict[Path, SweepFolder] = {}
    for name in names:
        path = Path(name)
        if path.is_dir() and not (path / "run.json").exists() and not (path / "sweep.json").exists():
            inside, sweeps_inside = load_all(path), _sweeps_in(path)
            if not inside and not sweeps_inside:
                raise NotFound(f"{name}: neither a run, nor a sweep, nor a folder with runs or sweeps in it")
            runs |= {run.path: run for run in inside}
            sweeps |= {sweep.path: sweep for sweep in sweeps_inside}
            continue
        try:
            found = Run(RunFolder.find(root, name))
            runs[found.path] = found
        except NotFound as no_run:
            try:
                sweep = SweepFolder.find(root, name)
            except NotFound:
                raise no_run from None
            sweeps[sweep.path] = sweep
    return list(runs.values()), list(sweeps.values())


def _sweeps_in(path: Path) -> list[SweepFolder]:
    """Of a folder of runs, which keeps its sweeps in `sweeps`, or of that one. A damaged one does not hide others."""
    from headway.bench.folder import SWEEPS, SweepFolder
    from headway.report.digest import in_words
    from headway.report.groups import of_sweep

    found = []
    for sweep in SweepFolder.all(path.absolute().parent if path.absolute().name == SWEEPS else path):
        try:
            of_sweep(sweep)
            found.append(sweep)
        except Exception as error:  # it may be damaged in any way
            typer.echo(f"headway: sweep {sweep.name}: {in_words(error)}; left out", err=True)
    return found
