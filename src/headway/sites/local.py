"""Site `local`: one node, this machine, in namespaces of its own where the system allows it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

from headway.agent import protocol
from headway.errors import SiteError
from headway.sites.base import Node, PlannedNode, SitePlan
from headway.sites.isolation import Isolation, choose, why_no_private_network
from headway.spec.job import Job
from headway.spec.resolve import Choice

LEASE = 3.0
START_LIMIT = 30.0
RELEASE_LIMIT = 5.0


class LocalSite:
    def __init__(self, private: Isolation | None = None, open_to_cluster: Isolation | None = None) -> None:
        """The isolations to use; by default the strongest that work here."""
        self._private = private
        self._open = open_to_cluster

    def plan(self, job: Job) -> SitePlan:
        if job.strategy.kind == "single" or job.expose == "nobody":
            isolation = self._private or choose(private_network=True)
            # A single task listens nowhere, so it may run without a private network.
            if not isolation.private_network and job.strategy.kind != "single":
                raise SiteError(
                    "TensorFlow's ports cannot be kept from strangers here: no private network namespace can be made "
                    f"({why_no_private_network()}).\nThey have no authentication: whoever reaches them can run code. "
                    "Run as root or allow user namespaces (`headway doctor` says more),\n"
                    "or accept it with `expose: cluster` in the job (or expose=cluster on the command line)."
                )
        else:
            isolation = self._open or choose(private_network=False)
        agent = (*isolation.command, sys.executable, "-m", "headway.agent")
        node = PlannedNode(
            name="local",
            address="127.0.0.1",
            tasks=tuple(job.cluster.tasks()),
            command=(*agent, "--private-network") if isolation.private_network else agent,
        )
        reason = "asked by expose: cluster" if job.expose == "cluster" else "the strongest that works here"
        return SitePlan((node,), LEASE, (Choice("site.isolation", isolation.reason, reason),))

    async def acquire(self, planned: PlannedNode, lease: float, folder: Path) -> Node:
        with (folder / "logs" / "agent.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *planned.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                limit=protocol.MAX_LINE,
                start_new_session=True,  # a Ctrl-C in the terminal is the launcher's alone
            )
        node = Node(planned, process)
        node.send("hello", version=protocol.VERSION, lease=lease, folder=str(folder))
        try:
            node.facts = await node.expect("ready", START_LIMIT)
        except SiteError:
            await self.release(node)
            raise
        return node

    async def release(self, node: Node) -> None:
        node.send("quit")
        if node.process.stdin:
            node.process.stdin.close()
        try:
            await asyncio.wait_for(node.process.wait(), RELEASE_LIMIT)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                node.process.kill()  # with private processes this ends them all; else their parent's death does
            await node.process.wait()
