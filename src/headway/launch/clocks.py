"""How far each node's clock is from the launcher's. Pure: times come in as numbers."""

from __future__ import annotations

from dataclasses import dataclass

EVERY = 15.0  # seconds between two records of a clock
FIRST = 3  # answers before the first one


@dataclass(frozen=True)
class Offset:
    """What must be subtracted from a node's times to get the launcher's."""

    seconds: float
    uncertainty: float
    """It is at most this wrong: half of the round trip that it was measured with."""


class Clock:
    """One node's: of many exchanges the quickest is the surest."""

    def __init__(self) -> None:
        self._best: Offset | None = None
        self._heard = 0
        self._told: float | None = None

    def hear(self, sent: float, there: float, now: float) -> Offset | None:
        """An answer: sent at, the node's time, received at. Returns what is to be recorded, now and then."""
        offset = Offset(there - (sent + now) / 2, (now - sent) / 2)
        if self._best is None or offset.uncertainty < self._best.uncertainty:
            self._best = offset
        self._heard += 1
        if (self._told is None and self._heard < FIRST) or (self._told is not None and now - self._told < EVERY):
            return None
        found, self._best, self._told = self._best, None, now
        return found
