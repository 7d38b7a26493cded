"""What a run cost, by hand: E5's dollars, with and without what they leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_record import CHIEF, new_run, row, write_rows
from test_record_distributions import finished, tell
from typer.testing import CliRunner

from headway.cli import app
from headway.errors import HeadwayError, SpecError
from headway.metrics.cost import cost, kind_of, parse_price, phases, priced_phases
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.run import Run

E5_NODES = [("ps0", 0.023, "t2.small"), ("worker0", 0.9, "p2.xlarge"), ("worker1", 0.9, "p2.xlarge")]
E5_SECONDS = {"provisioning": 17.5 * 60, "data": 12.5 * 60, "training": 92 * 60.0, "idle": 0.0}


def test_e5_left_out_the_server_the_deployment_and_the_data() -> None:
    found = priced_phases("e5", E5_SECONDS, E5_NODES, 60_000)
    workers_only = priced_phases("e5", E5_SECONDS, E5_NODES[1:], 60_000)
    assert workers_only.training_only == pytest.approx(2.73, abs=0.04)  # what they report
    assert found.training_only == pytest.approx(1.823 * 92 / 60)
    assert found.total == pytest.approx(1.823 * 122 / 60)  # a third more than they say
    assert found.per_1000_steps == pytest.approx(found.total / 60)
    assert sum(node.dollars for node in found.nodes) == pytest.approx(found.total)


def test_owning_pays_after_its_price_in_rent() -> None:
    found = priced_phases("e5", E5_SECONDS, [("worker0", 0.9, "")], 60_000, buy=3000.0).owning
    assert found is not None
    assert found.hours == pytest.approx(3333.3, abs=0.1)
    assert found.trainings == pytest.approx(3333.3 / (122 / 60), abs=0.1)


@pytest.fixture
def paid(tmp_path: Path) -> RunFolder:
    """Launched at 90, nodes up at 94 and 95, trained from 100 to 110, over at 120: half a minute in all."""
    folder = new_run(tmp_path)
    for t, node in ((94.0, "ps0"), (95.0, "worker0")):
        tell(folder, LAUNCHER, t=t, kind="node_ready", launch=0, node=node, tasks=[], asked={})
    tell(folder, CHIEF, t=99.0, kind="initialized", how="fresh", step=0, generation=1)
    write_rows(folder, CHIEF, [row(100 + 0.5 * k, k) for k in range(1, 21)])
    tell(folder, CHIEF, t=105.0, kind="evaluation", step=10, accuracy=0.92, loss=0.5, attempt=0)
    return finished(folder, 90.0, 120.0)


def test_a_run_is_paid_from_acquire_to_release(paid: RunFolder) -> None:
    found = cost(Run(paid), {"worker": 3600.0, "ps0": 360.0})  # a dollar a second, and a tenth of one
    assert found.seconds == pytest.approx({"provisioning": 5.0, "data": 0.0, "training": 10.0, "idle": 15.0})
    assert found.total == pytest.approx(1.1 * 30)
    assert found.training_only == pytest.approx(1.1 * 10)
    assert found.to_accuracy["0.9"] == pytest.approx(1.1 * 15)  # from 90, as the record does not say more, to 105
    assert not found.is_extrapolated


def test_what_is_fetched_before_nodes_are_asked_for_is_not_paid(paid: RunFolder) -> None:
    tell(paid, LAUNCHER, t=93.0, kind="acquiring", launch=0, count=2)
    finished(paid, 90.0, 120.0)
    found = cost(Run(paid), {"worker": 3600.0, "ps0": 360.0})
    assert found.seconds == pytest.approx({"provisioning": 2.0, "data": 0.0, "training": 10.0, "idle": 15.0})
    assert found.to_accuracy["0.9"] == pytest.approx(1.1 * 12)


def resumed(root: Path, reached: int, **site: Any) -> RunFolder:
    """Three launches, paid from 0 to 80, 100 to 130 (it failed before a step), and 200 to 290. The first trained from
    10 to 70, the last from 240 to 280; 0.9 was reached in the first at 60, or in the last at 260."""
    folder = new_run(root, **site)
    launches = [(0.0, 80.0), (100.0, 130.0), (200.0, 290.0)]
    for number, (begin, _) in enumerate(launches):
        tell(folder, LAUNCHER, t=begin + 5, kind="node_ready", launch=number, node="worker0", tasks=[], asked={})
    tell(folder, CHIEF, t=9.0, kind="initialized", how="fresh", step=0, generation=1)
    write_rows(folder, CHIEF, [row(10.0 + k, k, seconds=1.0) for k in range(1, 61)])
    write_rows(folder, CHIEF, [row(240.0 + k, 60 + k, seconds=1.0, generation=2) for k in range(1, 41)])
    for t, step, is_reached in ((60.0, 50, reached == 0), (260.0, 80, True)):
        accuracy = 0.92 if is_reached else 0.3
        tell(folder, CHIEF, t=t, kind="evaluation", step=step, accuracy=accuracy, loss=0.5, attempt=0)
    spans = [{"started": begin, "ended": end} for begin, end in launches]
    folder.write_facts({**folder.facts(), "state": "finished", "launches": spans})
    return folder


@pytest.mark.parametrize(("reached", "seconds"), [(0, 60), (2, 80 + 30 + 60)])
def test_a_resumed_run_pays_for_an_accuracy_until_it_was_reached(tmp_path: Path, reached: int, seconds: float) -> None:
    """Not for how long later launches took to start; and for all of earlier ones, also for what they did in vain."""
    found = cost(Run(resumed(tmp_path, reached)), {"all": 3600.0})
    assert found.to_accuracy["0.9"] == pytest.approx(seconds)
    assert found.total == pytest.approx(80 + 30 + 90)


def test_where_time_is_dilated_training_until_an_accuracy_is_that_on_the_machines_meant(tmp_path: Path) -> None:
    folder = resumed(tmp_path, 2, cluster={}, layout="PS-W", site={"kind": "emulated", "dilation": 4})
    found = cost(Run(folder), {"all": 3600.0})
    assert found.to_accuracy["0.9"] == pytest.approx((80 + 30 + 60) - (60 + 20) * 3 / 4)


def test_an_extrapolated_total_is_marked(paid: RunFolder) -> None:
    found = cost(Run(paid), {"all": 3600.0}, steps=2000)
    assert found.is_extrapolated
    assert found.steps == 2000
    assert found.total == pytest.approx(2 * (5 + 15 + 10 * 100))
    assert not cost(Run(paid), {"all": 3600.0}, steps=20).is_extrapolated


def test_a_run_without_a_step_cannot_be_extrapolated(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    tell(folder, LAUNCHER, t=95.0, kind="node_ready", launch=0, node="local", tasks=[], asked={})
    run = Run(finished(folder, 90.0, 120.0))
    assert (cost(run, {"all": 3600.0}).steps, cost(run, {"all": 3600.0}).per_1000_steps) == (0, None)
    with pytest.raises(HeadwayError, match="made no step: nothing to extrapolate from"):
        cost(run, {"all": 3600.0}, steps=100)


def test_a_price_that_is_missing_or_for_nobody_is_said(paid: RunFolder) -> None:
    with pytest.raises(SpecError, match=r"what node worker0 costs is not known.*--price worker=0.10/h"):
        cost(Run(paid), {"ps": 1.0})
    with pytest.raises(SpecError, match=r"price for gpu, but run a-run-.* has no such node; it has: ps0, ps, worker0"):
        cost(Run(paid), {"all": 1.0, "gpu": 1.0})


def test_a_launch_that_was_killed_lasts_to_its_last_sign() -> None:
    events = [{"t": 60.0, "launch": 0, "kind": "node_ready", "data": '{"node": "local"}'}]
    found = phases([{"started": 50.0}], [*events, {"t": 80.0, "launch": 0, "kind": "clock", "data": "{}"}], 5.0, 1.0)
    assert found == {"provisioning": 10.0, "data": 0.0, "training": 5.0, "idle": 15.0}


def test_prices_are_read_in_several_forms() -> None:
    assert parse_price("worker=0.9/h") == ("worker", 0.9)
    assert parse_price("ps0=24/d") == ("ps0", 1.0)
    assert parse_price("0.1") == ("all", 0.1)
    assert parse_price("ps=t2.small") == ("ps", 0.023)
    for wrong in ("worker=", "worker=a lot", "worker=1/fortnight", "=1/h"):
        with pytest.raises(SpecError, match="write for example"):
            parse_price(wrong)
    with pytest.raises(SpecError, match="not for rent"):
        parse_price("worker=daint")
    assert kind_of("worker12") == "worker"


def test_the_command_prints_what_it_reckoned(paid: RunFolder) -> None:
    done = CliRunner().invoke(
        app, ["cost", paid.name, "--price", "36/h", "--steps", "60", "--buy", "100", "--runs", str(paid.path.parent)]
    )
    assert done.exit_code == 0, done.output
    for words in ("60 (extrapolated)", "training only", "owning", "from when nodes were asked for: 0.5: 0.3"):
        assert words in done.output
