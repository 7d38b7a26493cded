"""Who does what in a run, which tasks live and die together; and, when a ring of them breaks, whose fault it was. Pure.

The tasks that hold the variables are bound to each other, for what they hold must be of one moment: the servers, or,
where there are none, the training tasks. Every other task is a group of its own.

Under allreduce the bound tasks form a *ring*: the death of one breaks the collectives of all. The others then say
`disconnected`, and may fail themselves, and the news of that may come before the news of the death. So nobody is
blamed before all have shown what became of them, or a grace is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headway.launch.messages import TellTask
from headway.launch.taskstate import TaskState
from headway.spec.cluster import Task
from headway.spec.job import Job

GRACE = 5.0  # seconds in which the death that broke a ring must be seen
LAST_WORDS = 1.0  # seconds for the others to write their last steps, once a death is known


def holders(job: Job) -> list[Task]:
    """The tasks that hold the variables: bound to each other."""
    return [task for task in job.cluster.tasks() if task.role == "ps"] or job.cluster.training_tasks()


def groups(job: Job) -> list[list[Task]]:
    """Every task in exactly one group, in the cluster's order."""
    bound = holders(job)
    return [
        bound if task == bound[0] else [task] for task in job.cluster.tasks() if task == bound[0] or task not in bound
    ]


class Team:
    """The tasks of a run, by what they do in it."""

    def __init__(self, job: Job, states: Mapping[Task, TaskState]) -> None:
        self.states = states
        self.chief = job.cluster.chief_task()
        self.training = job.cluster.training_tasks()
        self.servers = [task for task in states if task.role == "ps"]
        self.holders = holders(job)
        self.groups = [[states[task] for task in group] for group in groups(job)]
        self._group_of = {state.task: group for group in self.groups for state in group}
        self.ring = self.training if job.strategy.kind == "allreduce" else []
        self.helpers = self.training[1:] if job.strategy.replication == "in_graph" else []
        """Who computes for the chief, and makes no step of its own."""
        self.updater = self.servers[0] if job.strategy.kind == "ps-sync" else None

    def group(self, task: Task) -> list[TaskState]:
        """Those that begin anew with it, itself included."""
        return self._group_of[task]

    def tell_updater(self, do: str, **fields: Any) -> list[TellTask]:
        """ps-sync: whom not to wait for any more. One that is not up yet is told when it is, or when others join."""
        if self.updater is None or self.states[self.updater].phase != "ready":
            return []
        return [TellTask(self.updater, {"do": do, **fields})]


def _is_held_up(member: TaskState) -> bool:
    """It does nothing at all, and nobody means it to be so. A stopped helper of it, or a debugger, breaks no ring."""
    if member.frozen == "stopped":
        return member.vitals is not None and member.vitals.whole and not member.vitals.by_debugger
    return member.frozen is not None


# Who is to blame, the surest first. One that was killed, by us for its own sake or by others, or is frozen did not end
# because of another; one that ended itself may have, without a word.
_BLAME: tuple[Callable[[TaskState], object], ...] = (
    lambda member: not member.cut_off and member.killed_for and (member.is_running or member.fell),
    lambda member: not member.cut_off and member.fell == "killed",
    lambda member: not member.cut_off and member.is_running and _is_held_up(member),
    lambda member: not member.cut_off and member.fell,
    lambda member: member.cut_off,
)


def culprit(ring: Sequence[TaskState], now: float) -> TaskState | None:
    """Who broke the ring; None while it is whole, or as long as that cannot be told."""
    if hopeless := [member for member in ring if member.fell and member.is_hopeless]:
        return hopeless[0]  # it says itself that nobody else is the reason
    signs = [member.broke_at for member in ring if member.broke_at is not None]
    if not signs:
        return None
    is_death_known = any(member.fell == "killed" for member in ring)
    unheard = [
        member
        for member in ring
        if member.is_running and not (member.cut_off or member.frozen or member.killed_for or member.phase == "done")
        # A death is known: only those who train can have steps to tell.
        if member.phase == "training" or not is_death_known
    ]
    if unheard and now - min(signs) < (LAST_WORDS if is_death_known else GRACE):
        return None
    suspects = next(found for blamed in _BLAME if (found := [member for member in ring if blamed(member)]))
    return min(suspects, key=lambda member: now if member.broke_at is None else member.broke_at)
