"""A real `headway run` in a process of its own, looked at from outside as a user (or a fault) would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from headway.launch import control
from headway.record.folder import RunFolder
from headway.record.reader import read_events
from headway.record.run import Run
from headway.record.tables import who_wrote
from headway.spec import Task

LIMIT = 60.0  # seconds for anything to happen on two busy cores


def headway(*arguments: str, root: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headway", *arguments],
        env={**os.environ, "HEADWAY_RUNS": str(root)},
        capture_output=True,
        text=True,
        timeout=options.pop("timeout", LIMIT),
        check=False,
        **options,
    )


def write_job(path: Path, **changes: Any) -> Path:
    """A small job that would train for minutes: the tests end it. Checkpoints are frequent."""
    settings = {
        "name": "fault",
        "workload": {
            "model": "softmax",
            "dataset": {"name": "synthetic", "size": 4000, "test_size": 500},
            "batch_size": 500,
            "optimizer": {"name": "adagrad", "learning_rate": 0.05},
            "stop": {"steps": 1_000_000},
        },
        "strategy": "ps-async",
        "cluster": {"chief": 1, "worker": 1, "ps": 1},
        "checkpoint": {"steps": 100, "seconds": None},
        "restart": {"delay": 0.5},
        **changes,
    }
    path.write_text(json.dumps(settings))  # JSON is YAML
    return path


def counted_updates(checkpoint: Path) -> list[float]:
    """How many updates the last and the first server have made, as a checkpoint says: with each, Adam multiplies
    beta2_power by a constant, and the global step grows by one."""
    code = f"""
import numpy as np, tensorflow as tf
reader = tf.train.load_checkpoint({str(checkpoint / "variables")!r})
print(np.log(np.float64(reader.get_tensor("beta2_power"))) / np.log(0.999) - 1)
print(reader.get_tensor("global_step"))
"""
    counted = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT)
    return [float(line) for line in counted.stdout.split()]


class Running:
    """A run under way. Use as a context manager: at the end nothing of it is left."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        before = {folder.name for folder in RunFolder.all(root)} if arguments[0] == "run" else set()
        self._log = (root / "launcher.out").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headway", *arguments],
            env={**os.environ, "HEADWAY_RUNS": str(root)},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.folder: RunFolder = self.wait_for(
            lambda: next((one for one in RunFolder.all(root) if one.name not in before), None), "a run folder"
        )

    @staticmethod
    def following(root: Path, name: str) -> subprocess.Popen[bytes]:
        """`headway logs -f` of a run."""
        return subprocess.Popen(
            [sys.executable, "-m", "headway", "logs", "-f", name],
            env={**os.environ, "HEADWAY_RUNS": str(root)},
            stdout=subprocess.DEVNULL,
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()  # the lease ends the rest
        self.process.wait()
        self._log.close()

    @property
    def run(self) -> Run:
        return Run(self.folder)

    def output(self) -> str:
        return Path(self._log.name).read_text()

    def wait_for(self, look: Callable[[], Any], what: str, limit: float = LIMIT, every: float = 0.2) -> Any:
        """The first true value of `look`; what the run printed is told when there is none in time."""
        deadline = time.monotonic() + limit
        while not (found := look()):
            assert self.process.poll() is None, f"the run ended while waiting for {what}:\n{self.output()}"
            assert time.monotonic() < deadline, f"no {what} within {limit} s:\n{self.output()}"
            time.sleep(every)
        return found

    # --- looking ---------------------------------------------------------------------------------------------
    def status(self) -> dict[str, Any]:
        return control.ask(self.folder.control_socket, {"do": "status"})

    def task(self, name: str) -> dict[str, Any]:
        return next(task for task in self.status()["tasks"] if task["task"] == name)

    def pid(self, name: str) -> int:
        return int(self.task(name)["pid"])

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What was recorded so far, of one kind, with its writer."""
        return self._recorded(kind, self.folder.events_folder.glob("*.jsonl"))

    def steps(self, task: str | None = None, **wanted: Any) -> list[dict[str, Any]]:
        files = [self.folder.events(Task.parse(task))] if task else self.folder.events_folder.glob("*.jsonl")
        return [row for row in self._recorded("step", files) if all(row[key] == value for key, value in wanted.items())]

    def _recorded(self, kind: str, files: Iterable[Path]) -> list[dict[str, Any]]:
        """Read without DuckDB: the tests look often, and must not take the cores from what they look at."""
        rows = [
            {"task": who_wrote(path), **event}
            for path in files
            if path.exists()
            for event in read_events(path)
            if event["kind"] == kind
        ]
        return sorted(rows, key=lambda row: float(row["t"]))

    def trains(self, *names: str, attempt: int = 0, steps: int = 20) -> None:
        """Wait until each of these tasks has made some steps in that attempt."""
        for name in names:
            self.wait_for(partial(self._made, name, attempt, steps), f"steps of {name}")
        # The launcher hears of steps a moment after they are recorded; before, it takes the run for one without any.
        self.wait_for(lambda: self.status()["step"], "a step that the launcher knows of")

    def _made(self, name: str, attempt: int, steps: int) -> bool:
        return len(self.steps(name, attempt=attempt)) >= steps

    def processes(self) -> list[psutil.Process]:
        """The launcher and everything below it: agent, tasks."""
        launcher = psutil.Process(self.process.pid)
        return [launcher, *launcher.children(recursive=True)]

    # --- doing -----------------------------------------------------------------------------------------------
    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def stop(self) -> None:
        """End in order, and wait until the record is sealed."""
        stopped = headway("stop", self.folder.name, root=self.root)
        assert stopped.returncode == 0, stopped.stderr + self.output()
        self.process.wait(timeout=LIMIT)
