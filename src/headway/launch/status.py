"""How a run fares now, as a value: what `status` answers, what `top` and the display draw, what /metrics serves.

Rates and levels of nodes and processes come from the monitors (gauges.py); steps and losses from the supervisor, and
this keeps the last half minute of them.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import psutil

from headway import clock
from headway.launch.gauges import Gauge
from headway.launch.nodes import Nodes
from headway.launch.supervisor import Supervisor
from headway.launch.taskstate import TaskState
from headway.sites.isolation import outside_pid
from headway.spec.cluster import Task
from headway.spec.command import Command
from headway.spec.job import PROGRAM

HISTORY = 60  # values of each series that a status has
EVERY = 0.5  # seconds between samples of steps and losses: as often as they are drawn
WINDOW = 1.0  # seconds of steps that a rate is made of: news of steps comes in heaps, a few times a second
STILL = 2.0  # seconds without news after which a rate sinks
NODE_HISTORY = ("cpus", "memory", "received", "sent", "loopback_received", "loopback_sent", "credits")
TASK_HISTORY = ("cpus", "memory", "received", "sent")
GPU_HISTORY = ("busy", "memory")
NO_COUNTERS = ("t", "sampler", "attempt")  # of a monitor's sample: what names it


class Pace:
    """The steps/s and the loss of one training task, sampled. None: it did not train then."""

    def __init__(self) -> None:
        self.steps_per_s: deque[float | None] = deque(maxlen=HISTORY)
        self.loss: deque[float | None] = deque(maxlen=HISTORY)
        self._since: tuple[float, int] | None = None  # when, and how many steps there were
        self._rate: float | None = None
        self._news: tuple[float, int, int] | None = None  # when steps were last heard of, how many in all, and at once

    def look(self, state: TaskState, now: float) -> None:
        trains = state.phase == "training" and not state.busy
        if self._news is None or self._news[1] != state.own_steps or not trains:
            moved = 1 if self._news is None else max(1, state.own_steps - self._news[1])
            self._news = (now, state.own_steps, moved)
        if not trains:
            self._since = self._rate = None  # a pause is no slow step
        self.steps_per_s.append(self._rate_at(now, state.own_steps) if trains else None)
        self.loss.append(state.loss if trains else None)

    def most(self, now: float, steps: int) -> float:
        """The rate that can still be true, seeing how long there was no news: the next report may tell of as many steps
        as the last one did."""
        if self._news is None or steps != self._news[1] or now - self._news[0] <= STILL:
            return math.inf
        return self._news[2] / (now - self._news[0] - STILL)

    def _rate_at(self, now: float, steps: int) -> float | None:
        """Of the last second, not of the last hundred steps: a change is to be seen at once."""
        self._since = self._since or (now, steps)
        began, before = self._since
        seconds = now - began
        if steps > before and seconds >= WINDOW:
            self._rate, self._since = (steps - before) / seconds, (now, steps)
        elif steps == before and self._rate and seconds > max(STILL, 2 / self._rate):
            return 1 / seconds  # at most: the next step is still to come
        return self._rate


class Status:
    def __init__(self, run: str, facts: dict[str, Any], supervisor: Supervisor, nodes: Nodes) -> None:
        """`facts`: what run.json holds, kept up to date by the launcher."""
        self.evaluation: dict[str, Any] | None = None
        self._run, self._facts, self._supervisor, self._nodes = run, facts, supervisor, nodes
        self._job = supervisor.job
        self._paces = {task: Pace() for task in self._job.cluster.training_tasks()}
        self._next_look = -math.inf
        self._now = 0.0

    def look(self, now: float) -> None:
        """To be called often; `now` is the supervisor's clock."""
        self._now = now
        if now >= self._next_look:
            self._next_look = now + EVERY
            for task, pace in self._paces.items():
                pace.look(self._supervisor.tasks[task], now)

    def value(self, pids: bool = False) -> dict[str, Any]:
        """Everything. `pids`: as seen from here, which takes a look at every process of this machine."""
        supervisor, job = self._supervisor, self._job
        rate, examples = self._rates()
        began = supervisor.training_since
        return {
            "run": self._run,
            "state": self._facts["state"],
            "pid": os.getpid(),
            "agents": [node.pid for node in self._nodes.nodes],
            "t": clock.now(),
            "started": self._facts["launches"][-1]["started"],
            "training_seconds": None if began is None else self._now - began,
            "workload": job.workload.title,
            "model": None if job.program else job.training.model.name,
            "dataset": None if job.program else job.training.dataset.name,
            "strategy": job.strategy.kind,
            "site": job.site.kind,
            "step": supervisor.max_step,
            "stop": {} if job.program else job.training.stop.model_dump(exclude_none=True),
            "steps_per_s": rate,
            "examples_per_s": examples,
            "evaluation": self.evaluation,
            "tasks": [self._of_task(task, state, pids) for task, state in supervisor.tasks.items()],
            "nodes": self._of_nodes(),
        }

    def _rate_of(self, task: Task) -> float | None:
        """A training task's steps/s now, from its last steps: none when it does not train any more, less and less while
        nothing is heard of it, 0 when it stands still."""
        state, rate = self._supervisor.tasks[task], self._supervisor.steps_per_s(task)
        if rate is None or state.phase != "training":
            return None
        if state.trouble or state.busy:
            return 0.0 if state.trouble else rate
        return min(rate, self._paces[task].most(self._now, state.own_steps))

    def _rates(self) -> tuple[float | None, float | None]:
        """Global steps and examples per second, as the tasks' last steps say."""
        training = self._job.cluster.training_tasks()
        rates = {task: rate for task in training if (rate := self._rate_of(task)) is not None}
        if not rates:
            return None, None
        if self._job.program is not None:
            return self._rates_of_program(self._job.program, rates)
        total = sum(rates.values())
        if self._job.strategy.is_synchronous:
            total /= len(rates)  # their steps are one and the same
        return total, sum(rate * self._job.batch_size_of(task) for task, rate in rates.items())

    def _rates_of_program(self, program: Command, rates: dict[Task, float]) -> tuple[float, float | None]:
        """Not every task need say how far it is: a step of a synchronous program is everybody's."""
        strategy, num_tasks = self._job.strategy, len(self._job.cluster.training_tasks())
        steps = max(rates.values())  # a global step is everybody's, and tasks hear of it at different times
        if program.report.steps == "own":
            steps = sum(rates.values()) / (len(rates) if strategy.is_synchronous else 1)
        each = {task: self._supervisor.tasks[task].step_examples for task in rates}
        told = [rate * size for task, rate in rates.items() if (size := each[task]) is not None]
        if told:
            return steps, sum(told) * (num_tasks / len(told) if strategy.is_synchronous else 1)
        is_known = program.batch_size is not None and (strategy.kind != PROGRAM or num_tasks == 1)
        taken = num_tasks if strategy.is_synchronous else 1
        return steps, steps * program.batch_size * taken if is_known and program.batch_size else None

    def _of_task(self, task: Task, state: TaskState, pids: bool) -> dict[str, Any]:
        watched = _watched(self._nodes.gauges.tasks.get(str(task)), TASK_HISTORY, state.is_running)
        if pace := self._paces.get(task):
            watched["history"] |= {"steps_per_s": list(pace.steps_per_s), "loss": list(pace.loss)}
        return {
            "task": str(task),
            "trains": pace is not None,
            "phase": state.phase,
            "busy": state.busy,
            "stalled": state.trouble is not None,
            "trouble": state.trouble,
            "attempt": state.attempt,
            "pid": self._pid(task, state) if pids else None,
            "address": self._nodes.addresses.get(task),
            "own_steps": state.own_steps,
            "steps_per_s": self._rate_of(task) if pace else None,
            "loss": state.loss,
            "restarts": state.restarts,
            **watched,
        }

    def _pid(self, task: Task, state: TaskState) -> int | None:
        if state.pid and self._nodes.nodes:
            with contextlib.suppress(psutil.Error, OSError):  # it has just ended
                return outside_pid(self._nodes.of(task).pid, (state.pid,))
        return None

    def _of_nodes(self) -> list[dict[str, Any]]:
        there = {node.name: node for node in self._nodes.nodes if not node.writer.is_closing()}
        found = []
        for planned in self._nodes.plan.nodes:
            node = there.get(planned.name)
            facts = node.facts if node else {}
            watched = _watched(self._nodes.gauges.nodes.get(planned.name), NODE_HISTORY, node is not None)
            sample, machine = watched["sample"], node.limits if node else planned.machine
            limits = {
                # What it has now: a burstable CPU has more or less of it.
                "cpus": sample.get("cpus") or machine.cpus or len(facts.get("cores", ())) or None,
                # Of a node that is this whole machine, or has no limit of its own: the machine's.
                "memory": min(
                    filter(None, (machine.memory, sample.get("memory_limit"), facts.get("memory"))), default=None
                ),
                "rate": machine.rate,
            }
            found.append(
                {
                    "node": planned.name,
                    "up": node is not None,
                    "address": planned.address,
                    "tasks": [str(task) for task in planned.tasks],
                    "asked": planned.machine.model_dump(exclude_none=True, exclude_defaults=True),
                    "limits": limits,
                    "gpus": self._of_gpus(planned.name),
                    **watched,
                }
            )
        return found

    def _of_gpus(self, node: str) -> list[dict[str, Any]]:
        """Each one's number, last sample (busy: 0 to 1) and history."""
        gpus = self._nodes.gauges.gpus.get(node, {})
        return [_watched(gpus[number], GPU_HISTORY, is_there=True) for number in sorted(gpus)]


def _watched(gauge: Gauge | None, names: Sequence[str], is_there: bool) -> dict[str, Any]:
    """What its monitor says: rates now, the last ones (oldest first, None where there was a gap), the last counters."""
    if gauge is None:
        return {"now": {}, "history": {}, "sample": {}}
    history = {name: gauge.series(name, HISTORY) for name in names}
    sample = {
        name: value for name, value in gauge.last.items() if isinstance(value, (int, float)) and name not in NO_COUNTERS
    }
    return {"now": gauge.now() if is_there else {}, "history": history, "sample": sample}
