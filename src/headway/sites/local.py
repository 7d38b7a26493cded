"""Site `local`: one node, this machine, in namespaces of its own where the system allows it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

from headway.agent import protocol
from headway.errors import SiteError
from headway.record.folder import RunFolder
from headway.sites.base import AGENT, Node, PlannedNode, Progress, SitePlan
from headway.sites.isolation import Isolation, choose, why_no_private_network
from headway.spec.job import Job
from headway.spec.nodes import hosts
from headway.spec.resolve import Choice

LEASE = 3.0
RELEASE_LIMIT = 5.0


class LocalSite:
    def __init__(self, private: Isolation | None = None, open_to_cluster: Isolation | None = None) -> None:
        """The isolations to use; by default the strongest that work here."""
        self._private = private
        self._open = open_to_cluster
        self._process: asyncio.subprocess.Process | None = None

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
        hosts(job)  # refuses a layout of several nodes
        agent = (*isolation.command, sys.executable, "-m", "headway.agent")
        node = PlannedNode(
            name="local",
            address="127.0.0.1",
            tasks=tuple(job.cluster.tasks()),
        )
        command = (*agent, "--private-network") if isolation.private_network else agent
        reason = "asked by expose: cluster" if job.expose == "cluster" else "the strongest that works here"
        return SitePlan((node,), command, LEASE, (Choice("site.isolation", isolation.reason, reason),))

    async def acquire(self, plan: SitePlan, folder: RunFolder, tell: Progress) -> list[Node]:
        del tell  # there is nothing to tell
        self._started = (plan, folder)
        (planned,) = plan.nodes
        with folder.log(f"{AGENT}-{planned.name}").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *plan.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                limit=protocol.MAX_LINE,
                start_new_session=True,  # a Ctrl-C in the terminal is the launcher's alone
            )
        assert self._process.stdin and self._process.stdout
        node = Node(planned, self._process.stdout, self._process.stdin, self._process.pid)
        try:
            await node.greet(plan.lease, folder)
        except SiteError:
            await self.release()
            raise
        return [node]

    async def revive(self, node: Node) -> Node:
        del node  # there is but one
        await self.release()
        plan, folder = self._started
        return (await self.acquire(plan, folder, lambda _, __: None))[0]

    async def release(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(protocol.encode({"do": "quit"}))
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), RELEASE_LIMIT)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # with private processes this ends them all; else their parent's death does
            await process.wait()
