"""Commands about figures: what the evaluations published, and what a run cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.output import Format, Output, print_json, print_table

if TYPE_CHECKING:
    from headway.metrics.published import Column


def add_to(app: typer.Typer) -> None:
    app.command()(published)


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
                [one.name, one.title, len(one.rows), len(one.conclusions), len(one.inconsistencies)]
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
        ("concluded", [each.text for each in one.conclusions]),
    ):
        if lines:
            print(f"\n{title}")
            for line in lines:
                print(f"  - {line}")
    if one.sweep:
        print(f"\nmeasured here by\n  headway bench examples/{one.sweep}.yaml")


def _head(column: Column) -> str:
    return f"{column.title}, {column.unit}" if column.unit else column.title
