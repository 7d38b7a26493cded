"""Site `local`: one node, this machine, in namespaces of its own where the system allows it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from headway.agent import protocol
from headway.errors import SiteError
from headway.record.folder import RunFolder
from headway.sites import outbound
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
        self._outbound: outbound.Outbound | None = None

    def plan(self, job: Job) -> SitePlan:
        listens = job.strategy.kind != "single"
        if job.expose == "nobody" or (not listens and job.program is None):
            isolation = self._private or choose(private_network=True)
            # A single task listens nowhere, so it may run without a private network.
            if not isolation.private_network and listens:
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
        choices = [Choice("site.isolation", isolation.reason, reason)]
        way = None
        if isolation.private_network and job.site.network == "outbound":
            way, why = outbound.choose()
            choices.append(Choice("site.outbound", way or outbound.NONE, why))
        return SitePlan((node,), command, LEASE, tuple(choices), outbound=way)

    async def acquire(self, plan: SitePlan, folder: RunFolder, tell: Progress) -> list[Node]:
        self._started = (plan, folder, tell)
        (planned,) = plan.nodes
        command, log_file = plan.command, folder.log(f"{AGENT}-{planned.name}")
        if plan.outbound:
            folder.resolver_file.write_text(outbound.resolver_text(plan.outbound), encoding="utf-8")
            command = (*command, "--resolver", str(folder.resolver_file))
        with log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
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
            if plan.outbound:
                async with _renewing(node, plan.lease):
                    await self._open_way(plan.outbound, log_file, folder.resolver_file, tell)
        except BaseException:
            await self.release()
            raise
        return [node]

    async def _open_way(self, way: str, log: Path, resolver: Path, tell: Progress) -> None:
        """The planned one, else another; without any the run goes on, for not every program needs one."""
        assert self._process is not None
        failed: list[str] = []
        for each in dict.fromkeys([way, *outbound.candidates()]):
            resolver.write_text(outbound.resolver_text(each), encoding="utf-8")  # which the tasks see already
            self._outbound = outbound.Outbound(each, log, resolver)
            problem = await self._outbound.open(self._process.pid, lambda why: tell("no_outbound", {"why": why}))
            if problem is None:
                tell("outbound", {"way": each, "failed": failed})
                return
            failed.append(problem)
        tell("no_outbound", {"why": "; ".join(failed)})

    async def revive(self, node: Node) -> Node:
        del node  # there is but one
        await self.release()
        return (await self.acquire(*self._started))[0]

    async def release(self) -> None:
        if self._outbound is not None:
            await self._outbound.close()
            self._outbound = None
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


@contextlib.asynccontextmanager
async def _renewing(node: Node, lease: float) -> AsyncIterator[None]:
    """Keep the agent's lease while we are busy with something else; later the launcher does."""

    async def renew() -> None:
        while True:
            node.send("renew")
            await asyncio.sleep(lease / 4)

    renewing = asyncio.get_running_loop().create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
