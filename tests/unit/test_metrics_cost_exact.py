"""What is paid, by hand: phases of launches, prices of nodes, and prices as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import SpecError
from headway.metrics.cost import (
    Cost,
    Owning,
    _paid_until,
    _priced,
    kind_of,
    node_names,
    parse_price,
    phases,
    priced_phases,
)


def event(t: float, kind: str, launch: int = 0, node: str | None = None) -> dict[str, Any]:
    return {"t": t, "kind": kind, "launch": launch, "data": f'{{"node": "{node}"}}'}


# --- phases -----------------------------------------------------------------------------------------------------------
def test_provisioning_lasts_until_all_nodes_answer() -> None:
    events = [event(12.0, "node_ready", node="ps0"), event(15.0, "node_ready", node="worker0")]
    assert phases([{"started": 10.0, "ended": 40.0}], events, 20.0, 1.0) == {
        "provisioning": 5.0,
        "data": 0.0,
        "training": 20.0,
        "idle": 5.0,
    }


def test_a_node_that_was_made_again_is_not_provisioning() -> None:
    events = [event(t, "node_ready", node=node) for t, node in ((15.0, "worker0"), (12.0, "ps0"), (30.0, "worker0"))]
    assert phases([{"started": 10.0, "ended": 40.0}], events, 20.0, 1.0)["provisioning"] == 5.0


def test_each_launch_provisions_its_own_nodes() -> None:
    events = [event(12.0, "node_ready", 0, "local"), event(53.0, "node_ready", 1, "local")]
    found = phases([{"started": 10.0, "ended": 20.0}, {"started": 50.0, "ended": 60.0}], events, 4.0, 1.0)
    assert found == {"provisioning": 5.0, "data": 0.0, "training": 4.0, "idle": 11.0}


def test_nodes_are_paid_from_the_first_time_that_they_were_asked_for() -> None:
    events = [event(12.0, "acquiring"), event(14.0, "acquiring"), event(11.0, "acquiring", launch=1)]
    found = phases([{"started": 10.0, "ended": 20.0}], [*events, event(13.0, "node_ready", node="local")], 0.0, 1.0)
    assert found == {"provisioning": 1.0, "data": 0.0, "training": 0.0, "idle": 7.0}


def test_a_launch_that_never_got_a_node_provisions_nothing() -> None:
    assert phases([{"started": 10.0, "ended": 20.0}], [], 0.0, 1.0) == {
        "provisioning": 0.0,
        "data": 0.0,
        "training": 0.0,
        "idle": 10.0,
    }
    assert phases([{"started": 10.0, "ended": None}], [], 0.0, 1.0)["idle"] == 0.0, "nor lasts, where it gave no sign"


def test_no_phase_is_shorter_than_nothing() -> None:
    """Clocks of nodes may be off, and training may be longer than what was paid of it is known."""
    found = phases([{"started": 10.0, "ended": 20.0}], [event(9.5, "node_ready", node="local")], 50.0, 1.0)
    assert found == {"provisioning": 0.0, "data": 0.0, "training": 50.0, "idle": 0.0}


def test_where_time_is_dilated_training_alone_is_shorter_on_the_machines_meant() -> None:
    found = phases([{"started": 0.0, "ended": 100.0}], [event(10.0, "node_ready", node="local")], 80.0, 4.0)
    assert found == {"provisioning": 10.0, "data": 0.0, "training": 20.0, "idle": 10.0}


def test_what_was_paid_until_then_is_of_launches_before_and_of_the_one_under_way() -> None:
    paid = [(0.0, 10.0), (20.0, 30.0), (50.0, 90.0)]
    assert [_paid_until(paid, t) for t in (-1.0, 0.0, 4.0, 20.0, 25.0, 60.0)] == [0, 0, 4, 10, 15, 30]


# --- dollars ----------------------------------------------------------------------------------------------------------
SECONDS = {"provisioning": 360.0, "data": 0.0, "training": 3600.0, "idle": 1800.0}
NODES = [("ps0", 1.0, "given"), ("worker0", 3.0, "given")]


def test_all_nodes_are_paid_for_all_phases() -> None:
    found = priced_phases("a-run", SECONDS, NODES, 2000)
    assert found.dollars == pytest.approx({"provisioning": 0.4, "data": 0.0, "training": 4.0, "idle": 2.0})
    assert found.total == pytest.approx(6.4)
    assert (found.training_only, found.price_per_h) == (4.0, 4.0)
    assert found.per_1000_steps == pytest.approx(3.2)
    assert [(node.node, node.price_per_h, node.why) for node in found.nodes] == NODES
    assert [node.dollars for node in found.nodes] == pytest.approx([1.6, 4.8])
    assert (found.is_extrapolated, found.owning, found.to_accuracy) == (False, None, {})


def test_a_run_without_steps_has_no_price_of_a_step() -> None:
    assert priced_phases("a-run", SECONDS, NODES, 0).per_1000_steps is None


def test_an_accuracy_costs_what_all_nodes_cost_until_then() -> None:
    assert priced_phases("a-run", SECONDS, NODES, 1, reached={"0.9": 1800.0}).to_accuracy == {"0.9": 2.0}


def test_owning_is_told_where_a_price_to_buy_is_given_and_renting_costs_something() -> None:
    owning = priced_phases("a-run", SECONDS, NODES, 1, buy=640.0).owning
    assert owning is not None
    assert (owning.price, owning.hours, owning.trainings) == pytest.approx((640.0, 160.0, 100.0))
    assert priced_phases("a-run", SECONDS, [("local", 0.0, "given")], 1, buy=640.0).owning is None
    assert priced_phases("a-run", SECONDS, [("local", 0.5, "given")], 1, buy=640.0).owning is not None
    never = priced_phases("a-run", dict.fromkeys(SECONDS, 0.0), NODES, 1, buy=640.0).owning
    assert never == Owning(640.0, 160.0, 0.0)


def test_a_cost_is_of_what_was_made_unless_it_says_otherwise() -> None:
    assert Cost("a-run", SECONDS, {}, (), 5).is_extrapolated is False


# --- prices -----------------------------------------------------------------------------------------------------------
def job(**nodes: Any) -> dict[str, Any]:
    return {"site": {"nodes": {kind: {"type": name} for kind, name in nodes.items()}}}


def test_a_nodes_own_price_goes_before_that_of_its_kind_and_that_of_all() -> None:
    prices = {"worker0": 1.0, "worker": 2.0, "all": 3.0}
    found = [_priced(node, job(worker="p2.xlarge"), prices, "r")[1:] for node in ("worker0", "worker1", "ps0")]
    assert found == [(1.0, "given"), (2.0, "given"), (3.0, "given")]


def test_a_machine_type_has_its_price_and_the_day_that_it_is_of() -> None:
    node, price, why = _priced("worker3", job(worker="p2.xlarge"), {}, "r")
    assert (node, price) == ("worker3", 0.9)
    assert why.startswith("p2.xlarge, ")


def test_a_chief_without_a_machine_of_its_own_has_that_of_a_worker() -> None:
    assert _priced("chief0", job(worker="p2.xlarge"), {}, "r")[1] == 0.9
    assert _priced("chief0", job(worker="p2.xlarge", chief="t2.small"), {}, "r")[1] == 0.023
    with pytest.raises(SpecError, match=r"node ps0 costs is not known \(it has no machine type\)"):
        _priced("ps0", job(worker="p2.xlarge"), {}, "r")
    with pytest.raises(SpecError, match=r"\(machine type daint is not for rent\); give it: --price ps=0.10/h"):
        _priced("ps0", job(ps="daint"), {}, "r")


@pytest.mark.parametrize(
    ("text", "node", "price"),
    [
        ("2", "all", 2.0),
        ("$2/h", "all", 2.0),
        (".5$ / h", "all", 0.5),
        (" worker = 2. / min ", "worker", 120.0),
        ("worker0=0.01/s", "worker0", 36.0),
        ("ps=48/d", "ps", 2.0),
        ("worker= p2.xlarge ", "worker", 0.9),
    ],
)
def test_a_price_is_in_dollars_an_hour_whatever_it_was_written_in(text: str, node: str, price: float) -> None:
    found, dollars = parse_price(text)
    assert found == node
    assert dollars == pytest.approx(price)


@pytest.mark.parametrize("text", ["worker=-1/h", "=2", " = 2/h", "worker=2/year", "worker=1.2.3", "", "worker=2h"])
def test_what_is_no_price_is_refused_with_examples(text: str) -> None:
    with pytest.raises(SpecError, match="write for example worker="):
        parse_price(text)


def test_nodes_are_named_once_in_the_order_in_which_they_came_up() -> None:
    ready = [event(t, "node_ready", node=node) for t, node in ((3.0, "ps0"), (1.0, "worker0"), (5.0, "ps0"))]
    assert node_names([event(0.0, "acquiring"), *ready]) == ["ps0", "worker0"]
    assert [kind_of(node) for node in ("worker10", "ps0", "local")] == ["worker", "ps", "local"]
