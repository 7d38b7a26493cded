"""`headway findings`: what held a run back, and what to change; and the same in brief at the end of `headway show`."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.output import Format, Output, print_json
from headway.cli.reading import careful
from headway.cli.training import Root, root_of
from headway.errors import FormatError, HeadwayError, NotFound
from headway.plural import counted

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder
    from headway.findings import Finding
    from headway.record.folder import RunFolder

WIDTH = 110


def add_to(app: typer.Typer) -> None:
    app.command()(careful(findings))


def findings(
    run: Annotated[
        str,
        typer.Argument(help="A run's or a sweep's name, its beginning, its path, or `last`.", show_default=False),
    ],
    evidence: Annotated[bool, typer.Option("--evidence", "-e", help="Also every figure they rest on.")] = False,
    root: Root = None,
    output: Output = Format.text,
) -> None:
    """What held a run back, how sure that is, and what to change.

    Of a sweep: what its trials say together, and what was found in their runs. The rules and their limits:
    docs/findings.md.
    """
    name, found = _found(run, root_of(root))
    if output is Format.json:
        print_json([dataclasses.asdict(one) for one in found])
        return
    if not found:
        print(f"{name}: nothing found (docs/findings.md says what is looked for, and what that needs)")
        return
    trouble, rest = ([one for one in found if one.trouble is wanted] for wanted in (True, False))
    good = f", {len(rest)} good to know" if rest else ""
    print(f"{name}: {_counted(len(trouble), 'finding')} of trouble{good}")
    for one in found:
        print()
        for line in full_text(one, evidence):
            print(line)


def _found(name: str, root: Path) -> tuple[str, list[Finding]]:
    """Of a run; or of a sweep, where there is no such run."""
    from headway.bench.folder import SweepFolder
    from headway.findings import findings as find
    from headway.record.run import load
    from headway.report.digest import in_words

    try:
        run = load(name, root)
    except NotFound:
        try:
            sweep = SweepFolder.find(root, name)
        except NotFound:
            sweep = None
        if sweep is None:
            raise
        return sweep.name, _of_sweep(sweep)
    try:
        return run.name, find(run)
    except HeadwayError:
        raise
    except Exception as error:  # a run folder may be damaged in any way
        raise FormatError(f"{run.name}: its record is damaged: no rule can read it ({in_words(error)})") from error


def _of_sweep(sweep: SweepFolder) -> list[Finding]:
    """One damaged run must not hide the others: what cannot be read is named."""
    from headway.findings import explain_loss, of_sweep
    from headway.findings import findings as find
    from headway.record.run import Run
    from headway.report.digest import in_words

    found: dict[Path, list[Finding]] = {}
    for folder in (each.folder for trial in sweep.trials() for each in trial.runs if each.counts):
        try:
            found[folder.path] = find(Run(folder))
        except Exception as error:  # a run folder may be damaged in any way
            typer.echo(f"headway: {folder.name}: cannot be read ({in_words(error)}); left out", err=True)

    def is_explained(folder: RunFolder) -> bool:
        """What could not be read may have a reason: nothing is said of it."""
        return folder.path not in found or explain_loss((one.rule, one.trouble) for one in found[folder.path])

    try:
        of_all = of_sweep(sweep, is_explained)
    except Exception as error:  # as above
        typer.echo(f"headway: {sweep.name}: no rule could read it as a whole ({in_words(error)})", err=True)
        of_all = []
    return [*of_all, *in_common(list(found.values()))]


def in_common(found: list[list[Finding]]) -> list[Finding]:
    """Of several runs: what was found in them, each once, with the surest of its cases."""
    from headway.report.found import num_of, together

    each = [{**vars(one), "path": number, "is": one} for number, run in enumerate(found) for one in run]
    shared = []
    for cases in together(each):
        first: Finding = cases[0]["is"]
        words = f"In {num_of(cases)} of {counted(len(found), 'run')}; in {first.run}: {first.text}"
        shared.append(dataclasses.replace(first, text=words))
    return shared


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
