"""The best of several values with fewer trials than there are values. Pure.

It takes for granted that throughput, over the values in their order, rises to one peak and falls from there (as it does
with the number of servers: first they are the bottleneck, later they only take cores and messages). Then a value behind
one that is worse than the best on this side cannot be the best, and need not be tried. Worse is what is so beyond its
interval: a neighbour that may be as good shuts nothing off. Where less is better (a time), peaks are valleys.
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
    """Share of throughput (or of time) that may be lost by taking the best instead of a rival: as far as their
    intervals reach. None: of single runs nothing is known of that."""


def next_candidate(
    num: int, found: Mapping[int, Estimate], impossible: frozenset[int] = frozenset(), is_less_better: bool = False
) -> int | None:
    """The candidate to try next (by number, in the candidates' order); None when the best is known.

    `found`: what came out of the candidates tried so far; `impossible`: those that failed or are not allowed."""
    possible = [number for number in range(num) if number not in impossible]
    if not possible:
        return None
    if not any(number in found for number in possible):
        return possible[round(GOLDEN * (len(possible) - 1))]
    best = _best(found, is_less_better)
    worse = [number for number in found if not found[number].overlaps(found[best])]
    low = max((number for number in worse if number < best), default=-1)
    high = min((number for number in worse if number > best), default=num)
    open_left = [number for number in possible if low < number < best and number not in found]
    open_right = [number for number in possible if best < number < high and number not in found]
    if not open_left and not open_right:
        return None
    if len(open_left) >= len(open_right):
        return open_left[-math.ceil(GOLDEN * len(open_left))]
    return open_right[math.ceil(GOLDEN * len(open_right)) - 1]


def _best(found: Mapping[int, Estimate], is_less_better: bool) -> int:
    return (min if is_less_better else max)(sorted(found), key=lambda number: found[number].value)


def choose(
    num: int, found: Mapping[int, Estimate], impossible: frozenset[int] = frozenset(), is_less_better: bool = False
) -> Chosen:
    """What the search came to, and what that may have cost."""
    best = _best(found, is_less_better)
    rivals = [number for number in sorted(found) if number != best and found[number].overlaps(found[best])]
    is_known = all(math.isfinite(each.half_width) for each in found.values()) or len(found) == 1
    may_lose = _may_lose(found[best], [found[number] for number in rivals], is_less_better) if is_known else None
    skipped = [number for number in range(num) if number not in found and number not in impossible]
    return Chosen(best, tuple(sorted(found)), tuple(skipped), tuple(rivals), may_lose)


def _may_lose(best: Estimate, rivals: list[Estimate], is_less_better: bool) -> float:
    if not rivals:
        return 0.0
    if is_less_better:
        least = min(rival.low for rival in rivals)
        return max(0.0, best.high / least - 1) if least > 0 else 0.0
    most = max(rival.high for rival in rivals)
    return max(0.0, 1 - best.low / most) if most > 0 else 0.0


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
        text += f"; {rivals} may be as good: up to {event['may_lose']:.1%} may be lost"
    return text


def not_found_text(event: Mapping[str, Any]) -> str:
    """Of the event `not_found`: a search without its end, and why."""
    return f"{event['group']}: the best {event['path']} was not found: {event['reason']}"
