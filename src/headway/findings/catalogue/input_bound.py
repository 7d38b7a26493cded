"""Training waits for its input."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Facts, Task
from headway.findings.words import percent
from headway.units import format_seconds

SHARE = 0.2
LEAST = 0.005  # seconds in each step: less is what any pipeline takes


def input_wait(task: Task) -> tuple[float, float]:
    """(share of its time, seconds of each step) that a task waited for input; zeros where that is not seen."""
    waits, seconds = task.get("input_seconds"), task.get("seconds")
    known = ~np.isnan(waits)
    total, steps = float(np.sum(seconds[known])), float(np.sum(task.get("num_steps")[known]))
    waited = float(np.sum(waits[known]))
    return (waited / total, waited / steps) if total > 0 and steps > 0 else (0.0, 0.0)


def worst(facts: Facts) -> tuple[Task, float, float] | None:
    """The training task that waits most, if that is much."""
    waits = [(task, *input_wait(task)) for task in facts.training]
    waits = [one for one in waits if one[1] >= SHARE and one[2] >= LEAST]
    return max(waits, key=lambda one: one[1]) if waits else None


def look(facts: Facts) -> Iterator[Finding]:
    found = worst(facts)
    if found is None:
        return
    task, share, each = found
    yield RULE.finding(
        facts.job,
        f"input of {task.name}",
        f"{task.name} waited for its input {percent(share)} of the time: {format_seconds(each)} in each step of "
        f"{format_seconds(each / share)}, in the mean.",
        "certain" if share >= 0.4 else "likely",
        Evidence("time waiting for input", share, "share", task.name),
        Evidence("waiting for input in a step", each, "s", task.name),
    )


RULE = Rule(
    name="input_bound",
    title="Training waits for its input",
    means="Reading, decoding and augmenting cannot keep up with computing.",
    threshold=f"A training task waits at its input for {percent(SHARE)} of its time or more, and at least "
    f"{format_seconds(LEAST)} in each step: less is what any pipeline takes, and a tiny model shows as a large share.",
    advice=(
        Advice("convert the data to smaller records (headway data convert)", "workload.dataset"),
        Advice("augment less, or keep the data in memory (workload.dataset)", "workload.dataset"),
        Advice("give the training tasks more CPUs (site.nodes)", "site.nodes"),
        Advice("read and decode in parallel with training; made-up data show what is to be gained"),
    ),
    needs="Training by the engine, which measures this wait.",
    look=look,
)
