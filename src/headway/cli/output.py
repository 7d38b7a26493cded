"""How results are printed: tables for people, JSON for programs, plain lines where there is no terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from headway.cli.visible import beneath, in_json, visible


class Format(StrEnum):
    text = "text"
    json = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="text for people, json for programs.")]


def is_terminal() -> bool:
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    from headway.record.files import to_json

    print(in_json(to_json(json.loads(json.dumps(value, default=str)), indent=2)))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """A table with as little decoration as possible; without a terminal its cells are never cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            Text(visible(column)), justify="right" if column in right else "left", no_wrap=not is_terminal()
        )
    for row in rows:
        table.add_row(*(Text("-" if cell is None else visible(str(cell))) for cell in row))
    out = Console(file=beneath(), highlight=False, width=None if is_terminal() else 1000)
    with out.capture() as capture:
        out.print(table)
    for line in capture.get().splitlines():
        print(line.rstrip(), file=beneath())


def number(value: float | None, digits: int = 3) -> str:
    """A figure with that many significant digits, however large without an exponent: 1234.5 -> 1,234; None -> -"""
    from headway.units import significant

    if value is None:
        return "-"
    if math.isnan(value):
        return "NaN"
    return significant(value, digits)
