"""Site `emulated`: hosts of their own on this machine, each with a network, CPU, memory and disk.

    launcher ── socket ──> box (private processes and network) ──forks──> host: agent ──> tasks
        └──────────────── a socket for each agent's byte stream ───────────┘

This is the launcher's side. The box makes the hosts (box.py) and their network (network.py, delay.py); what a killed
box leaves is removed by the next start (leftovers.py); what works on this machine is tried out (probe.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any

from headway.agent import protocol
from headway.errors import SiteError
from headway.record.folder import RunFolder
from headway.sites.base import AGENT, Node, PlannedNode, Progress, SitePlan
from headway.sites.emulated import leftovers, network
from headway.sites.emulated.probe import Abilities, abilities, disk_of
from headway.sites.isolation import outside_pid
from headway.sites.measure import measure, renewing
from headway.spec.job import Job
from headway.spec.nodes import hosts, scaled
from headway.spec.resolve import Choice
from headway.spec.site import NodeSettings
from headway.workloads import cache_folder

LEASE = 3.0
ANSWER_LIMIT = 60.0
RELEASE_LIMIT = 10.0
AT_ONCE = 64  # hosts made with one message
MESSAGE = 2**20


class EmulatedSite:
    def __init__(self, able: Abilities | None = None) -> None:
        """What this machine can do; by default it is tried out."""
        self._able = able
        self._box: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._state: leftovers.StateFile | None = None
        self._writers: list[asyncio.StreamWriter] = []

    # --- planning ----------------------------------------------------------------------------------------------------
    def plan(self, job: Job) -> SitePlan:
        able = self._able or abilities()
        if able.problem:
            raise SiteError(
                f"no emulated hosts can be made here: {able.problem}.\n"
                "Run as root, or allow user namespaces; `headway doctor` says what works."
            )
        dilation = job.site.dilation or 1.0
        nodes = tuple(
            PlannedNode(host.name, network.address(number), host.tasks, scaled(job.site.node(host.kind), dilation))
            for number, host in enumerate(hosts(job))
        )
        fabric = None if job.site.fabric is None else job.site.fabric / dilation
        command = (*able.isolation.command, sys.executable, "-m", "headway.sites.emulated.box")
        return SitePlan(nodes, command, LEASE, tuple(self._choices(able, nodes)), fabric, dilation)

    def _choices(self, able: Abilities, nodes: Sequence[PlannedNode]) -> list[Choice]:
        found = [Choice("site.isolation", able.isolation.reason, "the strongest that works here")]
        if any(node.machine.latency for node in nodes):
            how = "netem" if not able.netem else f"a queue ({able.way})"
            why = "the kernel has it" if not able.netem else f"the kernel has no netem ({able.netem})"
            found.append(Choice("site.latency", how, why) if not able.latency else _unmet("latency", able.latency))
        if able.rate and any(node.machine.rate for node in nodes):
            found.append(_unmet("rate", able.rate))
        wanted = {
            "cpu": any(node.machine.cpus or node.machine.credits for node in nodes),
            "memory": any(node.machine.memory for node in nodes),
        }
        if able.limits.get("io") and any(node.machine.disk.is_limited for node in nodes):
            behind_link = Choice("site.disk", "behind a shaped link (sshfs)", able.limits["io"])
            found.append(_unmet("disk", able.disk) if able.disk else behind_link)
        return found + [_unmet(name, why) for name, why in able.limits.items() if wanted.get(name)]

    # --- getting ------------------------------------------------------------------------------------------------------
    async def acquire(self, plan: SitePlan, folder: RunFolder, tell: Progress) -> list[Node]:
        began = time.monotonic()
        for what in leftovers.clean():
            tell("leftover_removed", {"what": what})
        self._plan, self._folder, self._tell = plan, folder, tell
        try:
            await self._open_box()
            nodes = await self._make(plan.nodes)
            tell("hosts_up", {"count": len(nodes), "seconds": time.monotonic() - began})
            async with renewing(nodes):
                await self._measure(nodes)
                await self._limit(nodes)
        except (SiteError, OSError, TimeoutError) as error:
            await self.release()
            raise SiteError(f"emulated hosts: {error or 'no answer in time'} ({folder.log('box')})") from error
        return nodes

    async def _open_box(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._control = ours
        self._state = leftovers.StateFile(self._folder.name, [node.name for node in self._plan.nodes])
        with theirs, self._folder.log("box").open("ab") as log:
            self._box = await asyncio.create_subprocess_exec(
                *self._plan.command,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(), self._state.lock),
                start_new_session=True,
            )
        self._state.hand_over()
        hosts_file = self._folder.path / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{node.address} {node.name}" for node in self._plan.nodes)]
        hosts_file.write_text("\n".join(lines) + "\n", encoding="ascii")
        await self._ask("open", fabric=self._plan.fabric, hosts_file=str(hosts_file), state_file=str(self._state.path))

    async def _make(self, planned: Sequence[PlannedNode]) -> list[Node]:
        able = self._able or abilities()
        numbers = {node.name: number for number, node in enumerate(self._plan.nodes)}
        nodes: list[Node] = []
        for first in range(0, len(planned), AT_ONCE):
            some = planned[first : first + AT_ONCE]
            pairs = [socket.socketpair() for _ in some]
            for ours, _ in pairs:
                ours.setblocking(False)
            asked = [
                {
                    "name": node.name,
                    "number": numbers[node.name],
                    "rate": None if able.rate else node.machine.rate,
                    "latency": None if able.latency else node.machine.latency,
                    "disk": self._disk_behind_link(node.machine),
                    "log": str(self._folder.log(f"{AGENT}-{node.name}")),
                }
                for node in some
            ]
            theirs = [pair[1] for pair in pairs]
            answer = await self._ask("hosts", [end.fileno() for end in theirs], hosts=asked, netem=not able.netem)
            for end in theirs:
                end.close()
            for node, (ours, _) in zip(some, pairs, strict=True):
                reader, writer = await asyncio.open_connection(sock=ours, limit=protocol.MAX_LINE)
                assert self._box
                pid = outside_pid(self._box.pid, (answer["pids"][node.name], 1)) or self._box.pid
                nodes.append(Node(node, reader, writer, pid, monitor={"is_part": True}))
                self._writers.append(writer)
        await asyncio.gather(*(node.greet(self._plan.lease, self._folder) for node in nodes))
        return nodes

    def _disk_behind_link(self, machine: NodeSettings) -> dict[str, Any] | None:
        """What the box makes of a limit that no control group can hold."""
        able = self._able or abilities()
        if not machine.disk.is_limited or "io" not in able.limits or able.storage:
            return None
        folders = (self._folder.checkpoints, cache_folder().absolute())
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        return {"read": machine.disk.read, "write": machine.disk.write, "folders": [str(each) for each in folders]}

    async def _measure(self, nodes: Sequence[Node]) -> None:
        """What the network gives, before CPUs are limited: it is the network's turn to show what it can."""
        if len(nodes) < 2:
            return
        able, own = self._able or abilities(), None
        if able.netem and not able.queue and any(node.planned.machine.latency for node in nodes):
            own = (await measure(nodes, self._plan.fabric, only_round_trips=True)).own_delay
            await self._ask("shorten", seconds=own)
        for fields in (await measure(nodes, self._plan.fabric, own)).events():
            self._tell("network_measured", fields)

    async def _limit(self, nodes: Sequence[Node]) -> None:
        able = self._able or abilities()
        # Without these controllers there is no group; the plan has said so.
        problems = {} if set(able.limits) >= {"cpu", "memory"} else await self._group(nodes, able)
        for node in nodes:
            node.unmet = _unmet_of(able, problems.get(node.name, {}))
            if not node.planned.machine.credits:
                node.cpus = node.limits.cpus

    async def _group(self, nodes: Sequence[Node], able: Abilities) -> dict[str, dict[str, str]]:
        """A control group for each, with its limits. Node -> what could not be limited -> why."""
        assert self._state
        device = disk_of(self._folder.path)
        limits = {}
        for node in nodes:
            machine = node.planned.machine
            asked = {"cpus": _burst(machine), "memory": machine.memory}
            if "io" not in able.limits:
                asked |= {"disk_read": machine.disk.read, "disk_write": machine.disk.write}
            limits[node.name] = {"group": self._state.group(node.name), "device": device, **asked}
            node.monitor["group"] = self._state.group(node.name)
            if machine.credits is not None:
                node.monitor["credits"] = {
                    "cpus": _burst(machine),
                    "per_hour": machine.credits.per_hour,
                    "start": machine.credits.start,
                    "most": machine.credits.limit,
                    "dilation": self._plan.dilation,
                }
        answer = await self._ask("limit", limits=limits)
        for node in nodes:
            node.send("group", name=self._state.group(node.name))
        problems: dict[str, dict[str, str]] = answer["problems"]
        for name, reasons in problems.items():
            self._tell("not_limited", {"node": name, "problems": list(reasons.values())})
        return problems

    async def revive(self, node: Node) -> Node:
        """Its namespaces, link and agent anew; its control group goes on counting."""
        node.writer.close()
        (made,) = await self._make([node.planned])
        await self._limit([made])
        return made

    async def release(self) -> None:
        """The box ends everything when its socket is closed; the kernel, if the box does not."""
        for writer in self._writers:
            writer.close()
        self._writers = []
        if self._control:
            self._control.close()
            self._control = None
        box, self._box = self._box, None
        if box is not None:
            try:
                await asyncio.wait_for(box.wait(), RELEASE_LIMIT)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    box.kill()
                await box.wait()
        if self._state and self._state.path.exists():  # the box could not clean up after itself
            await asyncio.to_thread(leftovers.clean)
        self._state = None

    async def _ask(self, do: str, fds: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
        assert self._control and self._box
        loop = asyncio.get_running_loop()
        socket.send_fds(self._control, [json.dumps({"do": do, **fields}).encode()], list(fds))
        data = await asyncio.wait_for(loop.sock_recv(self._control, MESSAGE), ANSWER_LIMIT)
        if not data:
            raise SiteError(f"the box ended while it was asked to {do!r}")
        answer: dict[str, Any] = json.loads(data)
        if answer["say"] == "problem":
            raise SiteError(answer["error"])
        return answer


def _burst(machine: NodeSettings) -> float | None:
    return machine.cpus or (1.0 if machine.credits else None)


def _unmet_of(able: Abilities, problems: Collection[str]) -> frozenset[str]:
    """Settings of a machine that mean nothing here. `problems`: limits that its control group has refused."""
    is_so = {
        "cpus": "cpu" in able.limits or "cpus" in problems,
        "credits": "cpu" in able.limits or "cpus" in problems,
        "memory": "memory" in able.limits or "memory" in problems,
        "rate": able.rate,
        "latency": able.latency,
        "disk": able.disk or "disk_read" in problems or "disk_write" in problems,
    }
    return frozenset(name for name, unmet in is_so.items() if unmet)


def _unmet(what: str, why: str) -> Choice:
    return Choice(f"site.{what}", "not limited", f"WARNING: it is asked, but cannot be had here: {why}")
