"""A sweep as rules see it: its trials with their rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from headway.metrics.factors import NOT_OF_BASELINES, Measured, is_baseline_of
from headway.record.usage import limits_of

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder, Trial


# What may differ between trials that are the same work in another way. Examples, not steps, tell how much work it is.
WAYS = {*NOT_OF_BASELINES, "strategy.kind", "workload.stop.steps"}


@dataclass(frozen=True)
class TrialFacts:
    """One combination of settings, and what its runs gave."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Dotted path -> value, of what varies."""
    strategy: str = "single"
    tasks: int = 1
    """Training tasks."""
    num_ps: int = 0
    is_baseline: bool = False
    data: str = "real"
    """real or synthetic."""
    model: str | None = None
    dataset: str | None = None
    batch_size: int | None = None
    steps: int | None = None
    """Global steps asked for."""
    asked_batch: int | None = None
    """Examples of one of them: of a ps-sync step those of all tasks, of a ps-async step those of one."""
    workload: Mapping[str, Any] = field(default_factory=dict)
    """Its settings, but for when to stop; empty where they are not known."""
    samples: tuple[float, ...] = ()
    """Examples per second of each run that counts."""
    accuracy: float | None = None
    staleness: float | None = None
    node_cpus: float | None = None
    """CPUs of a training task's node, where they are known."""

    @property
    def median(self) -> float:
        return median(self.samples) if self.samples else 0.0

    @property
    def examples(self) -> int | None:
        """Examples asked for; None: a run that ends after some time, or tasks that differ."""
        return self.steps * self.asked_batch if self.steps and self.asked_batch else None

    def is_same_work(self, other: TrialFacts) -> bool:
        """Whether the two differ in nothing but strategy and size of the cluster. (They may train for longer.)"""
        names = ("model", "dataset", "data", "batch_size", "workload")
        if any(getattr(self, name) != getattr(other, name) for name in names):
            return False
        mine, theirs = ({key: value for key, value in one.settings.items() if key not in WAYS} for one in (self, other))
        if self.is_baseline != other.is_baseline:  # it leaves open what makes no difference to it
            return all(theirs[key] == value for key, value in mine.items() if key in theirs)
        return mine == theirs

    def is_baseline_for(self, other: TrialFacts) -> bool:
        """Whether a speed-up of the other is against this one. Not where machines are varied and it names none."""
        mine, theirs = (Measured(one.settings, one.tasks, one.is_baseline, one.data, ()) for one in (self, other))
        named = {path for path in other.settings if path.startswith("site")}
        return self.is_baseline and is_baseline_of(mine, theirs) and named <= {*self.settings}


@dataclass(frozen=True)
class SweepFacts:
    name: str = ""
    trials: tuple[TrialFacts, ...] = ()

    def varies(self, path: str) -> bool:
        return any(path in trial.settings for trial in self.trials)

    def groups(self, path: str) -> list[list[TrialFacts]]:
        """Trials that differ in nothing but one setting."""
        found: dict[tuple[Any, ...], list[TrialFacts]] = {}
        for trial in self.trials:
            if path in trial.settings and not trial.is_baseline:
                rest = sorted((key, repr(value)) for key, value in trial.settings.items() if key != path)
                found.setdefault((trial.data, *rest), []).append(trial)
        return list(found.values())


def read_sweep(sweep: SweepFolder) -> SweepFacts:
    """Runs that do not count (a loaded machine) are left out."""
    return SweepFacts(sweep.name, tuple(_trial(trial) for trial in sweep.trials()))


def _trial(trial: Trial) -> TrialFacts:
    figures = [run.figures for run in trial.runs if run.counts and run.figures]
    facts = trial_facts(trial.name, figures)
    workload = {name: value for name, value in trial.job.get("workload", {}).items() if name != "stop"}
    return replace(
        facts,
        settings=trial.settings,
        tasks=trial.tasks,
        is_baseline=trial.is_baseline,
        data=trial.data,
        workload=workload,
    )


def trial_facts(name: str, figures: Sequence[Mapping[str, Any]]) -> TrialFacts:
    """`figures`: the summary of each run that counts."""
    one = figures[0] if figures else {}
    accuracies = [each["accuracy"] for each in figures if each.get("accuracy") is not None]
    stale = [each["staleness"]["mean"] for each in figures if each.get("staleness")]
    rates = [each["examples_per_s"] for each in figures if each.get("examples_per_s")]
    nodes = [
        limits_of(node)["cpus"]
        for node in one.get("nodes", ())
        if limits_of(node).get("cpus") and any(not task.startswith("ps/") for task in node.get("tasks", ()))
    ]
    return TrialFacts(
        name=name,
        strategy=one.get("strategy", "single"),
        tasks=one.get("num_training_tasks", 1),
        num_ps=one.get("num_ps", 0),
        model=one.get("model"),
        dataset=one.get("dataset"),
        batch_size=one.get("batch_size"),
        steps=one.get("asked_steps"),
        asked_batch=one.get("asked_batch"),
        samples=tuple(rates),
        accuracy=median(accuracies) if accuracies else None,
        staleness=median(stale) if stale else None,
        node_cpus=min(nodes) if nodes else None,
    )
