"""The launcher: gives the supervisor events, does what it wants, and keeps the record.

agents' streams ─┐                                 ┌─> agents' streams
signals ─────────┼─> queue ─> Supervisor.handle ───┼─> events/launcher.jsonl, run.json
control socket ──┤                                 └─> watcher (what the user sees)
clock ───────────┘
How the run fares (status.py) is asked for by the watcher, over the control socket, and at /metrics (exposition.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from headway import clock, workloads
from headway.errors import HeadwayError, StorageError
from headway.launch import control, environments, exposition
from headway.launch.commands import files_of, task_command
from headway.launch.identity import identity
from headway.launch.messages import (
    Action,
    AgentLost,
    End,
    Event,
    NewNodes,
    Note,
    Regroup,
    SignalTask,
    StartTask,
    StopAsked,
    TaskExited,
    TaskSaid,
    TellTask,
    Tick,
)
from headway.launch.nodes import Nodes
from headway.launch.prepare import describe_program, history, read_job
from headway.launch.status import Status
from headway.launch.supervisor import KILL_LIMIT, Supervisor
from headway.record.files import EventWriter
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.lost import last_reached
from headway.record.seal import seal
from headway.record.storage import probe, writing
from headway.sites import Node
from headway.spec.cluster import Task

OUT_OF_TIME = "its time was over"
TICK = 0.2  # seconds between the supervisor's looks at the clock
JUMP = 1.0  # seconds by which a clock must be set to be worth a word


class Watcher(Protocol):
    """Shows the user what happens. Every method must return at once."""

    def fetching(self, what: str, done: int, total: int | None) -> None: ...
    def noted(self, kind: str, fields: dict[str, Any]) -> None: ...
    def said(self, task: Task, event: dict[str, Any]) -> None: ...
    def looked(self, status: Callable[[], dict[str, Any]]) -> None:
        """A few times a second. `status` is called only by who draws just now: it takes a moment."""


def _last_time(folder: RunFolder, facts: dict[str, Any]) -> float:
    """When earlier launches of the run last gave a sign of life, on their launchers' clocks."""
    told = [time for launch in facts["launches"] for time in (launch["started"], launch.get("ended", 0.0))]
    last = folder.reader.last_lines(folder.events(LAUNCHER))
    return max([*told, *(float(event["t"]) for event in last if isinstance(event.get("t"), (int, float)))], default=0.0)


class Launcher:
    """Runs what a run folder asks for, from its beginning or from where it was left."""

    def __init__(self, folder: RunFolder, watcher: Watcher, metrics: socket.socket | None = None) -> None:
        """`metrics`: where /metrics is served; see exposition.listen."""
        self.folder = folder
        self.job = read_job(folder)
        self._inode = folder.path.stat().st_ino
        self._watcher = watcher
        self._metrics = metrics
        self._queue: asyncio.Queue[Event | BaseException] = asyncio.Queue()
        self._nodes = Nodes(self.job, folder, self._queue.put_nowait, self._note, self._spawn)
        self._jobs: set[asyncio.Task[None]] = set()
        self._display_failed = False
        self._jumped = 0.0  # seconds by which the machine's clock was set since the launch began, as far as noted
        self.stop_was_asked = False
        """Somebody sent a signal: also where the run had its end already, and so did not end for that."""

    def run(self, limit: float | None = None) -> End:
        """Train until the end, whatever it is; then the record is sealed and nothing is left running. `limit`: seconds
        after which it is stopped, for OUT_OF_TIME."""
        self.folder.reader.refuse_links()
        lock = self.folder.hold()
        try:
            return self._run(limit)
        finally:
            os.close(lock)

    def _run(self, limit: float | None) -> End:
        facts = self.folder.facts()
        ahead = clock.begin(not_before=_last_time(self.folder, facts))
        facts["launches"].append({"started": clock.now(), **identity()})
        self._facts = facts
        self.folder.keep_reserve()
        self._events = EventWriter(self.folder.events(LAUNCHER))
        self._launch = len(facts["launches"]) - 1
        end = End("failed", "the launcher broke down")
        try:
            with writing(self.folder.path):
                self._set_state("preparing")
                if ahead > JUMP:
                    self._note("clock_jumped", {"seconds": -ahead, "between_launches": True})
                self._prepare()
                self.supervisor = Supervisor(self.job, history(self.folder, self.job))
                self._status = Status(self.folder.name, self._facts, self.supervisor, self._nodes)
                end = asyncio.run(self._supervise(limit))
        except KeyboardInterrupt:
            end = End("stopped", "Ctrl-C")
        except StorageError as error:
            problem = self._deleted() or str(error)  # who was the first to miss it does not matter
            end = End("failed", problem.splitlines()[0])
            raise StorageError(f"{problem}\n{self._what_is_left()}") from None
        except HeadwayError as error:
            end = End("failed", str(error))
            raise
        finally:
            self._close_record(end)
        return end

    def _close_record(self, end: End) -> None:
        """How it ended, as far as the disk takes it; StorageError unless that is why it ended."""
        self._facts["launches"][-1]["ended"] = clock.now()
        self.folder.use_reserve()
        problem: StorageError | None = None
        steps: tuple[Callable[[], None], ...] = (
            lambda: self._set_state(end.state, end.reason),
            self._events.close,
            lambda: seal(self.folder),
        )
        for step in steps:
            try:
                step()
            except StorageError as error:
                problem = problem or error
        if problem is not None and not isinstance(sys.exception(), StorageError):
            raise StorageError(
                f"{problem}\nThe run {self.folder.name} has ended ({end.state}: {end.reason}), but its record is not "
                "complete."
            ) from None

    def _what_is_left(self) -> str:
        name = self.folder.name
        if self._deleted():
            return f"The run {name} was ended, and nothing of it is left."
        return f"The run {name} was ended. When the folder can be written again: headway resume {name}"

    def _prepare(self) -> None:
        """What tasks need and may not be here yet: the data, or the program's Python environment."""
        if (program := self.job.program) is None:
            workloads.fetch(self.job.training.dataset, workloads.cache_folder(), self._watcher.fetching)
            return
        if program.python is not None:
            environments.make(program.python, Path(program.directory or "."), self._watcher.fetching)
        describe_program(self.folder, program)

    def _show(self, look: Callable[..., None], *what: Any) -> None:
        """Tell the watcher. What it does wrong must not touch the run, but the record says so, once."""
        try:
            look(*what)
        except Exception as error:
            if not self._display_failed:
                self._display_failed = True
                self._events.write("display_failed", launch=self._launch, error=repr(error))

    # --- supervision -----------------------------------------------------------------------------------------
    async def _supervise(self, limit: float | None) -> End:
        loop = asyncio.get_running_loop()
        if limit is not None:
            loop.call_later(limit, self._queue.put_nowait, StopAsked(OUT_OF_TIME, at_once=False))
        at_once = iter([False])  # the first signal stops in order, every further one at once

        def stop(reason: str) -> None:
            self.stop_was_asked = True
            self._queue.put_nowait(StopAsked(reason, next(at_once, True)))

        loop.add_signal_handler(signal.SIGINT, stop, "Ctrl-C")
        loop.add_signal_handler(signal.SIGTERM, stop, "SIGTERM")
        loop.add_signal_handler(signal.SIGHUP, stop, "SIGHUP")
        servers = [await control.serve(self.folder.control_socket, self._answer)]
        try:
            if self._metrics is not None:
                servers.append(await exposition.serve(self._metrics, self._status.value))
                self._note("metrics_served", {"address": exposition.address(self._metrics)})
            await self._nodes.acquire()
            self._spawn(self._tick())
            return await self._handle_events()
        finally:
            for server in servers:
                server.close()
            with contextlib.suppress(OSError):  # a disk that has become read-only keeps it
                self.folder.control_socket.unlink(missing_ok=True)
            for job in self._jobs:
                job.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)
            await self._nodes.release()

    async def _handle_events(self) -> End:
        loop = asyncio.get_running_loop()
        give_up_at: float | None = None
        while True:
            event = await self._queue.get()
            if isinstance(event, BaseException):  # one of our own jobs broke down: a bug, and the end of the run
                raise event
            if isinstance(event, TaskSaid):
                event = self._heard(event)
            elif isinstance(event, Tick):
                if problem := self._deleted():
                    raise StorageError(problem)
            elif isinstance(event, TaskExited) and event.code > 0:
                probe(self.folder.path)  # first: it may have failed because the disk is full
            for action in self.supervisor.handle(event, loop.time()):
                if isinstance(action, End):
                    return action
                self._do(action)
            if isinstance(event, Tick):
                self._status.look(loop.time())
                self._show(self._watcher.looked, self._status.value)
            if self.supervisor.end is not None:
                give_up_at = give_up_at or loop.time() + KILL_LIMIT
                if loop.time() > give_up_at:
                    self._note("kill_overdue", {"seconds": KILL_LIMIT})
                    return self.supervisor.end

    def _deleted(self) -> str | None:
        """In words, if somebody has deleted the run folder: who has a file of it open would write into nothing."""
        try:
            there = self.folder.path.stat().st_ino
        except OSError:
            there = None
        return None if there == self._inode else f"the run folder was deleted while the run went on: {self.folder.path}"

    def _heard(self, event: TaskSaid) -> TaskSaid:
        if event.said["kind"] == "failed" and event.said.get("storage"):
            raise StorageError(str(event.said.get("message")))
        self._show(self._watcher.said, event.task, event.said)
        if event.said["kind"] == "evaluation":
            self._status.evaluation = event.said
        if event.said["kind"] == "initialized":  # what it undoes was perhaps heard by nobody: a node died
            paths = [self.folder.events(task) for task in self.job.cluster.tasks()]
            known = last_reached(self.folder.reader, paths, int(event.said.get("generation", 0)))
            event = TaskSaid(event.task, {**event.said, "reached": known})
        return event

    def _do(self, action: Action) -> None:
        match action:
            case StartTask(task, attempt):
                self._nodes.start(task, attempt, lambda node: self._start_message(action, node))
            case SignalTask(task, number):
                self._nodes.send(task, "signal", number=int(number))
            case TellTask(task, message):
                self._nodes.send(task, "tell", message=message)
            case Note(kind, fields):
                if kind == "state":
                    self._set_state(fields["state"])
                else:
                    self._note(kind, fields)
            case Regroup(delay):
                self._spawn(self._regroup(delay))
            case End():
                pass  # returned by the caller

    def _start_message(self, start: StartTask, node: Node) -> dict[str, Any]:
        command = task_command(
            self.job,
            start.task,
            self.folder,
            self._nodes.addresses,
            attempt=start.attempt,
            own_steps=start.own_steps,
            trained_seconds=start.trained_seconds,
            cores=node.facts["cores"],
        )
        files = files_of(start.task, self.folder)
        message: dict[str, Any] = {
            "argv": list(command.argv),
            "env": command.env,
            "cores": command.cores,
            "files": files,
        }
        return message | ({"with_children": True} if self.job.program else {})

    async def _regroup(self, delay: float) -> None:
        await asyncio.sleep(delay)
        try:
            await self._nodes.regroup()
        except StorageError:
            raise
        except (HeadwayError, OSError) as error:
            self._queue.put_nowait(AgentLost(str(error)))
        else:
            self._queue.put_nowait(NewNodes())

    async def _tick(self) -> None:
        while True:
            self._queue.put_nowait(Tick())
            if abs(jumped := clock.jump() - self._jumped) > JUMP:
                self._jumped += jumped
                self._note("clock_jumped", {"seconds": jumped, "between_launches": False})
            await asyncio.sleep(TICK)

    # --- being asked, keeping the record ---------------------------------------------------------------------
    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("do"):
            case "status":
                return self._status.value(pids=bool(request.get("pids", True)))
            case "stop":
                reason = "headway stop" + (" --now" if request.get("now") else "")
                self._queue.put_nowait(StopAsked(reason, at_once=bool(request.get("now"))))
                return {"ok": True}
            case other:
                return {"error": f"unknown request {other!r}"}

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
