"""A speed-up falls short of ideal, and no rule says why."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice, JobKind
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.sweeps import SweepFacts, short_of_ideal
from headway.findings.words import percent, quantity
from headway.metrics.scaling import SHORT_OF_IDEAL, Speedup
from headway.plural import counted

# No rule can tell: on a machine that is not divided, no task has CPUs of its own that it could use up.
SHARED = " On `site: local` all tasks share this machine's cores, which may be why."


def look_at_sweep(sweep: SweepFacts) -> Iterator[Finding]:
    for trial, faster in short_of_ideal(sweep):
        if trial.is_explained is False:  # None: nobody has asked the rules about its runs
            yield of_speedup(trial.job, faster)


def of_speedup(job: JobKind, faster: Speedup) -> Finding:
    efficiency = faster.efficiency
    is_sure = efficiency.num > 1 and efficiency.high < SHORT_OF_IDEAL
    return RULE.finding(
        job,
        f"speed-up of {faster.label}",
        f"{faster.label} is {quantity(faster.value.value)} times as fast as {faster.baseline}, "
        f"{percent(efficiency.value)} of ideal for {counted(faster.tasks, 'training task')}. The loss is not "
        f"explained: no rule found what its runs waited for.{SHARED if job.site == 'local' else ''}",
        "certain" if is_sure else "likely",
        Evidence("speed-up", faster.value.value, "times"),
        Evidence("share of the ideal speed-up", efficiency.value, "share"),
    )


RULE = Rule(
    name="unexplained",
    title="A loss of speed is not explained",
    means="More training tasks are less than ideally faster, and none of the other rules found a resource, a task or "
    "an outside cause. That nothing was found is then no good news: something that is not measured takes the time, "
    "for example latency. On `site: local` it may be that all tasks share one machine's cores.",
    threshold=f"The speed-up against the baseline is below {SHORT_OF_IDEAL:g} of ideal, and there is no finding of "
    "trouble in any run of the trial that can cost speed. Nothing is said where the baseline's machine is another.",
    advice=(
        Advice("look at the timelines of these runs (headway report)"),
        Advice("compare a step's time with what its tasks compute, send and wait for (headway show)"),
    ),
    needs="A sweep with a baseline, or runs that are reported together with one.",
    look_at_sweep=look_at_sweep,
)
