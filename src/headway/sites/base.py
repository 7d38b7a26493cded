"""The contract of a site: where nodes come from.

`plan` is pure: what would be started is a value that `--dry-run` prints. `acquire` gives a node whose agent
answers; `release` ends it. Everything else (starting tasks, supervision) is the same on every site.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headway.agent import protocol
from headway.errors import SiteError
from headway.spec.cluster import Task
from headway.spec.job import Job
from headway.spec.resolve import Choice


@dataclass(frozen=True)
class PlannedNode:
    """One machine to be acquired, and the tasks that will run on it."""

    name: str
    address: str
    """By which the other nodes reach it."""
    tasks: tuple[Task, ...]
    command: tuple[str, ...]
    """Starts the agent."""


@dataclass(frozen=True)
class SitePlan:
    nodes: tuple[PlannedNode, ...]
    lease: float
    """Seconds without a launcher after which an agent ends its tasks."""
    choices: tuple[Choice, ...] = ()


@dataclass
class Node:
    """An acquired machine: a byte stream to its agent."""

    planned: PlannedNode
    process: asyncio.subprocess.Process
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.planned.name

    def send(self, do: str, **fields: Any) -> None:
        """Never blocks and never fails: that an agent is gone is seen on its other stream."""
        stdin = self.process.stdin
        if stdin and not stdin.is_closing():
            with contextlib.suppress(ConnectionError):
                stdin.write(protocol.encode({"do": do, **fields}))

    async def receive(self) -> dict[str, Any] | None:
        """The agent's next message; None when it is gone."""
        assert self.process.stdout
        try:
            line = await self.process.stdout.readline()
            return protocol.decode(line) if line.endswith(b"\n") else None
        except (ConnectionError, ValueError):
            return None

    async def expect(self, what: str, limit: float) -> dict[str, Any]:
        """The next message, which must be `what`."""
        try:
            message = await asyncio.wait_for(self.receive(), limit)
        except TimeoutError:
            raise SiteError(f"the agent of node {self.name} did not answer within {limit:g} s") from None
        if message is None or message.get("say") != what:
            raise SiteError(f"the agent of node {self.name} ended or misspoke instead of {what!r}: {message}")
        return message


class Site(Protocol):
    def plan(self, job: Job) -> SitePlan:
        """Pure: the nodes and who runs where. SiteError when the site cannot give what the job asks."""

    async def acquire(self, planned: PlannedNode, lease: float, folder: Path) -> Node:
        """Start the node's agent and wait until it answers."""

    async def release(self, node: Node) -> None:
        """End the node's agent and, with it, everything it started."""
