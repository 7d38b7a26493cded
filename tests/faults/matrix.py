"""The fault matrix: which fault hits which task of which run, and what must come of it. Data only.

Every outcome was written down before its cell was run. run_matrix.py runs the cells, verdict.py compares, page.py makes
docs/faults.md from both.

To add a cell, add a row to CELLS; to add a strategy, add a Setup and its rows. tests/unit/test_fault_matrix.py wants
every strategy of the spec, with each of its roles killed and frozen, and one task of it frozen before its first
heartbeat and frozen again after a restart; and users' own programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Fault = Literal[
    "SIGKILL",
    "SIGSTOP",  # of a user's program: of the program itself, not of our process beside it
    "SIGSTOP at start",  # before its first heartbeat
    "SIGKILL, SIGSTOP",  # killed, and frozen when it is back and has made a step
    "SIGKILL, hang",  # killed, and when it is back and has told of a step it waits for ever; a program only
]
EVERY_ROLE: tuple[Fault, ...] = ("SIGKILL", "SIGSTOP")
EVERY_STRATEGY: tuple[Fault, ...] = ("SIGSTOP at start", "SIGKILL, SIGSTOP")
EVERY_PROGRAM: tuple[Fault, ...] = ("SIGSTOP", "SIGSTOP at start", "SIGKILL, hang")

NAMED_WITHIN = 10.0  # seconds from the fault until the launcher's record names the task
HUNG_WITHIN = 13.0  # ... one that hangs: max(10 s, 3 median steps), and until the launcher has heard and looked
ACCURACY_WITHIN = 0.01  # of the undisturbed run of the same job
LOSS_WITHIN = 1e-4  # ... and its loss, where the same steps see the same batches whatever happens
PAUSE_WITHIN = 5.0  # seconds: others who go on make a step at least this often
HEARTBEAT = 10.0  # limits.heartbeat, which is the default: silence after which a frozen task is killed
STALL = 20.0  # limits.stall where a task hangs; its default, 600 s, would make a long test
FAULT_AT = 5 / 16  # of the steps: in the middle between two checkpoints
CHECKPOINTS = 8  # in a run
PROGRAM = Path(__file__).resolve().parent / "launched.py"
FAILED = 6  # exit code of a run that failed (errors.RunFailed)


@dataclass(frozen=True)
class Setup:
    """A job that is run once undisturbed and once for each of its cells."""

    name: str
    title: str
    strategy: dict[str, Any]
    cluster: dict[str, int]
    steps: int
    """So many that undisturbed training takes about 15 to 20 s on two cores; longer where others go on while a task is
    away: they must not have finished before it is back."""
    overshoot: int = 0
    """Steps by which the end may lie behind what was asked: tasks that do not wait for each other each finish the step
    that they have begun."""
    is_repeatable: bool = False
    """Whether a step sees the same batches whatever happened before, so that every run gives the same model."""

    is_program: bool = False
    """tests/faults/launched.py, as a user would launch it."""

    @property
    def checkpoint_steps(self) -> int:
        return self.steps // CHECKPOINTS

    @property
    def fault_step(self) -> int:
        return round(FAULT_AT * self.steps)

    @property
    def training(self) -> list[str]:
        """The tasks that train."""
        return [f"{role}/{index}" for role in ("chief", "worker") for index in range(self.cluster.get(role, 0))]

    @property
    def kind(self) -> str:
        return str(self.strategy["kind"])

    def launched(self, hangs: str | None) -> dict[str, Any]:
        """The job file of a program; `hangs`: the task that hangs when it was started again."""
        command = ["python", PROGRAM.name, str(self.steps), *([hangs] if hangs else [])]
        return {
            "name": self.name,
            "workload": {"command": command, "directory": str(PROGRAM.parent), "ends_with": "everybody"},
            "strategy": self.strategy,
            "cluster": self.cluster,
            "restart": {"attempts": 3},
            **({"limits": {"stall": STALL}} if hangs else {}),
        }

    def job(self, attempts: int) -> dict[str, Any]:
        """The job file: softmax regression on MNIST, with a rate that falls to 0, so that accuracy settles."""
        return {
            "name": self.name,
            "workload": {
                "model": "softmax",
                "dataset": "mnist",
                "batch_size": 500,
                "optimizer": {
                    "name": "sgd",
                    "learning_rate": 0.5,
                    "schedule": {"kind": "linear", "steps": self.steps},
                },
                "stop": {"steps": self.steps},
            },
            "strategy": self.strategy,
            "cluster": self.cluster,
            "checkpoint": {"steps": self.checkpoint_steps, "seconds": None},
            "restart": {"attempts": attempts},
        }


@dataclass(frozen=True)
class Outcome:
    """What must come of a fault, besides what holds in every cell (ALWAYS)."""

    restarted: tuple[str, ...]
    """Exactly these tasks are started again, each as often as there are faults."""
    variables: Literal["kept", "adopted", "restored", "fresh", "own"]
    """kept: the chief noticed nothing; adopted: a new chief found them as they were; restored: from the last
    checkpoint, and what was trained since is lost; fresh: there were none yet; own: a program's own business."""
    meanwhile: Literal["go on", "wait", "nobody", "begin"]
    """What the other training tasks do until it is back. begin: they start, and train without it."""
    state: Literal["finished", "failed"] = "finished"


@dataclass(frozen=True)
class Cell:
    setup: str
    task: str
    fault: Fault
    outcome: Outcome
    attempts: int = 3
    """restart.attempts: how often a task is started again."""

    @property
    def name(self) -> str:
        no_restart = "" if self.attempts else "-no-restart"
        fault = self.fault.lower().replace(", ", "-").replace(" ", "-")
        return f"{self.setup}-{self.task.replace('/', '')}-{fault}{no_restart}"

    @property
    def job(self) -> dict[str, Any]:
        setup = SETUPS[self.setup]
        if setup.is_program:
            return setup.launched(self.task if self.fault == "SIGKILL, hang" else None)
        return setup.job(self.attempts)

    @property
    def num_faults(self) -> int:
        return len(self.fault.split(", "))

    @property
    def named_within(self) -> float:
        return HUNG_WITHIN if self.fault == "SIGKILL, hang" else NAMED_WITHIN

    @property
    def role(self) -> str:
        return self.task.partition("/")[0]

    @property
    def exit_code(self) -> int:
        return 0 if self.outcome.state == "finished" else FAILED

    @property
    def reason(self) -> str:
        """What the launcher's record must give as the reason of the task's death."""
        if self.fault == "SIGKILL, hang":
            return "limits.stall"
        return "signal SIGKILL" if self.fault == "SIGKILL" else "stopped"


ALWAYS = (
    f"The record names the task within {NAMED_WITHIN:g} s, with the reason of its death, and blames no other.",
    f"A frozen task (its process, or a process of the user's program, is in state T) is called stopped after half of "
    f"`limits.heartbeat` ({HEARTBEAT:g} s, the default) and killed after all of it, also before its first heartbeat; "
    "then it fares as a killed one. In `allreduce` the others' broken collectives may show it sooner.",
    f"A program that hangs alive (it waits for a lock) is called stalled after max(10 s, 3 median steps), within "
    f"{HUNG_WITHIN:g} s, and restarted after `limits.stall` ({STALL:g} s here).",
    "The run ends `finished` at the asked step, with exit code 0; a run without restarts left ends `failed`, with exit "
    f"code {FAILED} and a reason that names the task.",
    "Every step of the last state is counted exactly once. Steps lost are those since the last checkpoint, no more, "
    "and the recorded rollback says how many.",
    "In `ps-sync` every update has one gradient each of as many different tasks as asked.",
    f"Accuracy is within {ACCURACY_WITHIN:g} of the undisturbed run of the same job; where a step's batches follow "
    f"from its number (`ps-sync` with every task, `allreduce`) the loss is the same within {LOSS_WITHIN:g}.",
    "No process and no namespace is left behind.",
)

SETUPS = {
    setup.name: setup
    for setup in (
        Setup(
            "single",
            "`single`: one process",
            strategy={"kind": "single"},
            cluster={"chief": 1},
            steps=8000,
        ),
        Setup(
            "ps-async",
            "`ps-async`: chief, worker, 2 servers",
            strategy={"kind": "ps-async"},
            cluster={"chief": 1, "worker": 1, "ps": 2},
            steps=12000,
            overshoot=1,
        ),
        Setup(
            "ps-sync-2of2",
            "`ps-sync`, 2 of 2: chief, worker, 2 servers",
            strategy={"kind": "ps-sync"},
            cluster={"chief": 1, "worker": 1, "ps": 2},
            steps=3200,
            is_repeatable=True,
        ),
        Setup(
            "ps-sync-2of3",
            "`ps-sync`, 2 of 3: chief, 2 workers, 1 server",
            strategy={"kind": "ps-sync", "aggregate": 2},
            cluster={"chief": 1, "worker": 2, "ps": 1},
            steps=6400,
        ),
        Setup(
            "allreduce",
            "`allreduce`: chief, worker",
            strategy={"kind": "allreduce"},
            cluster={"chief": 1, "worker": 1},
            steps=8000,
            is_repeatable=True,
        ),
        Setup(
            "program",
            "A user's own program, one process",
            strategy={"kind": "single"},
            cluster={"chief": 1},
            steps=200,
            is_program=True,
        ),
        Setup(
            "programs-ring",
            "Users' own programs that wait for each other in every step: chief, 2 workers",
            strategy={"kind": "allreduce"},
            cluster={"chief": 1, "worker": 2},
            steps=200,
            is_program=True,
        ),
        Setup(
            "programs-server",
            "Users' own programs with a server: chief, worker, 1 server",
            strategy={"kind": "ps-async"},
            cluster={"chief": 1, "worker": 1, "ps": 1},
            steps=1500,
            is_program=True,
        ),
    )
}

ALONE = Outcome(restarted=("chief/0",), variables="restored", meanwhile="nobody")
SERVERS = Outcome(restarted=("ps/0", "ps/1"), variables="restored", meanwhile="wait")
SERVER = Outcome(restarted=("ps/0",), variables="restored", meanwhile="wait")
CHIEF_ADOPTS = Outcome(restarted=("chief/0",), variables="adopted", meanwhile="go on")
WORKER_REJOINS = Outcome(restarted=("worker/0",), variables="kept", meanwhile="go on")
CHIEF_AWAITED = Outcome(restarted=("chief/0",), variables="adopted", meanwhile="wait")
WORKER_AWAITED = Outcome(restarted=("worker/0",), variables="kept", meanwhile="wait")
ALL_MEMBERS = Outcome(restarted=("chief/0", "worker/0"), variables="restored", meanwhile="nobody")
# Frozen before its first heartbeat: nothing was trained yet.
ALONE_AT_START = Outcome(restarted=("chief/0",), variables="fresh", meanwhile="nobody")
BEGIN_WITHOUT = Outcome(restarted=("worker/0",), variables="fresh", meanwhile="begin")
BEGIN_WAITING = Outcome(restarted=("worker/0",), variables="fresh", meanwhile="wait")
ALL_AT_START = Outcome(restarted=("chief/0", "worker/0"), variables="fresh", meanwhile="nobody")
# Programs begin anew by themselves.
PROGRAM_ANEW = Outcome(restarted=("chief/0",), variables="own", meanwhile="nobody")
RING_ANEW = Outcome(restarted=("chief/0", "worker/0", "worker/1"), variables="own", meanwhile="nobody")
WORKER_ANEW = Outcome(restarted=("worker/0",), variables="own", meanwhile="go on")
WORKER_AT_START = Outcome(restarted=("worker/0",), variables="own", meanwhile="begin")
NO_RESTART = Outcome(restarted=(), variables="kept", meanwhile="nobody", state="failed")

CELLS = (
    Cell("single", "chief/0", "SIGKILL", ALONE),
    Cell("single", "chief/0", "SIGSTOP", ALONE),
    Cell("single", "chief/0", "SIGSTOP at start", ALONE_AT_START),
    Cell("single", "chief/0", "SIGKILL, SIGSTOP", ALONE),
    Cell("ps-async", "chief/0", "SIGKILL", CHIEF_ADOPTS),
    Cell("ps-async", "chief/0", "SIGSTOP", CHIEF_ADOPTS),
    Cell("ps-async", "worker/0", "SIGKILL", WORKER_REJOINS),
    Cell("ps-async", "worker/0", "SIGSTOP", WORKER_REJOINS),
    Cell("ps-async", "ps/1", "SIGKILL", SERVERS),
    Cell("ps-async", "ps/1", "SIGSTOP", SERVERS),
    Cell("ps-async", "worker/0", "SIGSTOP at start", BEGIN_WITHOUT),
    Cell("ps-async", "worker/0", "SIGKILL, SIGSTOP", WORKER_REJOINS),
    Cell("ps-sync-2of2", "chief/0", "SIGKILL", CHIEF_AWAITED),
    Cell("ps-sync-2of2", "chief/0", "SIGSTOP", CHIEF_AWAITED),
    Cell("ps-sync-2of2", "worker/0", "SIGKILL", WORKER_AWAITED),
    Cell("ps-sync-2of2", "worker/0", "SIGSTOP", WORKER_AWAITED),
    Cell("ps-sync-2of2", "worker/0", "SIGKILL", NO_RESTART, attempts=0),
    Cell("ps-sync-2of2", "ps/1", "SIGKILL", SERVERS),  # ps/0 has the updater; ps-sync-2of3 kills that one
    Cell("ps-sync-2of2", "ps/1", "SIGSTOP", SERVERS),
    Cell("ps-sync-2of2", "worker/0", "SIGSTOP at start", BEGIN_WAITING),
    Cell("ps-sync-2of2", "worker/0", "SIGKILL, SIGSTOP", WORKER_AWAITED),
    Cell("ps-sync-2of3", "chief/0", "SIGKILL", CHIEF_ADOPTS),
    Cell("ps-sync-2of3", "chief/0", "SIGSTOP", CHIEF_ADOPTS),
    Cell("ps-sync-2of3", "worker/0", "SIGKILL", WORKER_REJOINS),
    Cell("ps-sync-2of3", "worker/0", "SIGSTOP", WORKER_REJOINS),
    Cell("ps-sync-2of3", "ps/0", "SIGKILL", SERVER),
    Cell("ps-sync-2of3", "ps/0", "SIGSTOP", SERVER),
    Cell("allreduce", "chief/0", "SIGKILL", ALL_MEMBERS),
    Cell("allreduce", "chief/0", "SIGSTOP", ALL_MEMBERS),
    Cell("allreduce", "worker/0", "SIGKILL", ALL_MEMBERS),
    Cell("allreduce", "worker/0", "SIGSTOP", ALL_MEMBERS),
    Cell("allreduce", "worker/0", "SIGKILL", NO_RESTART, attempts=0),
    Cell("allreduce", "worker/0", "SIGSTOP at start", ALL_AT_START),
    Cell("allreduce", "worker/0", "SIGKILL, SIGSTOP", ALL_MEMBERS),
    Cell("program", "chief/0", "SIGSTOP", PROGRAM_ANEW),
    Cell("program", "chief/0", "SIGSTOP at start", PROGRAM_ANEW),
    Cell("program", "chief/0", "SIGKILL, hang", PROGRAM_ANEW),
    Cell("programs-ring", "worker/1", "SIGSTOP", RING_ANEW),
    Cell("programs-ring", "worker/1", "SIGSTOP at start", RING_ANEW),
    Cell("programs-ring", "worker/1", "SIGKILL, hang", RING_ANEW),
    Cell("programs-server", "worker/0", "SIGSTOP", WORKER_ANEW),
    Cell("programs-server", "worker/0", "SIGSTOP at start", WORKER_AT_START),
    Cell("programs-server", "worker/0", "SIGKILL, hang", WORKER_ANEW),
)
