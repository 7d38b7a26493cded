"""Starts real tasks as the launcher would: a run folder with a job.json, and one process for each task."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from headway.agent.agent import free_ports
from headway.record.files import to_json
from headway.record.folder import RunFolder
from headway.record.reader import read_events
from headway.spec.cluster import Task
from headway.spec.job import Job

SYNTHETIC: dict[str, Any] = {"name": "synthetic", "shape": [6, 6, 1], "classes": 4, "size": 401, "test_size": 1203}


def make_job(**settings: Any) -> Job:
    """A small job: softmax on synthetic data; `settings` are merged in (workload's one level deeper)."""
    workload = {
        "model": "softmax",
        "dataset": SYNTHETIC,
        "batch_size": 20,
        "optimizer": {"name": "sgd", "learning_rate": 0.1},
        "stop": {"steps": 60},
        **settings.pop("workload", {}),
    }
    threads = {"intra_op": 1, "inter_op": 2}
    cluster = {
        role: {"count": count, "threads": threads} for role, count in settings.pop("cluster", {"chief": 1}).items()
    }
    return Job.model_validate({"workload": workload, "cluster": cluster, **settings})


class Launched:
    """A run and its processes. Use as a context: whatever happens, no process is left."""

    def __init__(self, root: Path, job: Job) -> None:
        self.job = job
        self.folder = RunFolder.create(root, "engine-test")
        self.folder.job_file.write_text(
            to_json({"format": 1, "asked": {}, "resolved": job.model_dump(mode="json"), "choices": []})
        )
        self.processes: dict[Task, subprocess.Popen[bytes]] = {}
        self.attempts: dict[Task, int] = {}
        self.cluster: dict[str, list[str]] = {}
        ports = free_ports(len(job.cluster.tasks()), None, None)
        for task in job.cluster.tasks():
            self.cluster.setdefault(task.role, []).append(f"127.0.0.1:{ports.pop()}")

    def __enter__(self) -> Launched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
        if error is not None:
            for task in self.processes:
                print(f"--- {task}\n{self.folder.log(task).read_text()[-3000:]}")

    def start(self, *names: str, own_steps: int = 0) -> None:
        """Start these tasks; all of the cluster's when none is named."""
        for task in [Task.parse(name) for name in names] or self.job.cluster.tasks():
            if task in self.processes and (stdin := self.processes[task].stdin) is not None:
                stdin.close()
            attempt = self.attempts[task] = self.attempts.get(task, -1) + 1
            environment = {
                **os.environ,
                "HEADWAY_RUN": str(self.folder.path),
                "HEADWAY_TASK": str(task),
                "HEADWAY_ATTEMPT": str(attempt),
                "HEADWAY_CONTINUE": json.dumps({"own_steps": own_steps, "trained_seconds": 0.0}),
            }
            if self.job.strategy.kind != "single":
                config = {"cluster": self.cluster, "task": {"type": task.role, "index": task.index}}
                environment["TF_CONFIG"] = json.dumps(config)
            with self.folder.log(task).open("ab") as log:
                self.processes[task] = subprocess.Popen(
                    [sys.executable, "-m", "headway.engines.tensorflow"],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )

    def tell(self, name: str, **message: Any) -> None:
        stdin = self.processes[Task.parse(name)].stdin
        assert stdin is not None
        stdin.write(json.dumps(message).encode() + b"\n")
        stdin.flush()

    def kill(self, *names: str) -> None:
        for name in names:
            self.processes[Task.parse(name)].send_signal(signal.SIGKILL)
        for name in names:
            self.processes[Task.parse(name)].wait()

    def events(self, name: str, kind: str | None = None, attempt: int | None = None) -> list[dict[str, Any]]:
        path = self.folder.events(Task.parse(name))
        return [
            event
            for event in (read_events(path) if path.exists() else ())
            if kind in (None, event["kind"]) and attempt in (None, event["attempt"])
        ]

    def wait_for(self, what: str, condition: Callable[[], Any], seconds: float = 120) -> Any:
        """The first true value of `condition`; a task that fails meanwhile ends the wait."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := condition():
                return value
            for task in self.processes:
                if failed := self.events(str(task), "failed"):
                    raise AssertionError(f"{task} failed: {failed[-1]}")
            time.sleep(0.05)
        raise AssertionError(f"waited {seconds} s for {what}")

    def wait_exit(self, name: str, seconds: float = 120) -> int:
        return self.processes[Task.parse(name)].wait(timeout=seconds)

    def finish(self) -> None:
        """As the launcher ends a run: workers first, then the chief's final snapshot."""
        chief, *workers = self.job.cluster.training_tasks()
        for task in workers:
            assert self.wait_exit(str(task)) == 0
        if workers:  # a chief that is alone waits for nobody
            self.tell(str(chief), do="finalize")
        assert self.wait_exit(str(chief)) == 0


@contextmanager
def launched(root: Path, job: Job, start: bool = True) -> Iterator[Launched]:
    with Launched(root, job) as run:
        if start:
            run.start()
        yield run
