"""A figure of a run's summary by name: `examples_per_s`, `role_use.ps.rss.max`, `task_usage.worker/0.cpus`; some that
are sums over its nodes or follow from others; and the quotient of two, `nodes.worker0.sent / nodes.worker1.sent`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = ("node", "task")  # what the entries of a list are called by
QUOTIENT = " / "
SERVER_NODE = "server_node"
STEPS_TO_ACCURACY = "steps_to_accuracy"


def figure_of(figures: Mapping[str, Any], name: str, settings: Mapping[str, Any] | None = None) -> float | None:
    """None where it is not known. `settings`: dotted path -> value, of the job, for those in OF_SETTINGS."""
    if QUOTIENT in name:
        over, _, under = name.partition(QUOTIENT)
        above, below = figure_of(figures, over, settings), figure_of(figures, under, settings)
        return above / below if above is not None and below else None
    derived = DERIVED.get(name)
    if derived is not None:
        return derived(figures)
    of_settings = OF_SETTINGS.get(name)
    if of_settings is not None:
        return of_settings(figures, settings or {})
    first, _, rest = name.partition(".")
    if first in ("time_to_accuracy", STEPS_TO_ACCURACY):
        reached = (figures.get("time_to_accuracy") or {}).get(rest)
        return None if reached is None else float(reached["step" if first == STEPS_TO_ACCURACY else "seconds"])
    if first == SERVER_NODE:
        return _of_server_node(figures, rest)
    return _by_path(figures, name)


def _by_path(figures: Mapping[str, Any], name: str) -> float | None:
    value: Any = figures
    for part in name.split("."):
        if isinstance(value, list):
            value = next((each for each in value if any(each.get(key) == part for key in NAMES)), None)
        elif isinstance(value, Mapping):
            value = value.get(part)
        else:
            return None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _of_server_node(figures: Mapping[str, Any], name: str) -> float | None:
    """`received.max` and the like of the node that has a server; of several such nodes, the highest. Where all tasks
    are on one node, its traffic is loopback."""
    nodes = figures.get("nodes") or ()
    use = figures.get("node_use") or {}
    name = f"loopback_{name}" if len(nodes) == 1 and name.startswith(("received.", "sent.")) else name
    with_server = [each["node"] for each in nodes if any(task.startswith("ps/") for task in each.get("tasks", ()))]
    found = [_by_path(use.get(node) or {}, name) for node in with_server]
    return max((value for value in found if value is not None), default=None)


def _cpus(figures: Mapping[str, Any]) -> float | None:
    """Of all tasks together."""
    return _sum(each.get("cpus") for each in figures.get("task_usage") or ())


def _cpus_per_node(figures: Mapping[str, Any]) -> float | None:
    nodes = figures.get("nodes") or ()
    total = _sum(each.get("cpus") for each in nodes)
    return None if total is None else total / len(nodes)


def _cpus_per_worker_node(figures: Mapping[str, Any]) -> float | None:
    """Of a node that has a training task."""
    used = [each for each in figures.get("nodes") or () if any(map(_is_training, each.get("tasks", ())))]
    total = _sum(each.get("cpus") for each in used)
    return None if total is None else total / len(used)


def _cpus_per_task(figures: Mapping[str, Any]) -> float | None:
    """Of a training task."""
    used = [each for each in figures.get("task_usage") or () if _is_training(each["task"])]
    total = _sum(each.get("cpus") for each in used)
    return None if total is None else total / len(used)


def _is_training(task: str) -> bool:
    return task.partition("/")[0] in ("chief", "worker")


def _memory(figures: Mapping[str, Any]) -> float | None:
    return _sum(each.get("rss_peak") for each in figures.get("task_usage") or ())


def _sent(figures: Mapping[str, Any]) -> float | None:
    """Bytes per second that all nodes send to others; on one node, over loopback."""
    nodes = figures.get("nodes") or ()
    name = "sent" if len(nodes) > 1 else "loopback_sent"
    return _sum(each.get(name) for each in nodes)


def _memory_per_node(figures: Mapping[str, Any]) -> float | None:
    nodes = figures.get("nodes") or ()
    total = _sum(each.get("memory_peak") for each in nodes)
    return None if total is None else total / len(nodes)


def _loopback(figures: Mapping[str, Any]) -> float | None:
    """Bytes per second that stay on their node, of all nodes. In and out are the same bytes."""
    return _sum(each.get("loopback_received") for each in figures.get("nodes") or ())


def _received(figures: Mapping[str, Any]) -> float | None:
    """As `_sent`, of what comes in."""
    nodes = figures.get("nodes") or ()
    return _sum(each.get("received" if len(nodes) > 1 else "loopback_received") for each in nodes)


def _sent_peak(figures: Mapping[str, Any]) -> float | None:
    found = [use["sent"]["max"] for use in (figures.get("node_use") or {}).values() if "sent" in use]
    return max(found, default=None)


def _sent_variability(figures: Mapping[str, Any]) -> float | None:
    uses = [use["sent"]["variability"] for use in (figures.get("node_use") or {}).values() if "sent" in use]
    found = [value for value in uses if value is not None]
    return sum(found) / len(found) if found else None


def _bytes_per_example(figures: Mapping[str, Any]) -> float | None:
    sent, batch = figures.get("bytes_per_step"), figures.get("effective_batch")
    return sent / batch if sent and batch else None


def _seconds_per_epoch(figures: Mapping[str, Any], settings: Mapping[str, Any]) -> float | None:
    """Of trials of one data set, in the unit of its whole size."""
    rate, size = figures.get("examples_per_s"), settings.get("workload.dataset.size", 1)
    return float(size) / rate if rate and isinstance(size, (int, float)) else None


def _sum(values: Any) -> float | None:
    found = [value for value in values if value is not None]
    return float(sum(found)) if found else None


# Defined in docs/metrics.md, as every other figure is; a test looks there.
DERIVED = {
    "cpus": _cpus,
    "cpus_per_node": _cpus_per_node,
    "cpus_per_worker_node": _cpus_per_worker_node,
    "cpus_per_task": _cpus_per_task,
    "memory": _memory,
    "memory_per_node": _memory_per_node,
    "sent_per_s": _sent,
    "received_per_s": _received,
    "loopback_per_s": _loopback,
    "sent_peak": _sent_peak,
    "sent_variability": _sent_variability,
    "bytes_per_example": _bytes_per_example,
}
# Those that a run's summary is not enough for.
OF_SETTINGS = {"seconds_per_epoch": _seconds_per_epoch}
