"""A process and all that it has started, read as one: what a user's own program does is done by its children."""

from __future__ import annotations

import psutil

from headway.host.readings import ProcessReading, Readings
from headway.host.sockets import SocketTraffic


class Tree:
    """Counters never go back: what a child has used before it ended stays counted, as far as it was seen."""

    def __init__(self, root: int, readings: Readings) -> None:
        self.pids = [root]
        self._root, self._readings = root, readings
        self._cpu_seconds, self._read, self._written, self._switches = 0.0, 0, 0, 0

    def look(self) -> None:
        """Who belongs to it now. A walk over all processes: not for every sample."""
        try:
            self.pids = [self._root, *(child.pid for child in psutil.Process(self._root).children(recursive=True))]
        except psutil.NoSuchProcess:
            self.pids = [self._root]

    def reading(self, switches: bool = False) -> ProcessReading | None:
        found = [self._readings.process(pid, switches, ended_children=True) for pid in self.pids]
        alive = [one for one in found if one is not None]
        if found[0] is None:
            return None
        self._cpu_seconds = max(self._cpu_seconds, sum(one.cpu_seconds for one in alive))
        self._read = max(self._read, sum(one.read_bytes or 0 for one in alive))
        self._written = max(self._written, sum(one.written_bytes or 0 for one in alive))
        if switches:
            self._switches = max(self._switches, sum(one.context_switches or 0 for one in alive))
        return ProcessReading(
            cpu_seconds=self._cpu_seconds,
            rss=sum(one.rss for one in alive),
            threads=sum(one.threads for one in alive),
            read_bytes=self._read,
            written_bytes=self._written,
            context_switches=self._switches if switches else None,
        )


def together(traffic: list[SocketTraffic]) -> SocketTraffic:
    return SocketTraffic(*(sum(counts) for counts in zip(*(vars(one).values() for one in traffic), strict=True)))
