"""The account of a burstable CPU. Pure: time and use come in as numbers.

One credit is one CPU for one minute. Credits are earned all the time and paid for every use; without any, the node gets
only what it earns. `dilation`: seconds here for one second there, where time runs slower than on the machine meant.
"""

from __future__ import annotations


class Account:
    def __init__(
        self, cpus: float, per_hour: float, start: float, most: float, now: float, used: float, dilation: float = 1.0
    ) -> None:
        """`cpus`: what the node may use while it has credits; `used`: CPU seconds it has used so far."""
        self._full = cpus
        self._per_second = per_hour / 3600 / dilation
        self._most = most
        self._now = now
        self._used = used
        self._balance = start  # below 0: what was used between two looks, though nothing was left, is owed

    @property
    def cpus(self) -> float:
        """What the node may use now."""
        baseline = min(self._full, self._per_second * 60)
        return self._full if self._balance > 0 else baseline

    @property
    def balance(self) -> float:
        return max(0.0, self._balance)

    def settle(self, now: float, used: float) -> float:
        """Earn and pay since the last time. Returns the balance."""
        earned, paid = (now - self._now) * self._per_second, (used - self._used) / 60
        self._now, self._used = now, used
        self._balance = min(self._most, self._balance + earned - paid)
        return self.balance
