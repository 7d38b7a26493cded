"""How training ends, and the run with it. Pure.

Every training task ends after its present step; then the chief finalizes (last snapshot, evaluation, export), alone;
then servers and evaluator are ended. With `replication: in_graph` the chief's steps need every training task: these
are told to stop when it is done.
"""

from __future__ import annotations

import signal

from headway.launch.groups import Team
from headway.launch.messages import Action, Note, SignalTask, TellTask
from headway.launch.taskstate import TaskState
from headway.launch.watch import STALL_STEPS
from headway.spec.command import ENDED
from headway.spec.job import Job

OWN_ENDS = ("steps_per_task", ENDED)  # reasons for which a task is done, and the others are not


class Ending:
    def __init__(self, job: Job, team: Team) -> None:
        self._job, self._team = job, team
        self.reason: str | None = None
        """Why training stops; None: it does not."""
        self.is_by_user = False
        self.user_stop: str | None = None
        self.chief_reason = ""
        """For which the chief was done."""
        self.is_finalizing = False
        """The chief was told that all others have ended."""
        self.is_closing = False
        """The chief has finished: servers and evaluator are being ended."""

    def ask(self, reason: str, is_by_user: bool) -> None:
        if self.reason is None:
            self.reason, self.is_by_user = reason, is_by_user

    def take_back(self) -> bool:
        """The variables are lost, and with them the reason to stop, unless it is the user's. True: training goes on."""
        if self.reason is None:
            return False
        self.reason, self.is_by_user = self.user_stop, self.user_stop is not None
        return self.reason is None

    def stop(self, now: float) -> list[Action]:
        """Every training task is told that has not been told yet, and can be."""
        team, actions = self._team, list[Action]()
        for task in team.training:
            state = team.states[task]
            is_needed = task == team.chief or task in team.ring  # to save and export what was trained
            if task in team.helpers and team.states[team.chief].phase != "done":
                pass  # the chief cannot end its step without it
            elif state.phase == "waiting" and not is_needed:
                state.enter("ended", now)
            elif is_needed and state.phase in ("starting", "ready"):
                pass  # it is told when it has joined: stopped before, it could not save what the servers hold
            elif state.is_running and state.phase != "done" and state.end_by is None:
                actions.append(TellTask(task, {"do": "stop", "reason": self.reason}))
                state.end_by = now + self._job.limits.stop + STALL_STEPS * max(state.step_seconds, default=0.0)
        return [*actions, *team.tell_updater("close", reason=self.reason)]

    def look(self, now: float) -> list[Action]:
        """What is due: to let the chief finalize, and then to end those who do not train."""
        team, actions = self._team, list[Action]()
        chief = team.states[team.chief]
        others = [team.states[task] for task in team.training if task != team.chief]
        is_chief_alone = not any(state.is_running or state.phase == "waiting" for state in others)
        if chief.phase == "done" and is_chief_alone and not self.is_finalizing:
            self.is_finalizing = True
            chief.end_by = now + self._job.limits.finish
            actions.append(TellTask(team.chief, {"do": "finalize"}))
        if chief.phase == "ended" and is_chief_alone and not self.is_closing:
            self.is_closing = True
            actions += [
                action for state in team.states.values() if state.is_running for action in self._end(state, now)
            ]
        return actions

    @property
    def is_over(self) -> bool:
        return self.is_closing and not any(state.is_running for state in self._team.states.values())

    def failures(self) -> list[Note]:
        """Tasks that failed, and do not decide how the run ends: for the record, and as a warning."""
        program, found = self._job.program, []
        for state in self._team.states.values():
            if state.failure is None or state.task.role == "ps" or not (program or state.phase == "given up"):
                continue
            if state.task.role == "evaluator":
                why = "an evaluator does not decide how a run ends"
            elif program and program.ends_with == "chief":
                why = "only the chief's command decides how the run ends (workload.ends_with: chief)"
            elif state.phase == "given up":
                why = "the others went on without it (restart.exhausted: continue)"
            else:
                why = "all training tasks were being stopped"
            found.append(Note("failure_ignored", {"task": str(state.task), "reason": state.failure, "why": why}))
        return found

    def _end(self, state: TaskState, now: float) -> list[Action]:
        """Training is over, and this one does not train."""
        state.end_by = now + self._job.limits.stop
        if state.task.role != "evaluator":
            return [SignalTask(state.task, signal.SIGTERM)]
        if self._job.program and not self.is_by_user:
            state.end_by = now + self._job.limits.finish  # it evaluates the last checkpoint, and ends by itself
            return []
        return [TellTask(state.task, {"do": "stop", "reason": "training is over"})]
