"""The launcher: gives the supervisor events, does what it wants, and keeps the record.

agents' streams ─┐                                 ┌─> agents' streams
signals ─────────┼─> queue ─> Supervisor.handle ───┼─> events/launcher.jsonl, run.json
control socket ──┤                                 └─> watcher (what the user sees)
clock ───────────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any, Protocol

import psutil

from headway import workloads
from headway.errors import HeadwayError
from headway.launch import control
from headway.launch.commands import files_of, missing_cores, needs_port, task_command
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
from headway.launch.prepare import history, read_job
from headway.launch.supervisor import KILL_LIMIT, Supervisor
from headway.record.files import EventWriter, parse_line
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.seal import seal
from headway.sites import Node, Site, SitePlan, site
from headway.sites.isolation import outside_pid
from headway.spec.cluster import Task

FREQUENT = ('"kind": "step"', '"kind": "update"')
TICK = 0.2  # seconds between the supervisor's looks at the clock
CANNOT_START = 127  # as a shell says it


class Watcher(Protocol):
    """Shows the user what happens. Every method must return at once."""

    def fetching(self, what: str, done: int, total: int | None) -> None: ...
    def noted(self, kind: str, fields: dict[str, Any]) -> None: ...
    def said(self, task: Task, event: dict[str, Any]) -> None: ...
    def looked(self, supervisor: Supervisor) -> None: ...


class Launcher:
    """Runs what a run folder asks for, from its beginning or from where it was left."""

    def __init__(self, folder: RunFolder, watcher: Watcher) -> None:
        self.folder = folder
        self.job = read_job(folder)
        self._watcher = watcher
        self._site: Site = site(self.job.site.kind)
        self._plan: SitePlan = self._site.plan(self.job)
        self._nodes: list[Node] = []
        self._addresses: dict[Task, str] = {}
        self._queue: asyncio.Queue[Event | BaseException] = asyncio.Queue()
        self._jobs: set[asyncio.Task[None]] = set()
        self._evaluation: dict[str, Any] | None = None
        self._display_failed = False

    def run(self) -> End:
        """Train until the end, whatever it is; then the record is sealed and nothing is left running."""
        lock = self.folder.hold()
        facts = self.folder.facts()
        facts["launches"].append({"started": time.time(), "pid": os.getpid()})
        self._facts = facts
        self._events = EventWriter(self.folder.events(LAUNCHER))
        self._launch = len(facts["launches"]) - 1
        end = End("failed", "the launcher broke down")
        try:
            self._set_state("preparing")
            dataset = self.job.workload.dataset
            workloads.dataset(dataset.name).fetch(dataset, workloads.cache_folder(), self._watcher.fetching)
            self.supervisor = Supervisor(self.job, history(self.folder, self.job))
            end = asyncio.run(self._supervise())
        except KeyboardInterrupt:
            end = End("stopped", "Ctrl-C")
        except HeadwayError as error:
            end = End("failed", str(error))
            raise
        finally:
            self._facts["launches"][-1]["ended"] = time.time()
            self._set_state(end.state, end.reason)
            self._events.close()
            seal(self.folder)
            os.close(lock)
        return end

    def _show(self, look: Callable[..., None], *what: Any) -> None:
        """Tell the watcher. What it does wrong must not touch the run, but the record says so, once."""
        try:
            look(*what)
        except Exception as error:
            if not self._display_failed:
                self._display_failed = True
                self._events.write("display_failed", launch=self._launch, error=repr(error))

    # --- supervision -----------------------------------------------------------------------------------------
    async def _supervise(self) -> End:
        loop = asyncio.get_running_loop()
        at_once = iter([False])  # the first signal stops in order, every further one at once

        def stop(reason: str) -> None:
            self._queue.put_nowait(StopAsked(reason, next(at_once, True)))

        loop.add_signal_handler(signal.SIGINT, stop, "Ctrl-C")
        loop.add_signal_handler(signal.SIGTERM, stop, "SIGTERM")
        loop.add_signal_handler(signal.SIGHUP, stop, "SIGHUP")
        server = await control.serve(self.folder.control_socket, self._answer)
        try:
            await self._acquire()
            self._spawn(self._tick())
            return await self._handle_events()
        finally:
            server.close()
            self.folder.control_socket.unlink(missing_ok=True)
            for job in self._jobs:
                job.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)
            await asyncio.gather(*(self._site.release(node) for node in self._nodes))

    async def _handle_events(self) -> End:
        loop = asyncio.get_running_loop()
        give_up_at: float | None = None
        while True:
            event = await self._queue.get()
            if isinstance(event, BaseException):  # one of our own jobs broke down: a bug, and the end of the run
                raise event
            if isinstance(event, TaskSaid):
                self._heard(event)
            for action in self.supervisor.handle(event, loop.time()):
                if isinstance(action, End):
                    return action
                self._do(action)
            if isinstance(event, Tick):
                self._show(self._watcher.looked, self.supervisor)
            if self.supervisor.end is not None:
                give_up_at = give_up_at or loop.time() + KILL_LIMIT
                if loop.time() > give_up_at:
                    self._note("kill_overdue", {"seconds": KILL_LIMIT})
                    return self.supervisor.end

    def _heard(self, event: TaskSaid) -> None:
        self._show(self._watcher.said, event.task, event.said)
        if event.said["kind"] == "evaluation":
            self._evaluation = event.said

    def _do(self, action: Action) -> None:
        match action:
            case StartTask(task, attempt, own_steps, trained_seconds):
                node = self._node_of(task)
                command = task_command(
                    self.job,
                    task,
                    self.folder,
                    self._addresses,
                    attempt=attempt,
                    own_steps=own_steps,
                    trained_seconds=trained_seconds,
                    cores=node.facts["facts"]["cores"],
                )
                node.send(
                    "start",
                    task=str(task),
                    attempt=attempt,
                    argv=list(command.argv),
                    env=command.env,
                    cores=command.cores,
                    files=files_of(task, self.folder),
                )
            case SignalTask(task, number):
                self._node_of(task).send("signal", task=str(task), number=int(number))
            case TellTask(task, message):
                self._node_of(task).send("tell", task=str(task), message=message)
            case Note(kind, fields):
                if kind == "state":
                    self._set_state(fields["state"])
                else:
                    self._note(kind, fields)
            case Regroup(delay):
                self._spawn(self._regroup(delay))
            case End():
                pass  # returned by the caller

    # --- nodes -----------------------------------------------------------------------------------------------
    async def _acquire(self) -> None:
        """Every planned node, with its agent, and a port for every task that listens."""
        for planned in self._plan.nodes:
            node = await self._site.acquire(planned, self._plan.lease, self.folder.path)
            self._nodes.append(node)
            facts = node.facts["facts"]
            if missing := missing_cores(self.job, facts["cores"]):
                raise HeadwayError(f"cores {missing} were asked, but node {node.name} has only {facts['cores']}")
            self._note("node_ready", {"node": node.name, "pid": node.process.pid, **facts})
            await self._get_ports(node)
            self._spawn(self._listen(node))
            self._spawn(self._renew(node))

    async def _get_ports(self, node: Node) -> None:
        listening = [task for task in node.planned.tasks if needs_port(self.job, task)]
        if not listening:
            return
        first, last = self.job.site.ports or (None, None)
        node.send("ports", count=len(listening), first=first, last=last)
        answer = await node.expect("ports", limit=10)
        if "error" in answer:
            raise HeadwayError(f"node {node.name} has no ports for the tasks: {answer['error']}")
        for task, port in zip(listening, answer["ports"], strict=True):
            self._addresses[task] = f"{node.planned.address}:{port}"

    async def _regroup(self, delay: float) -> None:
        await asyncio.sleep(delay)
        try:
            old, self._nodes = self._nodes, []
            await asyncio.gather(*(self._site.release(node) for node in old))
            await self._acquire()
        except (HeadwayError, OSError) as error:
            self._queue.put_nowait(AgentLost(str(error)))
        else:
            self._queue.put_nowait(NewNodes())

    async def _listen(self, node: Node) -> None:
        """Until the agent is gone, or silent for so long that it must be frozen."""
        limit = max(self._plan.lease, self.job.limits.heartbeat)
        reason = "is gone"
        try:
            while message := await asyncio.wait_for(node.receive(), limit):
                for event in _events_of(message):
                    self._queue.put_nowait(event)
        except TimeoutError:
            reason = f"has said nothing for {limit:g} s"
        if node in self._nodes:
            self._queue.put_nowait(AgentLost(f"the agent of node {node.name} {reason}"))

    async def _renew(self, node: Node) -> None:
        while node in self._nodes:
            node.send("renew")
            await asyncio.sleep(self._plan.lease / 4)

    async def _tick(self) -> None:
        while True:
            self._queue.put_nowait(Tick())
            await asyncio.sleep(TICK)

    def _node_of(self, task: Task) -> Node:
        return next(node for node in self._nodes if task in node.planned.tasks)

    # --- being asked, keeping the record ---------------------------------------------------------------------
    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("do"):
            case "status":
                return self._status()
            case "stop":
                reason = "headway stop" + (" --now" if request.get("now") else "")
                self._queue.put_nowait(StopAsked(reason, at_once=bool(request.get("now"))))
                return {"ok": True}
            case other:
                return {"error": f"unknown request {other!r}"}

    def _status(self) -> dict[str, Any]:
        supervisor = self.supervisor
        tasks = []
        for task, state in supervisor.tasks.items():
            node = self._nodes[0] if self._nodes else None
            pid = None
            if state.pid and node:
                with contextlib.suppress(psutil.Error, OSError):  # it has just ended
                    pid = outside_pid(node.process.pid, state.pid)
            tasks.append(
                {
                    "task": str(task),
                    "phase": state.phase,
                    "attempt": state.attempt,
                    "pid": pid,
                    "address": self._addresses.get(task),
                    "own_steps": state.own_steps,
                    "steps_per_s": supervisor.steps_per_s(task),
                    "loss": state.loss,
                }
            )
        return {
            "run": self.folder.name,
            "state": self._facts["state"],
            "pid": os.getpid(),
            "agents": [node.process.pid for node in self._nodes],
            "step": supervisor.max_step,
            "stop": self.job.workload.stop.model_dump(exclude_none=True),
            "evaluation": self._evaluation,
            "tasks": tasks,
        }

    def _set_state(self, state: str, reason: str | None = None) -> None:
        self._facts["state"], self._facts["reason"] = state, reason
        self.folder.write_facts(self._facts)
        self._note("state", {"state": state, **({"reason": reason} if reason else {})})

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        self._events.write(kind, launch=self._launch, **fields)
        self._show(self._watcher.noted, kind, fields)

    def _spawn(self, work: Any) -> None:
        job = asyncio.get_running_loop().create_task(work)
        self._jobs.add(job)

        def ended(job: asyncio.Task[None]) -> None:
            self._jobs.discard(job)
            if not job.cancelled() and (error := job.exception()):
                self._queue.put_nowait(error)

        job.add_done_callback(ended)


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
            return [TaskExited(Task.parse(message["task"]), message["attempt"], message["code"])]
        case "alive":
            return [Heartbeat(Task.parse(task), age) for task, age in message["tasks"].items()]
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
