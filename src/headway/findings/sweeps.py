"""A sweep as rules see it: its trials with their rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from headway.findings.advice import JobKind
from headway.findings.facts import BUSY_LINK, FULL_LINK
from headway.metrics.factors import NOT_OF_BASELINES, Measured, is_baseline_of
from headway.metrics.scaling import Point, Speedup, speedup
from headway.record.usage import limits_of

if TYPE_CHECKING:
    from headway.bench.folder import Trial, TrialRun


# What may differ between trials that are the same work in another way. Examples, not steps, tell how much work it is.
WAYS = {*NOT_OF_BASELINES, "strategy.kind", "workload.stop.steps"}

UNLIKE = 0.1  # of a machine's CPUs
NOISY = {"loaded", "throttled"}
"""Marks of a run (bench/judge.py) that was measured beside other work."""


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
    site: str = "local"
    is_program: bool = False
    waits_for_network: bool = False
    """A node's link or the fabric between the nodes was full in one of the runs."""
    is_noisy: bool = False
    """Others used the machine in one of the runs that count."""
    is_explained: bool | None = None
    """Whether a rule found in its runs what can cost speed; None: no rule was asked."""

    @property
    def job(self) -> JobKind:
        """Which settings advice may name."""
        return JobKind(self.strategy, self.site, self.is_program, self.num_ps > 0)

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

    def has_machines_like(self, alone: TrialFacts) -> bool:
        """Whether a machine has as many CPUs as that one, as far as is known: beside one of twice their size any two
        look slow."""
        mine, its = self.node_cpus, alone.node_cpus
        return mine is None or its is None or abs(mine - its) <= UNLIKE * its

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


def read_sweep(name: str, trials: Sequence[Trial], is_explained: Callable[[TrialRun], bool]) -> SweepFacts:
    """Runs that do not count (a loaded machine) are left out. `is_explained`: whether a rule found in a run what can
    cost speed; asked only of trials whose speed-up falls short of ideal."""
    facts = SweepFacts(name, tuple(_trial(trial) for trial in trials))
    short = {id(one) for one, _ in short_of_ideal(facts)}
    return replace(
        facts,
        trials=tuple(
            replace(one, is_explained=any(is_explained(run) for run in trial.runs if run.counts))
            if id(one) in short
            else one
            for one, trial in zip(facts.trials, trials, strict=True)
        ),
    )


def short_of_ideal(sweep: SweepFacts) -> Iterator[tuple[TrialFacts, Speedup]]:
    """Trials that are much less faster than their baseline than they have more tasks."""
    baselines = [trial for trial in sweep.trials if trial.is_baseline and trial.median > 0]
    for trial in sweep.trials:
        alike = [one for one in baselines if one.is_baseline_for(trial) and one.is_same_work(trial)]
        base = next((one for one in alike if trial.has_machines_like(one)), None)
        if base is None or trial.median <= 0 or trial.is_baseline:
            continue
        here, there = (Point(one.tasks, one.samples, one.name) for one in (trial, base))
        (faster,) = speedup([here], there, "weak")
        if faster.is_short:
            yield trial, faster


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
        is_noisy=any(NOISY & {*run.marks} for run in trial.runs if run.counts),
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
        site=one.get("site", "local"),
        is_program=one.get("command") is not None,
        waits_for_network=any(map(_waits_for_network, figures)),
    )


def _waits_for_network(figures: Mapping[str, Any]) -> bool:
    """Of a run's summary: as `Facts.waits_for_network` says it of its samples."""
    is_fabric_full = (figures.get("fabric_full") or 0.0) >= BUSY_LINK
    return is_fabric_full or any(map(_is_link_saturated, figures.get("nodes", ())))


def _is_link_saturated(node: Mapping[str, Any]) -> bool:
    """Of a node in a run's summary: as `Node.is_link_saturated` says it of its samples."""
    rate, full = limits_of(node).get("rate"), node.get("full") or {}
    if not rate:
        return False
    into, out, both = (full.get(name) or 0.0 for name in ("inwards", "outwards", "both_ways"))
    used = max(node.get("received") or 0.0, node.get("sent") or 0.0) / rate
    return bool(into + out - both >= BUSY_LINK or used >= FULL_LINK)
