"""Stale gradients hurt convergence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Array, Facts
from headway.findings.sweeps import SweepFacts, TrialFacts
from headway.findings.words import percent, quantity

STALE = 0.8  # updates behind, on average: two equal tasks are one behind
RISE = 1.5  # the smoothed loss at the end, of its lowest before
PARTS = 12  # of the run, whose median losses are compared
WORSE = 0.01  # accuracy below that of the same job without staleness


def smoothed(facts: Facts) -> Array:
    """Median losses of equal parts of the run, of all tasks together; NaN and infinite ones as infinite."""
    t = np.concatenate([task.get("t") for task in facts.training])
    loss = np.concatenate([task.get("loss") for task in facts.training])[np.argsort(t)]
    loss = np.where(np.isfinite(loss), loss, np.inf)
    return np.array([float(np.median(part)) for part in np.array_split(loss, PARTS) if len(part)])


def look(facts: Facts) -> Iterator[Finding]:
    if facts.strategy != "ps-async" or not len(facts.staleness) or facts.num_steps < RULE.steps:
        return
    mean = float(np.nanmean(facts.staleness))
    losses = smoothed(facts)
    if mean < STALE or len(losses) < PARTS:
        return
    best, last = float(np.min(losses)), float(np.min(losses[-2:]))  # both of the last two: no single bad moment
    if np.isfinite(last) and last <= RISE * best + 1e-3:
        return
    said = f"rose from {quantity(best)} to {quantity(last)}" if np.isfinite(last) else "is no number any more"
    rate = f" with learning rate {quantity(facts.learning_rate)}" if facts.learning_rate else ""
    yield RULE.finding(
        facts.job,
        "convergence",
        f"The training loss {said}{rate}, while gradients were {mean:.1f} updates behind on average "
        f"(95 % of them at most {np.nanpercentile(facts.staleness, 95):.0f}).",
        "possible",
        Evidence("staleness, mean", mean, "updates"),
        *([Evidence("lowest training loss", best, "loss")] if np.isfinite(best) else []),
        *([Evidence("training loss at the end", last, "loss")] if np.isfinite(last) else []),
    )


def look_at_sweep(sweep: SweepFacts) -> Iterator[Finding]:
    """The same job with stale gradients and without, on as many examples."""
    for trial in sweep.trials:
        if trial.strategy != "ps-async" or (trial.staleness or 0.0) < STALE or trial.accuracy is None:
            continue
        fresh = [other for other in sweep.trials if _is_fresh(other, trial)]
        if not fresh:
            continue
        best = max(fresh, key=lambda other: other.accuracy or 0.0)
        lost = (best.accuracy or 0.0) - trial.accuracy
        if lost < WORSE:
            continue
        yield RULE.finding(
            trial.job,
            "convergence",
            f"{trial.name} ends at {percent(trial.accuracy)} accuracy, {100 * lost:.1f} points below {best.name}; its "
            f"gradients were {trial.staleness:.1f} updates behind on average.",
            "likely" if lost >= 2 * WORSE else "possible",
            Evidence("accuracy below the same job without staleness", lost, "share"),
            Evidence("staleness, mean", trial.staleness or 0.0, "updates"),
        )


def _is_fresh(other: TrialFacts, trial: TrialFacts) -> bool:
    # Of runs that end after some time, one has seen more examples than the other: that is no harm of staleness. Nor is
    # it that a step of ps-sync has the examples of all tasks.
    is_as_long = trial.examples is not None and other.examples == trial.examples
    is_other = other.strategy != "ps-async" and other.accuracy is not None
    return is_other and is_as_long and other.is_same_work(trial)


RULE = Rule(
    name="staleness",
    title="Stale gradients hurt convergence",
    means="An asynchronous gradient was computed from variables that others have changed since. With too large a "
    "learning rate, or too many tasks, such updates overshoot.",
    threshold=f"In one run: gradients are {STALE} updates behind or more on average, and the training loss at the end "
    f"is {RISE} times its lowest or no number. A learning rate that is too large without staleness looks the same, so "
    f"this is only possible. In a sweep: accuracy is {percent(WORSE)} or more below that of a strategy without "
    "staleness on as many examples, with equal settings but for strategy and size of the cluster.",
    advice=(
        Advice(
            "use a smaller learning rate: divide it by the number of tasks (workload.optimizer)", "workload.optimizer"
        ),
        Advice("do not pull ahead (strategy.pull_ahead: 0)", "strategy.pull_ahead"),
        Advice("wait for every gradient (strategy: ps-sync)", "strategy.kind"),
        Advice("use fewer training tasks"),
    ),
    needs="ps-async with recorded staleness and a loss; 60 steps.",
    look=look,
    look_at_sweep=look_at_sweep,
    steps=60,
    is_of_speed=False,
    explains_loss=False,
)
