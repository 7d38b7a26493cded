"""Commands about figures: what the evaluations published, and what a run cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.output import Format, Output, number, print_json, print_table
from headway.cli.reading import careful
from headway.cli.training import Root, root_of
from headway.plural import counted

if TYPE_CHECKING:
    from headway.metrics.published import Column


def add_to(app: typer.Typer) -> None:
    app.command()(careful(cost))
    app.command()(published)


def cost(
    runs: Annotated[list[str], typer.Argument(help="Runs: names, their beginnings, paths, or `last`.")],
    price: Annotated[
        list[str] | None,
        typer.Option(help="worker=0.90/h (a node or kind of node), ps=t2.small (a machine type), 0.10/h (every node)."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Extrapolate to so many global steps.", min=1)] = None,
    buy: Annotated[
        float | None, typer.Option(help="Dollars to buy such machines: when is that cheaper?", min=0)
    ] = None,
    root: Root = None,
    output: Output = Format.text,
) -> None:
    """What runs cost: all nodes from acquire to release, and the training alone beside it."""
    from headway.metrics import cost as reckoning
    from headway.record.run import load
    from headway.units import format_seconds

    prices = dict(reckoning.parse_price(text) for text in price or ())
    found = [reckoning.cost(load(name, root_of(root)), prices, steps, buy) for name in runs]
    if output is Format.json:
        print_json(
            [
                {
                    **asdict(one),
                    "total": one.total,
                    "training_only": one.training_only,
                    "per_1000_steps": one.per_1000_steps,
                }
                for one in found
            ]
        )
        return
    columns = [*reckoning.PHASES, "all", "training only", "per 1,000 steps", "steps"]
    print_table(
        ["dollars for", *columns],
        [
            [
                one.run,
                *(_dollars(one.dollars[phase]) for phase in reckoning.PHASES),
                _dollars(one.total),
                _dollars(one.training_only),
                _dollars(one.per_1000_steps),
                f"{one.steps:,}" + (" (extrapolated)" if one.is_extrapolated else ""),
            ]
            for one in found
        ],
        right=columns,
    )
    for one in found:
        print(f"\n{one.run}: {number(one.price_per_h)} dollars an hour")
        for node in one.nodes:
            print(f"  {node.node:<10} {number(node.price_per_h)}/h ({node.why}): {_dollars(node.dollars)}")
        times = ", ".join(f"{phase} {format_seconds(one.seconds[phase])}" for phase in reckoning.PHASES)
        print(f"  {'time':<10} {times}")
        if one.to_accuracy:
            each = ", ".join(f"{target}: {_dollars(dollars)}" for target, dollars in one.to_accuracy.items())
            print(f"  {'accuracy':<10} until it was reached, from when nodes were asked for: {each}")
        if one.owning:
            hours = format_seconds(one.owning.hours * 3600)
            print(f"  {'owning':<10} {one.owning.price:,g} to buy pays after {hours} of use")
            print(f"  {'':<10} or {one.owning.trainings:,.0f} such trainings (power and people not counted)")
        if one.is_extrapolated:
            print(f"  extrapolated to {counted(one.steps, 'step')}: as if the rate stayed what it was")


def _dollars(value: float | None) -> str:
    """Runs of seconds cost hundredths of cents: three digits, never 0.00."""
    if value is None:
        return "-"
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.3g}" if value >= 1e-4 else f"{value:.6f}"


def published(
    name: Annotated[str | None, typer.Argument(help="Of a table; without it, all of them.", show_default=False)] = None,
    output: Output = Format.text,
) -> None:
    """The evaluations' own tables (E1-E5), with what in them contradicts itself."""
    from headway.metrics.published import table, tables

    if name is None:
        found = tables()
        if output is Format.json:
            print_json([one.model_dump() for one in found.values()])
            return
        print_table(
            ["table", "title", "rows", "conclusions", "contradictions"],
            [
                [one.name, one.title, len(one.rows), len(one.counted), len(one.inconsistencies)]
                for one in found.values()
            ],
            right=["rows", "conclusions", "contradictions"],
        )
        return
    one = table(name)
    if output is Format.json:
        wrong = [{**vars(each), "off": each.off} for each in one.inconsistencies]
        print_json({**one.model_dump(), "inconsistencies": wrong})
        return
    print(f"{one.evaluation}: {one.title}\n{one.source}\n")
    if one.rows:
        marked = {each.where for each in one.inconsistencies}
        print_table(
            [_head(column) for column in one.columns] + [""],
            [
                [one.text(row, column) for column in one.columns] + ["!" if row_name in marked else ""]
                for row, row_name in zip(one.rows, one.row_names, strict=True)
            ],
            right=[_head(column) for column in one.columns[1:]],
        )
    for title, lines in (
        ("contradicts itself (!): not for calibration", [f"{each.where}: {each.text}" for each in one.inconsistencies]),
        ("to know", one.notes),
        ("they concluded", [each.text for each in one.counted if each.basis == "stated"]),
        (
            "by their figures",
            [each.text for each in one.counted if each.basis == "figures"],
        ),
        (
            "they also say the contrary, so this is no conclusion",
            [f"{each.text} But {each.contradicted}." for each in one.conclusions if each.contradicted],
        ),
    ):
        if lines:
            print(f"\n{title}")
            for line in lines:
                print(f"  - {line}")
    if one.sweep:
        print(f"\nmeasured here by\n  headway bench examples/{one.sweep}.yaml")


def _head(column: Column) -> str:
    return f"{column.title}, {column.unit}" if column.unit else column.title
