"""Which server holds which variable: a pure function of the variables and the number of servers.

A server's load is the bytes of its variables, for that is what every step pulls from it and pushes to it. Optimizer
slots live beside their variable and never travel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

How = Literal["round_robin", "greedy", "partitioned"]
BYTES_PER_NUMBER = 4
# Splitting costs one more message per part and step; below this many bytes a message costs more than what it carries.
SMALLEST_PART = 64 * 1024


@dataclass(frozen=True)
class Declared:
    """A variable of the model, float32, as its forward pass asked for it."""

    name: str
    shape: tuple[int, ...]
    trainable: bool = True
    momentum: float | None = None
    """Of a moving average."""

    @property
    def bytes(self) -> int:
        return BYTES_PER_NUMBER * math.prod(self.shape)


@dataclass(frozen=True)
class Part:
    """Rows begin..end (of the first dimension) of a variable, on one server; nearly always all rows."""

    server: int
    begin: int
    end: int


def place(variables: Sequence[Declared], num_servers: int, how: How) -> dict[str, tuple[Part, ...]]:
    """The parts of every variable, by name."""
    if how == "round_robin":
        return {each.name: (_whole(each, number % num_servers),) for number, each in enumerate(variables)}
    load = [0] * num_servers
    parts: dict[str, tuple[Part, ...]] = {}
    for each in sorted(variables, key=lambda each: -each.bytes):  # large ones first, small ones fill the gaps
        if how == "partitioned" and _is_worth_splitting(each, num_servers):
            borders = [each.shape[0] * place // num_servers for place in range(num_servers + 1)]
            # The emptiest server takes the largest part: they differ by a row.
            order = sorted(range(num_servers), key=lambda server: load[server])
            sizes = sorted(pairwise(borders), key=lambda rows: rows[0] - rows[1])
            chosen = [Part(server, begin, end) for server, (begin, end) in zip(order, sizes, strict=True)]
            parts[each.name] = tuple(sorted(chosen, key=lambda part: part.begin))
        else:
            parts[each.name] = (_whole(each, load.index(min(load))),)
        for part in parts[each.name]:
            load[part.server] += each.bytes * (part.end - part.begin) // max(1, each.shape[0] if each.shape else 1)
    return {each.name: parts[each.name] for each in variables}


def _whole(variable: Declared, server: int) -> Part:
    return Part(server, 0, variable.shape[0] if variable.shape else 1)


def _is_worth_splitting(variable: Declared, num_servers: int) -> bool:
    """Moving averages are updated as a whole, so only what is trained is split."""
    return (
        variable.trainable
        and num_servers > 1
        and len(variable.shape) >= 2
        and variable.shape[0] >= num_servers
        and variable.bytes // num_servers >= SMALLEST_PART
    )
