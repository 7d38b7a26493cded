"""Where nodes come from, and what kind of machines they are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from headway.spec.cluster import MOST_TASKS, Strict
from headway.spec.layout import NodeKind
from headway.units import Bytes, BytesPerSecond, Seconds

Rate = Annotated[BytesPerSecond, Field(ge=125, le=1e12)]  # 1 kbit/s and more
Port = Annotated[int, Field(ge=1024, le=65535)]


LEAST_CPUS, MOST_CPUS = 0.001, 1e6
MOST_DILATION = 10_000.0
LEAST_MEMORY = 16 * 2**20  # bytes; with less not even a shell starts


class Disk(Strict):
    """How fast a node's disk is."""

    read: Rate | None = None
    """Bytes per second; 100MB/s."""
    write: Rate | None = None
    """Bytes per second; 50MB/s."""

    @property
    def is_limited(self) -> bool:
        return self.read is not None or self.write is not None


class Credits(Strict):
    """A CPU that is fast for a while. One credit is one CPU for one minute; a node without credits gets only as much
    CPU as it earns."""

    per_hour: Annotated[float, Field(gt=0, le=1e6)]
    """Credits earned in an hour: 6 is a tenth of a CPU for ever."""
    start: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Credits at the beginning."""
    most: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Credits that can be saved up. Default: a day's."""

    @model_validator(mode="after")
    def _possible(self) -> Credits:
        if self.start > self.limit:
            raise ValueError(f"start: {self.start:g}, but at most {self.limit:g} credits can be saved up (most)")
        return self

    @property
    def limit(self) -> float:
        return 24 * self.per_hour if self.most is None else self.most

    @property
    def baseline(self) -> float:
        """CPUs that can be used for ever."""
        return self.per_hour / 60


class NodeSettings(Strict):
    """A machine. What is left out is not limited."""

    type: str | None = None
    """A machine type of the catalogue (`headway machines`); what is given besides replaces its numbers."""
    count: Annotated[int, Field(ge=1, le=MOST_TASKS)] | None = None
    """How many such nodes there are: the layout may use fewer. Default: as many as it needs."""
    cpus: Annotated[float, Field(ge=LEAST_CPUS, le=MOST_CPUS)] | None = None
    """CPUs' worth of time; 0.4 is two fifths of one."""
    memory: Annotated[Bytes, Field(ge=LEAST_MEMORY, le=2**50)] | None = None
    """More is refused: the task that asks for it is killed."""
    rate: Rate | None = None
    """Of its network interface, in each direction; 1Gbit."""
    latency: Annotated[Seconds, Field(ge=0, le=60)] | None = None
    """Of its network interface: a round trip takes this node's and the other's; 0.5ms."""
    disk: Disk = Disk()
    """Of what the node reads and writes."""
    credits: Credits | None = None
    """For a burstable CPU."""
    speed: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """Examples per second of the job's model on this machine alone, for what no CPU here can do (a GPU): cpus follow
    from it and from what one core here does. Default: the catalogue's for this model, where it has one."""


class Site(Strict):
    kind: Literal["local", "emulated"] = "local"
    """local: this machine. emulated: hosts of their own on this machine, each with a network, CPU, memory and disk."""
    network: Literal["private", "outbound"] | None = None
    """Local: private: the tasks reach each other alone. outbound: they reach other hosts, too; nobody reaches them.
    Default: outbound for a program of your own, private for built-in models, whose data is fetched before."""
    ports: tuple[Port, Port] | None = None
    """First and last port that tasks may listen on. Default: any free port."""
    nodes: dict[NodeKind, NodeSettings] = Field(default_factory=dict)
    """Emulated: the machines for servers (ps), training tasks (worker) and a chief of its own (chief, else as worker).
    A node with both a server and a training task is a worker."""
    fabric: Rate | None = None
    """Emulated: the rate of one link that all traffic between nodes crosses."""
    dilation: Annotated[float, Field(ge=1, le=MOST_DILATION)] | None = None
    """Emulated: this many seconds here are one second there. CPUs, rates and disks are divided by it, latencies
    multiplied. Default: 1, or for machines with a speed (GPUs) as much as this machine needs."""
    core_speed: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """Emulated: examples per second of the job's model on one core here, for nodes with a speed. Default: measured."""

    @field_validator("ports")
    @classmethod
    def _in_order(cls, ports: tuple[int, int] | None) -> tuple[int, int] | None:
        if ports is not None and ports[0] > ports[1]:
            raise ValueError("the first port is above the last one; write for example [4000, 5000]")
        return ports

    @model_validator(mode="after")
    def _possible(self) -> Site:
        if self.kind == "local":
            given = [name for name in ("nodes", "fabric", "dilation", "core_speed") if getattr(self, name)]
            if given:
                raise ValueError(f"{', '.join(given)}: a local site is this machine as it is; write kind: emulated")
        elif self.network == "outbound":
            raise ValueError("network: outbound: emulated hosts reach each other alone; write kind: local")
        return self

    def node(self, kind: NodeKind) -> NodeSettings:
        """A chief of its own is a worker, unless something else is said."""
        return self.nodes.get(kind) or self.nodes.get("worker" if kind == "chief" else kind) or NodeSettings()
