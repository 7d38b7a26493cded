"""The baseline of a speed-up is not what it is called."""

from __future__ import annotations

from collections.abc import Iterator

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.sweeps import UNLIKE, SweepFacts


def look_at_sweep(sweep: SweepFacts) -> Iterator[Finding]:
    baselines = [trial for trial in sweep.trials if trial.is_baseline]
    for base in baselines:
        others = [trial for trial in sweep.trials if not trial.is_baseline and base.is_baseline_for(trial)]
        problems = []
        if base.strategy != "single":
            problems.append(
                f"it is {base.strategy} with {_tasks(base.tasks)}, not one machine alone: what distributing itself "
                "costs is left out"
            )
        elif base.tasks != 1:
            problems.append(f"it has {_tasks(base.tasks)}")
        theirs = {trial.node_cpus for trial in others if trial.node_cpus}
        if base.node_cpus and theirs and any(abs(cpus - base.node_cpus) > UNLIKE * base.node_cpus for cpus in theirs):
            unlike = next(cpus for cpus in theirs if abs(cpus - base.node_cpus) > UNLIKE * base.node_cpus)
            problems.append(
                f"its machine has {base.node_cpus:g} CPUs, and those of training tasks elsewhere {unlike:g}"
            )
        unlike_batch = {trial.batch_size for trial in others if trial.batch_size} - {base.batch_size}
        if base.batch_size and unlike_batch and not sweep.varies("workload.batch_size"):
            problems.append(f"its batch is {base.batch_size}, others' {min(unlike_batch)}")
        if problems:
            yield RULE.finding(
                base.job,
                "baseline",
                f"The baseline {base.name} is not one machine of the others' kind: {'; '.join(problems)}.",
                "certain",
                Evidence("training tasks of the baseline", float(base.tasks), "tasks"),
            )


def _tasks(count: int) -> str:
    return "one training task" if count == 1 else f"{count} training tasks"


RULE = Rule(
    name="baseline",
    title="The baseline is misnamed",
    means="A speed-up means nothing without its baseline. E1's `1 worker` is two training tasks, for the master "
    "trains, and its single machine has another size.",
    threshold="The trial that others are compared with is not strategy: single, has other than one training task, a "
    "machine whose CPUs differ by more than a tenth from those of the training tasks that are compared with it (where "
    "machines are varied: those of its own kind), or another batch where that is not varied.",
    advice=(
        Advice("measure a baseline of strategy single on one of the same machines", "strategy.kind"),
        Advice("say `relative to N training tasks` beside each speed-up"),
    ),
    needs="A sweep with a baseline.",
    look_at_sweep=look_at_sweep,
    is_of_speed=False,
    explains_loss=False,
)
