"""What configurations cost: the whole of a training, or, of runs that were only made to be measured, what steps cost at
their rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.metrics.estimate import Estimate, estimate
from headway.report.groups import Collection, Digests, Group
from headway.report.tables import Table, highest_common, median, no_times, row, table

WHOLE = ("total", "training_only", "per_1000_steps")
PHASES = ("provisioning", "data", "idle")
PAID = "All nodes, from when they are asked for to their release"


def costs(collection: Collection, digests: Digests) -> Table | None:
    """Dollars of all nodes from when they are asked for to their release (E5 counted the training alone)."""
    whole = [group for group in collection.groups if not group.is_only_measured(digests)]
    counted = [cost for group in whole for path in group.runs if (cost := digests[path].get("cost"))]
    reached = highest_common(one.get("to_accuracy") or () for one in counted)
    rows = []
    for group in collection.groups:
        known = [digests[path] for path in group.runs if digests[path].get("cost")]
        if not known:
            continue
        cells: dict[str, Any] = {
            "configuration": group.label,
            "price_per_h": median(one["cost"]["price_per_h"] for one in known),
        }
        if group.is_only_measured(digests):
            cells["at_rate"] = median(at_rate(one) for one in known)
        else:
            cells |= {name: median(one["cost"][name] for one in known) for name in WHOLE}
            cells |= {phase: median(one["cost"]["dollars"][phase] for one in known) for phase in PHASES}
            if reached is not None:
                cells["to_accuracy"] = median(one["cost"]["to_accuracy"][reached] for one in known)
        rows.append(row(cells, group.runs))
    columns = [
        ("configuration", "configuration", "text"),
        ("price_per_h", "all nodes, an hour", "dollars"),
        ("total", "all of it", "dollars"),
        ("training_only", "training only", "dollars"),
        ("provisioning", "provisioning", "dollars"),
        ("data", "data", "dollars"),
        ("idle", "idle", "dollars"),
        ("per_1000_steps", "1,000 steps", "dollars"),
        ("to_accuracy", f"until accuracy {reached}", "dollars"),
        ("at_rate", "1,000 steps at its rate", "dollars"),
    ]
    note = f"{PAID}; medians over runs. Training only is what E5 counted."
    if any("at_rate" in one["cells"] for one in rows):
        note = f"Medians over runs. At its rate: no start and no end in it.{no_times(collection, digests)}"
        if any("total" in one["cells"] for one in rows):
            note += f" Other costs: {PAID[0].lower()}{PAID[1:]}."
    return table(f"cost-{collection.slug}", f"{collection.title}: cost", columns, rows, note) if rows else None


def at_rate(digest: Mapping[str, Any]) -> float | None:
    """Dollars of 1,000 steps, as if nodes did nothing but train at the measured rate. Where seconds here stand for
    others (dilation): on the machines meant."""
    rate = digest["figures"].get("steps_per_s")
    if not rate:
        return None
    seconds = 1000 / float(rate * (digest["figures"].get("dilation") or 1.0))
    return float(digest["cost"]["price_per_h"]) * seconds / 3600


def whole_cost(group: Group, digests: Digests) -> Estimate | None:
    """None of runs whose length says nothing."""
    if group.is_only_measured(digests):
        return None
    known = [float(one["total"]) for path in group.runs if (one := digests[path].get("cost"))]
    return estimate(known) if known else None


def cost_at_rate(group: Group, digests: Digests) -> Estimate | None:
    """None of runs that have a cost of their own."""
    if not group.is_only_measured(digests):
        return None
    known = [value for path in group.runs if digests[path].get("cost") and (value := at_rate(digests[path]))]
    return estimate(known) if known else None
