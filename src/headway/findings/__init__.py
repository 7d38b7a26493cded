"""Findings: what held a run back, with the figures that say so, how sure that is, and what to change.

    run folder --> evidence.read --> Facts --> every rule (pure) --> findings, the most important first

A rule is one file in `catalogue/` with its name in `RULES`; docs/findings.md is made from its words. A rule says what
it needs, and is silent without it: short runs, old records and machines that count less give fewer findings, never
wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headway.findings.base import Certainty, Evidence, Finding, Rule

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder, Trial, TrialRun
    from headway.record.folder import RunFolder
    from headway.record.run import Run

__all__ = ["Certainty", "Evidence", "Finding", "Rule", "explain_loss", "findings", "of_sweep", "rules"]


def rules() -> list[Rule]:
    """Every rule, in the order of the documentation."""
    from headway.findings.catalogue import RULES

    return list(RULES)


def findings(run: Run, figures: dict[str, Any] | None = None) -> list[Finding]:
    """What is known of a run: trouble first, the surest first. `figures`: its summary, where that is at hand."""
    from headway.findings.apply import of_facts
    from headway.findings.evidence import read

    return of_facts(read(run, figures))


def of_sweep(
    sweep: SweepFolder,
    is_explained: Callable[[RunFolder], bool] | None = None,
    trials: Sequence[Trial] | None = None,
) -> list[Finding]:
    """What the trials of a sweep say together. Those of single runs are `findings`. `is_explained`: whether these can
    cost speed (`explain_loss`), where they are known already. `trials`: those of the sweep, where they are at hand:
    they keep the figures that were read of their runs."""
    from headway.findings.apply import of_trials
    from headway.findings.sweeps import read_sweep
    from headway.record.run import Run

    def ask(run: TrialRun) -> bool:
        if is_explained is not None:
            return is_explained(run.folder)
        return explain_loss((one.rule, one.trouble) for one in findings(Run(run.folder), run.figures))

    return of_trials(read_sweep(sweep.name, sweep.trials() if trials is None else trials, ask))


def explain_loss(found: Iterable[tuple[str, bool]]) -> bool:
    """Whether one of these findings (its rule, and whether it is trouble) can be why more tasks are not faster."""
    explaining = {rule.name for rule in rules() if rule.explains_loss}
    return any(trouble and name in explaining for name, trouble in found)
