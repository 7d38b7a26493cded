"""The supervisor: a pure state machine. Events in, actions out; no clock, no process, no file of its own.

        TaskExited, TaskSaid, Tick ...                        StartTask, SignalTask, Note ...
driver ------------------------------> Supervisor.handle(event, now) ------------------------> driver

How a task fares (`phase`):

    waiting -> starting -> ready -> training -> done -> ended
       ^                      |         |               ^
       |______ failed, and restarts left_|              |__ exited after `done`, or told to stop

Rules it enforces
- The tasks that hold the variables live and die together; none is started before all are gone, so that no push of an
  older session can land in between. groups.py says who is bound, and to blame; restarts.py who begins anew, and how
  often.
- When the variables are lost, so is the reason for which training had ended: it goes on from the checkpoint to its
  real end, with everybody. Only a user's stop stays.
- The chief finalizes only after every other training task has ended: its last snapshot holds all updates (ending.py).
- A run that is made to be measured (measuring.py): all are told when the warm-up is over, and to stop when enough is
  measured.
- A task that is stopped or silent, does not start, or makes no step within its limit (watch.py) is killed; that is a
  failure like any other.
"""

from __future__ import annotations

import signal
from typing import Any, Literal

from headway.launch.ending import OWN_ENDS, Ending
from headway.launch.groups import Team, culprit
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
from headway.launch.restarts import Restarts
from headway.launch.taskstate import History, Phase, TaskState
from headway.launch.watch import Sentence, Watch
from headway.spec.cluster import Task
from headway.spec.job import Job

KILL_LIMIT = 10.0  # seconds for a killed task to be gone; else its node is taken for lost


class Supervisor:
    def __init__(self, job: Job, history: History = History()) -> None:  # noqa: B008 - frozen
        self.job = job
        self.state: Literal["starting", "running", "stopping", "ended"] = "starting"
        self.max_step = history.step
        self.generation = 0
        self.trained_seconds = history.trained_seconds
        self.training_since: float | None = None
        self.end: End | None = None
        self.tasks = {
            task: TaskState(task, attempt=history.attempts.get(task, -1), own_steps=history.own_steps.get(task, 0))
            for task in job.cluster.tasks()
        }
        self._team = Team(job, self.tasks)
        self._ending = Ending(job, self._team)
        self._restarts = Restarts(job, self._team)
        self._watch = Watch(job, self.tasks)
        self._measuring = Measuring(job)
        self._regrouping = False  # everything is being ended, to be started again on new nodes or ports
        self._num_regroups = 0
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
                case Heartbeat(task, age, vitals):
                    self.tasks[task].beat(age, vitals, now)
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

    @property
    def stop_reason(self) -> str | None:
        return self._ending.reason

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
                if state.task == self._team.updater:  # a new one waits for everybody: these will not come
                    for task in self._team.training:
                        if self.tasks[task].phase in ("ended", "given up"):
                            self._actions += self._team.tell_updater("leave", task=str(task))
            case "joined":
                state.enter("training", now)
                if self._measuring.has_begun:  # it was away when the others were told
                    self._actions.append(TellTask(state.task, {"do": "measure"}))
                if self.state == "starting":
                    self._set_state("running")
                elif self.stop_reason is not None:  # it was away when training was told to stop
                    self._stop_training(self.stop_reason, now, self._ending.is_by_user)
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
            case "disconnected" if state.task in self._team.ring and not state.killed_for:
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
        # Rows of a killed task may be missing: the checkpoint can be newer than the last step seen. Or they are in the
        # run folder, and were never heard.
        generation, recorded = said.get("reached") or (0, 0)
        step = said["step"]
        before = max(self.max_step, step, recorded if generation == generation_before else 0)
        # The variables were made before in this launch, or steps of an earlier launch are gone.
        if generation_before > 0 or step < before:
            self._note("rollback", step_before=before, step=step, steps_lost=before - step)
        self.max_step = step
        if step < before and self._take_back_end():  # the servers were lost behind the last step, and not saved
            for state in self.tasks.values():
                if state.phase == "ended":
                    state.wait_to_start(now, now)
            if self._ending.is_finalizing:  # this chief would not wait for the others again
                self._take_along(self.tasks[self._team.chief], now, f"training goes on from step {step}", now)

    def _done(self, state: TaskState, said: dict[str, Any], now: float) -> None:
        state.enter("done", now)
        state.failure = said.get("failure")  # of a program that ended so while all were being stopped
        state.end_by = None if state.task == self._team.chief else now + self.job.limits.stop
        if state.task == self._team.chief:
            self._ending.chief_reason = said["reason"]
            if said["reason"] not in OWN_ENDS or self._team.helpers:
                self._stop_training(said["reason"], now)

    def _exited(self, state: TaskState, exited: TaskExited, now: float) -> None:
        if exited.attempt != state.attempt or not state.is_running:
            return
        was, code = state.phase, exited.code
        in_order = was == "done" and code == 0
        expected = in_order or self._regrouping or self._ending.is_closing or self.end is not None
        reason = state.killed_for or (state.failure if code > 0 and state.failure else exited.how)
        self._note(
            "task_exited", task=str(state.task), attempt=state.attempt, code=code, expected=expected, reason=reason
        )
        state.pid = None
        state.enter("ended", now)
        self._measuring.left(state.task)
        if self._regrouping:
            state.wait_to_start(None, now)
        elif self._ending.is_closing or self.end is not None:
            return
        elif state.is_bystander:
            state.wait_to_start(state.start_at, now)
        elif in_order:
            if state.task in self._team.training:  # it has said so itself, unless a server was too slow to hear it
                self._actions += self._team.tell_updater("leave", task=str(state.task))
        elif self._is_over(state, was):
            if was != "done" and not state.killed_for:
                state.failure = reason
            state.forget_break()
            self._actions += self._team.tell_updater("leave", task=str(state.task))
        elif state.port_taken:  # every member knows every other's port: a new one is news for all
            state.wait_to_start(None, now)
            self._regroup(f"{state.task}: its port was taken by another program", now)
        elif state.task in self._team.ring:  # perhaps only because another died: see _judge
            state.left(exited, reason, now)
            state.fell = "ended itself" if exited.is_own_deed and not state.killed_for else "killed"
            state.show_break(now)
            state.wait_to_start(None, now)
        else:
            state.left(exited, reason, now)
            self._died(state, now)

    def _agent_lost(self, reason: str, tasks: tuple[Task, ...] | None, now: float) -> None:
        self._note("agent_lost", reason=reason)
        if tasks is not None and set(tasks) != set(self.tasks):  # one node of several: its tasks died, the others go on
            for state in (self.tasks[task] for task in tasks):
                state.killed_for = state.killed_for or reason
                self._exited(state, TaskExited(state.task, state.attempt, -signal.SIGKILL), now)
            return
        if self.end is not None or self._ending.is_closing:  # it took along what was to end anyway
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
        self._ending.user_stop = self._ending.user_stop or reason
        chief = self.tasks[self._team.chief]
        is_without_steps = self.training_since is None and not self.job.program  # of a program they may be unknown
        if at_once or (chief.phase != "done" and is_without_steps):
            self._end_run("stopped", reason, now)  # nothing is trained yet: there is nothing to finalize
        else:
            self._stop_training(reason, now, told_by_user=True)

    # --- decisions -------------------------------------------------------------------------------------------
    def _stop_training(self, reason: str, now: float, told_by_user: bool = False) -> None:
        """Every training task ends after its present step; then the chief finalizes."""
        self._ending.ask(reason, told_by_user)
        if self.state != "stopping":
            self._set_state("stopping")
        self._actions += self._ending.stop(now)

    def _advance(self, now: float) -> None:
        """What time, or the sum of what happened, makes due."""
        self._look(now)
        if self.end is None and not self._regrouping:
            self._judge(now)
            for group in self._team.groups:
                waiting = [state for state in group if state.phase == "waiting"]
                is_due = all(state.start_at is not None and now >= state.start_at for state in waiting)
                if is_due and not self._ending.is_closing and not any(state.is_running for state in group):
                    for state in waiting:
                        self._start(state, now)
            self._measure(now)
            self._actions += self._ending.look(now)
            if self._ending.is_over:
                self._actions += self._ending.failures()
                reason = self.stop_reason or self._ending.chief_reason
                self._end_run("stopped" if self._ending.is_by_user else "finished", reason, now)
        if any(state.is_running for state in self.tasks.values()):
            return
        if self.end is not None:
            self._actions.append(self.end)
            self._set_state("ended")
        elif self._regrouping:
            self._regrouping = False
            self._actions.append(Regroup(self._restarts.delay(self._num_regroups)))

    def _measure(self, now: float) -> None:
        due = self._measuring.look(now) if self.stop_reason is None else None
        if due == "begin":
            self._note("measuring", **self._measuring.begin(now))
            self._actions += [TellTask(task, {"do": "measure"}) for task in self._team.training]
        elif due == "stop":
            self._stop_training("measured", now)

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
        ring = [self.tasks[task] for task in self._team.ring]
        if self._is_training_over and not self.tasks[self._team.chief].cut_off:
            for state in ring:
                if state.fell:
                    state.forget_break()
                    state.enter("ended", now)
                elif state.cut_off and not state.killed_for:
                    self._kill(state, f"a collective broke: {state.cut_off}", now)
        elif (found := culprit(ring, now)) is None or (found.is_running and found.killed_for):
            pass  # the ring is whole, or the news is not complete, or the one to blame has yet to end
        elif found.is_running:
            self._kill(found, f"a collective broke: {found.cut_off or found.why_frozen(now)}", now)
        else:
            self._died(found, now)

    def _died(self, state: TaskState, now: float) -> None:
        """It is started again, together with all that must begin anew; or it is given up, or the run fails."""
        if not self._may_restart(state, now):
            state.forget_break()
            state.enter("given up", now)
            return
        due = now + self._restarts.delay(self._restarts.made(state.task))
        is_lost = self._restarts.loses_variables(state.task, self._ending.is_finalizing)
        goes_on = is_lost and self._take_back_end()
        for other in self._restarts.begin_anew(state.task, goes_on, is_lost):
            self._take_along(other, due, f"with {state.task}: they begin anew together", now)

    def _take_along(self, state: TaskState, due: float, reason: str, now: float) -> None:
        """It begins anew, and that does not count as a restart of its own."""
        state.forget_break()
        if not state.is_running:
            state.wait_to_start(due, now)
            return
        state.is_bystander, state.start_at = True, due
        if not state.killed_for:
            self._kill(state, reason, now)

    def _take_back_end(self) -> bool:
        """The variables are lost, and with them the reason to stop, unless it is the user's. True: training goes on."""
        goes_on = self._ending.take_back()
        if goes_on:
            self._set_state("running")
        return goes_on

    def _is_over(self, state: TaskState, was: Phase) -> bool:
        """Whether nothing is lost by its end."""
        if state.task in (self._team.chief, *self._team.servers):
            return self.job.program is not None and was == "done"
        return was == "done" or self._is_training_over

    @property
    def _is_training_over(self) -> bool:
        """Whether nobody is needed any more but the chief. Under allreduce the chief has all that was trained when it
        is done; a user's program may be done in one task, and in the others not."""
        if self.job.program or not (self._team.ring or self._team.helpers):
            return self.state == "stopping"
        return self.tasks[self._team.chief].phase == "done"

    # --- doing -----------------------------------------------------------------------------------------------
    def _start(self, state: TaskState, now: float) -> None:
        state.begin(now)
        if state.task == self._team.chief:
            self._ending.is_finalizing = False
        elif state.task == self._team.updater:
            self._watch.unblocked()
        trained = self.trained_seconds + (now - self.training_since if self.training_since else 0.0)
        self._actions.append(StartTask(state.task, state.attempt, state.own_steps, trained))

    def _kill(self, state: TaskState, reason: str, now: float) -> None:
        state.killed_for, state.killed_at = reason, now
        self._actions.append(SignalTask(state.task, signal.SIGKILL))

    def _may_restart(self, state: TaskState, now: float) -> bool:
        verdict = self._restarts.failed(state)
        made, allowed, reason = self._restarts.made(state.task), self._restarts.allowed, state.failure
        if verdict == "restart":
            self._note("restarting", task=str(state.task), reason=reason, restart=made, allowed=allowed)
        elif verdict == "give up":
            self._note("given_up", task=str(state.task), reason=reason)
            self._actions += self._team.tell_updater("leave", task=str(state.task))
        else:
            again = f" after {made} restart{'s' if made > 1 else ''}" if made else ""
            self._end_run("failed", f"{state.task} failed{again}: {reason}", now)
        return verdict == "restart"

    def _regroup(self, reason: str, now: float) -> None:
        self._num_regroups += 1
        if self._num_regroups > self._restarts.allowed:
            self._end_run("failed", reason, now)
            return
        self._note("regrouping", reason=reason)
        self._regrouping = True
        goes_on = self._take_back_end()
        for state in self.tasks.values():
            state.forget_break()
            if state.phase == "waiting" or (state.phase == "ended" and (goes_on or state.task in self._team.ring)):
                state.wait_to_start(None, now)
            elif state.is_running:
                self._kill(state, f"everything restarts: {reason}", now)

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
