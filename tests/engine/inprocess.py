"""A cluster inside the test's own process: real gRPC servers on loopback, the real updater and the real Trainers, each
stepped by a thread of its own. So one import of TensorFlow serves dozens of cases.

TensorFlow's server has no stop, and takes 85 threads. So the servers are made once and lent to one case after the
other; in between all that they hold is thrown away, as if they had just been started.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import tensorflow as tf
from harness import make_job

from headway.agent.agent import free_ports
from headway.engines.assignment import Assignment
from headway.engines.tensorflow import server, strategies, updater
from headway.engines.tensorflow.barrier import Barrier
from headway.engines.tensorflow.initial import Values
from headway.engines.tensorflow.strategies import graph
from headway.engines.tensorflow.strategies.graph import GraphTrainer
from headway.engines.tensorflow.trainer import Started, StepResult
from headway.engines.tensorflow.updater import Updater
from headway.record.files import to_json
from headway.record.folder import RunFolder
from headway.record.reader import read_events
from headway.spec.cluster import Role, Task
from headway.spec.job import Job

v1 = tf.compat.v1
T = TypeVar("T")
LARGEST: dict[Role, int] = {"chief": 1, "worker": 2, "ps": 3}
MOST_DEVICES = 3
WAIT_SECONDS = 60.0
# 240 examples: shared out over two or three tasks, the tasks' batches join to those of one process.
DATA: dict[str, Any] = {"name": "synthetic", "shape": [6, 6, 1], "classes": 4, "size": 240, "test_size": 8}
SOFTMAX = {"name": "softmax", "init": "normal"}
CNN = {"name": "mnist_cnn", "dropout": 0.0}


def workload(batch_size: int | None = 20, **settings: Any) -> dict[str, Any]:
    return {"model": SOFTMAX, "dataset": DATA, "batch_size": batch_size, **settings}


def job_of(
    servers: int, tasks: int, batch_sizes: dict[str, int] | None = None, devices: int = 1, **settings: Any
) -> Job:
    """A job with this many servers and training tasks, one of them the chief; `batch_sizes` by role, `devices` of each
    training task, `settings` as for make_job."""
    counts = {role: count for role, count in (("chief", 1), ("worker", tasks - 1), ("ps", servers)) if count}
    job = make_job(cluster=counts, **settings).model_dump(mode="json")
    for role, size in (batch_sizes or {}).items():
        job["cluster"][role]["batch_size"] = size
    for role in ("chief", "worker"):
        job["cluster"][role]["devices"] = devices
    return Job.model_validate(job)


@cache
def _addresses() -> dict[Role, list[str]]:
    ports = free_ports(sum(LARGEST.values()), None, None)
    return {role: [f"127.0.0.1:{ports.pop()}" for _ in range(count)] for role, count in LARGEST.items()}


@cache
def _servers() -> dict[Task, Any]:
    """All of them at once: a session waits for every server of the cluster."""
    config = v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=4, device_count={"CPU": MOST_DEVICES}
    )
    cluster = tf.train.ClusterSpec(_addresses())
    return {
        Task(role, index): tf.distribute.Server(cluster, job_name=role, task_index=index, config=config)
        for role, count in LARGEST.items()
        for index in range(count)
    }


class _End(dict[str, Any]):
    """The last message to the updater's watch, which takes it for a server that is gone. Else it would hold the case's
    graph for ever."""

    def get(self, *_: Any) -> Any:
        raise tf.errors.CancelledError(None, None, "the case is over")


class Cluster:
    """One job's tasks, all of them here."""

    def __init__(self, root: Path, job: Job) -> None:
        self.job = job
        self.folder = RunFolder.create(root, "inprocess")
        self.folder.job_file.write_text(to_json({"format": 1, "resolved": job.model_dump(mode="json")}))
        self.names = [str(task) for task in job.cluster.training_tasks()]
        if job.strategy.replication == "in_graph":  # the others have no Trainer
            self.names = self.names[:1]
        self.chief, *self.workers = self.names
        self.trainers: dict[str, GraphTrainer] = {}
        for name in self.names:
            trainer = strategies.trainer(self._assignment(name))
            assert isinstance(trainer, GraphTrainer)
            self.trainers[name] = trainer
        self.updater: Updater | None = None
        self._broken: list[BaseException] = []
        self._threads = ThreadPoolExecutor(max_workers=2 * len(self.names))

    def _assignment(self, name: str) -> Assignment:
        task = Task.parse(name)
        environment = {"HEADWAY_RUN": str(self.folder.path), "HEADWAY_TASK": name}
        if self.job.strategy.kind != "single":
            addresses = {role: known[: self.job.cluster.role(role).count] for role, known in _addresses().items()}
            config = {"cluster": addresses, "task": {"type": task.role, "index": task.index}}
            environment["TF_CONFIG"] = json.dumps(config)
        return Assignment(environment)

    def start_updater(self) -> None:
        self._server = self._assignment("ps/0")
        self.updater = Updater(self._server, _servers()[Task("ps", 0)].target)
        arguments = (self.updater.run, self._broken)
        threading.Thread(target=server._until_broken, args=arguments, daemon=True).start()

    def close(self) -> None:
        if self.updater is not None:
            self._server.control.others.put(_End())
        for holder in [*self.trainers.values(), self.updater]:
            session = getattr(holder, "_session", None)
            if session is not None:
                with suppress(tf.errors.OpError):
                    session.close()
        self._threads.shutdown(cancel_futures=True)
        if self.job.strategy.kind != "single":
            v1.Session.reset(_servers()[Task("ps", 0)].target)  # all servers' variables and queues

    def target(self, name: str = "ps/0") -> str:
        """For a session of one's own."""
        return str(_servers()[Task.parse(name)].target)

    # --- what tasks do ---------------------------------------------------------------------------------------
    def go(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        return self._threads.submit(function, *arguments)

    def result(self, future: Future[T]) -> T:
        self.wait_for("a task", lambda: bool(wait([future], 0.1).done))
        return future.result()

    def start(self, *names: str, own_steps: int = 0) -> dict[str, Started]:
        """Start these tasks (all, unless named) at the same time."""
        begun = {name: self.go(self.trainers[name].start, own_steps) for name in names or self.names}
        return {name: self.result(future) for name, future in begun.items()}

    def step(self, name: str) -> Future[StepResult]:
        """A task begins a step."""
        return self.go(self.trainers[name].step, 1)

    def steps(self, count: int, *names: str, num_steps: int = 1) -> dict[str, list[StepResult]]:
        """`count` calls by each of these tasks (all, unless named), each at its own pace."""

        def several(name: str) -> list[StepResult]:
            return [self.trainers[name].step(num_steps) for _ in range(count)]

        begun = {name: self.go(several, name) for name in names or self.names}
        return {name: self.result(future) for name, future in begun.items()}

    def wait_until_arrived(self, *names: str) -> None:
        """Until the updater has these tasks' gradients, and no others, for the next update."""
        numbers = [self.names.index(name) for name in names]
        self.wait_for(f"gradients of {names}", lambda: sorted(self.barrier.admitted) == numbers)

    def tell(self, **message: str) -> None:
        """What the launcher says to ps/0."""
        self._server.control.others.put(message)

    # --- what can be seen ------------------------------------------------------------------------------------
    def values(self) -> Values:
        return self.trainers[self.chief].snapshot().values

    @property
    def barrier(self) -> Barrier:
        assert self.updater is not None
        return self.updater._barrier

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What ps/0 has recorded."""
        self._server.events.flush()
        return [event for event in read_events(self.folder.events(Task("ps", 0))) if event["kind"] == kind]

    def updates(self) -> list[dict[str, Any]]:
        """All that were made: the updater writes one down when the tasks have been told, and may be late with it."""
        made = self.trainers[self.chief].snapshot().step

        def is_written() -> bool:
            return any(update["step"] >= made for update in self.events("update"))

        self.wait_for("the last update's row", is_written)
        return self.events("update")

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert not self._broken, self._broken
            assert time.monotonic() < deadline, f"waited {WAIT_SECONDS:g} s for {what}"
            time.sleep(0.01)


@contextmanager
def cluster(root: Path, job: Job, start: bool = True) -> Iterator[Cluster]:
    """A job's cluster, its tasks started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "start", lambda assignment: _servers()[assignment.task])
        for module in (graph, updater):
            patch.setattr(module, "POLL_SECONDS", 0.05)  # nobody is far away here
        patch.setattr(updater, "GRACE_SECONDS", 0.0)
        made = Cluster(root, job)
        try:
            if start:
                if job.strategy.kind == "ps-sync":
                    made.start_updater()
                made.start()
            yield made
            assert not made._broken, made._broken
        finally:
            made.close()


def single(root: Path, steps: int, **settings: Any) -> tuple[list[StepResult], Values]:
    """What one process computes: the reference."""
    with cluster(root, job_of(0, 1, workload=workload(**settings))) as run:
        return run.steps(steps)["chief/0"], run.values()
