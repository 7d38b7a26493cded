"""The policy of restarts: who is started again, with whom, after what delay, and when no more. Pure.

- The tasks that hold the variables (servers; without servers the training tasks) live and die together: a dead one
  takes the others with it, so that the chief restores every one of them from the same checkpoint. Their restarts are
  counted together.
- Every other dead task is started again alone and rejoins; the others go on.
- What would fail again is not started again: the task itself says so (a module or a device that is not there, damaged
  data), or it ended in the same way twice without a step in between.
"""

from __future__ import annotations

from typing import Literal

from headway.launch.groups import Team
from headway.launch.taskstate import TaskState
from headway.spec.cluster import Task
from headway.spec.job import Job

MAX_DELAY = 30.0
START = 60.0  # seconds: who tells of no steps and lives longer may have worked
TWICE = "in the same way twice, without a step in between"


class Restarts:
    def __init__(self, job: Job, team: Team) -> None:
        self._job, self._team = job, team
        self._last: dict[Task, tuple[object, int]] = {}  # of a group's first task: how it failed last, after what steps

    @property
    def allowed(self) -> int:
        return self._job.restart.attempts

    def made(self, task: Task) -> int:
        """How often its group was started again."""
        return sum(state.restarts for state in self._team.group(task))

    def failed(self, state: TaskState) -> Literal["restart", "give up", "fail"]:
        """It has failed once more: what is to be done about it."""
        if self._fails_again(state):
            state.is_hopeless, state.failure = True, f"{state.failure} ({TWICE})"
        is_whole = not any(other.phase == "given up" for other in self._team.group(state.task))
        if self.made(state.task) < self.allowed and not state.is_hopeless and is_whole:
            state.restarts += 1
            return "restart"
        return "give up" if self._is_spare(state.task) else "fail"

    def _fails_again(self, state: TaskState) -> bool:
        """Whether its group has failed like this before, and made no step since."""
        if state.exit is None:
            return False
        group = self._team.group(state.task)
        steppers = self._team.training if group[0].task in self._team.servers else [each.task for each in group]
        steps = sum(self._team.states[task].own_steps for task in steppers)
        now, before = ((state.exit.how, state.error), steps), self._last.get(group[0].task)
        self._last[group[0].task] = now
        return now == before and (steps > 0 or state.lived < START)

    def delay(self, restarts: int) -> float:
        return min(MAX_DELAY, self._job.restart.delay * 2.0 ** max(0, restarts - 1))

    def loses_variables(self, dead: Task, is_finalizing: bool) -> bool:
        """Whether its death takes variables along that training still needs."""
        if self._team.servers and self._team.states[self._team.chief].phase == "done" and is_finalizing:
            return False  # the chief may have its last snapshot, and need them no more
        return dead in self._team.holders

    def begin_anew(self, dead: Task, goes_on: bool, loses_variables: bool) -> list[TaskState]:
        """Who begins anew when this task is dead, itself included. `goes_on`: training had ended, and goes on."""
        team = self._team
        if dead not in team.holders:
            again = {dead}
        elif not loses_variables:
            again = {*team.servers}
        elif goes_on:  # also those who were told to stop, or have ended
            ended = (task for task, state in team.states.items() if state.phase == "ended")
            again = {*team.holders, *team.training, *ended}
        else:  # training tasks connect again; only a chief that waits for the others to end would not restore
            is_chief_done = team.states[team.chief].phase == "done"
            again = {*team.holders, team.chief} if is_chief_done else {*team.holders}
        return [state for state in team.states.values() if state.task in again and state.phase != "given up"]

    def _is_spare(self, task: Task) -> bool:
        """Whether the run can go on without it."""
        if task.role == "evaluator":  # unless nothing else could ever end the run
            if self._job.program:
                return True
            stop = self._job.training.stop
            return any(end is not None for end in (stop.steps, stop.epochs, stop.seconds, stop.steps_per_task))
        if task == self._team.chief:
            return False
        if self._job.program and self._job.program.ends_with == "chief" and task.role == "worker":
            return True  # how the chief's command ends decides
        is_bound = task in self._team.holders
        return task.role == "worker" and not is_bound and self._job.restart.exhausted == "continue"
