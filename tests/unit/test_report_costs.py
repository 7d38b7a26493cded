"""Times and costs are shown of what was trained to its end, and not of runs that end when enough was measured."""

from __future__ import annotations

from typing import Any

import pytest

from headway.report.charts import charts
from headway.report.costs import costs
from headway.report.groups import Collection, Group
from headway.report.tables import details, resources, results
from headway.report.words import cell


def digest_of(
    rate: float, settings: dict[str, Any], to_accuracy: dict[str, float] | None = None, **figures: Any
) -> dict[str, Any]:
    """Of a run whose nodes cost 3.60 dollars an hour."""
    known: dict[str, Any] = {"steps_per_s": rate, "examples_per_s": 100 * rate, "training_seconds": 1000 / rate}
    known |= {"time_to_train": 30 + 1000 / rate, "tasks": [], "num_ps": 1}
    dollars = {"provisioning": 0.01, "data": 0.0, "training": 1 / rate, "idle": 0.02}
    cost = {"total": 0.03 + 1 / rate, "training_only": 1 / rate, "per_1000_steps": 0.03 + 1 / rate, "price_per_h": 3.6}
    return {
        "figures": known | figures,
        "settings": settings,
        "cost": {**cost, "dollars": dollars, "to_accuracy": to_accuracy or {}},
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


def test_the_cost_until_the_highest_accuracy_that_all_reached_is_shown() -> None:
    made = collection_of(
        one=digest_of(5.0, {}, {"0.8": 0.1, "0.9": 0.4, "0.95": 0.9}), two=digest_of(8.0, {}, {"0.8": 0.05, "0.9": 0.2})
    )
    table = costs(*made)
    assert table is not None
    assert [row["cells"]["to_accuracy"] for row in table["rows"]] == [0.4, 0.2]
    assert "until accuracy 0.9" in {column["title"] for column in table["columns"]}
    made = collection_of(one=digest_of(5.0, {}, {"0.9": 0.4}), short=digest_of(8.0, MEASURED))
    assert "to_accuracy" in columns(costs(*made))  # of those that could reach it
    never = costs(*collection_of(one=digest_of(5.0, {}, {"0.9": 0.4}), two=digest_of(8.0, {})))
    assert "to_accuracy" not in columns(never)


def test_how_much_a_nodes_use_varies_is_shown_beside_its_mean_and_peak() -> None:
    nodes = [{"node": name, "tasks": [f"worker/{name}"]} for name in "ab"]
    use = {
        name: {"sent": {"mean": 1e6, "p95": 2e6, "max": 3e6, "variability": varies}}
        for name, varies in (("a", 0.2), ("b", 0.4))
    }
    table = resources(*collection_of(one=digest_of(5.0, {}, nodes=nodes, node_use=use)))
    assert table is not None
    sent = table["rows"][0]["cells"]["sent"]
    assert sent["variability"] == pytest.approx(0.3)
    assert cell(sent, "B/s").endswith("varies by 30%)")
    assert "varies" not in cell({**sent, "variability": None}, "B/s")  # where the mean is 0
