"""A process and all that it has started, read as one: what a user's own program does is done by its children."""

from __future__ import annotations

import time

import psutil

from headway.host.readings import ProcessReading, Readings
from headway.host.sockets import SocketTraffic

# A walk over all pages takes time of a core that trains. The pause after it is so many times as long, or less where
# processes came or went since: else a sample would count the pages of new ones twice.
PAUSE, SHORT_PAUSE = 200, 20
LEAST_PAUSE = 2.0  # seconds


class Tree:
    """Counters never go back: what a child has used before it ended stays counted, as far as it was seen."""

    def __init__(self, root: int, readings: Readings) -> None:
        self.pids = [root]
        self._root, self._readings = root, readings
        self._cpu_seconds, self._read, self._written, self._switches = 0.0, 0, 0, 0
        self._twice = 0  # bytes that a sum over the processes counts more than once
        self._in_shared_memory = 0
        self._walked, self._took = 0.0, 0.0

    def look(self) -> None:
        """Who belongs to it now. A walk over all processes: not for every sample."""
        before = self.pids
        try:
            self.pids = [self._root, *(child.pid for child in psutil.Process(self._root).children(recursive=True))]
        except psutil.NoSuchProcess:
            self.pids = [self._root]
        now = time.monotonic()
        pause = self._took * SHORT_PAUSE if self.pids != before else max(LEAST_PAUSE, self._took * PAUSE)
        if now - self._walked >= pause:
            self._walk()
            self._walked = time.monotonic()
            self._took = self._walked - now

    def _walk(self) -> None:
        """What its processes have in common: forked ones share their parent's pages until one of them writes."""
        known = [
            (one.memory, shares)
            for pid in self.pids
            if (one := self._readings.process(pid)) and (shares := self._readings.shared_out(pid))
        ]
        self._twice = max(0, sum((own or 0) - shares[0] for own, shares in known))
        self._in_shared_memory = sum(shares[1] for _, shares in known)

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
            memory=self._memory([one.memory for one in alive if one.memory is not None]),
            read_bytes=self._read,
            written_bytes=self._written,
            context_switches=self._switches if switches else None,
        )

    def _memory(self, own: list[int]) -> int | None:
        return max(*own, sum(own) - self._twice) + self._in_shared_memory if own else None


def together(traffic: list[SocketTraffic]) -> SocketTraffic:
    return SocketTraffic(*(sum(counts) for counts in zip(*(vars(one).values() for one in traffic), strict=True)))
