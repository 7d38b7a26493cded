"""What the evaluations published, as tables: `tables/*.yaml`. A measured table stands beside them as shape, never as
numbers: other machines, other years. Each is checked for consistency when it is read.

Every row and every conclusion says where it comes from. tests/data/evaluations.md is a summary of the evaluations with
all of their figures; tests/unit/test_published_source.py compares the tables with it, figure by figure and conclusion
by conclusion, each for the model that it was drawn for."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, model_validator

from headway.errors import NotFound
from headway.metrics.consistency import Inconsistency, check, copies
from headway.spec.cluster import Strict

Cell = float | str | None
DEVIATION = "_deviation"
_WITH_DEVIATION = re.compile(r"([0-9.]+) \+/- ([0-9.]+)")


class Column(Strict):
    name: str
    """Of the figure, as in a run's summary where there is such a one."""
    title: str
    unit: str = ""
    measured: bool = True
    """False: a setting, or the row's name."""
    of: str | None = None
    """The figure that checks know it as, where its name is another (`synthetic`)."""
    ours: bool = False
    """Not published: counted, named or looked up by us (training tasks, a machine's price)."""


class Series(Strict):
    """A column as a curve over another, for comparison as shape."""

    x: str
    y: str
    better: Literal["higher", "lower"] = "higher"
    label: str = ""
    only: dict[str, Any] = Field(default_factory=dict)
    """Column -> value, or several of them: the rows that belong to it. Default: all."""
    figure: str = "examples_per_s"
    """The figure of a run that stands beside it here; more of it is better."""
    here: dict[str, Any] = Field(default_factory=dict)
    """Setting -> value: the trials that stand beside it, where a sweep varies that. Default: all."""


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class Conclusion(Strict):
    """Something that an evaluation concluded, and how to see whether it is so here."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    text: str
    """What they say, in our words."""
    model: str
    """The model that it was drawn for."""
    says: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
    """Where it stands: the words of the summary in tests/data/evaluations.md, or the row of figures that shows it."""
    basis: Literal["stated", "figures"] = "stated"
    """`figures`: it is what their table shows; the text need not say it."""
    contradicted: str | None = None
    """Why it is no conclusion: the evaluation says the contrary, too. It is shown, and neither tested nor counted."""
    sweep: str | None = None
    """The example that measures it: examples/<sweep>.yaml."""
    test: dict[str, Any] | None = None
    """`function` (metrics/conclusions.py) and its arguments."""
    full: dict[str, Any] = Field(default_factory=dict)
    """Arguments that are others for the original form of the sweep (`--full`), which has other values."""
    perhaps: str | None = None
    """Why it may be otherwise here: said where it is not re-found."""
    not_testable: str | None = None
    """Why it cannot be tested on one machine with two cores."""

    @model_validator(mode="after")
    def _either(self) -> Conclusion:
        reasons = (self.not_testable, self.contradicted, self.test if self.sweep else None)
        if sum(each is not None for each in reasons) != 1:
            raise ValueError(f"{self.name}: give either sweep and test, or not_testable, or contradicted")
        return self


def _spread_out(rows: Any) -> Any:
    """`7.68 +/- 2.95` -> the number, and another one named ..._deviation."""
    if not isinstance(rows, list):
        return rows
    found = []
    for row in rows:
        cells: dict[str, Any] = {}
        for name, value in row.items():
            match = _WITH_DEVIATION.fullmatch(value) if isinstance(value, str) else None
            cells[name] = float(match[1]) if match else value
            if match:
                cells[f"{name}{DEVIATION}"] = float(match[2])
        found.append(cells)
    return found


class Published(Strict):
    format: Literal[1]
    name: str
    evaluation: Literal["E1", "E2", "E3", "E4", "E5"]
    title: str
    source: str
    """Who measured it, where and when; what is only in the authors' code."""
    model: str
    """Whose figures these are: the name of a model here, where there is one."""
    where: str
    """Where the rows stand: words of the summary in tests/data/evaluations.md at which they begin."""
    columns: tuple[Column, ...] = ()
    """The first one names the row."""
    facts: dict[str, float] = Field(default_factory=dict)
    """What holds for each row, for the checks: batch_size, steps."""
    rows: Annotated[tuple[dict[str, Cell], ...], BeforeValidator(_spread_out)] = ()
    series: tuple[Series, ...] = ()
    notes: tuple[str, ...] = ()
    """Traps: what one must know before one compares with it."""
    why: str | None = None
    """Why its shape may be another one here: said beside it, as it cannot be told from the figures."""
    sweep: str | None = None
    """The example that measures the same: examples/<sweep>.yaml."""
    conclusions: tuple[Conclusion, ...] = ()

    @model_validator(mode="after")
    def _known_columns(self) -> Published:
        known = {column.name for column in self.columns}
        for row in self.rows:
            if unknown := {name.removesuffix(DEVIATION) for name in row} - known:
                raise ValueError(f"{self.name}: no column {', '.join(sorted(unknown))}")
        for series in self.series:
            if unknown := {series.x, series.y, *series.only} - known:
                raise ValueError(f"{self.name}: series of {', '.join(sorted(unknown))}, but no such column")
        return self

    @property
    def counted(self) -> tuple[Conclusion, ...]:
        """The conclusions, without those that the evaluation contradicts itself."""
        return tuple(each for each in self.conclusions if each.contradicted is None)

    @property
    def inconsistencies(self) -> tuple[Inconsistency, ...]:
        """What in it contradicts itself."""
        found = []
        for row, name in zip(self.rows, self.row_names, strict=True):
            named = {column.of or column.name: row.get(column.name) for column in self.columns}
            found += check({**self.facts, **{key: value for key, value in named.items() if value is not None}}, name)
        measured = [column.name for column in self.columns if column.measured]
        return tuple(found + copies(self.rows, measured, self.row_names))

    @property
    def row_names(self) -> list[str]:
        return [self.text(row, self.columns[0]) for row in self.rows]

    def text(self, row: dict[str, Cell], column: Column) -> str:
        """A cell as it was printed."""
        value = row.get(column.name)
        if value is None:
            return "-"
        deviation = row.get(f"{column.name}{DEVIATION}")
        shown = f"{value:,g}" if isinstance(value, (int, float)) else value
        return shown if deviation is None else f"{shown} ± {deviation:g}"

    def points(self, series: Series) -> list[tuple[float, float]]:
        """The series' points, in the order of x."""
        found = []
        for row in self.rows:
            x, y = row.get(series.x), row.get(series.y)
            if all(_is_meant(row.get(name), value) for name, value in series.only.items()) and _are_numbers(x, y):
                found.append((float(x), float(y)))  # type: ignore[arg-type]
        return sorted(found)


def _is_meant(cell: Cell, wanted: Any) -> bool:
    return cell in wanted if isinstance(wanted, list) else bool(cell == wanted)


def _are_numbers(*values: Cell) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


@cache
def tables() -> dict[str, Published]:
    """Every published table, by name."""
    folder = files("headway.metrics").joinpath("tables")
    found = {}
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.name.endswith(".yaml"):
            name = path.name.removesuffix(".yaml")
            found[name] = Published.model_validate({"name": name, **yaml.safe_load(path.read_text(encoding="utf-8"))})
    return found


def table(name: str) -> Published:
    known = tables()
    if name not in known:
        near = get_close_matches(name.lower(), known, n=2, cutoff=0.6)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise NotFound(f"no published table {name!r}{hint} Known: {', '.join(known)}")
    return known[name]
