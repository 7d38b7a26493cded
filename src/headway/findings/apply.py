"""Every rule on a run, or on a sweep: who may speak, how sure, and in which order."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING

from headway.findings.base import Finding, Rule
from headway.findings.catalogue import RULES, noisy_machine

if TYPE_CHECKING:
    from headway.findings.facts import Facts
    from headway.findings.sweeps import SweepFacts

ORDER = {"certain": 0, "likely": 1, "possible": 2}


def of_facts(facts: Facts) -> list[Finding]:
    found = [
        replace(finding, run=facts.run, evidence=tuple(one for one in finding.evidence if not isnan(one.value)))
        for rule in RULES
        if rule.look is not None and has_enough(facts, rule)
        for finding in rule.look(facts)
    ]
    if any(finding.rule == noisy_machine.RULE.name for finding in found):
        of_speed = {rule.name for rule in RULES if rule.is_of_speed}
        found = [replace(one, certainty="possible") if one.rule in of_speed else one for one in found]
    return ordered(found)


def has_enough(facts: Facts, rule: Rule) -> bool:
    """Whether the run is long enough for the rule to say anything."""
    return facts.num_steps >= rule.steps and facts.seconds >= rule.seconds


def of_trials(sweep: SweepFacts) -> list[Finding]:
    return ordered(
        [
            replace(finding, run=sweep.name)
            for rule in RULES
            if rule.look_at_sweep is not None
            for finding in rule.look_at_sweep(sweep)
        ]
    )


def ordered(found: list[Finding]) -> list[Finding]:
    """Trouble first, the surest first; else in the order of the rules."""
    return sorted(found, key=lambda finding: (not finding.trouble, ORDER[finding.certainty]))
