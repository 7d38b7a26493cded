"""What this process was told to do, and its lines to the launcher: environment in, control messages in, events out.

Nothing here imports TensorFlow: the heartbeat must beat while the import (several seconds) runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from headway.errors import StorageError
from headway.record.files import EventWriter
from headway.record.folder import RunFolder
from headway.record.storage import explained
from headway.spec.cluster import Task
from headway.spec.job import Job

HEARTBEAT_SECONDS = 0.5
AGENT_GONE_EXIT_CODE = 3


class Control:
    """Messages of the agent: JSON lines on stdin, read by a thread of their own.

    {"do": "stop", "reason": "..."}   end in order after the current step; a second one: just end
    {"do": "finalize"}                to the chief: all other training tasks have ended
    {"do": "measure"}                 the warm-up of all training tasks is over (measure.steps)
    {"do": "leave", "task": "..."}    to ps/0 of ps-sync: that task will not come back, do not wait for it
    {"do": "close"}                   to ps/0 of ps-sync: training ends, answer everybody who waits

    The end of stdin means that the agent is gone. Then nobody wants the work any more, and the process ends at
    once: a task must never outlive its run.
    """

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        self.num_stops = 0
        self.finalize = False
        self.measures = False
        self.others: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._message = threading.Event()

    def listen(self) -> None:
        threading.Thread(target=self._read, name="control", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            try:
                self._take(json.loads(line))
            except (ValueError, AttributeError):  # not JSON, or not an object
                print(f"control: no message: {line[:80]!r}", file=sys.stderr, flush=True)
        os._exit(AGENT_GONE_EXIT_CODE)

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("do") == "stop":
            self.stop(str(message.get("reason", "asked to")))
        elif message.get("do") == "finalize":
            self.finalize = True
        elif message.get("do") == "measure":
            self.measures = True
        else:
            self.others.put(message)
        self._message.set()

    def stop(self, reason: str) -> None:
        self.num_stops += 1
        self.stop_reason = self.stop_reason or reason
        self._message.set()

    @property
    def hurry(self) -> bool:
        """Whether a second stop came: skip everything that is left."""
        return self.num_stops > 1

    def wait(self, seconds: float) -> None:
        """Sleep until a message comes, at most this long."""
        if self._message.wait(seconds):
            self._message.clear()


class Assignment:
    """One task of one run, in one attempt."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder = RunFolder(Path(environment["HEADWAY_RUN"]))
        self.task = Task.parse(environment["HEADWAY_TASK"])
        self.attempt = int(environment.get("HEADWAY_ATTEMPT", "0"))
        before = json.loads(environment.get("HEADWAY_CONTINUE") or "{}")
        self.own_steps_before = int(before.get("own_steps", 0))
        self.trained_seconds_before = float(before.get("trained_seconds", 0.0))
        config = json.loads(environment.get("TF_CONFIG") or "{}")
        # An evaluator takes no part in the cluster: nobody connects to it.
        self.addresses: dict[str, list[str]] = {
            role: addresses for role, addresses in config.get("cluster", {}).items() if role != "evaluator"
        }
        self.events = EventWriter(self.folder.events(self.task))
        self.control = Control()
        self._job: Job | None = None

    def is_warmup(self, steps: int) -> bool:
        """Whether the next step is, after so many in this attempt: measured runs are told when all tasks are warm."""
        measure = self.job.measure
        return steps < measure.warmup or (measure.steps is not None and not self.control.measures)

    @property
    def job(self) -> Job:
        if self._job is None:
            self._job = Job.model_validate(self.folder.read(self.folder.job_file)["resolved"])
        return self._job

    @property
    def is_chief(self) -> bool:
        return self.task == self.job.cluster.chief_task()

    @property
    def task_number(self) -> int:
        """Position among the training tasks; the chief is 0."""
        return self.job.cluster.training_tasks().index(self.task)

    @property
    def num_training_tasks(self) -> int:
        return len(self.job.cluster.training_tasks())

    @property
    def port(self) -> int | None:
        """Where this task's server listens; None without one."""
        if self.task.role not in self.addresses:
            return None
        return int(self.addresses[self.task.role][self.task.index].rpartition(":")[2])

    def event(self, kind: str, later: bool = False, **fields: Any) -> None:
        self.events.write(kind, later=later, attempt=self.attempt, **fields)

    def end_for_storage(self, error: BaseException) -> NoReturn:
        """End this process at once, because nothing can be recorded any more. The launcher looks why."""
        with contextlib.suppress(OSError, ValueError):  # the log is on the same disk
            print(explained(error, self.folder.path) or error, file=sys.stderr, flush=True)
        os._exit(StorageError.exit_code)

    def seed(self, own_steps: int) -> int:
        """Seed of this task's random operations (dropout) from its `own_steps`th step on.

        It differs from task to task, and after every restart or reconnection, where a fixed seed would draw the
        same masks again from the beginning. Initial values do not come from here (see initial.py).
        """
        text = f"{self.job.seed}/{self.task_number}/{own_steps}/{self.attempt if own_steps else 0}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1

    def start_heartbeat(self) -> None:
        """Touch alive/TASK for as long as the process lives."""
        path = self.folder.alive(self.task)
        path.parent.mkdir(exist_ok=True)
        path.touch()

        def beat() -> None:
            while True:
                time.sleep(HEARTBEAT_SECONDS)
                try:
                    os.utime(path)
                    self.events.flush()  # rows that wait for the next event would wait long when there is none
                except OSError as error:
                    self.end_for_storage(error)

        threading.Thread(target=beat, name="heartbeat", daemon=True).start()
