"""A sweep: a job and the settings to vary. The docstring under each field is its documentation."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from headway.errors import SpecError
from headway.spec.cluster import Role, Strict
from headway.spec.command import Command
from headway.spec.load import SHORTHANDS, apply_override, explain, parse_job, put, read_settings
from headway.spec.workload import MOST_STEPS, PositiveSeconds

MOST_TRIALS = 1000  # of a sweep
Values = Annotated[list[Any], Field(min_length=1, max_length=MOST_TRIALS)]
LEAST_WARMUP_LIMIT = 100  # steps that a warm-up may take at least, however short it was asked to be


class BestOf(Strict):
    """A search instead of a grid: the best of these, with fewer trials than there are values (E2)."""

    best_of: Values
    """Values in their natural order, such as [1, 2, 3, 4]: throughput is expected to rise to one peak and fall from
    there."""


def _listed(value: Any) -> Any:
    if not isinstance(value, (list, dict, BestOf)):
        raise ValueError("give a list of values, such as [1, 2], or {best_of: [1, 2]}")
    return value


Varied = Annotated[
    Annotated[Values, Tag("tag[values]")] | Annotated[BestOf, Tag("tag[best_of]")],
    Discriminator(lambda value: "tag[values]" if isinstance(value, list) else "tag[best_of]"),
    BeforeValidator(_listed),
]


class SweepMeasure(Strict):
    """How one trial is measured."""

    warmup: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 10
    """First steps of each training task that are left out; with `steps`, more of them until the step time is steady."""
    most_warmup: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = None
    """Steps after which the warm-up ends although the step time is not steady, though not before five seconds (the run
    is then marked). Default: ten times `warmup`, at least 100."""
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = 100
    """Measured steps of every training task; then the run ends, and nothing is saved, evaluated or exported. null: the
    run goes to the job's own end (for time to train and accuracy)."""
    seconds: Annotated[PositiveSeconds, Field(le=86400)] = 2.0
    """The least that is measured: small models make thousands of steps in a second."""
    repeats: Annotated[int, Field(ge=1, le=1000)] = 5
    """Runs of each trial."""
    most: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Runs of one trial at most: there are more than `repeats` while the interval is too wide, or runs are marked.
    Default: twice `repeats`."""
    interval: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """How narrow the interval is to be, to each side, as a share of the value."""
    statistic: Literal["median", "mean", "mlperf"] = "median"
    """median with a bootstrap interval; mean with its standard error (tf_cnn_benchmarks); mlperf: mean without the best
    and the worst."""
    figure: str = "examples_per_s"
    """The figure of a run (`headway runs -o json`) that is looked at; one inside of another by a dotted name:
    time_to_accuracy.0.9, role_use.ps.rss.max."""
    limit: PositiveSeconds = 3600.0
    """Seconds of training after which a measured run ends in any case."""

    @model_validator(mode="after")
    def _possible(self) -> SweepMeasure:
        if self.most is not None and self.most < self.repeats:
            raise ValueError(f"most: {self.most}, but repeats: {self.repeats}; it is at least as many")
        return self

    @property
    def most_runs(self) -> int:
        return self.most or 2 * self.repeats

    @property
    def most_warmup_steps(self) -> int:
        return max(self.most_warmup or max(10 * self.warmup, LEAST_WARMUP_LIMIT), self.warmup)


# Settings of a job that a measured run has otherwise: it ends when enough was measured, and does nothing else.
SET_BY_MEASURING = ("measure", "workload.stop", "workload.evaluate", "checkpoint", "export")


class Quota(Strict):
    """What may be used at once (E1 had 8 vCPUs)."""

    vcpus: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Of all nodes of a trial together. Trials that need more are left out."""
    tasks: Annotated[int, Field(ge=1, le=1e6)] | None = None
    """Tasks of a trial at most, servers included."""
    of: dict[Role, Annotated[float, Field(gt=0, le=1e6)]] = Field(default_factory=dict)
    """vCPUs that a task of a role counts where its node has no number of CPUs (site local). Default: 1."""


class Sweep(Strict):
    """A job, what to vary in it, and how to measure."""

    name: str = "sweep"
    """Begins the sweep's name: lower-case letters, digits and dashes. Default: the file's name."""
    job: str | dict[str, Any]
    """The job file, beside the sweep's file; or the job itself."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Settings of the job that are other than in its file, in every trial: {workload.batch_size: 64}."""
    vary: dict[str, Varied] = Field(default_factory=dict)
    """Settings and their values: a grid. {best_of: [...]} is a search on synthetic data; the best is then run on the
    job's own data."""
    one_at_a_time: dict[str, Values] = Field(default_factory=dict)
    """Settings of which each is varied alone, all others as in the job."""
    also: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_TRIALS)
    """Further trials, each as its settings: {strategy: single, workload.dataset: mnist}."""
    baseline: dict[str, Any] | None = None
    """What speed-ups are against: {strategy: single}. One for each combination of the varied settings that it leaves
    open."""
    measure: SweepMeasure = SweepMeasure()
    """How one trial is measured."""
    quota: Quota | None = None
    """What a trial may use."""
    published: str | list[str] | None = None
    """Published tables that stand beside the results (`headway published`)."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Of the order of trials."""
    full: dict[str, Any] = Field(default_factory=dict)
    """What `--full` changes in this file: the original method instead of its local form."""

    @field_validator("name")
    @classmethod
    def _slug(cls, name: str) -> str:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name):
            raise ValueError("use up to 63 lower-case letters, digits and dashes, for example e1-scaling")
        return name

    @model_validator(mode="after")
    def _something_to_do(self) -> Sweep:
        if not (self.vary or self.one_at_a_time or self.also):
            raise ValueError("vary: nothing to vary; give for example vary: {cluster.training: [1, 2]}")
        searched = [path for path, values in self.vary.items() if isinstance(values, BestOf)]
        if len(searched) > 1:
            raise ValueError(f"vary: only one setting can be searched with best_of; these are {', '.join(searched)}")
        if both := sorted(set(self.vary) & set(self.one_at_a_time)):
            raise ValueError(f"one_at_a_time: {', '.join(both)} is in vary, too; it can be only in one of them")
        return self

    @property
    def searched(self) -> str | None:
        """The setting whose best value is searched for."""
        return next((path for path, values in self.vary.items() if isinstance(values, BestOf)), None)

    @property
    def published_tables(self) -> list[str]:
        return [self.published] if isinstance(self.published, str) else list(self.published or ())


@dataclass(frozen=True)
class LoadedSweep:
    sweep: Sweep
    job: dict[str, Any]
    """The job's settings, before anything is varied."""
    is_full: bool = False


def load_sweep(path: Path, overrides: Sequence[str] = (), full: bool = False) -> LoadedSweep:
    """The validated sweep of a YAML file. An override is for the sweep (measure.repeats=3) or else for its job
    (workload.batch_size=50)."""
    settings = read_settings(path, "sweep")
    settings.setdefault("name", path.stem.lower().replace("_", "-").replace(".", "-"))
    if full:
        if not isinstance(settings.get("full"), dict):
            raise SpecError(f"{path}: --full, but this sweep has no `full:` that says what the original method is")
        settings = merged(settings, settings["full"])
    for_job = []
    for override in overrides:
        first = override.partition("=")[0].strip().split(".")[0]
        if first in Sweep.model_fields and first != "job":
            apply_override(settings, override)
        else:
            for_job.append(override)
    sweep = parse_sweep(settings, str(path))
    for override in for_job:
        _check_effect(override, sweep.vary)
    _check_measured(sweep, [override.partition("=")[0].strip() for override in for_job], str(path))
    if not full and sweep.full:  # a mistake in it is to be seen today
        _check_measured(parse_sweep(merged(settings, sweep.full), f"{path} --full"), [], f"{path} --full")
    job = sweep.job if isinstance(sweep.job, dict) else read_settings(path.parent / sweep.job, "job")
    job = copy.deepcopy(job)
    for at, value in sweep.set.items():
        put(job, at, value)
    for override in for_job:
        apply_override(job, override)
    whole = parse_job(job, origin=f"{path}: job")
    if isinstance(whole.workload, Command) and sweep.measure.steps is not None:
        raise SpecError(
            f"{path}: measure.steps: {sweep.measure.steps}, but the job runs a program, which ends by itself; "
            "write measure: {steps: null}"
        )
    return LoadedSweep(sweep, whole.model_dump(mode="json", exclude_unset=True), full)


def _check_effect(override: str, vary: Mapping[str, Any]) -> None:
    """An override of the job that every trial of the grid overwrites again is a mistake."""
    given = override.partition("=")[0].strip()
    asked: dict[str, Any] = {}
    apply_override(asked, override)
    for path in vary:
        if given == path or given.startswith(f"{path}.") or _has(asked, path):
            raise SpecError(
                f"override {override!r}: the sweep varies {path}, and each of its trials would overwrite that. "
                f"To try other values: 'vary={{{path}: [...]}}'"
            )


def _check_measured(sweep: Sweep, overrides: Sequence[str], origin: str) -> None:
    """Who varies what measuring sets anyway would get trials that are all the same, and not a word."""
    given = [*sweep.set, *sweep.vary, *sweep.one_at_a_time, *(sweep.baseline or {}), *overrides]
    for path in (*given, *(path for each in sweep.also for path in each)):
        concerned = next((each for each in SET_BY_MEASURING if path == each or path.startswith(f"{each}.")), None)
        if concerned == "measure":
            raise SpecError(f"{origin}: {path}: how a trial is measured is said in the sweep's own measure")
        if concerned is not None and sweep.measure.steps is not None:
            raise SpecError(
                f"{origin}: {path}: with measure.steps: {sweep.measure.steps} a run ends when enough was measured, and "
                "saves, evaluates and exports nothing, so this would change nothing; for runs that go to the job's own "
                "end write measure: {steps: null}"
            )


def _has(settings: Any, path: str) -> bool:
    """Whether something is set at a dotted path; a plain value may stand for the mapping that it is short for."""
    done: list[str] = []
    for key in path.split("."):
        if not isinstance(settings, dict):
            return settings is not None and SHORTHANDS.get(".".join(done)) == key
        if key not in settings:
            return False
        settings = settings[key]
        done.append(key)
    return True


def parse_sweep(settings: dict[str, Any], origin: str = "sweep") -> Sweep:
    try:
        return Sweep.model_validate(settings)
    except ValidationError as error:
        raise SpecError(explain(error, settings, origin, Sweep)) from None


def sweep_schema() -> dict[str, Any]:
    """The JSON schema of a sweep file, for editors."""
    schema = Sweep.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Headway sweep"}


def merged(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Settings with changes on top: mappings are merged, everything else is replaced. The grid is one thing."""
    result = dict(settings)
    for key, value in changes.items():
        old = result.get(key)
        is_inner = isinstance(old, dict) and isinstance(value, dict) and key not in ("vary", "one_at_a_time", "full")
        result[key] = merged(old, value) if is_inner and isinstance(old, dict) else value
    return result
