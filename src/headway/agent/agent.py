"""The agent: one small process on each node. It starts tasks, reaps them, follows their events and
heartbeats, and ends them when its lease runs out. It holds no policy: what to do about an exit is the
supervisor's business, in the launcher.

It is single-threaded on purpose: PR_SET_PDEATHSIG fires when the *thread* that forked ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from headway import clock
from headway.agent import measure, protocol
from headway.agent.monitor import Monitor, Watched
from headway.errors import StorageError
from headway.host import control_groups
from headway.host.vitals import EVERY as EXAMINE_EVERY
from headway.host.vitals import Checkup, Vitals, families
from headway.plural import counted
from headway.record.files import EventWriter
from headway.record.tail import Tail

TICK = 0.1  # seconds between looks at the tasks' files
ALIVE_EVERY = 0.5  # seconds between heartbeat reports
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
OOM_SCORE = Path("/proc/self/oom_score_adj")
LAST_WORD = 0.05  # seconds that let `goodbye` out
FAMILY = "HEADWAY_FAMILY"  # a variable that all processes of a task have, wherever they have gone
ORPHANS_LIMIT = 1.0  # seconds for killed orphans of a task to be gone: the agent does nothing else meanwhile
SAMPLER_RESTART = 1.0  # seconds until a monitor that broke down begins anew
LOWEST_PORT, MOST_TRIES = 15_000, 4_000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class RunningTask:
    process: subprocess.Popen[bytes]
    attempt: int
    with_children: bool
    tail: Tail
    heartbeat: Path
    beat: int  # modification time of the heartbeat file when last looked at
    beat_at: float  # our own clock at its last change
    checkup: Checkup
    vitals: Vitals = field(default_factory=Vitals)


class Agent:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.WriteTransport) -> None:
        self._reader = reader
        self._writer = writer
        self._tasks: dict[str, RunningTask] = {}
        self._lease = 3.0
        self._renewed = time.monotonic()
        self._over = asyncio.Event()
        self._reason = ""
        self._events: EventWriter | None = None
        self._jobs: set[asyncio.Task[Any]] = set()
        self._serving: asyncio.Server | None = None
        self._group: control_groups.Group | None = None
        self._oom_kills = 0

    async def live(self) -> None:
        """Serve until told to quit or the lease runs out; then nothing that we started is left."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, f"signal {number.name}")
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans of our tasks become ours to end
        for work in (self._listen(), self._watch()):
            self._spawn(work)
        await self._over.wait()
        for job in self._jobs:
            job.cancel()
        self._kill_everything()
        self._say("goodbye", reason=self._reason)
        if self._events:
            with contextlib.suppress(StorageError):  # the launcher learns it as it is, from its own files
                self._events.write("agent_ended", reason=self._reason)
                self._events.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.get_running_loop().create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._job_ended)

    def _job_ended(self, job: asyncio.Task[None]) -> None:
        """Without its watch the lease would never run out: an agent that breaks down ends."""
        self._jobs.discard(job)
        if not job.cancelled() and (error := job.exception()):
            if isinstance(error, StorageError):
                self._say("storage", error=str(error))
            self._end(f"the agent broke down: {error!r}")

    # --- listening -------------------------------------------------------------------------------------------
    async def _listen(self) -> None:
        while line := await self._reader.readline():
            self._renewed = time.monotonic()
            message = protocol.decode(line)
            handler = getattr(self, f"_do_{message['do']}")
            with contextlib.suppress(ProcessLookupError):  # the task ended meanwhile; its `exited` is on the way
                handler(**{key: value for key, value in message.items() if key != "do"})
        # The launcher is gone, perhaps to come back (`attach`): the lease decides.

    def _do_hello(self, version: int, lease: float, node: str, files: dict[str, str], clock_offset: str) -> None:
        if version != protocol.VERSION:
            self._end(f"the launcher speaks protocol {version}, this agent {protocol.VERSION}")
        if clock.adopt(clock_offset):
            os.environ[clock.VARIABLE] = clock_offset  # for the tasks
        self._lease = lease
        self._node, self._metrics = node, Path(files["metrics"])
        self._events = EventWriter(Path(files["events"]))
        facts = {
            "host": socket.gethostname(),
            "cores": sorted(os.sched_getaffinity(0)),
            "memory": psutil.virtual_memory().total,
        }
        self._say("ready", version=protocol.VERSION, pid=os.getpid(), facts=facts)

    def _do_renew(self) -> None:
        pass  # every message renews

    def _do_clock(self, sent: float) -> None:
        self._say("clock", sent=sent, t=clock.now())

    def _do_group(self, name: str) -> None:
        self._group = control_groups.find().find(name)
        self._oom_kills = self._group.usage().oom_kills or 0

    def _do_limit(self, cpus: float | None) -> None:
        assert self._group is not None
        self._group.limit(control_groups.Limits(cpus=math.inf if cpus is None else cpus))

    def _do_monitor(self, hertz: float, **settings: Any) -> None:
        self._spawn(self._sample(1 / hertz, settings))

    def _do_ports(self, count: int, first: int | None = None, last: int | None = None) -> None:
        try:
            self._say("ports", ports=free_ports(count, first, last))
        except OSError as error:
            self._say("ports", error=str(error))

    def _do_start(
        self,
        task: str,
        attempt: int,
        argv: list[str],
        env: dict[str, str],
        cores: list[int] | None,
        files: dict[str, str],
        with_children: bool = False,
    ) -> None:
        heartbeat, group = Path(files["alive"]), self._group
        tail = Tail(Path(files["events"]))

        def in_child() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            with contextlib.suppress(OSError):  # an agent may be spared where memory is short; its tasks are not
                OOM_SCORE.write_text("0", encoding="ascii")
            if cores:
                os.sched_setaffinity(0, cores)
            if group is not None:
                group.add(0)  # which is itself, whatever its number outside

        try:
            heartbeat.touch()
            with Path(files["log"]).open("ab") as log:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **env, FAMILY: _family(task, attempt)},
                    start_new_session=True,
                    preexec_fn=in_child,  # noqa: PLW1509 - safe: the agent has one thread
                )
        except (OSError, subprocess.SubprocessError) as error:
            self._say("started", task=task, attempt=attempt, error=str(error))
            return
        self._tasks[task] = RunningTask(
            process,
            attempt,
            with_children,
            tail,
            heartbeat,
            heartbeat.stat().st_mtime_ns,
            time.monotonic(),
            Checkup(process.pid),
        )
        self._say("started", task=task, attempt=attempt, pid=process.pid)

    # --- the network to other nodes --------------------------------------------------------------------------
    def _do_serve(self) -> None:
        self._spawn(self._serve())

    async def _serve(self) -> None:
        self._serving, port = await measure.serve()
        self._say("serving", port=port)

    def _do_unserve(self) -> None:
        if self._serving:
            self._serving.close()

    def _do_round_trips(self, to: tuple[str, int], count: int) -> None:
        try:
            self._say("round_trips", seconds=measure.round_trips((to[0], to[1]), count))
        except OSError as error:
            self._say("round_trips", error=str(error))

    def _do_rates(self, to: list[tuple[str, int]], seconds: float) -> None:
        self._spawn(self._rates([(host, port) for host, port in to], seconds))

    async def _rates(self, to: list[tuple[str, int]], seconds: float) -> None:
        try:
            self._say("rates", rates=await measure.rates(to, seconds))
        except (OSError, TimeoutError, struct.error) as error:
            self._say("rates", error=str(error) or type(error).__name__)

    def _do_tell(self, task: str, message: dict[str, Any]) -> None:
        if (running := self._tasks.get(task)) and running.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                running.process.stdin.write(protocol.encode(message))
                running.process.stdin.flush()

    def _do_signal(self, task: str, number: int) -> None:
        if running := self._tasks.get(task):
            os.killpg(running.process.pid, number)

    def _do_quit(self) -> None:
        self._end("told to quit")

    # --- watching --------------------------------------------------------------------------------------------
    async def _watch(self) -> None:
        reported = examined = 0.0
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            if now - self._renewed > self._lease:
                self._end(f"the lease of {self._lease:g} s ran out: the launcher is gone")
            for name, running in self._tasks.items():
                self._send_lines(name, running)
                beat = running.heartbeat.stat().st_mtime_ns if running.heartbeat.exists() else running.beat
                if beat != running.beat:
                    running.beat, running.beat_at = beat, now
            if now - reported > ALIVE_EVERY:  # also without tasks: it says that the agent itself is alive
                reported = now
                if now - examined > EXAMINE_EVERY - TICK:
                    examined = now
                    self._examine(now)
                signs = {
                    name: {"age": round(now - running.beat_at, 2), **asdict(running.vitals)}
                    for name, running in self._tasks.items()
                }
                self._say("alive", tasks=signs)

    def _examine(self, now: float) -> None:
        """What the kernel says of each task's processes."""
        roots = [running.process.pid for running in self._tasks.values() if running.with_children]
        found = families(roots) if roots else {}
        for running in self._tasks.values():
            pid = running.process.pid
            running.vitals = running.checkup.look(found.get(pid, [pid]), now)

    async def _sample(self, interval: float, settings: dict[str, Any]) -> None:
        """On multiples of the interval, so that samples of all nodes lie side by side. What is late is left out."""
        while True:
            monitor = Monitor(self._metrics, self._node, interval, self._tell_samples, settings)
            try:
                while True:
                    await asyncio.sleep(interval - clock.now() % interval)
                    monitor.sample(
                        {
                            name: Watched(task.process.pid, task.attempt, task.with_children)
                            for name, task in self._tasks.items()
                        }
                    )
            except StorageError as error:
                self._say("storage", error=str(error))
            except Exception as error:
                if self._events:
                    self._events.write("sampler_failed", node=self._node, error=repr(error))
            finally:
                with contextlib.suppress(StorageError):  # which is said already
                    monitor.close()
            await asyncio.sleep(SAMPLER_RESTART)

    def _tell_samples(self, rows: list[dict[str, Any]]) -> None:
        self._say("samples", rows=rows)

    def _send_lines(self, name: str, running: RunningTask) -> None:
        while (chunk := running.tail.read())[1]:
            self._say("lines", task=name, offset=chunk[0], data=chunk[1])

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name, running in list(self._tasks.items()):
                if running.process.pid == pid:
                    self._task_ended(name, running, os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024)

    def _task_ended(self, name: str, running: RunningTask, code: int, peak_rss: int) -> None:
        running.process.returncode = code  # we reaped it ourselves
        if running.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                running.process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)  # what the task itself had started
        _kill_orphans(_family(name, running.attempt))
        self._send_lines(name, running)
        del self._tasks[name]
        self._say(
            "exited", task=name, attempt=running.attempt, code=code, rss=peak_rss, oom=self._ran_out_of_memory(code)
        )

    def _ran_out_of_memory(self, code: int) -> bool:
        """Whether the kernel killed it for that: such a death looks like any SIGKILL."""
        before = self._oom_kills
        if self._group is not None:
            self._oom_kills = self._group.usage().oom_kills or 0
        return code == -signal.SIGKILL and self._oom_kills > before

    # --- ending ----------------------------------------------------------------------------------------------
    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._over.set()

    def _kill_everything(self) -> None:
        """All descendants, also those that left their process group; repeated, because they may be forking."""
        deadline = time.monotonic() + 2
        while (left := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._reap()
            time.sleep(0.01)

    def _say(self, what: str, **fields: Any) -> None:
        if not self._writer.is_closing():
            self._writer.write(protocol.encode({"say": what, **fields}))


def _family(task: str, attempt: int) -> str:
    return f"{os.getpid()} {task} {attempt}"


def _kill_orphans(family: str) -> None:
    """What a task had started in sessions of their own (torchrun's workers) became ours when it ended. Repeated,
    because they may be forking."""
    deadline = time.monotonic() + ORPHANS_LIMIT
    while left := [one for child in psutil.Process().children() if _is_of(child, family) for one in _tree(child)]:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if time.monotonic() > deadline:  # one that waits for a disk dies when that answers
            return
        time.sleep(0.005)


def _is_of(process: psutil.Process, family: str) -> bool:
    """Not of a zombie: these are reaped later."""
    try:
        return bool(process.environ().get(FAMILY) == family)
    except psutil.Error:
        return False


def _tree(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def free_ports(count: int, first: int | None, last: int | None) -> list[int]:
    """Ports nobody listens on. All are held until all are found, so that they differ.

    By default they lie below those that the system gives to outgoing connections: one of these could otherwise take
    the port of a task that is being restarted.
    """
    if first is None:
        candidates = iter(random.sample(range(LOWEST_PORT, first_outgoing_port()), MOST_TRIES))
    else:
        candidates = iter(range(first, (last or first) + 1))
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            port = next(candidates, None)
            if port is None:
                where = f"from {first} to {last}" if first else f"of {MOST_TRIES} tried"
                raise OSError(f"only {len(ports)} of {counted(count, 'port')} free, {where}")
            try:
                listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                listener.bind(("0.0.0.0", port))  # TensorFlow will listen on all interfaces, so all must be free
                listener.listen()
            except OSError:
                continue
            ports.append(port)
        return ports


def first_outgoing_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32768


async def serve_socket(stream: socket.socket) -> None:
    """Be the agent of whoever holds the other end."""
    reader, writer = await asyncio.open_connection(sock=stream, limit=protocol.MAX_LINE)
    await Agent(reader, writer.transport).live()
    await asyncio.sleep(LAST_WORD)


async def serve_pipes(reading: BinaryIO, writing: BinaryIO) -> None:
    """The same, where there are two pipes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=protocol.MAX_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), reading)
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, writing)
    await Agent(reader, transport).live()
    await asyncio.sleep(LAST_WORD)
