"""Every rule on a run, or on a sweep: who may speak, how sure, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headway.findings.base import Certainty, Finding, Rule
from headway.findings.catalogue import RULES, noisy_machine

if TYPE_CHECKING:
    from headway.findings.facts import Facts
    from headway.findings.sweeps import SweepFacts

ORDER = {"certain": 0, "likely": 1, "possible": 2}
OF_SPEED = {rule.name for rule in RULES if rule.is_of_speed}


def of_facts(facts: Facts) -> list[Finding]:
    found = [
        replace(finding, run=facts.run)
        for rule in RULES
        if rule.look is not None and has_enough(facts, rule)
        for finding in rule.look(facts)
        if finding.trouble or finding.advice  # what is only good to know is of no use where nothing can be done
    ]
    is_noisy = any(finding.rule == noisy_machine.RULE.name for finding in found)
    return ordered([less_sure(one) for one in found] if is_noisy else found)


def less_sure(finding: Finding) -> Finding:
    """The same, of a machine that others used meanwhile: nothing is certain there."""
    most: Certainty = "possible" if finding.rule in OF_SPEED else "likely"
    return replace(finding, certainty=max(finding.certainty, most, key=lambda one: ORDER[one]))


def has_enough(facts: Facts, rule: Rule) -> bool:
    """Whether the run is long enough for the rule to say anything."""
    return facts.num_steps >= rule.steps and facts.seconds >= rule.seconds


def of_trials(sweep: SweepFacts) -> list[Finding]:
    found = [
        replace(finding, run=sweep.name)
        for rule in RULES
        if rule.look_at_sweep is not None
        for finding in rule.look_at_sweep(sweep)
    ]
    is_noisy = any(trial.is_noisy for trial in sweep.trials)
    return ordered([less_sure(one) for one in found] if is_noisy else found)


def ordered(found: list[Finding]) -> list[Finding]:
    """Trouble first, the surest first; else in the order of the rules."""
    return sorted(found, key=lambda finding: (not finding.trouble, ORDER[finding.certainty]))
