"""`headway findings`: what held a run back, and what to change; and the same in brief at the end of `headway show`."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.inspect import RunName
from headway.cli.output import Format, Output, print_json
from headway.cli.training import Root, root_of

if TYPE_CHECKING:
    from headway.findings import Finding

WIDTH = 110


def add_to(app: typer.Typer) -> None:
    app.command()(findings)


def findings(
    run: RunName,
    evidence: Annotated[bool, typer.Option("--evidence", "-e", help="Also every figure they rest on.")] = False,
    root: Root = None,
    output: Output = Format.text,
) -> None:
    """What held a run back, how sure that is, and what to change.

    The rules and their limits: docs/findings.md.
    """
    from headway.findings import findings as find
    from headway.record.run import load

    loaded = load(run, root_of(root))
    found = find(loaded)
    if output is Format.json:
        print_json([dataclasses.asdict(one) for one in found])
        return
    if not found:
        print(f"{loaded.name}: nothing found (docs/findings.md says what is looked for, and what that needs)")
        return
    trouble, rest = ([one for one in found if one.trouble is wanted] for wanted in (True, False))
    print(
        f"{loaded.name}: {_counted(len(trouble), 'finding')} of trouble"
        + (f", {len(rest)} good to know" if rest else "")
    )
    for one in found:
        print()
        for line in full_text(one, evidence):
            print(line)


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def full_text(finding: Finding, evidence: bool = False) -> list[str]:
    sign = "!" if finding.trouble else "i"
    lines = [f"{sign} {finding.title} ({finding.certainty})"]
    lines += textwrap.wrap(finding.text, WIDTH, initial_indent="    ", subsequent_indent="    ")
    lines += textwrap.wrap(f"-> {finding.advice}", WIDTH, initial_indent="    ", subsequent_indent="       ")
    if evidence:
        lines += [f"      {line}" for line in map(evidence_text, finding.evidence)]
    return lines


def evidence_text(evidence: Any) -> str:
    from headway.findings.words import amount

    whose = f" ({evidence.task_or_node})" if evidence.task_or_node else ""
    return f"{evidence.what}{whose}: {amount(evidence.value, evidence.unit)}"


def brief_lines(found: list[Finding]) -> list[str]:
    """One line for each, for the end of `headway show`."""
    lines = []
    for one in found:
        lines += textwrap.wrap(
            f"{'!' if one.trouble else 'i'} {one.text} ({one.certainty})",
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
        )
    return lines
