"""Times and costs are shown of what was trained to its end, and not of runs that end when enough was measured."""

from __future__ import annotations

from typing import Any

import pytest

from headway.report.charts import charts
from headway.report.costs import costs
from headway.report.groups import Collection, Group
from headway.report.tables import details, results


def digest_of(rate: float, settings: dict[str, Any], **figures: Any) -> dict[str, Any]:
    """Of a run whose nodes cost 3.60 dollars an hour."""
    known = {"steps_per_s": rate, "examples_per_s": 100 * rate, "training_seconds": 1000 / rate, "num_ps": 1}
    known |= {"time_to_train": 30 + 1000 / rate, "tasks": []}
    dollars = {"provisioning": 0.01, "data": 0.0, "training": 1 / rate, "idle": 0.02}
    cost = {"total": 0.03 + 1 / rate, "training_only": 1 / rate, "per_1000_steps": 0.03 + 1 / rate, "price_per_h": 3.6}
    return {
        "figures": known | figures,
        "settings": settings,
        "cost": {**cost, "dollars": dollars, "to_accuracy": {}},
    }


def collection_of(**digests: dict[str, Any]) -> tuple[Collection, dict[str, Any]]:
    """A configuration of each, with 1, 2 ... tasks."""
    groups = tuple(
        Group(name, {"cluster.worker": tasks}, tasks, (f"/{name}",), key=name)
        for tasks, name in enumerate(digests, start=1)
    )
    return Collection("Sweep made", groups, sweep="made"), {f"/{name}": one for name, one in digests.items()}


MEASURED = {"measure.steps": 20}


def columns(table: dict[str, Any] | None) -> set[str]:
    assert table is not None
    return {column["key"] for column in table["columns"]}


def test_what_was_trained_to_its_end_has_times_and_whole_costs() -> None:
    made = collection_of(one=digest_of(5.0, {}), two=digest_of(8.0, {}))
    assert "training_seconds" in columns(results(*made))
    assert "time_to_train" in columns(details(*made))
    assert {"total", "training_only", "idle", "per_1000_steps"} <= columns(costs(*made))
    assert "measure.steps" not in results(*made)["note"]
    names = {chart["name"] for chart in charts(*made)}
    assert {"time", "cost"} <= names
    assert "rate-cost" not in names


def test_of_runs_that_end_when_enough_was_measured_rates_are_shown_but_no_times_nor_whole_costs() -> None:
    made = collection_of(one=digest_of(5.0, MEASURED), two=digest_of(8.0, MEASURED))
    assert {"steps_per_s", "examples_per_s", "speedup"} <= columns(results(*made))
    assert "training_seconds" not in columns(results(*made))
    assert "time_to_train" not in columns(details(*made))
    assert columns(costs(*made)) == {"configuration", "price_per_h", "at_rate"}
    names = {chart["name"] for chart in charts(*made)}
    assert {"throughput", "rate-cost"} <= names
    assert not {"time", "cost"} & names
    for table in (results(*made), details(*made), costs(*made)):
        assert table is not None
        assert "their times and whole costs are left out" in table["note"]
    assert "Time: from the first step" not in results(*made)["note"]


def test_the_cost_of_1000_steps_follows_from_the_measured_rate_on_the_machines_meant() -> None:
    made = collection_of(one=digest_of(5.0, MEASURED), two=digest_of(5.0, MEASURED, dilation=4.0))
    table = costs(*made)
    assert table is not None
    assert [row["cells"]["at_rate"] for row in table["rows"]] == pytest.approx([0.2, 0.05])


def test_where_only_some_were_trained_to_their_end_each_has_what_it_can_have() -> None:
    made = collection_of(short=digest_of(5.0, MEASURED), whole=digest_of(8.0, {}))
    rows = {row["cells"]["configuration"]: row["cells"] for row in results(*made)["rows"]}
    assert "training_seconds" not in rows["short"]
    assert rows["whole"]["training_seconds"]["value"] == 125.0
    assert "their times and whole costs are left out" in results(*made)["note"]
