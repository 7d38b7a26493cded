"""From a sweep and its job to trials. Pure: the machine comes in as a number of cores."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from headway import workloads
from headway.bench.figures import check_figure, check_searched
from headway.bench.folder import SPOKEN_FOR_ITSELF, Data, Purpose, told
from headway.errors import NotFound, SpecError
from headway.metrics.published import table
from headway.plural import counted
from headway.spec import nodes
from headway.spec.job import Job
from headway.spec.load import SHORTHANDS, flat, parse_job, put
from headway.spec.machines import machine
from headway.spec.resolve import resolve
from headway.spec.sweep import MOST_TRIALS, BestOf, LoadedSweep, Quota, Sweep
from headway.spec.words import short_names, value_in_words
from headway.workloads.base import RealData

AS_IN_THE_JOB = "as in the job"
MOST_KEY = 56  # letters; a run's name has date and time behind it


@dataclass(frozen=True)
class Planned:
    """A trial before anything was run."""

    key: str
    settings: dict[str, Any]
    job: dict[str, Any]
    """What its runs are asked."""
    tasks: int
    is_baseline: bool
    data: Data
    purpose: Purpose
    group: str | None = None
    value: Any = None
    """Of a search: the value of the searched setting."""
    vcpus: float | None = None
    left_out: str | None = None
    """Why it cannot be tried."""

    def as_file(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Group:
    """One search: a combination of the other settings, and the candidates for the searched one, in order."""

    key: str
    path: str
    settings: dict[str, Any]
    candidates: tuple[Planned, ...]
    """On synthetic data."""
    finals: tuple[Planned, ...]
    """The same on the job's own data; none of them where that is synthetic anyway."""


@dataclass(frozen=True)
class Plan:
    trials: tuple[Planned, ...]
    """What is certain from the start: everything but searches."""
    groups: tuple[Group, ...]

    @property
    def grid(self) -> int:
        """Trials that there would be without any search."""
        return len(self.trials) + sum(len(group.candidates) + bool(group.finals) for group in self.groups)


def make_plan(loaded: LoadedSweep, num_cores: int) -> Plan:
    """Every trial. Combinations that are the same job in the end are one trial; those that no job allows, or that the
    quota forbids, are left out with the reason. SpecError where that can only be a mistake (`_Planner.check`), or a
    figure or a published table is not known."""
    check_figure(loaded.sweep.measure.figure, "measure.figure")
    if loaded.sweep.searched is not None:
        check_searched(loaded.sweep.measure.figure)
    for name in loaded.sweep.published_tables:
        try:
            table(name)
        except NotFound as error:
            raise SpecError(f"published: {error}") from None
    return _Planner(loaded, num_cores).plan()


class _Planner:
    def __init__(self, loaded: LoadedSweep, num_cores: int) -> None:
        self.sweep, self.job, self.num_cores = loaded.sweep, loaded.job, num_cores
        self.seen: dict[str, Planned] = {}  # what a job is in the end -> the trial that it is
        self.keys: set[str] = set()
        self.outcomes: dict[str, str] = {}
        self.made_for: list[tuple[dict[str, Any], Planned]] = []  # combinations, and their baselines
        self.mistakes: set[str] = set()  # trials that are left out, and not for the quota
        self.unknown: dict[str, list[str]] = {}  # setting -> of each trial with it: why no job has it, or nothing
        self.has_both_data = self.sweep.searched is not None and _is_real(parse_job(self.job))

    def plan(self) -> Plan:
        sweep = self.sweep
        searched = sweep.searched
        self.check_size()
        lists = {path: values for path, values in sweep.vary.items() if isinstance(values, list)}
        combinations = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
        trials = self.baselines(combinations)
        groups = []
        if searched is not None:
            found = sweep.vary[searched]
            assert isinstance(found, BestOf)
            groups = [group for each in combinations if (group := self.group(each, searched, found.best_of))]
        elif sweep.vary:
            trials += [self.trial(each, "grid") for each in combinations]
        if sweep.one_at_a_time:
            trials.append(
                self.trial({}, "one_at_a_time")
            )  # the job as it is, which each of the others is compared with
            for path, values in sweep.one_at_a_time.items():
                trials += [self.trial({path: value}, "one_at_a_time") for value in values]
        trials += [self.trial(each, "also") for each in sweep.also]
        kept = tuple({trial.key: trial for trial in trials}.values())
        self.check([*kept, *(each for group in groups for each in group.candidates)])
        self.check_baselines()
        return Plan(kept, tuple(groups))

    def check_size(self) -> None:
        """Before anything is made of it."""
        sizes = {path: len(each if isinstance(each, list) else each.best_of) for path, each in self.sweep.vary.items()}
        grid = math.prod(sizes.values())
        if grid > MOST_TRIALS:
            product = " x ".join(f"{size} ({path})" for path, size in sizes.items())
            searched = self.sweep.searched  # how many of them are tried is known only when it has ended
            counts = f" (every value of {searched} counts: a search may have to try them all)" if searched else ""
            raise SpecError(
                f"{self.sweep.name}: vary: {product} = {counted(grid, 'trial')}{counts}; at most {MOST_TRIALS:,} are "
                "allowed. Give fewer values, or use one_at_a_time"
            )

    def check(self, trials: list[Planned]) -> None:
        """SpecError for what nobody can have meant: else it would be seen when everything else has been run."""
        if wrong := dict.fromkeys(f"  {why}" for each in self.unknown.values() if all(each) for why in each):
            begin = f"{self.sweep.name}: a setting that no trial knows, nothing was started"
            raise SpecError("\n".join([begin, *wrong]))
        others = [trial for trial in trials if not trial.is_baseline]
        is_mistake = any(trial.key in self.mistakes for trial in others)
        if all(trial.left_out for trial in trials) or (is_mistake and all(trial.left_out for trial in others)):
            besides = "" if all(trial.left_out for trial in trials) else " besides the baseline"
            reasons = dict.fromkeys(f"  {trial.key}: {trial.left_out}" for trial in trials if trial.left_out)
            raise SpecError("\n".join([f"{self.sweep.name}: no trial{besides} can be run", *reasons]))

    def check_baselines(self) -> None:
        """SpecError where trials would have no speed-up. A combination that no job allows needs no baseline either."""
        for combination, trial in self.made_for:
            if trial.key in self.mistakes and self.can_be_run(combination):
                raise SpecError(
                    f"{self.sweep.name}: the baseline cannot be run, and without it there is no speed-up\n"
                    f"  {trial.key}: {trial.left_out}"
                )

    def can_be_run(self, combination: dict[str, Any]) -> bool:
        """Without regard to the quota; with any value of what is searched for."""
        path, tried = self.sweep.searched, [combination]
        if path is not None:
            found = self.sweep.vary[path]
            assert isinstance(found, BestOf)
            tried = [{**combination, path: value} for value in found.best_of]
        return any(self.attempt(self.asked(each, None))[0] is not None for each in tried)

    def baselines(self, combinations: list[dict[str, Any]]) -> list[Planned]:
        """One for each combination of what the baseline leaves open and what then makes a difference."""
        given = self.sweep.baseline
        if given is None:
            return []
        for each in combinations or [{}]:
            settings = {**given, **{path: value for path, value in each.items() if not _concerns(path, given)}}
            for synthetic in (True, False) if self.has_both_data else (None,):
                self.made_for.append((each, self.trial(settings, "baseline", synthetic=synthetic)))
        return [trial for _, trial in self.made_for]

    def own(self, settings: dict[str, Any], purpose: Purpose) -> dict[str, Any]:
        """What a trial tells of settings that it leaves as they are in the job, and others vary alone: so two trials
        are seen to differ in one of them. Only told: put into a job, a default that follows from others would stay."""
        if purpose not in ("grid", "one_at_a_time", "also"):
            return {}
        lists = [path for path, values in self.sweep.vary.items() if isinstance(values, list)]
        paths = [*(lists if purpose == "one_at_a_time" else ()), *self.sweep.one_at_a_time]
        free = [path for path in paths if self.sweep.one_at_a_time and not _concerns(path, settings)]
        return {path: self.asked_value(path) for path in free}

    def asked_value(self, path: str) -> Any:
        """As the job's file has it; what is not in there, the job chooses."""
        if path == "cluster.training":  # which stands for several settings
            job, _ = self.attempt(self.asked({}, None))
            return len(job.cluster.training_tasks()) if job is not None else AS_IN_THE_JOB
        value: Any = self.job
        for key in path.split("."):
            if not isinstance(value, dict) or key not in value:
                return AS_IN_THE_JOB
            value = value[key]
        short = SHORTHANDS.get(path)
        return value[short] if isinstance(value, dict) and list(value) == [short] else value

    def group(self, settings: dict[str, Any], path: str, values: list[Any]) -> Group | None:
        """The search of one combination; None where another one makes the same jobs, or there is nothing to choose."""
        key = self.key(settings) if settings else _slug(path.rpartition(".")[2])
        tried = {trial.key: trial for trial in self.seen.values()}
        possible: dict[str, Planned] = {}  # values that make the same job are one candidate
        for value in values:
            trial = self.trial({**settings, path: value}, "search", synthetic=True, group=key, value=value)
            possible.setdefault(trial.key, trial)
        # A baseline is no trial of its own here, but it may be the best.
        if all(each in tried and (tried[each].group or len(possible) == 1) for each in possible):
            return None
        finals: tuple[Planned, ...] = ()
        if self.has_both_data:
            made = [
                self.trial({**settings, path: trial.value}, "best", synthetic=False, group=key, value=trial.value)
                for trial in possible.values()
                if not trial.left_out
            ]
            finals = tuple({trial.key: trial for trial in made}.values())
        return Group(key, path, settings, tuple(possible.values()), finals)

    def trial(
        self,
        settings: dict[str, Any],
        purpose: Purpose,
        synthetic: bool | None = None,
        group: str | None = None,
        value: Any = None,
    ) -> Planned:
        """Where the same job is tried already: that trial, as one with this value."""
        job = self.asked(settings, synthetic)
        resolved, error = self.attempt(job)
        problem = _in_one_line(error) if error is not None else None
        for path in settings:
            is_unknown = error is not None and _concerns(path, error.unknown)
            self.unknown.setdefault(path, []).append(problem if problem is not None and is_unknown else "")
        if resolved is not None:
            job = parse_job(job).model_dump(mode="json", exclude_unset=True)
        shown = self.relevant(settings, synthetic, purpose) if problem is None else settings
        identity = repr(sorted(flat(resolved.model_dump(mode="json")).items())) if resolved else repr(settings)
        if (same := self.seen.get(identity)) is not None:
            return replace(same, value=value)
        data: Data = "real" if resolved is not None and _is_real(resolved) else "synthetic"
        made = Planned(
            key=self.key(shown, data if self.has_both_data else None),
            settings={**self.own(settings, purpose), **shown},
            job=job,
            tasks=len(resolved.cluster.training_tasks()) if resolved else 0,
            is_baseline=purpose == "baseline",
            data=data,
            purpose=purpose,
            group=group,
            value=value,
            vcpus=needed_vcpus(resolved, self.sweep.quota) if resolved else None,
            left_out=problem or (self.over_quota(resolved) if resolved else None),
        )
        job["name"] = made.key
        self.seen[identity] = made
        if problem is not None:
            self.mistakes.add(made.key)
        return made

    def attempt(self, job: dict[str, Any]) -> tuple[Job | None, SpecError | None]:
        """The job as it would be run here, or why it cannot be."""
        try:
            return resolve(parse_job(job, origin="trial"), self.num_cores, core_speed=1.0).job, None
        except SpecError as error:
            return None, error

    def asked(self, settings: dict[str, Any], synthetic: bool | None) -> dict[str, Any]:
        job = copy.deepcopy(self.job)
        for path, value in settings.items():
            put(job, path, value)
        if synthetic and _has_files(job):
            put(job, "workload.dataset.synthetic", True)
        return measured(job, self.sweep)

    def relevant(self, settings: dict[str, Any], synthetic: bool | None, purpose: Purpose) -> dict[str, Any]:
        """Without the settings that make no difference here: strategy single has no servers to vary."""
        kept = dict(settings)
        for path, values in self.sweep.vary.items():
            others = values if isinstance(values, list) else values.best_of
            if path not in kept or (self.sweep.baseline and path in self.sweep.baseline):
                continue
            without = {key: value for key, value in settings.items() if key != path}
            tried = [{**without, path: value} for value in others]
            if len(others) == 1:  # of a trial it is the name; a baseline may have it for nothing
                if purpose != "baseline":
                    continue
                tried.append(without)
            if len({self.outcome(each, synthetic) for each in tried}) == 1:
                del kept[path]
        return kept

    def outcome(self, settings: dict[str, Any], synthetic: bool | None) -> str:
        key = repr((sorted(settings.items()), synthetic))
        if key not in self.outcomes:  # of a grid each is asked for many times
            job, error = self.attempt(self.asked(settings, synthetic))
            found = repr(sorted(flat(job.model_dump(mode="json")).items())) if job is not None else str(error)
            self.outcomes[key] = found
        return self.outcomes[key]

    def over_quota(self, job: Job) -> str | None:
        quota = self.sweep.quota
        if quota is None:
            return None
        vcpus, tasks = needed_vcpus(job, quota), len(job.cluster.tasks())
        if quota.vcpus is not None and vcpus > quota.vcpus:
            return f"quota: it needs {counted(vcpus, 'vCPU')}, and at most {quota.vcpus:g} may be used"
        if quota.tasks is not None and tasks > quota.tasks:
            return f"quota: it has {counted(tasks, 'task')}, and at most {quota.tasks} may be used"
        return None

    def key(self, settings: dict[str, Any], data: Data | None = None) -> str:
        """A name of its own, which can begin a run's name."""
        names = short_names(settings)
        parts = [
            _slug(value_in_words(value) if path in SPOKEN_FOR_ITSELF else f"{names[path]}-{value_in_words(value)}")
            for path, value in told(settings).items()
        ]
        text = "-".join([*parts, *([data] if data else [])]) or "as-it-is"
        if len(text) > MOST_KEY:
            text = f"{text[: MOST_KEY - 7].strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
        key, number = text, 1
        while key in self.keys:
            number += 1
            key = f"{text}-{number}"
        self.keys.add(key)
        return key


def measured(job: dict[str, Any], sweep: Sweep) -> dict[str, Any]:
    """A job as its trial is run: measured for so many steps, or to its own end. In place."""
    measure = sweep.measure
    put(job, "measure.warmup", measure.warmup)
    if measure.steps is None:
        return job
    put(job, "measure.steps", measure.steps)
    put(job, "measure.seconds", measure.seconds)
    put(job, "measure.most_warmup", measure.most_warmup_steps)
    put(job, "workload.stop", {"seconds": measure.limit})
    put(job, "workload.evaluate", {})
    put(job, "checkpoint", {"seconds": None})
    put(job, "export", False)
    return job


def needed_vcpus(job: Job, quota: Quota | None) -> float:
    """Of all its nodes: what each was asked to have, or, where that is not said, of each task on it."""
    of = quota.of if quota else {}
    total = 0.0
    for host in nodes.hosts(job):
        node = job.site.node(host.kind)
        cpus = None if job.site.kind == "local" else (machine(node.type).cpus if node.type else node.cpus)
        total += math.ceil(cpus) if cpus is not None else sum(of.get(task.role, 1.0) for task in host.tasks)
    return total


def _has_files(job: dict[str, Any]) -> bool:
    """Whether its data set is one that can be replaced by made-up examples of the same shape."""
    dataset = job["workload"].get("dataset")
    name = dataset["name"] if isinstance(dataset, dict) else dataset
    try:
        return issubclass(workloads.dataset(str(name)).Settings, RealData)
    except ValueError:  # a name that does not exist is explained where the job is read
        return False


def _is_real(job: Job) -> bool:
    if job.program is not None:
        return True
    dataset = job.training.dataset
    return isinstance(dataset, RealData) and not dataset.synthetic


def _concerns(path: str, given: Iterable[str]) -> bool:
    """Whether one of the given settings is this one, or holds it, or is held by it."""
    return any(path == each or path.startswith(f"{each}.") or each.startswith(f"{path}.") for each in given)


def _in_one_line(error: SpecError) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return "; ".join(lines[1:] or lines)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"
