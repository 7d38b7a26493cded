"""From what was asked to what will run: every value filled in, every chosen one with its reason.

Pure: the machine comes in as a value, so that `--dry-run` and tests need no machine.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from headway import workloads
from headway.errors import SpecError
from headway.plural import counted
from headway.spec import nodes
from headway.spec.cluster import ROLES, Cluster, Role, RoleSettings, Threads
from headway.spec.command import Command
from headway.spec.job import Job, Strategy, StrategyKind
from headway.spec.site import Site
from headway.spec.workload import DEFAULT_BATCH_SIZE, MOST_STEPS, Stop, Workload
from headway.workloads.own import is_own


@dataclass(frozen=True)
class Choice:
    """A value that Headway chose, and why."""

    path: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Resolved:
    asked: Job
    job: Job
    choices: tuple[Choice, ...]

    def as_file(self) -> dict[str, Any]:
        """The content of job.json."""
        return {
            "asked": self.asked.model_dump(mode="json", exclude_unset=True),
            "resolved": self.job.model_dump(mode="json"),
            "choices": [asdict(choice) for choice in self.choices],
        }


def resolve(asked: Job, num_cores: int, core_speed: float | None = None, folder: Path | None = None) -> Resolved:
    """`core_speed`: what one core here does with the job's model, where `nodes.needs_core_speed` says so; `folder`: the
    one that headway was called in."""
    choices: list[Choice] = []
    job = asked if asked.program is None else asked.model_copy(update={"strategy": _bonds(asked, choices)})
    cluster = _cluster(job, choices)
    job = job.model_copy(update={"cluster": cluster, "strategy": _strategy(job, cluster, choices)})
    job = _site(job, num_cores, core_speed, choices)
    job = job.model_copy(update={"cluster": _threads(job, num_cores, choices)})
    job = job.model_copy(
        update={"workload": _program(job, choices) if job.program else _workload(job, folder, choices)}
    )
    return Resolved(asked, job, tuple(choices))


def _found(workload: Workload, folder: Path | None, choices: list[Choice]) -> Workload:
    """A model of the user's own with the folder that it was looked for in: tasks must find the same."""
    if not is_own(workload.model.name) or workload.code is not None or folder is None:
        return workload
    reason = f"headway was called here: {workload.model.name} is looked for here first"
    choices.append(Choice("workload.code", str(folder), reason))
    return workload.model_copy(update={"code": str(folder)})


# --- the user's own program ------------------------------------------------------------------------------------------
def _bonds(asked: Job, choices: list[Choice]) -> Strategy:
    """Of a program's strategy only this is known to us: who must begin anew together when one of them dies."""
    if "strategy" in asked.model_fields_set:
        return asked.strategy
    cluster, _ = asked.counted_cluster()
    num_training = cluster.training or cluster.chief.count + cluster.worker.count
    kind: StrategyKind = "single"
    why = "one task"
    if cluster.ps.count:
        kind = "program"
        why = "whether a step takes a gradient of one task or of all is not known; one that dies is started again alone"
    elif num_training > 1:
        kind, why = "allreduce", "there are no servers: when a task dies, all are started again"
    choices.append(Choice("strategy", kind, why))
    return asked.strategy.model_copy(update={"kind": kind})


def _program(job: Job, choices: list[Choice]) -> Command:
    program = job.program
    assert program is not None
    if program.ends_with is not None:
        return program
    others_may_serve = bool(job.cluster.chief.count and job.cluster.ps.count)
    ends_with: Literal["chief", "everybody"] = "chief" if others_may_serve else "everybody"
    why = "there are a chief and servers" if others_may_serve else "every training task's command is to end by itself"
    choices.append(Choice("workload.ends_with", ends_with, why))
    return program.model_copy(update={"ends_with": ends_with})


# --- strategy, site, cluster -----------------------------------------------------------------------------------------


def _strategy(asked: Job, cluster: Cluster, choices: list[Choice]) -> Strategy:
    if asked.strategy.kind != "ps-sync" or asked.strategy.aggregate is not None:
        return asked.strategy
    num_training = len(cluster.training_tasks())
    choices.append(Choice("strategy.aggregate", num_training, "one gradient of every training task in each update"))
    return asked.strategy.model_copy(update={"aggregate": num_training})


def _site(job: Job, num_cores: int, core_speed: float | None, choices: list[Choice]) -> Job:
    """Machine types as numbers; the layout is checked here, with the cluster as it will be."""
    placed = nodes.hosts(job)
    if job.site.kind == "local":
        return job.model_copy(update={"site": _network(job, choices)})
    if job.layout is None and job.strategy.kind != "single":
        choices.append(Choice("layout", "-".join(host.name for host in placed), "each task has a node of its own"))
    filled = nodes.fill(job, num_cores, core_speed)
    choices += [Choice(f"site.{path}", value, reason) for path, (value, reason) in filled.reasons.items()]
    speed = job.site.core_speed or core_speed
    site = job.site.model_copy(update={"nodes": filled.nodes, "dilation": filled.dilation, "core_speed": speed})
    return job.model_copy(update={"site": site})


def _network(job: Job, choices: list[Choice]) -> Site:
    """With `expose: cluster` it is the machine's own."""
    if job.site.network is not None or job.expose == "cluster":
        return job.site
    network: Literal["private", "outbound"] = "private" if job.program is None else "outbound"
    why = "data is fetched before the tasks start" if job.program is None else "a program may need other hosts"
    choices.append(Choice("site.network", network, why))
    return job.site.model_copy(update={"network": network})


def _cluster(asked: Job, choices: list[Choice]) -> Cluster:
    cluster, why = asked.counted_cluster()
    if why is not None and asked.strategy.kind != "single":
        counts = ", ".join(f"{role}: {cluster.role(role).count}" for role in ROLES if cluster.role(role).count)
        choices.append(Choice("cluster", counts, why))
    if asked.program is not None and asked.strategy.kind == "single" and cluster.training is None:
        return cluster if cluster != Cluster() else Cluster(worker=RoleSettings(count=1))
    if asked.program is None and asked.strategy.kind == "single":
        # What the job says of its one training task's threads, cores and devices is kept.
        settings = cluster.worker if cluster.chief == RoleSettings() else cluster.chief
        single = Cluster(chief=settings.model_copy(update={"count": 1}), evaluator=cluster.evaluator)
        if cluster not in (Cluster(), single):
            choices.append(Choice("cluster", "chief: 1", "strategy single is one task: the asked cluster is replaced"))
        return single
    if cluster == Cluster():
        num_ps = 0 if asked.strategy.kind == "allreduce" else 1
        servers = ", ps: 1" if num_ps else ""
        choices.append(Choice("cluster", f"chief: 1, worker: 1{servers}", "nothing was asked: the smallest cluster"))
        return Cluster(chief=RoleSettings(count=1), worker=RoleSettings(count=1), ps=RoleSettings(count=num_ps))
    if asked.strategy.kind == "allreduce" and cluster.ps.count:
        choices.append(Choice("cluster.ps", 0, f"allreduce has no servers: the asked {cluster.ps.count} is left out"))
        cluster = cluster.model_copy(update={"ps": RoleSettings()})
    if cluster.training is not None:
        workers = cluster.training - 1
        choices.append(
            Choice(
                "cluster",
                f"chief: 1, worker: {workers}",
                f"training: {cluster.training} counts the chief, which trains too",
            )
        )
        return cluster.model_copy(
            update={
                "training": None,
                "chief": cluster.chief.model_copy(update={"count": 1}),
                "worker": cluster.worker.model_copy(update={"count": workers}),
            }
        )
    if not cluster.chief.count:
        choices.append(Choice("cluster.chief", "worker/0", "no chief was asked: worker/0 is the chief"))
    return cluster


def _threads(job: Job, num_cores: int, choices: list[Choice]) -> Cluster:
    """Divide the machine: training tasks share its cores; a server's work is small and mostly copying."""
    cluster = job.cluster
    num_training = len(cluster.training_tasks())
    share = max(1, num_cores // num_training)
    why = f"{counted(num_cores, 'core')} divided over {counted(num_training, 'training task')}"
    if job.site.kind == "emulated":
        share, why = _cpus_of_a_node(job, num_cores), "what its node has, shared by the training tasks on it"
    defaults: dict[Role, tuple[int, str]] = {
        "chief": (share, why),
        "worker": (share, why),
        "ps": (1, "a server mostly copies"),
        "evaluator": (1, "evaluation must not take the cores of training"),
    }
    updates: dict[str, RoleSettings] = {}
    for role, (intra, reason) in defaults.items():
        settings = cluster.role(role)
        if not settings.count:
            continue
        threads = settings.threads
        if threads.intra_op is None:
            choices.append(Choice(f"cluster.{role}.threads.intra_op", intra, reason))
        filled = Threads(intra_op=threads.intra_op or intra, inter_op=threads.inter_op)
        if filled.inter_op is None and job.program is None:  # of a program's needs nothing is known
            if role == "ps":
                inter, why = 2, "with 1 TensorFlow's server can hang"
            elif settings.devices > 1:
                inter, why = max(2, settings.devices), "one for each of its devices: they compute at the same time"
            elif filled.intra_op == 1:
                inter, why = 1, "a second one on the same core only hands operations over"
            else:
                inter, why = 2, "one operation more than the busy one"
            choices.append(Choice(f"cluster.{role}.threads.inter_op", inter, why))
            filled = filled.model_copy(update={"inter_op": inter})
        updates[role] = settings.model_copy(update={"threads": filled})
    return cluster.model_copy(update=updates)


def _cpus_of_a_node(job: Job, num_cores: int) -> int:
    """Threads of one training task: of the smallest node, so that all compute alike."""
    shares = []
    for host in nodes.hosts(job):
        training = [task for task in host.tasks if task.role in ("chief", "worker")]
        if training:
            cpus = job.site.node(host.kind).cpus
            here = num_cores if cpus is None else min(cpus / (job.site.dilation or 1.0), num_cores)
            shares.append(math.ceil(here / len(training)))
    return max(1, min(shares))


def _batches(job: Job, choices: list[Choice]) -> Workload:
    workload = job.training
    if workload.global_batch_size is not None:
        sizes = [job.batch_size_of(task) for task in job.cluster.training_tasks()]
        each = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} or {sizes[-1]}"
        first = sizes.count(sizes[0])
        more = "" if sizes[0] == sizes[-1] else f"; the first {first} of them take{'s' * (first == 1)} one more"
        reason = (
            f"global_batch_size: {workload.global_batch_size}, shared out over "
            f"{counted(len(sizes), 'training task')}{more}"
        )
        choices.append(Choice("workload.batch_size", each, reason))
    elif workload.batch_size is None:
        choices.append(Choice("workload.batch_size", DEFAULT_BATCH_SIZE, "nothing was asked: so many for each task"))
        return workload.model_copy(update={"batch_size": DEFAULT_BATCH_SIZE})
    return workload


def _examples_per_step(job: Job) -> float:
    """Examples that one global step uses, in the mean: a synchronous one takes several gradients."""
    sizes = [job.batch_size_of(task) for task in job.cluster.training_tasks()]
    mean = sum(sizes) / len(sizes)
    if not job.strategy.is_synchronous:
        return mean
    return mean * (job.strategy.aggregate or len(sizes))


def _workload(job: Job, folder: Path | None, choices: list[Choice]) -> Workload:
    job = job.model_copy(update={"workload": _found(job.training, folder, choices)})
    job = job.model_copy(update={"workload": _batches(job, choices)})
    return job.training.model_copy(update={"stop": _stop(job, choices)})


def _stop(asked: Job, choices: list[Choice]) -> Stop:
    workload, stop = asked.training, asked.training.stop
    data = workloads.dataset(workload.dataset.name).describe(workload.dataset)
    epochs = stop.epochs
    if stop.model_dump(exclude_none=True) == {}:
        epochs = 1.0
        choices.append(Choice("workload.stop.epochs", 1, "nothing was asked: one epoch"))
    if epochs is None:
        return stop
    per_step = _examples_per_step(asked)
    steps = math.ceil(epochs * data.num_train / per_step)
    if steps > MOST_STEPS:
        raise SpecError(
            f"workload.stop.epochs: {counted(epochs, 'epoch')} of {counted(data.num_train, 'example')} are "
            f"{counted(steps, 'step')}; at most {MOST_STEPS:,} are allowed"
        )
    if stop.steps is None or steps < stop.steps:
        reason = f"{counted(epochs, 'epoch')} of {counted(data.num_train, 'example')} at {per_step:g} per step"
        choices.append(Choice("workload.stop.steps", steps, reason))
        return stop.model_copy(update={"steps": steps, "epochs": epochs})
    return stop
