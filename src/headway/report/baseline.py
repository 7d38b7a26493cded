"""What a speed-up is against. A quotient of two runs that are not alike says nothing: then there is none, and the page
says why. `headway compare` refuses such a pair, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.bench.facts import is_below
from headway.report.groups import SIZE, SYNTHETIC, Group, named

NOT_OF_SPEED = ("strategy", "cluster.", "workload.stop.", "workload.evaluate.", "checkpoint.", "export", "restart.")
"""Settings, besides its size, in which a baseline may be another."""
OF_THE_NETWORK = ("rate", "latency", "count")
"""Of a node: a single machine sends nothing to others."""
WITH_SETTINGS_OF_THEIR_OWN = ("workload.model", "workload.dataset", "site.nodes")
"""What one does not have and the other has is a difference. Elsewhere one was made before there was such a setting."""
MOST_NAMED = 3  # differences

Differences = dict[str, tuple[Any, Any]]
"""Setting -> that of the baseline, that of the group."""


def baseline_of(group: Group, groups: Sequence[Group]) -> Group | None:
    """What a group's speed-up is against: the baseline (or else a single machine) that has the same data and settings
    besides the cluster's size and the strategy, on the same machine, else the one task of its own line. None where
    there is none."""
    alike = [one for one in _possible(groups) if not unlike(one, group)]
    alike.sort(key=lambda one: (not one.is_baseline, not one.is_single, one.servers != group.servers))
    return next(iter(alike), None)


def why_none(group: Group, groups: Sequence[Group]) -> str | None:
    """Why a group has no baseline, in words; None where it has one."""
    if baseline_of(group, groups) is not None:
        return None
    possible = _possible(groups)
    if not possible:
        return "there is no run of strategy single, nor of one training task, to compare with"
    nearest = min(possible, key=lambda one: len(unlike(one, group)))
    found = unlike(nearest, group)
    told = [_in_words(name, *values) for name, values in list(found.items())[:MOST_NAMED]]
    more = len(found) - len(told)
    return f"{nearest.label} is not alike ({'; '.join([*told, *([f'and {more} more'] if more else [])])})"


def unlike(one: Group, group: Group) -> Differences:
    """In what a group differs from one that might be its baseline. A single machine may have another strategy, and says
    nothing of servers; one task with its servers is of the same line, or of no use."""
    is_machine = one.is_baseline or one.is_single
    found: Differences = {} if one.data == group.data else {"data": (one.data, group.data)}
    for name in dict.fromkeys([*one.settings, *group.settings]):
        if name == SYNTHETIC:  # `data` says that
            continue
        is_in_both = name in one.settings and name in group.settings
        is_free = bool(SIZE.fullmatch(name)) or (is_machine and (name.startswith(NOT_OF_SPEED) or not is_in_both))
        if not is_free and one.settings.get(name) != group.settings.get(name):
            found[name] = one.settings.get(name), group.settings.get(name)
    for name in sorted({*one.facts, *group.facts} - (one.chosen & group.chosen) - {*found}):
        if is_machine and name.startswith("site.") and name.rpartition(".")[2] in OF_THE_NETWORK:
            continue
        counts = (name in one.facts and name in group.facts) or is_below(name, WITH_SETTINGS_OF_THEIR_OWN)
        if counts and one.facts.get(name) != group.facts.get(name):
            found[name] = one.facts.get(name), group.facts.get(name)
    return found


def _possible(groups: Sequence[Group]) -> list[Group]:
    return [one for one in groups if one.runs and (one.is_baseline or one.is_single or one.tasks == 1)]


def _in_words(name: str, there: Any, here: Any) -> str:
    word, _ = named(name, there)
    sides = ["nothing" if value is None else named(name, value)[1] for value in (there, here)]
    return f"{word}: {sides[0]} there, {sides[1]} here".removeprefix(": ")
