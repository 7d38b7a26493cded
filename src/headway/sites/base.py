"""The contract of a site: where nodes come from.

`plan` is pure: what would be started is a value that `--dry-run` prints. `acquire` gives nodes whose agents answer;
`release` ends them. Everything else (starting tasks, supervision, monitoring) is the same on every site.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from headway import clock
from headway.agent import protocol
from headway.errors import SiteError, StorageError
from headway.record.folder import RunFolder
from headway.spec.cluster import Task
from headway.spec.job import Job
from headway.spec.resolve import Choice
from headway.spec.site import NodeSettings

AGENT = "agent"  # begins the names of agents' files
START_LIMIT = 30.0
NOT_LIMITED = NodeSettings()


@dataclass(frozen=True)
class PlannedNode:
    """One machine to be acquired, and the tasks that will run on it."""

    name: str
    address: str
    """By which the other nodes reach it."""
    tasks: tuple[Task, ...]
    machine: NodeSettings = NOT_LIMITED
    """What it is asked to be."""


@dataclass(frozen=True)
class SitePlan:
    nodes: tuple[PlannedNode, ...]
    command: tuple[str, ...]
    """What is started on this machine to get them."""
    lease: float
    """Seconds without a launcher after which an agent ends its tasks."""
    choices: tuple[Choice, ...] = ()
    fabric: float | None = None
    """Bytes per second of one link that all traffic between nodes crosses."""
    dilation: float = 1.0
    """Seconds here for one second there."""
    outbound: str | None = None
    """The way out of a private network, for tasks that may reach other hosts (outbound.py)."""


@dataclass
class Node:
    """An acquired machine: byte streams from and to its agent."""

    planned: PlannedNode
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pid: int
    """Of the agent, or of an ancestor of it that is no other node's, as seen from here."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the agent found: host, cores, memory."""
    monitor: dict[str, Any] = field(default_factory=dict)
    """What the monitor on it must know: whether it is a part of a machine, its control group, its credits."""
    unmet: frozenset[str] = frozenset()
    """What it was asked to be and is not: names of NodeSettings."""
    cpus: float | None = None
    """A limit of its CPU that its agent can lift and set again (`limit`)."""
    is_limited: bool = True
    """Whether that limit holds."""
    starting: set[Task] = field(default_factory=set)
    """Tasks on it that were started and have not been ready yet."""

    @property
    def name(self) -> str:
        return self.planned.name

    @property
    def limits(self) -> NodeSettings:
        """What it was asked to be, as far as it is that."""
        return self.planned.machine.model_copy(update={name: getattr(NOT_LIMITED, name) for name in self.unmet})

    def send(self, do: str, **fields: Any) -> None:
        """Never blocks and never fails: that an agent is gone is seen on its other stream."""
        if not self.writer.is_closing():
            with contextlib.suppress(ConnectionError):
                self.writer.write(protocol.encode({"do": do, **fields}))

    async def receive(self) -> dict[str, Any] | None:
        """The agent's next message; None when it is gone."""
        try:
            line = await self.reader.readline()
            return protocol.decode(line) if line.endswith(b"\n") else None
        except (ConnectionError, ValueError):
            return None

    async def expect(self, what: str, limit: float) -> dict[str, Any]:
        """The next message that is no sign of life; it must be `what`."""
        try:
            message = await asyncio.wait_for(self.receive(), limit)
            while message is not None and message.get("say") == "alive":
                message = await asyncio.wait_for(self.receive(), limit)
        except TimeoutError:
            raise SiteError(f"the agent of node {self.name} did not answer within {limit:g} s") from None
        if message is not None and message.get("say") == "storage":
            raise StorageError(message["error"])
        if message is None or message.get("say") != what:
            raise SiteError(f"the agent of node {self.name} ended or misspoke instead of {what!r}: {message}")
        return message

    async def greet(self, lease: float, folder: RunFolder) -> None:
        """The first words with its agent."""
        name = f"{AGENT}-{self.name}"
        files = {"events": str(folder.events(name)), "metrics": str(folder.metrics(self.name))}
        self.send(
            "hello", version=protocol.VERSION, lease=lease, node=self.name, files=files, clock_offset=clock.handed_on()
        )
        self.facts = (await self.expect("ready", START_LIMIT))["facts"]


Progress = Callable[[str, dict[str, Any]], None]
"""What a site has to tell, for the record: a kind of event, and its fields."""


class Site(Protocol):
    def plan(self, job: Job) -> SitePlan:
        """Pure: the nodes and who runs where. SiteError when the site cannot give what the job asks."""

    async def acquire(self, plan: SitePlan, folder: RunFolder, tell: Progress) -> list[Node]:
        """All nodes, in the plan's order, each with an agent that has answered."""

    async def revive(self, node: Node) -> Node:
        """A node whose agent is gone, anew: same name, same address."""

    async def release(self) -> None:
        """End all nodes and, with them, everything that runs there."""
