"""The best of several values with fewer trials than there are values. Pure.

It takes for granted that throughput, over the values in their order, rises to one peak and falls from there (as it does
with the number of servers: first they are the bottleneck, later they only take cores and messages). Then a value behind
one that is worse than its neighbour on this side cannot be the best, and need not be tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.metrics.estimate import Estimate

GOLDEN = 0.382  # where in a stretch of untried values the next one is tried, seen from the best one so far


@dataclass(frozen=True)
class Chosen:
    best: int
    """Number of the best candidate."""
    tried: tuple[int, ...]
    skipped: tuple[int, ...]
    """Never tried: the peak lies elsewhere, if there is only one."""
    rivals: tuple[int, ...]
    """Tried, worse, but within the noise."""
    may_lose: float | None
    """Share of throughput that may be lost by taking the best instead of a rival: as far as their intervals reach.
    None: of single runs nothing is known of that."""


def next_candidate(num: int, found: Mapping[int, float], impossible: frozenset[int] = frozenset()) -> int | None:
    """The candidate to try next (by number, in the candidates' order); None when the best is known.

    `found`: throughput of the candidates tried so far; `impossible`: those that failed or are not allowed."""
    possible = [number for number in range(num) if number not in impossible]
    if not possible:
        return None
    if not any(number in found for number in possible):
        return possible[round(GOLDEN * (len(possible) - 1))]
    low, best, high = _bracket(possible, found)
    left = [number for number in possible if low < number < best]
    right = [number for number in possible if best < number < high]
    if not left and not right:
        return None
    if len(left) >= len(right):
        return left[-math.ceil(GOLDEN * len(left))]
    return right[math.ceil(GOLDEN * len(right)) - 1]


def _bracket(possible: list[int], found: Mapping[int, float]) -> tuple[int, int, int]:
    """The best one so far, and the nearest tried ones on both sides of it: the peak lies between these."""
    tried = [number for number in possible if number in found]
    best = max(tried, key=lambda number: found[number])
    low = max((number for number in tried if number < best), default=-1)
    high = min((number for number in tried if number > best), default=possible[-1] + 1)
    return low, best, high


def choose(num: int, found: Mapping[int, Estimate], impossible: frozenset[int] = frozenset()) -> Chosen:
    """What the search came to, and what that may have cost."""
    tried = sorted(found)
    best = max(tried, key=lambda number: found[number].value)
    rivals = [number for number in tried if number != best and found[number].overlaps(found[best])]
    most = max((found[number].high for number in rivals), default=0.0)
    may_lose = max(0.0, 1 - found[best].low / most) if most > 0 else 0.0
    is_known = all(math.isfinite(each.half_width) for each in found.values()) or len(found) == 1
    skipped = [number for number in range(num) if number not in found and number not in impossible]
    return Chosen(best, tuple(tried), tuple(skipped), tuple(rivals), may_lose if is_known else None)


# --- in words -------------------------------------------------------------------------------------------------------
def choice_text(event: Mapping[str, Any]) -> str:
    """Of the event `chosen`: what a search came to, what it saved, and what it may have lost."""
    if event["value"] is None:
        return f"{event['group']}: no {event['path']} could be tried"
    tried, skipped = len(event["tried"]), len(event["skipped"])
    text = f"{event['group']}: best {event['path']} is {event['value']} ({tried} of {tried + skipped} tried"
    if skipped:
        text += f", {skipped} saved: {', '.join(map(str, event['skipped']))}, if {event['assumes']}"
    text += ")"
    if event["may_lose"] is None:
        text += "; with so few runs of each, whether another is as good is not known"
    elif event["rivals"]:
        rivals = ", ".join(map(str, event["rivals"]))
        text += f"; {rivals} may be as good: at most {event['may_lose']:.1%} is lost"
    return text


def not_found_text(event: Mapping[str, Any]) -> str:
    """Of the event `not_found`: a search without its end, and why."""
    return f"{event['group']}: the best {event['path']} was not found: {event['reason']}"
