"""The supervisor: a pure state machine. Events in, actions out; no clock, no process, no file of its own.

        TaskExited, TaskSaid, Tick ...                        StartTask, SignalTask, Note ...
driver ------------------------------> Supervisor.handle(event, now) ------------------------> driver

How a task fares (`phase`):

    waiting -> starting -> ready -> training -> done -> ended
       ^                      |         |               ^
       |______ failed, and restarts left_|              |__ exited after `done`, or told to stop

Rules it enforces
- A dead server takes all servers with it: they are started again only when all are gone, so that the chief
  restores every one of them from the same checkpoint and no push of an older session can land in between.
- A dead chief or worker is started again and rejoins; the others go on.
- The chief finalizes only after every other training task has ended: its last snapshot holds all updates.
- A task that is silent, does not start, or makes no step within its limit is killed; that is a failure like any other.
"""

from __future__ import annotations

import signal
from statistics import median
from typing import Any, Literal

from headway.launch.messages import (
    Action,
    AgentLost,
    End,
    Event,
    Heartbeat,
    NewNodes,
    Note,
    Regroup,
    SignalTask,
    StartTask,
    StopAsked,
    TaskExited,
    TaskSaid,
    TaskStarted,
    TellTask,
    Tick,
)
from headway.launch.taskstate import History, Phase, TaskState
from headway.spec.cluster import Task
from headway.spec.job import Job

STALL_FLOOR = 10.0  # seconds: no task is called stalled sooner
STALL_STEPS = 10  # ... nor sooner than this many of its median steps
MAX_RESTART_DELAY = 30.0
KILL_LIMIT = 10.0  # seconds for a killed task to be gone; else its node is taken for lost


class Supervisor:
    def __init__(self, job: Job, history: History = History()) -> None:  # noqa: B008 - frozen
        self.job = job
        self.state: Literal["starting", "running", "stopping", "ended"] = "starting"
        self.max_step = history.step
        self.generation = 0
        self.trained_seconds = history.trained_seconds
        self.training_since: float | None = None
        self.stop_reason: str | None = None
        self.stopped_by_user = False
        self.end: End | None = None
        self.tasks = {
            task: TaskState(task, attempt=history.attempts.get(task, -1), own_steps=history.own_steps.get(task, 0))
            for task in job.cluster.tasks()
        }
        self._chief = job.cluster.chief_task()
        self._training = job.cluster.training_tasks()
        self._servers = [task for task in self.tasks if task.role == "ps"]
        self._regrouping = False  # everything is being ended, to be started again on new nodes or ports
        self._num_regroups = 0
        self._closing = False  # the chief has finished: servers and evaluator are being ended
        self._finalize_sent = False
        self._kill_at: dict[Task, float] = {}
        self._actions: list[Action] = []

    # --- the one door ----------------------------------------------------------------------------------------
    def handle(self, event: Event, now: float) -> list[Action]:
        self._actions = []
        if self.state != "ended":
            match event:
                case TaskStarted(task, attempt, pid):
                    self._started(task, attempt, pid)
                case TaskSaid(task, said):
                    self._said(self.tasks[task], said, now)
                case TaskExited(task, attempt, code):
                    self._exited(self.tasks[task], attempt, code, now)
                case Heartbeat(task, age):
                    self.tasks[task].alive_at = max(self.tasks[task].alive_at, now - age)
                case AgentLost(reason):
                    self._agent_lost(reason, now)
                case NewNodes():
                    self._regrouped(now)
                case StopAsked(reason, at_once):
                    self._stop_asked(reason, at_once, now)
                case Tick():
                    pass
            self._advance(now)
        return self._actions

    def steps_per_s(self, task: Task) -> float | None:
        """A training task's present rate, from its last steps; None before there are any."""
        recent = self.tasks[task].step_seconds
        return len(recent) / sum(recent) if recent and sum(recent) > 0 else None

    # --- events ----------------------------------------------------------------------------------------------
    def _started(self, task: Task, attempt: int, pid: int | None) -> None:
        state = self.tasks[task]
        state.pid = pid
        self._note("task_started", task=str(task), attempt=attempt, pid=pid)

    def _said(self, state: TaskState, said: dict[str, Any], now: float) -> None:
        if not state.is_running or said.get("attempt", state.attempt) != state.attempt:
            return  # late news of a task that is gone
        state.progress_at, state.alive_at, state.busy = now, now, None
        if state.stalled:
            state.stalled = False
            self._note("going_on", task=str(state.task))
        match said["kind"]:
            case "ready":
                self._enter(state, "ready", now)
            case "joined":
                self._enter(state, "training", now)
                if self.state == "starting":
                    self._set_state("running")
                elif self.stop_reason is not None:  # it was away when training was told to stop
                    self._stop_training(self.stop_reason, now, self.stopped_by_user)
            case "step":
                self._made_step(state, said, now)
            case "evaluating" | "saving" | "exporting":
                state.busy = said["kind"]
            case "evaluation":
                self._evaluated(state, said, now)
            case "initialized":
                self._initialized(said)
            case "done":
                self._done(state, said, now)
            case "failed":
                state.failure = f"{said.get('error')}: {said.get('message')}"
                state.port_taken = bool(said.get("port_taken"))
            case _:
                pass

    def _made_step(self, state: TaskState, said: dict[str, Any], now: float) -> None:
        self.training_since = self.training_since or now
        state.own_steps += said["num_steps"]
        state.step, state.loss = said["step"], said.get("loss")
        if not said.get("warmup"):
            state.step_seconds.append(said["seconds"] / said["num_steps"])
        if said.get("generation", self.generation) >= self.generation:  # else it is news from before a rollback
            self.max_step = max(self.max_step, said["step"])

    def _evaluated(self, state: TaskState, said: dict[str, Any], now: float) -> None:
        wanted, accuracy = self.job.workload.stop.accuracy, said.get("accuracy")
        if state.task.role == "evaluator" and wanted and isinstance(accuracy, float) and accuracy >= wanted:
            self._stop_training("accuracy", now)

    def _initialized(self, said: dict[str, Any]) -> None:
        step = said["step"]
        if said["how"] != "adopted":
            # The servers' state was made before in this launch, or steps of an earlier launch are gone.
            if self.generation > 0 or step < self.max_step:
                self._note("rollback", step_before=self.max_step, step=step, steps_lost=self.max_step - step)
            self.max_step = step
        self.generation = said.get("generation", self.generation)

    def _done(self, state: TaskState, said: dict[str, Any], now: float) -> None:
        self._enter(state, "done", now)
        if state.task != self._chief:
            self._kill_at[state.task] = now + self.job.limits.stop
        elif said["reason"] != "steps_per_task":
            self._stop_training(said["reason"], now)

    def _exited(self, state: TaskState, attempt: int, code: int, now: float) -> None:
        if attempt != state.attempt or not state.is_running:
            return
        was = state.phase
        self._kill_at.pop(state.task, None)
        expected = self._regrouping or self._closing or self.end is not None or (was == "done" and code == 0)
        how = _signal_name(-code) if code < 0 else f"exit code {code}"
        reason = state.killed_for or (state.failure if code > 0 and state.failure else how)
        self._note("task_exited", task=str(state.task), attempt=attempt, code=code, expected=expected, reason=reason)
        state.pid = None
        self._enter(state, "ended", now)
        if self._regrouping:
            self._wait_to_start(state, None, now)
        elif expected or (self.state == "stopping" and state.task not in (self._chief, *self._servers)):
            return
        elif state.port_taken:  # every member knows every other's port: a new one is news for all
            self._wait_to_start(state, None, now)
            self._regroup(f"{state.task}: its port was taken by another program", now)
        elif state.task in self._servers:
            self._server_died(state, reason, now)
        elif state.is_bystander:
            self._wait_to_start(state, now, now)
        elif self._may_restart(state, reason, now):
            self._wait_to_start(state, now + self._restart_delay(state.restarts), now)
        else:
            self._enter(state, "given up", now)

    def _server_died(self, state: TaskState, reason: str, now: float) -> None:
        self._wait_to_start(state, None, now)
        if not state.is_bystander and self._may_restart(state, reason, now):
            others = [self.tasks[task] for task in self._servers if self.tasks[task].is_running]
            if self.tasks[self._chief].phase == "done" and not self._finalize_sent:
                # It waits for the others, who will wait for it to restore the servers.
                others.append(self.tasks[self._chief])
            for other in others:
                self._kill(other, f"with {state.task}: all servers restart from one checkpoint", now)
                other.is_bystander = True
        if self.end is None and not any(self.tasks[task].is_running for task in self._servers):
            due = now + self._restart_delay(max(self.tasks[task].restarts for task in self._servers))
            for task in self._servers:
                self.tasks[task].start_at = due

    def _agent_lost(self, reason: str, now: float) -> None:
        self._note("agent_lost", reason=reason)
        if self.end is not None or self._closing:  # it took along what was to end anyway
            for state in self.tasks.values():
                if state.is_running:
                    self._enter(state, "ended", now)
            return
        for state in self.tasks.values():
            if state.is_running or state.phase == "waiting":
                state.pid = None
                self._wait_to_start(state, None, now)
        self._regroup(reason, now)

    def _regrouped(self, now: float) -> None:
        self._regrouping = False
        for state in self.tasks.values():
            if state.phase == "waiting":
                state.start_at = now

    def _stop_asked(self, reason: str, at_once: bool, now: float) -> None:
        self._note("stop_asked", reason=reason, at_once=at_once)
        chief = self.tasks[self._chief]
        if at_once or (chief.phase != "done" and self.training_since is None):
            self._end_run("stopped", reason, now)  # nothing is trained yet: there is nothing to finalize
        else:
            self._stop_training(reason, now, told_by_user=True)

    # --- decisions -------------------------------------------------------------------------------------------
    def _stop_training(self, reason: str, now: float, told_by_user: bool = False) -> None:
        """Every training task ends after its present step; then the chief finalizes."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.stopped_by_user = told_by_user
        if self.state != "stopping":
            self._set_state("stopping")
        for task in self._training:
            state = self.tasks[task]
            if state.phase == "waiting" and task != self._chief:
                self._enter(state, "ended", now)
            elif task == self._chief and state.phase in ("starting", "ready"):
                pass  # it is told when it has joined: stopped before, it could not save what the servers hold
            elif state.is_running and state.phase != "done" and task not in self._kill_at:
                self._actions.append(TellTask(task, {"do": "stop", "reason": reason}))
                self._kill_at[task] = now + self.job.limits.stop + STALL_STEPS * max(state.step_seconds, default=0.0)

    def _advance(self, now: float) -> None:
        """What time, or the sum of what happened, makes due."""
        self._watch(now)
        if self.end is None and not self._regrouping:
            for state in self.tasks.values():
                is_due = state.phase == "waiting" and state.start_at is not None and now >= state.start_at
                if is_due and not self._closing:
                    self._start(state, now)
            self._finish_when_due(now)
        if any(state.is_running for state in self.tasks.values()):
            return
        if self.end is not None:
            self._actions.append(self.end)
            self._set_state("ended")
        elif self._regrouping:
            self._regrouping = False
            self._actions.append(Regroup(self._restart_delay(self._num_regroups)))

    def _finish_when_due(self, now: float) -> None:
        chief = self.tasks[self._chief]
        others = [self.tasks[task] for task in self._training if task != self._chief]
        if (
            chief.phase == "done"
            and not self._finalize_sent
            and not any(state.is_running or state.phase == "waiting" for state in others)
        ):
            self._finalize_sent = True
            self._kill_at[self._chief] = now + self.job.limits.finish
            self._actions.append(TellTask(self._chief, {"do": "finalize"}))
        if chief.phase == "ended" and not self._closing:
            self._closing = True
            for state in self.tasks.values():
                if state.is_running:
                    self._kill_at[state.task] = now + self.job.limits.stop
                    self._actions.append(
                        TellTask(state.task, {"do": "stop", "reason": "training is over"})
                        if state.task.role == "evaluator"
                        else SignalTask(state.task, signal.SIGTERM)
                    )
        if self._closing and not any(state.is_running for state in self.tasks.values()):
            self._end_run("stopped" if self.stopped_by_user else "finished", self.stop_reason or "steps_per_task", now)

    def _watch(self, now: float) -> None:
        """Limits: of starting, of silence, of standing still, of ending."""
        limits = self.job.limits
        for state in self.tasks.values():
            if not state.is_running:
                continue
            if state.killed_for:
                if now - state.killed_at > KILL_LIMIT and self.end is None:
                    self._agent_lost(f"{state.task} was killed {KILL_LIMIT:g} s ago and has not ended", now)
                    return
            elif state.task in self._kill_at and now >= self._kill_at[state.task]:
                self._kill(state, "it did not end in time", now)
            elif state.phase == "starting" and now - state.since > limits.start:
                self._kill(state, f"it was not ready within {limits.start:g} s (limits.start)", now)
            elif state.phase != "starting" and now - state.alive_at > limits.heartbeat:
                self._note("unresponsive", task=str(state.task), seconds=round(now - state.alive_at, 1))
                self._kill(state, f"no heartbeat for {limits.heartbeat:g} s (limits.heartbeat)", now)
            elif state.phase == "training":
                self._watch_progress(state, now)

    def _watch_progress(self, state: TaskState, now: float) -> None:
        still = now - state.progress_at
        servers_up = all(self.tasks[task].phase == "ready" for task in self._servers)
        if not servers_up:
            state.progress_at = now  # it waits for servers, which have limits of their own
            return
        expected = STALL_STEPS * median(state.step_seconds) if state.step_seconds else 0.0
        if still > max(self.job.limits.stall, expected):
            self._kill(state, f"no step for {still:.0f} s (limits.stall)", now)
        elif (
            len(state.step_seconds) >= 3 and still > max(STALL_FLOOR, expected) and not state.stalled and not state.busy
        ):
            state.stalled = True
            self._note("stalled", task=str(state.task), seconds=round(still, 1), median_step=median(state.step_seconds))

    # --- doing -----------------------------------------------------------------------------------------------
    def _start(self, state: TaskState, now: float) -> None:
        state.attempt += 1
        state.failure, state.killed_for, state.busy = None, None, None
        state.port_taken = state.stalled = state.is_bystander = False
        self._kill_at.pop(state.task, None)
        state.start_at = None
        state.alive_at = state.progress_at = now
        state.step_seconds.clear()
        if state.task == self._chief:
            self._finalize_sent = False
        self._enter(state, "starting", now)
        trained = self.trained_seconds + (now - self.training_since if self.training_since else 0.0)
        self._actions.append(StartTask(state.task, state.attempt, state.own_steps, trained))

    def _kill(self, state: TaskState, reason: str, now: float) -> None:
        state.killed_for, state.killed_at = reason, now
        self._kill_at.pop(state.task, None)
        self._actions.append(SignalTask(state.task, signal.SIGKILL))

    def _may_restart(self, state: TaskState, reason: str, now: float) -> bool:
        state.failure = reason
        state.restarts += 1
        allowed = self.job.restart.attempts
        if state.restarts <= allowed:
            self._note("restarting", task=str(state.task), reason=reason, restart=state.restarts, allowed=allowed)
            return True
        if self._is_spare(state.task):
            self._note("given_up", task=str(state.task), reason=reason)
        else:
            again = f" after {allowed} restarts" if allowed else ""
            self._end_run("failed", f"{state.task} failed{again}: {reason}", now)
        return False

    def _is_spare(self, task: Task) -> bool:
        """Whether the run can go on without it."""
        if task.role == "evaluator":  # unless nothing else could ever end the run
            stop = self.job.workload.stop
            return any(end is not None for end in (stop.steps, stop.epochs, stop.seconds, stop.steps_per_task))
        return task.role == "worker" and task != self._chief and self.job.restart.exhausted == "continue"

    def _restart_delay(self, restarts: int) -> float:
        return min(MAX_RESTART_DELAY, self.job.restart.delay * 2.0 ** max(0, restarts - 1))

    def _wait_to_start(self, state: TaskState, due: float | None, now: float) -> None:
        self._enter(state, "waiting", now)
        state.start_at = due

    def _regroup(self, reason: str, now: float) -> None:
        self._num_regroups += 1
        if self._num_regroups > self.job.restart.attempts:
            self._end_run("failed", reason, now)
            return
        self._note("regrouping", reason=reason)
        self._regrouping = True
        for state in self.tasks.values():
            if state.phase == "waiting":
                state.start_at = None
            elif state.is_running:
                self._kill(state, f"everything restarts: {reason}", now)

    def _end_run(self, state: Literal["finished", "stopped", "failed"], reason: str, now: float) -> None:
        if self.end is None:
            self.end = End(state, reason)
            for task in self.tasks.values():
                if task.is_running:
                    self._kill(task, "the run is over", now)

    def _enter(self, state: TaskState, phase: Phase, now: float) -> None:
        state.phase, state.since = phase, now

    def _set_state(self, state: Literal["starting", "running", "stopping", "ended"]) -> None:
        self.state = state
        if state != "ended":
            self._note("state", state=state)

    def _note(self, kind: str, **fields: Any) -> None:
        self._actions.append(Note(kind, fields))


def _signal_name(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:  # a real-time signal
        return f"signal {number}"
