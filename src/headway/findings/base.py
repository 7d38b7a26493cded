"""What a finding is, and what a rule is. A rule is one file in `catalogue/`: words, limits and a pure function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Literal

from headway.findings.advice import Advice, JobKind, Setting, for_job, in_words

if TYPE_CHECKING:
    from headway.findings.facts import Facts
    from headway.findings.sweeps import SweepFacts

Certainty = Literal["certain", "likely", "possible"]


@dataclass(frozen=True)
class Evidence:
    """A figure that a finding rests on."""

    what: str
    """In words: `network in use, inwards`."""
    value: float
    unit: str
    """SI (`s`, `B`, `B/s`, `CPUs`), or `share` of 1, or what is counted (`steps`)."""
    task_or_node: str | None = None
    start: float | None = None
    """From when to when it was measured, on the launcher's clock; None: the whole measured time."""
    end: float | None = None


@dataclass(frozen=True)
class Finding:
    """A statement about a run with its evidence and what to do about it."""

    rule: str
    title: str
    resource: str
    """What it is about: `ps0's network`."""
    text: str
    """In plain words, the figure in it."""
    certainty: Certainty
    trouble: bool
    """False: nothing is wrong, but good to know."""
    advice: str
    """In words, for this job."""
    evidence: tuple[Evidence, ...] = ()
    run: str = ""
    """The run or sweep it is about."""
    settings: tuple[Setting, ...] = ()
    """Those that the advice names. The job has all of them."""


@dataclass(frozen=True)
class Rule:
    """When it is found, what it means, what to do: docs/findings.md is made from these words."""

    name: str
    title: str
    means: str
    """What the condition is, for somebody who meets it for the first time."""
    threshold: str
    """When it is said, and why there."""
    advice: tuple[Advice, ...]
    """What to do, one of these; a job is told of those whose setting it has."""
    needs: str
    """What must have been recorded; without it the rule is silent."""
    look: Callable[[Facts], Iterable[Finding]] | None = None
    """Of one run. Pure."""
    look_at_sweep: Callable[[SweepFacts], Iterable[Finding]] | None = None
    """Of the trials of a sweep. Pure."""
    steps: int = 10
    """Measured steps of all training tasks together below which nothing is said."""
    seconds: float = 5.0
    """... and measured seconds."""
    is_of_speed: bool = True
    """Whether another process on the machine could have caused it: then it is at best possible on a noisy one."""
    explains_loss: bool = True
    """Whether it can be why more tasks are not as much faster."""

    def finding(
        self,
        job: JobKind,
        resource: str,
        text: str,
        certainty: Certainty,
        *evidence: Evidence,
        trouble: bool = True,
        advice: tuple[Advice, ...] | None = None,
        title: str | None = None,
    ) -> Finding:
        """One of this rule. `advice`: other than the rule's own."""
        options = for_job(self.advice if advice is None else advice, job)
        return Finding(
            rule=self.name,
            title=title or self.title,
            resource=resource,
            text=text,
            certainty=certainty,
            trouble=trouble,
            advice=in_words(options),
            evidence=tuple(one for one in evidence if not isnan(one.value)),
            settings=tuple(dict.fromkeys(one.setting for one in options if one.setting)),
        )
