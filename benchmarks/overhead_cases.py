"""What is measured: the same training as bare scripts and as a Headway job. Pure: nothing is started here."""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from headway.launch.commands import MEMORY

BARE = Path(__file__).parent / "bare"
STRATEGIES = ("single", "ps-async", "ps-sync", "allreduce")
MODELS = ("mnist_cnn", "softmax")
BATCH = 100
# E1's CNN, forwards and backwards, at a batch of 100: convolutions and dense layers, 2 operations per product.
CNN_GFLOP = 8.2
FIRST_PORT = 20_000  # in a private network all ports are free
PS_INTER_OP = 2  # with 1 TensorFlow's server can hang

# Steps of each training task: some 15 s of training, so that the window is long against a step and its noise.
STEPS = {
    ("single", "mnist_cnn"): 120,
    ("ps-async", "mnist_cnn"): 100,
    ("ps-sync", "mnist_cnn"): 100,
    ("allreduce", "mnist_cnn"): 100,
    ("single", "softmax"): 10_000,
    ("ps-async", "softmax"): 3_000,
    ("ps-sync", "softmax"): 2_000,
    ("allreduce", "softmax"): 4_000,
}
WARMUP = {"mnist_cnn": 10, "softmax": 200}
# Inter-op threads of training tasks: the number that is best for the bare scripts. A second thread on the same core
# only hands operations over: small steps are a third slower with it, large ones no faster.
INTER_OP = 1
# Options of the bare script, by variant. The tuned ones do what Headway does for a task with one thread; `tuned-malloc`
# has Headway's malloc settings in its environment, too.
BARE_OPTIONS: dict[str, tuple[str, ...]] = {"bare": (), "tuned": ("--tuned",), "tuned-malloc": ("--tuned",)}


@dataclass(frozen=True)
class Setup:
    """One training: as bare scripts or through Headway."""

    strategy: str
    model: str
    tasks: int
    """Training tasks, each with one thread on a core of its own."""
    copies: int = 1
    """Independent trainings at the same time (single: what two tasks could reach at most)."""
    options: tuple[tuple[str, Any], ...] = ()
    """Of Headway's strategy, such as ("pull_ahead", 1)."""

    @property
    def name(self) -> str:
        tasks = f" x {self.copies}" if self.copies > 1 else "" if self.strategy == "single" else f" {self.tasks}"
        return " ".join([self.strategy + tasks, *(f"{key}={value}" for key, value in self.options)])

    @property
    def training_tasks(self) -> int:
        return self.tasks * self.copies

    @property
    def servers(self) -> int:
        return 1 if self.strategy.startswith("ps-") else 0


@dataclass(frozen=True)
class Length:
    """How long a training is, and what its rate leaves out."""

    steps: int
    warmup: int
    inter_op: int


@dataclass(frozen=True)
class Case:
    strategy: str
    model: str

    @property
    def name(self) -> str:
        return f"{self.strategy}:{self.model}"

    @property
    def setup(self) -> Setup:
        return Setup(self.strategy, self.model, 1 if self.strategy == "single" else 2)


@dataclass(frozen=True)
class Process:
    """A bare script's process."""

    argv: tuple[str, ...]
    core: int | None
    trains: bool


@dataclass(frozen=True)
class Lengths:
    """The lengths of all trainings, with what the user changed."""

    steps: int | None = None
    warmup: int | None = None
    inter_op: int | None = None
    scale: float = 1.0

    def of(self, setup: Setup) -> Length:
        usual = max(1, round(STEPS[setup.strategy, setup.model] * self.scale))
        steps = self.steps if self.steps is not None else usual
        warmup = self.warmup if self.warmup is not None else min(WARMUP[setup.model], steps // 3)
        return Length(steps, warmup, self.inter_op or INTER_OP)


def chosen_cases(only: Sequence[str]) -> list[Case]:
    """All cases that match one of the patterns (ps-async:softmax, ps-*:*); ValueError where a pattern matches none."""
    every = [Case(strategy, model) for model in MODELS for strategy in STRATEGIES]
    for pattern in only:
        if not any(fnmatch(case.name, pattern) for case in every):
            raise ValueError(f"no case {pattern!r}; there are {', '.join(case.name for case in every)}")
    return [case for case in every if not only or any(fnmatch(case.name, pattern) for pattern in only)]


def scaling_setups(model: str) -> tuple[list[Setup], list[Setup]]:
    """What the scaling section compares: as bare scripts and through Headway; and with Headway's options only."""
    both = [
        Setup("single", model, 1),
        Setup("single", model, 1, copies=2),
        Setup("ps-async", model, 1),
        Setup("ps-async", model, 2),
        Setup("ps-sync", model, 2),
        Setup("allreduce", model, 2),
    ]
    ahead, half = ("pull_ahead", 1), ("transfer", "bfloat16")
    options = [
        Setup("ps-async", model, 2, options=(ahead,)),
        Setup("ps-async", model, 2, options=(half,)),
        Setup("ps-async", model, 2, options=(ahead, half)),
        Setup("ps-sync", model, 2, options=(half,)),
        Setup("allreduce", model, 2, options=(half,)),
    ]
    return both, options


def scaling_trainings(model: str) -> list[tuple[str, Setup]]:
    """Everything that one round of the scaling section runs: variant and setup."""
    both, options = scaling_setups(model)
    return [(variant, setup) for variant in ("bare", "headway") for setup in both] + [
        ("headway", setup) for setup in options
    ]


def tuned_trainings(model: str) -> list[tuple[str, Setup]]:
    """The same of the tuned section: step by step from the bare script to Headway."""
    return [(variant, Setup("single", model, 1)) for variant in (*BARE_OPTIONS, "headway")]


# --- the bare scripts ----------------------------------------------------------------------------------------
def bare_environment(variant: str, present: Container[str]) -> dict[str, str]:
    """What is set besides the inherited environment. What is `present` there stays, as Headway leaves it."""
    return {name: value for name, value in MEMORY.items() if variant == "tuned-malloc" and name not in present}


def bare_processes(
    setup: Setup, length: Length, cores: Sequence[int], data: Path, variant: str = "bare"
) -> list[Process]:
    """Servers first. Training tasks are pinned to one core each, in turn; servers are not pinned."""
    script = BARE / f"{setup.strategy.replace('-', '_')}.py"
    command = (sys.executable, str(script), "--data", str(data), "--model", setup.model, "--batch", str(BATCH))
    train = (*command, "--steps", str(length.steps), "--warmup", str(length.warmup), "--inter-op", str(length.inter_op))
    if setup.strategy == "single":
        return [Process((*train, *BARE_OPTIONS[variant]), cores[copy], True) for copy in range(setup.copies)]
    addresses = [f"127.0.0.1:{FIRST_PORT + number}" for number in range(setup.tasks + 1)]
    workers = ("--workers", ",".join(addresses[1:]))
    if setup.strategy == "allreduce":
        return [Process((*train, *workers, "--index", str(index)), cores[index], True) for index in range(setup.tasks)]
    cluster = (*workers, "--ps", addresses[0])
    server = Process((*command, *cluster, "--role", "ps", "--inter-op", str(PS_INTER_OP)), None, False)
    return [server] + [
        Process((*train, *cluster, "--role", "worker", "--index", str(index)), cores[index], True)
        for index in range(setup.tasks)
    ]


# --- Headway -------------------------------------------------------------------------------------------------
def headway_jobs(setup: Setup, length: Length, cores: Sequence[int]) -> list[dict[str, Any]]:
    """The same training as job files: recording on, no evaluation, checkpoint or export before the last step."""
    return [_job(setup, length, cores[copy:]) for copy in range(setup.copies)]


def _job(setup: Setup, length: Length, cores: Sequence[int]) -> dict[str, Any]:
    # Where tasks go at their own pace, each makes the same number of steps, as the bare ones do; else updates count.
    at_own_pace = setup.strategy in ("single", "ps-async")
    return {
        "name": "overhead",
        "workload": {
            "model": setup.model,
            "dataset": "mnist",
            "batch_size": BATCH,
            "optimizer": {"name": "sgd", "learning_rate": 0.01},
            "stop": {"steps_per_task" if at_own_pace else "steps": length.steps},
        },
        "strategy": {"kind": setup.strategy, **dict(setup.options)},
        "cluster": _cluster(setup, length, cores),
        "checkpoint": {"seconds": 86_400},
        "export": False,
        "restart": {"attempts": 0},
        "measure": {"warmup": length.warmup},
    }


def _cluster(setup: Setup, length: Length, cores: Sequence[int]) -> dict[str, Any]:
    threads = {"intra_op": 1, "inter_op": length.inter_op}
    cluster: dict[str, Any] = {"chief": {"count": 1, "threads": threads, "cores": [cores[0]]}}
    if setup.tasks > 1:
        cluster["worker"] = {"count": setup.tasks - 1, "threads": threads, "cores": [cores[1]]}
    if setup.servers:
        cluster["ps"] = {"count": setup.servers, "threads": {"intra_op": 1, "inter_op": PS_INTER_OP}}
    return cluster
