"""The supervisor: a pure state machine. Events in, actions out; no clock, no process, no file of its own.

        TaskExited, TaskSaid, Tick ...                        StartTask, SignalTask, Note ...
driver ------------------------------> Supervisor.handle(event, now) ------------------------> driver

How a task fares (`phase`):

    waiting -> starting -> ready -> training -> done -> ended
       ^                      |         |               ^
       |______ failed, and restarts left_|              |__ exited after `done`, or told to stop

Rules it enforces
- The tasks that hold the variables (servers; without servers the training tasks) live and die together: a dead one
  takes the others with it, and none is started before all are gone, so that the chief restores every one of them from
  the same checkpoint and no push of an older session can land in between. groups.py says who is bound, and to blame.
- Every other dead task is started again alone and rejoins; the others go on.
- When the variables are lost, so is the reason for which training had ended: it goes on from the checkpoint to its
  real end, with everybody. Only a user's stop stays.
- With `replication: in_graph` the chief's steps need every training task: these are told to stop when it is done.
- The chief finalizes only after every other training task has ended: its last snapshot holds all updates.
- A task that fails for what would be so again (a device that is not there, damaged data) is not started again.
- A run that is made to be measured (measuring.py): all are told when the warm-up is over, and to stop when enough is
  measured.
- A task that is silent, does not start, or makes no step within its limit (watch.py) is killed; that is a failure like
  any other.
"""

from __future__ import annotations

import signal
from typing import Any, Literal

from headway.launch.groups import culprit, groups, holders
from headway.launch.measuring import Measuring
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
from headway.launch.watch import STALL_STEPS, Sentence, Watch
from headway.spec.cluster import Task
from headway.spec.command import ENDED
from headway.spec.job import Job

MAX_RESTART_DELAY = 30.0
OWN_ENDS = ("steps_per_task", ENDED)  # reasons for which a task is done, and the others are not
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
        self._holders = holders(job)
        self._groups = [[self.tasks[task] for task in group] for group in groups(job)]
        self._ring = self._training if job.strategy.kind == "allreduce" else []
        # Who computes for the chief, and makes no step of its own.
        self._helpers = self._training[1:] if job.strategy.replication == "in_graph" else []
        self._updater = self._servers[0] if job.strategy.kind == "ps-sync" else None
        self._watch = Watch(job, self.tasks)
        self._measuring = Measuring(job)
        self._regrouping = False  # everything is being ended, to be started again on new nodes or ports
        self._num_regroups = 0
        self._closing = False  # the chief has finished: servers and evaluator are being ended
        self._finalize_sent = False
        self._user_stop: str | None = None
        self._chief_reason = ""  # for which the chief was done
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
                case TaskExited(task):
                    self._exited(self.tasks[task], event, now)
                case Heartbeat(task, age):
                    self.tasks[task].alive_at = max(self.tasks[task].alive_at, now - age)
                case AgentLost(reason, tasks):
                    self._agent_lost(reason, tasks, now)
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
        state.hear(said, now)
        if state.stalled:
            state.stalled = False
            self._note("going_on", task=str(state.task))
        match said["kind"]:
            case "ready":
                state.enter("ready", now)
                if state.task == self._updater:  # a new one waits for everybody: these will not come
                    for task in self._training:
                        if self.tasks[task].phase in ("ended", "given up"):
                            self._tell_updater("leave", task=str(task))
            case "joined":
                state.enter("training", now)
                if self._measuring.has_begun:  # it was away when the others were told
                    self._actions.append(TellTask(state.task, {"do": "measure"}))
                if self.state == "starting":
                    self._set_state("running")
                elif self.stop_reason is not None:  # it was away when training was told to stop
                    self._stop_training(self.stop_reason, now, self.stopped_by_user)
            case "step":
                self.training_since = self.training_since or now
                self._reached(said)
                self._measuring.heard(state.task, said, now)
            case "update":
                self._watch.unblocked()
                self._reached(said)
            case "blocked":
                self._actions += self._watch.blocked(said, now)
            case "unblocked":
                self._watch.unblocked()
            case "evaluation":
                self._evaluated(state, said, now)
            case "initialized":
                self._initialized(said, now)
            case "disconnected" if state.task in self._ring and not state.killed_for:
                state.cut_off = str(said.get("error"))
                state.show_break(now)
            case "done":
                self._done(state, said, now)
            case _:
                pass

    def _reached(self, said: dict[str, Any]) -> None:
        if said.get("generation", self.generation) >= self.generation:  # else it is news from before a rollback
            self.max_step = max(self.max_step, said["step"])

    def _evaluated(self, state: TaskState, said: dict[str, Any], now: float) -> None:
        if self.job.program:
            return
        wanted, accuracy = self.job.training.stop.accuracy, said.get("accuracy")
        if state.task.role == "evaluator" and wanted and isinstance(accuracy, float) and accuracy >= wanted:
            self._stop_training("accuracy", now)

    def _initialized(self, said: dict[str, Any], now: float) -> None:
        self.generation, generation_before = said.get("generation", self.generation), self.generation
        if said["how"] == "adopted":
            return
        # Rows of a killed task may be missing: the checkpoint can be newer than the last step seen.
        step, before = said["step"], max(self.max_step, said["step"])
        # The variables were made before in this launch, or steps of an earlier launch are gone.
        if generation_before > 0 or step < before:
            self._note("rollback", step_before=before, step=step, steps_lost=before - step)
        self.max_step = step
        if step < before and self._take_back_end():  # the servers were lost behind the last step, and not saved
            for state in self.tasks.values():
                if state.phase == "ended":
                    state.wait_to_start(now, now)
            if self._finalize_sent:  # this chief would not wait for the others again
                self._take_along(self.tasks[self._chief], now, "training goes on from the checkpoint", now)

    def _done(self, state: TaskState, said: dict[str, Any], now: float) -> None:
        state.enter("done", now)
        state.end_by = None if state.task == self._chief else now + self.job.limits.stop
        if state.task == self._chief:
            self._chief_reason = said["reason"]
            if said["reason"] not in OWN_ENDS or self._helpers:
                self._stop_training(said["reason"], now)

    def _exited(self, state: TaskState, exited: TaskExited, now: float) -> None:
        if exited.attempt != state.attempt or not state.is_running:
            return
        was, code = state.phase, exited.code
        in_order = was == "done" and code == 0
        expected = in_order or self._regrouping or self._closing or self.end is not None
        reason = state.killed_for or (state.failure if code > 0 and state.failure else exited.how)
        self._note(
            "task_exited", task=str(state.task), attempt=state.attempt, code=code, expected=expected, reason=reason
        )
        state.pid = None
        state.enter("ended", now)
        self._measuring.left(state.task)
        if self._regrouping:
            state.wait_to_start(None, now)
        elif self._closing or self.end is not None:
            return
        elif state.is_bystander:
            state.wait_to_start(state.start_at, now)
        elif in_order:
            if state.task in self._training:  # it has said so itself, unless a server was too slow to hear it
                self._tell_updater("leave", task=str(state.task))
        elif self._is_over(state, was):
            state.forget_break()
            self._tell_updater("leave", task=str(state.task))
        elif state.port_taken:  # every member knows every other's port: a new one is news for all
            state.wait_to_start(None, now)
            self._regroup(f"{state.task}: its port was taken by another program", now)
        elif state.task in self._ring:  # perhaps only because another died: see _judge
            state.failure = reason
            state.fell = "ended itself" if exited.is_own_deed and not state.killed_for else "killed"
            state.show_break(now)
            state.wait_to_start(None, now)
        else:
            self._died(state, reason, now)

    def _agent_lost(self, reason: str, tasks: tuple[Task, ...] | None, now: float) -> None:
        self._note("agent_lost", reason=reason)
        if tasks is not None and set(tasks) != set(self.tasks):  # one node of several: its tasks died, the others go on
            for state in (self.tasks[task] for task in tasks):
                state.killed_for = state.killed_for or reason
                self._exited(state, TaskExited(state.task, state.attempt, -signal.SIGKILL), now)
            return
        if self.end is not None or self._closing:  # it took along what was to end anyway
            for state in self.tasks.values():
                if state.is_running:
                    state.enter("ended", now)
            return
        for state in self.tasks.values():
            if state.is_running or state.phase == "waiting":
                state.pid = None
                state.wait_to_start(None, now)
        self._regroup(reason, now)

    def _regrouped(self, now: float) -> None:
        self._regrouping = False
        for state in self.tasks.values():
            if state.phase == "waiting":
                state.start_at = now

    def _stop_asked(self, reason: str, at_once: bool, now: float) -> None:
        self._note("stop_asked", reason=reason, at_once=at_once)
        self._user_stop = self._user_stop or reason
        chief = self.tasks[self._chief]
        is_without_steps = self.training_since is None and not self.job.program  # of a program they may be unknown
        if at_once or (chief.phase != "done" and is_without_steps):
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
            is_needed = task == self._chief or task in self._ring  # to save and export what was trained
            if task in self._helpers and self.tasks[self._chief].phase != "done":
                pass  # the chief cannot end its step without it
            elif state.phase == "waiting" and not is_needed:
                state.enter("ended", now)
            elif is_needed and state.phase in ("starting", "ready"):
                pass  # it is told when it has joined: stopped before, it could not save what the servers hold
            elif state.is_running and state.phase != "done" and state.end_by is None:
                self._actions.append(TellTask(task, {"do": "stop", "reason": self.stop_reason}))
                state.end_by = now + self.job.limits.stop + STALL_STEPS * max(state.step_seconds, default=0.0)
        self._tell_updater("close", reason=self.stop_reason)

    def _advance(self, now: float) -> None:
        """What time, or the sum of what happened, makes due."""
        self._look(now)
        if self.end is None and not self._regrouping:
            self._judge(now)
            for group in self._groups:
                waiting = [state for state in group if state.phase == "waiting"]
                is_due = all(state.start_at is not None and now >= state.start_at for state in waiting)
                if is_due and not self._closing and not any(state.is_running for state in group):
                    for state in waiting:
                        self._start(state, now)
            self._measure(now)
            self._finish_when_due(now)
        if any(state.is_running for state in self.tasks.values()):
            return
        if self.end is not None:
            self._actions.append(self.end)
            self._set_state("ended")
        elif self._regrouping:
            self._regrouping = False
            self._actions.append(Regroup(self._restart_delay(self._num_regroups)))

    def _measure(self, now: float) -> None:
        due = self._measuring.look(now) if self.stop_reason is None else None
        if due == "begin":
            self._note("measuring", **self._measuring.begin(now))
            self._actions += [TellTask(task, {"do": "measure"}) for task in self._training]
        elif due == "stop":
            self._stop_training("measured", now)

    def _finish_when_due(self, now: float) -> None:
        chief = self.tasks[self._chief]
        others = [self.tasks[task] for task in self._training if task != self._chief]
        if (
            chief.phase == "done"
            and not self._finalize_sent
            and not any(state.is_running or state.phase == "waiting" for state in others)
        ):
            self._finalize_sent = True
            chief.end_by = now + self.job.limits.finish
            self._actions.append(TellTask(self._chief, {"do": "finalize"}))
        if chief.phase == "ended" and not self._closing:
            self._closing = True
            for state in self.tasks.values():
                if state.is_running:
                    self._close(state, now)
        if self._closing and not any(state.is_running for state in self.tasks.values()):
            reason = self.stop_reason or self._chief_reason
            self._end_run("stopped" if self.stopped_by_user else "finished", reason, now)

    def _close(self, state: TaskState, now: float) -> None:
        """Training is over, and this one does not train."""
        state.end_by = now + self.job.limits.stop
        if state.task.role != "evaluator":
            self._actions.append(SignalTask(state.task, signal.SIGTERM))
        elif self.job.program and not self.stopped_by_user:
            state.end_by = now + self.job.limits.finish  # it evaluates the last checkpoint, and ends by itself
        else:
            self._actions.append(TellTask(state.task, {"do": "stop", "reason": "training is over"}))

    def _look(self, now: float) -> None:
        """Who has taken too long?"""
        for state in self.tasks.values():
            if state.is_running and state.killed_for and now - state.killed_at > KILL_LIMIT and self.end is None:
                self._agent_lost(f"{state.task} was killed {KILL_LIMIT:g} s ago and has not ended", None, now)
                return
        for found in self._watch.look(now):
            if isinstance(found, Sentence):
                self._kill(found.state, found.reason, now)
            else:
                self._actions.append(found)

    def _judge(self, now: float) -> None:
        """A broken ring can only be started again, all of it; this counts as a restart of the one that broke it."""
        ring = [self.tasks[task] for task in self._ring]
        chief = self.tasks[self._chief]
        if chief.phase == "done" and not chief.cut_off:  # it has all that was trained: nothing is lost
            for state in ring:
                if state.fell:
                    state.forget_break()
                    state.enter("ended", now)
                elif state.cut_off and not state.killed_for:
                    self._kill(state, f"a collective broke: {state.cut_off}", now)
        elif (found := culprit(ring, now)) is None or (found.is_running and found.killed_for):
            pass  # the ring is whole, or the news is not complete, or the one to blame has yet to end
        elif found.is_running:
            silence = f"no heartbeat for {now - found.alive_at:.0f} s" if found.silent else ""
            self._kill(found, f"a collective broke: {found.cut_off or silence}", now)
        else:
            self._died(found, found.failure or "", now)

    def _died(self, state: TaskState, reason: str, now: float) -> None:
        """It is started again, together with all that must begin anew; or it is given up, or the run fails."""
        if not self._may_restart(state, reason, now):
            state.enter("given up", now)
            return
        due = now + self._restart_delay(state.restarts)
        for other in self._taken_along(state.task):
            self._take_along(other, due, f"with {state.task}: all begin anew from one checkpoint", now)

    def _take_along(self, state: TaskState, due: float, reason: str, now: float) -> None:
        """It begins anew, and that does not count as a restart of its own."""
        state.forget_break()
        if not state.is_running:
            state.wait_to_start(due, now)
            return
        state.is_bystander, state.start_at = True, due
        if not state.killed_for:
            self._kill(state, reason, now)

    def _taken_along(self, dead: Task) -> list[TaskState]:
        """Who begins anew when this task is dead, itself included."""
        is_chief_done = self.tasks[self._chief].phase == "done"
        if dead not in self._holders:
            again = {dead}
        elif self._servers and is_chief_done and self._finalize_sent:
            again = {*self._servers}  # the chief may have its last snapshot, and need them no more
        elif self._take_back_end():  # also those who were told to stop, or have ended
            again = {
                *self._holders,
                *self._training,
                *(task for task, state in self.tasks.items() if state.phase == "ended"),
            }
        else:  # training tasks connect again; only a chief that waits for the others to end would not restore
            again = {*self._holders, self._chief} if is_chief_done else {*self._holders}
        return [state for state in self.tasks.values() if state.task in again and state.phase != "given up"]

    def _take_back_end(self) -> bool:
        """The variables are lost, and with them the reason to stop, unless it is the user's. True: training goes on."""
        if self.stop_reason is None:
            return False
        self.stop_reason, self.stopped_by_user = self._user_stop, self._user_stop is not None
        if self.stop_reason is None:
            self._set_state("running")
        return self.stop_reason is None

    def _is_over(self, state: TaskState, was: Phase) -> bool:
        """Whether nothing is lost by its end."""
        if state.task in (self._chief, *self._servers):
            return False
        is_chief_done = self.tasks[self._chief].phase == "done"
        is_training_over = is_chief_done if self._ring or self._helpers else self.state == "stopping"
        return was == "done" or is_training_over

    # --- doing -----------------------------------------------------------------------------------------------
    def _start(self, state: TaskState, now: float) -> None:
        state.begin(now)
        if state.task == self._chief:
            self._finalize_sent = False
        elif state.task == self._updater:
            self._watch.unblocked()
        trained = self.trained_seconds + (now - self.training_since if self.training_since else 0.0)
        self._actions.append(StartTask(state.task, state.attempt, state.own_steps, trained))

    def _kill(self, state: TaskState, reason: str, now: float) -> None:
        state.killed_for, state.killed_at = reason, now
        self._actions.append(SignalTask(state.task, signal.SIGKILL))

    def _may_restart(self, state: TaskState, reason: str, now: float) -> bool:
        state.failure = reason
        state.restarts += 1
        allowed = self.job.restart.attempts
        if state.restarts <= allowed and not state.is_hopeless:
            self._note("restarting", task=str(state.task), reason=reason, restart=state.restarts, allowed=allowed)
            return True
        if self._is_spare(state.task):
            self._note("given_up", task=str(state.task), reason=reason)
            self._tell_updater("leave", task=str(state.task))
        else:
            made = state.restarts - 1
            again = f" after {made} restart{'s' if made > 1 else ''}" if made else ""
            self._end_run("failed", f"{state.task} failed{again}: {reason}", now)
        return False

    def _is_spare(self, task: Task) -> bool:
        """Whether the run can go on without it."""
        if task.role == "evaluator":  # unless nothing else could ever end the run
            if self.job.program:
                return True
            stop = self.job.training.stop
            return any(end is not None for end in (stop.steps, stop.epochs, stop.seconds, stop.steps_per_task))
        is_bound = task in self._holders or task == self._chief
        return task.role == "worker" and not is_bound and self.job.restart.exhausted == "continue"

    def _restart_delay(self, restarts: int) -> float:
        return min(MAX_RESTART_DELAY, self.job.restart.delay * 2.0 ** max(0, restarts - 1))

    def _regroup(self, reason: str, now: float) -> None:
        self._num_regroups += 1
        if self._num_regroups > self.job.restart.attempts:
            self._end_run("failed", reason, now)
            return
        self._note("regrouping", reason=reason)
        self._regrouping = True
        goes_on = self._take_back_end()
        for state in self.tasks.values():
            state.forget_break()
            if state.phase == "waiting" or (state.phase == "ended" and (goes_on or state.task in self._ring)):
                state.wait_to_start(None, now)
            elif state.is_running:
                self._kill(state, f"everything restarts: {reason}", now)

    def _tell_updater(self, do: str, **fields: Any) -> None:
        """ps-sync: whom not to wait for any more. One that is not up yet is told when it is, or when others join."""
        if self._updater is not None and self.tasks[self._updater].phase == "ready":
            self._actions.append(TellTask(self._updater, {"do": do, **fields}))

    def _end_run(self, state: Literal["finished", "stopped", "failed"], reason: str, now: float) -> None:
        if self.end is None:
            self.end = End(state, reason)
            for task in self.tasks.values():
                if task.is_running:
                    self._kill(task, "the run is over", now)

    def _set_state(self, state: Literal["starting", "running", "stopping", "ended"]) -> None:
        self.state = state
        if state != "ended":
            self._note("state", state=state)

    def _note(self, kind: str, **fields: Any) -> None:
        self._actions.append(Note(kind, fields))
