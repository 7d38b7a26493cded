"""The nodes of a run: gets them, listens to their agents, keeps their leases, gets a lost one anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headway import clock
from headway.errors import HeadwayError, StorageError
from headway.host.vitals import Vitals
from headway.launch.clocks import Clock
from headway.launch.commands import missing_cores, needs_port
from headway.launch.gauges import Gauges
from headway.launch.messages import AgentLost, Event, Heartbeat, TaskExited, TaskSaid, TaskStarted
from headway.record.folder import RunFolder
from headway.record.reader import parse_line
from headway.sites import Node, SitePlan, site
from headway.spec.cluster import Task
from headway.spec.job import Job

FREQUENT = ('"kind": "step"', '"kind": "update"', '"kind": "told"')
CANNOT_START = 127  # as a shell says it


class Nodes:
    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        hear: Callable[[Event], None],
        note: Callable[[str, dict[str, Any]], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`hear`: news for the supervisor; `note`: for the record; `spawn`: runs a job until the end of the run."""
        self._job, self._folder = job, folder
        self._hear, self._note, self._spawn = hear, note, spawn
        self._site = site(job.site.kind)
        self.plan: SitePlan = self._site.plan(job)
        self.nodes: list[Node] = []
        self.addresses: dict[Task, str] = {}
        self.gauges = Gauges()
        self._clocks: dict[str, Clock] = {}
        self._reviving: dict[str, asyncio.Task[Node]] = {}
        self._are_all_lost = False

    # --- getting and losing them -------------------------------------------------------------------------------------
    async def acquire(self) -> None:
        """Every planned node, with its agent, and a port for every task that listens."""
        self._note("acquiring", {"count": len(self.plan.nodes)})
        for node in await self._site.acquire(self.plan, self._folder, self._note):
            self.nodes.append(node)
            if missing := missing_cores(self._job, node.facts["cores"]):
                raise HeadwayError(f"cores {missing} were asked, but node {node.name} has only {node.facts['cores']}")
            await self._get_ports(node)
            self._begin(node)

    async def release(self) -> None:
        self.nodes = []
        for job in self._reviving.values():
            job.cancel()
        await self._site.release()

    async def regroup(self) -> None:
        """All of them anew, with new ports."""
        await self.release()
        await self.acquire()
        self._are_all_lost = False

    def _begin(self, node: Node) -> None:
        asked, limits = (
            machine.model_dump(exclude_none=True, exclude_defaults=True)
            for machine in (node.planned.machine, node.limits)
        )
        tasks = [str(task) for task in node.planned.tasks]
        facts = {"pid": node.pid, "address": node.planned.address, "tasks": tasks, "asked": asked, "limits": limits}
        facts |= node.facts
        self._note("node_ready", {"node": node.name, **facts})
        if node.cpus is not None:
            # To import TensorFlow takes seconds of CPU time, and says nothing of a machine that trains: until its tasks
            # are ready a node has all the CPU that it can get.
            node.send("limit", cpus=None)
            node.is_limited = False
        node.send("monitor", hertz=self._job.monitor.hertz, **node.monitor)
        self._clocks[node.name] = Clock()
        self._spawn(self._listen(node))
        self._spawn(self._renew(node))

    async def _get_ports(self, node: Node) -> None:
        listening = [task for task in node.planned.tasks if needs_port(self._job, task)]
        if not listening:
            return
        first, last = self._job.site.ports or (None, None)
        node.send("ports", count=len(listening), first=first, last=last)
        answer = await node.expect("ports", limit=10)
        if "error" in answer:
            raise HeadwayError(f"node {node.name} has no ports for the tasks: {answer['error']}")
        for task, port in zip(listening, answer["ports"], strict=True):
            self.addresses[task] = f"{node.planned.address}:{port}"

    async def _revive(self, lost: Node) -> Node:
        node = await self._site.revive(lost)
        self.nodes = [node if other is lost else other for other in self.nodes]
        self._begin(node)
        return node

    # --- talking -----------------------------------------------------------------------------------------------------
    def of(self, task: Task) -> Node:
        return next(node for node in self.nodes if task in node.planned.tasks)

    def send(self, task: Task, do: str, **fields: Any) -> None:
        """To the agent of a task's node."""
        self.of(task).send(do, task=str(task), **fields)

    def start(self, task: Task, attempt: int, message: Callable[[Node], dict[str, Any]]) -> None:
        """Start a task; if its node is lost, get that first. `message`: what the agent is told."""
        node = self.of(task)
        if not node.writer.is_closing():
            self._start(node, task, attempt, message)
        else:
            self._spawn(self._start_on_new(node, task, attempt, message))

    async def _start_on_new(
        self, lost: Node, task: Task, attempt: int, message: Callable[[Node], dict[str, Any]]
    ) -> None:
        if lost.name not in self._reviving:  # several tasks of one node may ask for it
            self._reviving[lost.name] = asyncio.get_running_loop().create_task(self._revive(lost))
        try:
            node = await asyncio.shield(self._reviving[lost.name])
        except StorageError:
            raise
        except (HeadwayError, OSError) as error:
            if not self._are_all_lost:  # several may find that out at once; then perhaps all can be had anew
                self._are_all_lost = True
                self._hear(AgentLost(f"node {lost.name} is lost, and cannot be made again: {error}"))
        else:
            self._start(node, task, attempt, message)
        finally:
            self._reviving.pop(lost.name, None)

    def _start(self, node: Node, task: Task, attempt: int, message: Callable[[Node], dict[str, Any]]) -> None:
        node.starting.add(task)
        node.send("start", task=str(task), attempt=attempt, **message(node))

    async def _listen(self, node: Node) -> None:
        """Until the agent is gone, or silent for so long that it must be frozen."""
        limit = max(self.plan.lease, self._job.limits.heartbeat)
        reason = "is gone"
        try:
            while message := await asyncio.wait_for(node.receive(), limit):
                if message["say"] == "samples":
                    self.gauges.hear(message["rows"])
                elif message["say"] == "storage":
                    raise StorageError(message["error"])
                elif message["say"] == "clock":
                    self._heard_clock(node.name, message)
                for event in _events_of(message):
                    if isinstance(event, TaskExited) or (isinstance(event, TaskSaid) and event.said["kind"] == "ready"):
                        self._has_started(node, event.task)
                    self._hear(event)
        except TimeoutError:
            reason = f"has said nothing for {limit:g} s"
        if node in self.nodes:
            node.writer.close()
            self._hear(AgentLost(f"the agent of node {node.name} {reason}", node.planned.tasks))

    def _has_started(self, node: Node, task: Task) -> None:
        """It is ready, or it has ended without ever being so."""
        node.starting.discard(task)
        if not node.is_limited and not node.starting:
            node.send("limit", cpus=node.cpus)
            node.is_limited = True
            self._note("cpu_limited", {"node": node.name, "cpus": node.cpus})

    def _heard_clock(self, name: str, message: dict[str, Any]) -> None:
        if (found := self._clocks[name].hear(message["sent"], message["t"], clock.now())) is not None:
            self._note("clock", {"node": name, "offset": found.seconds, "uncertainty": found.uncertainty})

    async def _renew(self, node: Node) -> None:
        """Asking for the time keeps the lease, too."""
        while node in self.nodes and not node.writer.is_closing():
            node.send("clock", sent=clock.now())
            await asyncio.sleep(self.plan.lease / 4)


def _events_of(message: dict[str, Any]) -> list[Event]:
    """What an agent's message means to the supervisor."""
    match message["say"]:
        case "started" if "error" in message:
            task = Task.parse(message["task"])
            said = {"kind": "failed", "error": "cannot start", "message": message["error"]}
            return [TaskSaid(task, said), TaskExited(task, message["attempt"], CANNOT_START)]
        case "started":
            return [TaskStarted(Task.parse(message["task"]), message["attempt"], message["pid"])]
        case "lines":
            task = Task.parse(message["task"])
            events = (parse_line(line.encode() + b"\n") for line in _thinned(message["data"].split("\n")))
            return [TaskSaid(task, event) for event in events if event]
        case "exited":
            task = Task.parse(message["task"])
            return [TaskExited(task, message["attempt"], message["code"], message["oom"])]
        case "alive":
            return [
                Heartbeat(Task.parse(task), signs.pop("age"), Vitals(**signs))
                for task, signs in message["tasks"].items()
            ]
        case _:
            return []


def _thinned(lines: list[str]) -> list[str]:
    """Of steps in a row only the last: it says how far the task is. A small model makes thousands in a second, and to
    look at each would take a good part of a core from the training."""
    kinds = [next((kind for kind in FREQUENT if kind in line[:60]), None) for line in lines]
    following = [*kinds[1:], None]
    return [
        line for line, kind, follows in zip(lines, kinds, following, strict=True) if kind is None or kind != follows
    ]
