"""Statuses of runs that never were: a real supervisor and real gauges are told what happens, second by second."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervising import World, running

from headway.launch.messages import Heartbeat
from headway.launch.nodes import Nodes
from headway.launch.status import Status
from headway.record.folder import RunFolder
from headway.sites import Node, PlannedNode
from headway.spec import Task
from headway.spec.site import Credits, NodeSettings

RUN = "linear-20260101-120000-ab12"
PS, WORKER, OTHER = Task("ps", 0), Task("worker", 0), Task("worker", 1)
TICK = 0.5
MACHINE = NodeSettings(cpus=0.4, memory=2**30, rate=125e6)
BURSTABLE = NodeSettings(cpus=1.0, memory=2**30, credits=Credits(per_hour=6, start=30))


def three_nodes(machine: NodeSettings = MACHINE) -> list[PlannedNode]:
    return [
        PlannedNode("ps0", "10.0.0.1", (PS,), machine),
        PlannedNode("worker0", "10.0.0.2", (WORKER,), machine),
        PlannedNode("worker1", "10.0.0.3", (OTHER,), machine),
    ]


class Told:
    """A run of two workers and a server that has trained for a while, on these nodes."""

    def __init__(self, planned: Sequence[PlannedNode] | None = None) -> None:
        self.world: World = running(cluster={"worker": 2, "ps": 1})
        job = self.world.supervisor.job
        self.nodes = Nodes(job, RunFolder(Path(RUN)), lambda _: None, lambda _, __: None, lambda work: work.close())
        if planned is not None:
            self.nodes.plan = replace(self.nodes.plan, nodes=tuple(planned))
        facts = {"state": "running", "launches": [{"started": 1000.0}]}
        self.status = Status(RUN, facts, self.world.supervisor, self.nodes)
        self.samples = 0

    def goes_on(self, ticks: int, steps: Sequence[int] = (10, 5), loss: float = 1.0) -> None:
        """Half a second each: the workers make so many steps, and every monitor takes a sample."""
        for _ in range(ticks):
            self.world.now += TICK
            self.samples += 1
            for task in self.world.supervisor.tasks:
                self.world.tell(Heartbeat(task, 0.0))
            for task, more in zip((WORKER, OTHER), steps, strict=True):
                for _ in range(more):
                    self.world.step += 1
                    self.world.say(
                        task, "step", step=self.world.step, num_steps=1, seconds=TICK / more, loss=loss, generation=1
                    )
            for planned in self.nodes.plan.nodes:
                self._sample(planned)
            self.status.look(self.world.now)

    def _sample(self, planned: PlannedNode) -> None:
        t, n = 1000.0 + self.samples * TICK, self.samples
        row: dict[str, Any] = {
            "kind": "node_sample",
            "t": t,
            "node": planned.name,
            "sampler": 1.0,
            "cpu_seconds": 0.25 * TICK * n,
            "memory": 300_000_000,
            "memory_limit": 2**30,
            "received_bytes": 1_000_000 * n,
            "sent_bytes": 2_000_000 * n,
            "received_packets": 700 * n,
            "sent_packets": 1400 * n,
            "loopback_received_bytes": 500 * n,
            "loopback_sent_bytes": 500 * n,
            "disk_read_bytes": 4096,
            "disk_written_bytes": 8192 * n,
            "throttled_seconds": 0.01 * n,
            "oom_kills": 0,
            "cpu_pressure_seconds": 0.5,
        }
        if planned.machine.credits is not None:
            row |= {"credits": 30 - 0.01 * n, "cpus": 1.0}
        tasks = [
            {
                "kind": "task_sample",
                "t": t,
                "node": planned.name,
                "task": str(task),
                "attempt": 0,
                "sampler": 1.0,
                "cpu_seconds": 0.1 * TICK * n,
                "rss": 200_000_000,
                "memory": 200_000_000,
                "sent_bytes": 1_000_000 * n,
                "received_bytes": 900_000 * n,
                "retransmitted": 3,
            }
            for task in planned.tasks
        ]
        self.nodes.gauges.hear([row, *tasks])

    def computes(self, node: str, *busy: Sequence[float]) -> None:
        """Samples of the node's GPUs: how busy each was, one after the other."""
        for number, shares in enumerate(busy):
            row = {"kind": "gpu_sample", "node": node, "sampler": 1.0, "gpu": number, "memory": 4e9, "watts": 120.5}
            self.nodes.gauges.hear(
                {**row, "t": 1000.0 + place, "busy": share, "memory_limit": 16e9} for place, share in enumerate(shares)
            )

    def value(self, gone: Sequence[str] = ()) -> dict[str, Any]:
        """The status while the agents are there, except those of the nodes that are `gone`."""
        return asyncio.run(self._value(gone))

    async def _value(self, gone: Sequence[str]) -> dict[str, Any]:
        ends = []
        for planned in self.nodes.plan.nodes:
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=ours)
            self.nodes.nodes.append(Node(planned, reader, writer, 1, {"cores": [0, 1], "memory": 2**33}))
            ends.append(theirs)
            if planned.name in gone:
                writer.close()
        try:
            return self.status.value()
        finally:
            for node, end in zip(self.nodes.nodes, ends, strict=True):
                node.writer.close()
                await node.writer.wait_closed()
                end.close()
            self.nodes.nodes = []


def trained(machine: NodeSettings = MACHINE) -> dict[str, Any]:
    """On three emulated nodes, for half a minute."""
    told = Told(three_nodes(machine))
    told.goes_on(60)
    return told.value()


def trained_here() -> dict[str, Any]:
    """On this machine, which is one node."""
    told = Told()
    told.goes_on(60)
    return told.value()
