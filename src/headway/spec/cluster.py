"""Roles, tasks and the cluster: which processes a job consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Role = Literal["chief", "worker", "ps", "evaluator"]
MOST_TASKS = 1024  # of one role
MOST_PLACED = 1 + 2 * MOST_TASKS  # of a layout: a chief, and as many workers and servers as there can be
MOST_CORES = 4096  # of one machine: more than Linux has on any
MOST_EXAMPLES = 2**31 - 1  # of a batch, and of what a data set can have: tables hold them in 32 bits
ROLES: tuple[Role, ...] = ("chief", "worker", "ps", "evaluator")


class Strict(BaseModel):
    """Base of every setting: an unknown key is an error, a field's docstring its documentation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False, validate_default=True
    )


def shared_out(total: int, count: int) -> list[int]:
    """`total` in `count` parts that are as even as possible: what is left over is one more each for the first."""
    return [total // count + (number < total % count) for number in range(count)]


def shorthand(key: str, accepted: Any) -> BeforeValidator:
    """Lets `ps: 2` stand for `ps: {count: 2}`; `accepted` is the type shown in the JSON schema."""

    def expand(value: Any) -> Any:
        return value if isinstance(value, (dict, BaseModel)) or value is None else {key: value}

    return BeforeValidator(expand, json_schema_input_type=accepted)


@dataclass(frozen=True, order=True)
class Task:
    """One process of a cluster, written `worker/0`."""

    role: Role
    index: int

    def __str__(self) -> str:
        return f"{self.role}/{self.index}"

    @property
    def slug(self) -> str:
        """The task's name in file names."""
        return f"{self.role}-{self.index}"

    @staticmethod
    def parse(text: str) -> Task:
        role, _, index = text.partition("/")
        if role not in ROLES or not index.isdigit():
            raise ValueError(f"{text!r} is not a task; write for example worker/0")
        return Task(role, int(index))


class Threads(Strict):
    intra_op: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads that one operation may use. Default: the machine's cores divided over the training tasks."""
    inter_op: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Operations that may run at once. Default: 1 beside one intra_op thread, else 2; servers 2, for with 1 TensorFlow
    can hang."""


class RoleSettings(Strict):
    count: Annotated[int, Field(ge=0, le=MOST_TASKS)] = 0
    """How many tasks of this role."""
    threads: Threads = Threads()
    """TensorFlow's thread pools in each task of this role."""
    cores: (
        Annotated[int, Field(ge=1, le=MOST_CORES)]
        | Annotated[list[Annotated[int, Field(ge=0, lt=MOST_CORES)]], Field(min_length=1, max_length=MOST_CORES)]
        | None
    ) = None
    """Number of cores each task is pinned to (given out in turn), or a list of core ids for all of them.
    Default: not pinned."""
    batch_size: Annotated[int, Field(ge=1, le=MOST_EXAMPLES)] | None = None
    """Examples per step of each training task of this role, for unlike machines. Default: workload.batch_size. Not
    together with workload.global_batch_size."""
    devices: Annotated[int, Field(ge=1, le=64)] = 1
    """Devices of each training task of this role: its batch is split over them, and their gradients are combined inside
    the task. GPUs where its machine has that many, else logical CPU devices."""


RoleField = Annotated[RoleSettings, shorthand("count", int | RoleSettings)]


class Cluster(Strict):
    """How many tasks of each role. Without `chief`, worker/0 is the chief."""

    chief: RoleField = RoleSettings()
    """The task that trains, initialises, evaluates, checkpoints and exports: 0 or 1."""
    worker: RoleField = RoleSettings()
    """Tasks that train."""
    ps: RoleField = RoleSettings()
    """Parameter servers: they hold the variables."""
    evaluator: RoleField = RoleSettings()
    """0 or 1 task that evaluates each new checkpoint apart from training."""
    training: Annotated[int, Field(ge=1, le=MOST_TASKS)] | None = None
    """Short for one chief and this many training tasks in all; not together with chief or worker."""

    @model_validator(mode="after")
    def _possible(self) -> Cluster:
        if self.training is not None and (self.chief.count or self.worker.count):
            raise ValueError(
                f"training: {self.training} already counts the chief and the workers; "
                "give either training, or chief and worker"
            )
        if self.chief.count > 1:
            raise ValueError(f"chief: {self.chief.count}, but a cluster has at most 1 chief")
        if self.evaluator.count > 1:
            raise ValueError(f"evaluator: {self.evaluator.count}, but a cluster has at most 1 evaluator")
        for role in ("ps", "evaluator"):
            if getattr(self, role).batch_size is not None:
                raise ValueError(f"{role}.batch_size: a {role} does not train; only chief and worker have one")
            if (devices := getattr(self, role).devices) != 1:
                raise ValueError(
                    f"{role}.devices: {devices}, but a {role} does not train; only chief and worker have several"
                )
        if self.ps.threads.inter_op == 1:
            raise ValueError("ps.threads.inter_op: 1 is known to hang a parameter server; allowed: 2 or more")
        return self

    def role(self, role: Role) -> RoleSettings:
        settings = getattr(self, role)
        assert isinstance(settings, RoleSettings)
        return settings

    def tasks(self) -> list[Task]:
        """Every task: training tasks first (chief, workers), then servers, then the evaluator."""
        return [Task(role, index) for role in ROLES for index in range(self.role(role).count)]

    def training_tasks(self) -> list[Task]:
        """The tasks that train, the chief first."""
        return [task for task in self.tasks() if task.role in ("chief", "worker")]

    def chief_task(self) -> Task:
        """The task that initialises, checkpoints and exports: chief/0, else worker/0."""
        return self.training_tasks()[0]
