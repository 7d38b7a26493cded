"""A job: everything needed to run once. The docstring under each field is its documentation."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from headway import workloads
from headway.plural import counted
from headway.spec.cluster import MOST_TASKS, Cluster, Strict, Task, shared_out, shorthand
from headway.spec.command import Command
from headway.spec.layout import LayoutError, Rule, parse
from headway.spec.nodes import cluster_from, counts_of_layout, counts_of_nodes
from headway.spec.site import Site
from headway.spec.workload import DEFAULT_BATCH_SIZE, MOST_STEPS, PositiveSeconds, Steps, Workload
from headway.units import Seconds

StrategyName = Literal["single", "ps-async", "ps-sync", "allreduce"]
StrategyKind = Literal["single", "ps-async", "ps-sync", "allreduce", "program"]
PROGRAM = "program"  # the strategy of a user's own program, where it is not known
DEFAULT_TRAINING_TASKS = 2  # a chief and a worker, where nothing is asked


def _schema_of(names: list[str], find: Any) -> dict[str, Any]:
    return {"anyOf": [{"enum": names}, *(find(name).Settings.model_json_schema() for name in names)]}


def _kind_of_workload(value: Any) -> str:
    is_command = "command" in value if isinstance(value, dict) else isinstance(value, Command)
    return "tag[command]" if is_command else "tag[training]"  # brackets: no setting's name (load.explain)


WorkloadField = Annotated[
    Annotated[Workload, Tag("tag[training]")] | Annotated[Command, Tag("tag[command]")],
    Discriminator(_kind_of_workload),
]


class Strategy(Strict):
    kind: StrategyKind = "single"
    """How training tasks stay in step. program: the command's own business, which is not known to Headway."""
    aggregate: Annotated[int, Field(ge=1, le=2 * MOST_TASKS)] | None = None
    """ps-sync: an update takes the first this many gradients, each of another training task, and drops late ones: the
    remaining tasks are backups. Default: one gradient of every training task."""
    replication: Literal["between_graph", "in_graph"] = "between_graph"
    """ps-sync: between_graph is a client in every training task; in_graph is one client, the chief, whose graph has a
    copy of the model on every training task (E3). What is learnt is the same."""
    placement: Literal["round_robin", "greedy", "partitioned"] = "partitioned"
    """ps-async and ps-sync: how variables are shared out over several servers. round_robin: one after the other, as
    TensorFlow does it; greedy: large ones first, each to the emptiest server; partitioned: large ones are split."""
    pull_ahead: Literal[0, 1] = 0
    """ps-async: 1 pulls the next step's variables while this step computes. Faster, and one own update staler."""
    exchange: Literal["at_will", "in_turn"] = "at_will"
    """ps-async: in_turn lets one task after the other pull from a server, and push to it. On a slow link tasks then do
    not hold each other up; each step asks every server for two turns, which is two more messages."""
    transfer: Literal["float32", "bfloat16"] = "float32"
    """What variables and gradients are sent as. bfloat16 halves the bytes, and rounds to 8 bits of precision; servers
    (allreduce: every task) still hold and update float32."""

    @model_validator(mode="after")
    def _meant_for_its_kind(self) -> Strategy:
        if self.aggregate is not None and self.kind != "ps-sync":
            raise ValueError(f"aggregate: only for ps-sync, and this is {self.kind}")
        if self.replication == "in_graph" and self.kind != "ps-sync":
            raise ValueError(f"replication: in_graph is only for ps-sync, and this is {self.kind}")
        if self.pull_ahead and self.kind != "ps-async":
            raise ValueError(f"pull_ahead: only for ps-async, and this is {self.kind}")
        if self.exchange != "at_will" and self.kind != "ps-async":
            raise ValueError(f"exchange: only for ps-async, and this is {self.kind}")
        if self.transfer != "float32" and self.kind == "single":
            raise ValueError("transfer: strategy single sends nothing")
        return self

    @property
    def is_synchronous(self) -> bool:
        """Whether training tasks wait for each other in every step."""
        return self.kind in ("ps-sync", "allreduce")


class Restart(Strict):
    attempts: Annotated[int, Field(ge=0, le=1000)] = 3
    """How often a task is started again after it failed. Tasks that must begin anew together (servers; without servers
    all training tasks) count as one."""
    delay: Annotated[Seconds, Field(ge=0, le=3600)] = 1.0
    """Wait before a restart; doubled with each further one, at most 30 s."""
    exhausted: Literal["fail", "continue"] = "fail"
    """When a worker fails once more: fail the run, or go on without it (never without chief or server)."""


class Limits(Strict):
    """Every wait has a limit, so that a run never hangs."""

    start: PositiveSeconds = 180.0
    """From starting a task until it is ready."""
    heartbeat: PositiveSeconds = 10.0
    """Seconds without a heartbeat, or with the task's process stopped (SIGSTOP), after which it counts as dead and is
    killed. It is named after 5 s. Raise this to stop a task by hand; one that a debugger holds is not killed for it."""
    stall: PositiveSeconds = 600.0
    """No step by a task that is alive. It is named after max(10 s, 3 median steps), if it waits for no other task; it
    is restarted only after this long, or 10 median steps if that is longer."""
    stop: PositiveSeconds = 30.0
    """For a task to end in order when it is told to; then it is killed."""
    finish: PositiveSeconds = 600.0
    """For the chief's last evaluation, checkpoint and export."""


class Checkpoint(Strict):
    steps: Steps | None = None
    """Global steps between checkpoints."""
    seconds: PositiveSeconds | None = 60.0
    """Seconds between checkpoints. There is always one at the end."""
    keep: Annotated[int, Field(ge=1, le=10_000)] = 3
    """How many of the newest are kept."""


class Monitor(Strict):
    """Samples of every node and task: CPU, memory, network, disk."""

    hertz: Annotated[float, Field(ge=0.01, le=50)] = 5.0
    """How many in a second, on each node."""


class Measure(Strict):
    warmup: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 10
    """First steps of each training task (after each start) that rates leave out. They are recorded, marked."""
    steps: Steps | None = None
    """For runs that are only made to be measured (`headway bench`): the warm-up goes on until every task steps and the
    step time is steady; then every training task makes this many steps, and the run ends. Nothing is saved, evaluated
    or exported. Default: the run goes to the workload's own end."""
    seconds: PositiveSeconds = 2.0
    """With steps: the least that is measured."""
    most_warmup: Steps = 100
    """With steps: the warm-up ends after this many steps of each task (and five seconds), steady or not."""

    @model_validator(mode="after")
    def _possible(self) -> Measure:
        if self.steps is not None and self.most_warmup < self.warmup:
            raise ValueError(f"most_warmup: {self.most_warmup}, but warmup: {self.warmup}; it is at least as many")
        return self


class Job(Strict):
    """A training job: workload, strategy, cluster and site."""

    name: str = "job"
    """Begins the run's name: lower-case letters, digits and dashes."""
    engine: Literal["tensorflow"] = "tensorflow"
    """What computes."""
    workload: WorkloadField
    """Model, data, batch size, optimizer, and when to stop; or the user's own program: {command: python train.py}."""
    strategy: Annotated[Strategy, shorthand("kind", StrategyKind | Strategy)] = Strategy()
    """How replicas stay in step."""
    cluster: Cluster = Cluster()
    """How many tasks of each role."""
    site: Annotated[Site, shorthand("kind", str | Site)] = Site()
    """Where nodes come from."""
    layout: str | Rule | None = None
    """Which task runs on which node: PS-W-W is a server and two training tasks, each on a node of its own; PW-PW two
    nodes with both; W* repeats; or a rule that scales. Default: each task has its own node (local: all are on one)."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Of initial values, shuffling and dropout."""
    expose: Literal["nobody", "cluster"] = "nobody"
    """Who may reach TensorFlow's ports, which have no authentication. `nobody`: only the tasks themselves, in a
    private network; `cluster`: also whatever reaches the machine's interfaces."""
    checkpoint: Checkpoint = Checkpoint()
    """When the chief saves the variables."""
    export: bool = True
    """Write a SavedModel at the end."""
    restart: Restart = Restart()
    """What happens to a task that fails."""
    limits: Limits = Limits()
    """How long anything may take."""
    measure: Measure = Measure()
    """What is left out of rates."""
    monitor: Monitor = Monitor()
    """How closely nodes are watched."""

    @field_validator("name")
    @classmethod
    def _slug(cls, name: str) -> str:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name):
            raise ValueError("use up to 63 lower-case letters, digits and dashes, for example mnist-async")
        return name

    @field_validator("layout")
    @classmethod
    def _readable(cls, layout: str | Rule | None) -> str | Rule | None:
        if isinstance(layout, str):
            try:
                parse(layout)
            except LayoutError as error:
                raise ValueError(str(error)) from None
        return layout

    @model_validator(mode="after")
    def _possible_cluster(self) -> Job:
        (cluster, _), strategy = self.counted_cluster(), self.strategy.kind
        if self.expose == "cluster" and self.site.network is not None:
            raise ValueError(f"site.network: {self.site.network}, but expose: cluster is this machine's own network")
        if not isinstance(self.workload, Command):
            self._check_batches(cluster)
            self._check_devices(cluster)
            if strategy == PROGRAM:
                raise ValueError(
                    "strategy: program is for workload.command; allowed: " + ", ".join(get_args(StrategyName))
                )
        num_training = self.num_training_tasks
        is_replaced = strategy == "single" and self.program is None  # by one task, when the job is resolved
        has_training = bool(cluster.training or cluster.chief.count or cluster.worker.count)
        if cluster != Cluster() and not has_training and not is_replaced:
            raise ValueError("cluster: has no training task; add chief: 1, worker: 1 or training: 1")
        if strategy == "single":
            return self
        if strategy.startswith("ps-") and cluster != Cluster() and not cluster.ps.count:
            raise ValueError(f"cluster.ps: 0, but strategy {strategy} needs at least 1 parameter server")
        if strategy == "allreduce" and self.restart.exhausted == "continue":
            raise ValueError("restart.exhausted: continue, but allreduce cannot go on without a task; write fail")
        if self.strategy.aggregate is not None and self.strategy.aggregate > num_training:
            raise ValueError(
                f"strategy.aggregate: {self.strategy.aggregate}, but the cluster has only "
                f"{counted(num_training, 'training task')}"
            )
        if self.strategy.replication == "in_graph":
            self._check_in_graph(num_training)
        return self

    def _check_batches(self, cluster: Cluster) -> None:
        data = self.training.dataset
        num_train = workloads.dataset(data.name).describe(data).num_train
        for role, settings in (("chief", cluster.chief), ("worker", cluster.worker)):
            batch_size = settings.batch_size
            if batch_size is not None and batch_size > num_train:
                raise ValueError(
                    f"cluster.{role}.batch_size: {batch_size}, but the data set has {counted(num_train, 'example')}"
                )
            if batch_size is not None and self.training.global_batch_size is not None:
                raise ValueError(
                    f"cluster.{role}.batch_size: {batch_size}, but workload.global_batch_size: "
                    f"{self.training.global_batch_size} is shared out over all training tasks; give one of them"
                )
        num_training, size = self.num_training_tasks, self.training.global_batch_size
        if size is not None and size < num_training:
            raise ValueError(
                f"workload.global_batch_size: {size}, but the cluster has "
                f"{counted(num_training, 'training task')}, and each takes at "
                f"least 1 example; allowed: {num_training} or more"
            )

    @property
    def training(self) -> Workload:
        """The workload of an engine of ours."""
        assert isinstance(self.workload, Workload), "this job runs the user's own program"
        return self.workload

    @property
    def program(self) -> Command | None:
        """The user's own, if that is what tasks run."""
        return self.workload if isinstance(self.workload, Command) else None

    def _check_in_graph(self, num_training: int) -> None:
        """One graph has them all: a step without one of them cannot be."""
        if (aggregate := self.strategy.aggregate) not in (None, num_training):
            raise ValueError(
                f"strategy.aggregate: {aggregate}, but with replication: in_graph every update takes a gradient of all "
                f"{counted(num_training, 'training task')}; leave it out, or write replication: between_graph"
            )
        if self.restart.exhausted == "continue":
            raise ValueError(
                "restart.exhausted: continue, but with strategy.replication: in_graph training cannot go on without a "
                "task; write fail"
            )

    def _check_devices(self, cluster: Cluster) -> None:
        """Each device needs an example of its task's batch."""
        for role, settings in (("chief", cluster.chief), ("worker", cluster.worker)):
            if self.training.global_batch_size is None:
                size = settings.batch_size or self.training.batch_size or DEFAULT_BATCH_SIZE
            else:  # the chief is the first task
                sizes = shared_out(self.training.global_batch_size, self.num_training_tasks)
                size = sizes[0] if role == "chief" else sizes[-1]
            if settings.devices > size:
                raise ValueError(
                    f"cluster.{role}.devices: {settings.devices}, but a step of such a task has "
                    f"{counted(size, 'example')}, and "
                    f"each device takes at least 1; allowed: {size} or fewer, or a larger batch"
                )

    def counted_cluster(self) -> tuple[Cluster, str | None]:
        """The cluster, with the counts of the layout or of the site's machines where it has none itself; and why."""
        cluster = self.cluster
        if cluster.training or any(cluster.role(role).count for role in ("chief", "worker", "ps")):
            return cluster, None
        if (given := counts_of_layout(self.layout)) is not None:
            return cluster_from(given, cluster), f"the layout {self.layout} has these tasks"
        if self.layout is None and (given := counts_of_nodes(self.site)) is not None:
            return cluster_from(given, cluster), "one task on each of the site's machines"
        return cluster, None

    @property
    def num_training_tasks(self) -> int:
        """How many there will be, also before the job is resolved."""
        if self.strategy.kind == "single":
            return 1
        cluster, _ = self.counted_cluster()
        return cluster.training or cluster.chief.count + cluster.worker.count or DEFAULT_TRAINING_TASKS

    def batch_size_of(self, task: Task) -> int:
        """Examples in one step of a training task (of the resolved job)."""
        if self.training.global_batch_size is not None:
            tasks = self.cluster.training_tasks()
            return shared_out(self.training.global_batch_size, len(tasks))[tasks.index(task)]
        return self.cluster.role(task.role).batch_size or self.training.batch_size or DEFAULT_BATCH_SIZE


def job_schema() -> dict[str, Any]:
    """The JSON schema of a job file, for editors."""
    schema = Job.model_json_schema(mode="validation")
    workload = schema["$defs"]["Workload"]["properties"]
    workload["model"] = _schema_of(workloads.model_names(), workloads.model) | {
        "description": workload["model"].get("description", "")
    }
    workload["dataset"] = _schema_of(workloads.dataset_names(), workloads.dataset) | {
        "description": workload["dataset"].get("description", "")
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Headway job"}
