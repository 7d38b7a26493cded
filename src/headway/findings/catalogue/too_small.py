"""The model is too small to distribute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts, weighted_mean
from headway.findings.sweeps import SweepFacts
from headway.findings.words import percent, quantity
from headway.units import format_seconds

LEAST = 0.010  # CPU seconds of a task for one step, exchange included: that alone takes 2 to 5 ms of it
SLOWER = 1.05  # times as fast is the single machine, where each task has CPUs of its own
SLOWER_HERE = 2.0  # ... and where all share one machine


def cpu_per_step(facts: Facts) -> float:
    """CPU seconds that training tasks take for one step of their own; NaN where that is not known."""
    used = sum(weighted_mean(task.used("cpus"), task.used("seconds")) for task in facts.training)
    return used * facts.seconds / facts.num_steps if facts.num_steps and facts.seconds > 0 else float("nan")


def look(facts: Facts) -> Iterator[Finding]:
    if facts.is_program or facts.strategy == "single" or len(facts.training) < 2 or facts.waits_for_network:
        return
    each = cpu_per_step(facts)
    if not 0 < each < LEAST:
        return
    step = float(np.median([task.step_seconds for task in facts.training]))
    yield RULE.finding(
        facts.job,
        "size of the model",
        f"A step is only {format_seconds(each)} of CPU time, the exchange of variables included; it takes "
        f"{format_seconds(step)}. One machine alone is likely to be faster.",
        "likely" if each < LEAST / 2 else "possible",
        Evidence("CPU time of a step", each, "s"),
        Evidence("time of a step", step, "s"),
    )


def look_at_sweep(sweep: SweepFacts) -> Iterator[Finding]:
    """Every distributed trial is slower than the single machine."""
    single = [trial for trial in sweep.trials if trial.strategy == "single" and trial.samples]
    for alone in single:
        others = [
            trial
            for trial in sweep.trials
            if trial.strategy != "single" and trial.tasks > 1 and trial.samples
            if trial.is_same_work(alone) and trial.has_machines_like(alone)
        ]
        if not others or any(trial.waits_for_network for trial in others):
            continue  # on a faster network they might be faster
        best = max(others, key=lambda trial: trial.median)
        # On one machine all tasks share its cores: there, being a little slower says nothing of the model.
        if alone.median < best.median * (SLOWER if best.node_cpus else SLOWER_HERE):
            continue
        yield RULE.finding(
            best.job,
            "size of the model",
            f"One machine alone makes {quantity(alone.median)} examples/s; "
            f"{f'the best of {len(others)} distributed trials, ' if len(others) > 1 else ''}{best.name}, "
            f"{quantity(best.median)}.",
            "certain" if len(others) > 1 and max(best.samples) < min(alone.samples) else "likely",
            Evidence("the single machine is faster by", alone.median / best.median, "times"),
        )


RULE = Rule(
    name="too_small",
    title="The model is too small to distribute",
    means="A step must compute for much longer than exchanging variables takes, else every distributed mode is slower "
    "than one process (softmax regression is, on every network).",
    threshold=f"A training task's own step takes less than {format_seconds(LEAST)} of CPU time, the exchange included, "
    f"which alone takes 2 to 5 ms of it. In a sweep: the single machine is {percent(SLOWER - 1)} faster than every "
    f"distributed trial with two or more training tasks, equal machines and equal settings, and "
    f"{SLOWER_HERE:g} times as fast where all tasks share one machine; of one such trial alone this is only likely. "
    "Nothing is said where a link or the fabric is full: a faster network might be all that is missing.",
    advice=(
        Advice("train on one machine (strategy: single)", "strategy.kind"),
        Advice("make steps longer (workload.batch_size)", "workload.batch_size"),
        Advice("use fewer training tasks"),
    ),
    needs="A distributed strategy of the engine with two or more training tasks, and samples of their CPU time.",
    look=look,
    look_at_sweep=look_at_sweep,
    steps=30,
)
