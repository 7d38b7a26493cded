"""All nodes on one time axis: clocks that are off, rates between samples, gaps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli.summary import node_lines
from headway.launch.clocks import EVERY, Clock
from headway.launch.gauges import Gauges
from headway.launch.prepare import create_run
from headway.record.files import to_json
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.query import query
from headway.record.run import Run
from headway.spec.load import parse_job

AHEAD = 5.0  # seconds that worker0's clock is ahead
WAYS = ("inwards", "outwards", "both_ways")


def write(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(to_json(row) + "\n" for row in rows)


def node_row(t: float, cpu: float, sampler: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"t": t, "kind": "node_sample", "node": "worker0", "sampler": sampler, "cpu_seconds": cpu, **more}


def step_row(t: float, own_step: int, **more: Any) -> dict[str, Any]:
    row = {"t": t, "kind": "step", "attempt": 0, "generation": 1, "step": own_step, "own_step": own_step}
    return {**row, "num_steps": 1, "seconds": 1.0, "loss": 1.0, "examples": 100, "warmup": False, "accepted": 1, **more}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    job = {"workload": {"model": "softmax", "dataset": "synthetic"}, "strategy": "ps-async"}
    folder = create_run(parse_job(job), tmp_path)
    folder.write_facts({**folder.facts(), "launches": [{"started": 0.0, "ended": 100.0}], "state": "finished"})
    asked = {"cpus": 0.5, "rate": 1000.0}
    write(
        folder.events(LAUNCHER),
        {"t": 1.0, "kind": "node_ready", "node": "worker0", "tasks": ["worker/0"], "asked": asked},
        {"t": 1.0, "kind": "node_ready", "node": "ps0", "tasks": ["ps/0"], "asked": {}},
        {"t": 2.0, "kind": "clock", "node": "worker0", "offset": AHEAD, "uncertainty": 0.001},
        {"t": 2.0, "kind": "clock", "node": "ps0", "offset": 0.0004, "uncertainty": 0.0005},
    )
    return folder


def test_a_clock_that_is_surely_off_is_corrected_in_every_table(folder: RunFolder) -> None:
    write(folder.metrics("worker0"), node_row(AHEAD + 10, 1.0))
    write(folder.metrics("ps0"), {**node_row(10.0, 1.0), "node": "ps0"})
    write(folder.events("worker-0"), step_row(AHEAD + 10.5, 1))
    run = Run(folder)
    assert {row["node"]: row["t"] for row in run.rows("node_samples")} == {"worker0": 10.0, "ps0": 10.0}
    assert [row["t"] for row in run.rows("steps")] == [10.5]
    raw = json.loads(folder.metrics("worker0").read_text().splitlines()[0])
    assert raw["t"] == AHEAD + 10  # the node's own time stays in the record


def test_a_clock_that_drifts_is_corrected_by_what_was_measured_last(folder: RunFolder) -> None:
    write(
        folder.events(LAUNCHER),
        {"t": 50.0, "kind": "clock", "node": "worker0", "offset": AHEAD + 1, "uncertainty": 0.001},
    )
    write(folder.metrics("worker0"), node_row(AHEAD + 10, 1.0), node_row(AHEAD + 1 + 60, 2.0))
    assert [row["t"] for row in Run(folder).rows("node_samples")] == [10.0, 60.0]


def test_rates_are_never_computed_over_a_gap(folder: RunFolder) -> None:
    write(
        folder.metrics("ps0"),
        node_row(10.0, 1.0, sent_bytes=0),
        node_row(10.2, 1.1, sent_bytes=100),
        node_row(12.0, 1.9, sampler=2.0, sent_bytes=900),  # the sampler had crashed
        node_row(12.2, 2.0, sampler=2.0, sent_bytes=1000),
    )
    rows = Run(folder).rows("node_rates")
    assert [row["t"] for row in rows] == [10.2, 12.2]
    assert [row["cpus"] for row in rows] == [pytest.approx(0.5), pytest.approx(0.5)]
    assert [row["sent"] for row in rows] == [pytest.approx(500), pytest.approx(500)]


def test_what_is_sampled_less_often_has_its_rate_where_it_was_sampled(folder: RunFolder) -> None:
    task = {"kind": "task_sample", "node": "ps0", "task": "ps/0", "attempt": 0, "sampler": 1.0, "rss": 7}
    write(
        folder.metrics("ps0"),
        *(
            {
                **task,
                "t": 10 + tenth / 10,
                "cpu_seconds": tenth / 10,
                **({"sent_bytes": tenth * 10} if tenth % 5 == 0 else {}),
            }
            for tenth in range(11)
        ),
    )
    rows = Run(folder).rows("task_rates")
    assert all(row["cpus"] == pytest.approx(1.0) for row in rows)
    assert [(row["t"], row["sent"]) for row in rows if row["sent"] is not None] == [
        (pytest.approx(10.5), pytest.approx(100.0)),
        (pytest.approx(11.0), pytest.approx(100.0)),
    ]


def test_sql_sees_samples_and_rates_of_all_runs(folder: RunFolder) -> None:
    write(folder.metrics("ps0"), node_row(10.0, 1.0), node_row(10.5, 1.5))
    columns, rows = query("select run, node, cpus from node_rates", [Run(folder)])
    assert (columns, rows) == (["run", "node", "cpus"], [(folder.name, "ps0", 1.0)])


def test_what_nodes_and_tasks_used_while_they_trained_is_a_figure(folder: RunFolder) -> None:
    """Ten steps of one second from t = 20 to 30, on a node that uses 0.4 CPUs and sends 100 bytes a second."""
    write(folder.events("worker-0"), *(step_row(AHEAD + 21 + i, i + 1) for i in range(10)))
    for tenth in range(0, 600, 2):
        t = tenth / 10
        task = {"kind": "task_sample", "node": "worker0", "task": "worker/0", "attempt": 0, "sampler": 1.0, "rss": 500}
        moved = {"sent_bytes": round(100 * t), "received_bytes": round(50 * t)}
        moved |= {"loopback_sent_bytes": 0, "loopback_received_bytes": 0, "retransmitted": 0}
        write(
            folder.metrics("worker0"),
            node_row(
                AHEAD + t,
                0.402 * t,
                received_bytes=0,
                memory=1000 + tenth,
                throttled_seconds=0.1 * t,
                sent_bytes=round(100 * t),
            ),
            {**task, "t": AHEAD + t, "cpu_seconds": 0.3 * t, **(moved if tenth % 10 == 0 else {})},
        )
    figures = Run(folder).summary()
    (node,) = figures["nodes"]
    assert (node["node"], node["tasks"], node["asked"]["cpus"]) == ("worker0", ["worker/0"], 0.5)
    assert node["cpus"] == pytest.approx(0.402)
    assert node["throttled"] == pytest.approx(0.1)
    assert node["sent"] == pytest.approx(100, rel=0.01)
    assert node["memory_peak"] == 1300
    assert node["full"] == {"cpu": pytest.approx(1.0), **dict.fromkeys(WAYS, 0.0)}  # 0.402 of 0.5 CPUs: over 80 %
    assert figures["nobody_full"] == pytest.approx(0.0)
    (task,) = figures["task_usage"]
    assert task["cpus"] == pytest.approx(0.3)
    assert task["sent_bytes_per_step"] == pytest.approx(100, rel=0.01)
    assert task["received_bytes_per_step"] == pytest.approx(50, rel=0.01)


def test_a_limit_that_was_not_set_is_none(folder: RunFolder) -> None:
    """Without root a node asked to have 0.5 CPUs may use two: that is not 400 % of anything."""
    asked = {"asked": {"cpus": 0.5, "rate": 1000.0}, "limits": {"rate": 1000.0}}
    write(folder.events(LAUNCHER), {"t": 1.5, "kind": "node_ready", "node": "worker0", "tasks": ["worker/0"], **asked})
    write(folder.events("worker-0"), *(step_row(AHEAD + 21 + i, i + 1) for i in range(10)))
    write(
        folder.metrics("worker0"),
        *(node_row(AHEAD + t, 2.0 * t, memory=1000, received_bytes=0, sent_bytes=0) for t in range(15, 40)),
    )
    figures = Run(folder).summary()
    (node,) = figures["nodes"]
    assert (node["asked"], node["limits"]) == ({"cpus": 0.5, "rate": 1000.0}, {"rate": 1000.0})
    assert node["cpus"] == pytest.approx(2.0)
    assert "cpu" not in node["full"]
    assert figures["nobody_full"] == 1.0
    assert dict(node_lines(figures))["  worker0"].startswith("2 CPUs, 1 kB at most")


def test_a_burstable_node_is_full_when_it_uses_what_it_is_allowed(folder: RunFolder) -> None:
    """Until t = 25 it may use 0.5 CPUs and uses 0.1; then its credits are gone, and it uses all of 0.03."""
    write(folder.events("worker-0"), *(step_row(AHEAD + 21 + i, i + 1) for i in range(10)))
    used = 0.0
    for second in range(15, 40):
        has_credits = second <= 25
        used += 0.1 if has_credits else 0.03
        allowed = {"cpus": 0.5 if has_credits else 0.03, "credits": 1.0 if has_credits else 0.0}
        write(folder.metrics("worker0"), node_row(AHEAD + second, used, received_bytes=0, sent_bytes=0, **allowed))
    figures = Run(folder).summary()
    (node,) = figures["nodes"]
    assert node["full"]["cpu"] == pytest.approx(5 / 11)  # of samples from 20 to 30
    assert figures["nobody_full"] == pytest.approx(6 / 11)


@pytest.mark.parametrize(("fabric", "full"), [(1000.0, 0.6), (3000.0, 0.0), (None, None)])
def test_a_fabric_is_full_by_what_all_nodes_send_together(
    folder: RunFolder, fabric: float | None, full: float | None
) -> None:
    """Of ten seconds they send 400 bytes a second each in the last six, 100 before; none of them fills its own link."""
    kept = json.loads(folder.job_file.read_text())
    kept["resolved"]["site"]["fabric"] = fabric
    folder.job_file.write_text(to_json(kept))
    write(folder.events("worker-0"), *(step_row(AHEAD + 21 + i, i + 1) for i in range(10)))
    for tenth in range(150, 400, 2):
        sent = 10 * min(tenth, 240) + 40 * max(0, tenth - 240)
        write(folder.metrics("worker0"), node_row(AHEAD + tenth / 10, 0.0, received_bytes=0, sent_bytes=sent))
        other = node_row(tenth / 10 + 0.1, 0.0, received_bytes=0, sent_bytes=sent)
        write(folder.metrics("ps0"), {**other, "node": "ps0"})
    figures = Run(folder).summary()
    assert figures["fabric_full"] == (None if full is None else pytest.approx(full, abs=0.05))
    assert all(node["full"].get("outwards", 0.0) == 0.0 for node in figures["nodes"])


def test_a_program_that_tells_of_no_examples_has_a_rate_on_the_machines_meant(tmp_path: Path) -> None:
    job = {
        "workload": {"command": ["true"]},
        "cluster": {"worker": 1},
        "site": {"kind": "emulated", "dilation": 2},
        "measure": {"warmup": 0},
    }
    folder = create_run(parse_job(job), tmp_path)
    folder.write_facts({**folder.facts(), "launches": [{"started": 0.0, "ended": 100.0}], "state": "finished"})
    write(folder.events("worker-0"), *(step_row(21.0 + i, i + 1, examples=None, loss=None) for i in range(10)))
    figures = Run(folder).summary()
    assert (figures["dilation"], figures["examples_per_s"]) == (2, None)
    there = dict(node_lines(figures))["on the machines meant"]
    assert there == "2 steps/s, 5.0 s of training (2 seconds here are one there)"


@pytest.mark.parametrize(("apart", "advised"), [(1, True), (0, False)])
def test_a_link_that_is_full_in_one_direction_at_a_time_is_told(folder: RunFolder, apart: int, advised: bool) -> None:
    """Its full rate in every other second, inwards in the even ones and outwards in the odd ones, or both in the
    even ones."""
    write(folder.events("worker-0"), *(step_row(AHEAD + 21 + i, i + 1) for i in range(10)))
    into = out = 0
    for second in range(15, 40):
        write(folder.metrics("worker0"), node_row(AHEAD + second, 0.0, received_bytes=into, sent_bytes=out))
        into += 1000 * (second % 2 == 0)
        out += 1000 * (second % 2 == apart)
    figures = Run(folder).summary()
    (node,) = figures["nodes"]
    for way, share in zip(WAYS, (0.5, 0.5, 0.0 if apart else 0.5), strict=True):
        assert node["full"][way] == pytest.approx(share, abs=0.05)  # there are eleven samples
    lines = dict(node_lines(figures))
    assert ("  to try" in lines) == advised
    if advised:
        assert "strategy.exchange=in_turn" in lines["  to try"]


def test_what_was_asked_and_not_got_is_a_warning(folder: RunFolder) -> None:
    measured = {"t": 3.0, "kind": "network_measured"}
    write(
        folder.events(LAUNCHER),
        {**measured, "what": "rate_out", "node": "ps0", "asked": 125e6, "got": 100e6, "ok": False},
        {**measured, "what": "rate_in", "node": "ps0", "asked": 125e6, "got": 124e6, "ok": True},
        {**measured, "what": "round_trip", "node": "ps0", "to": "worker0", "asked": 0.001, "got": 0.002, "ok": False},
        {"t": 3.0, "kind": "not_limited", "node": "ps0", "problems": ["the disk cannot be limited"]},
    )
    assert Run(folder).summary()["warnings"] == [
        "rate out ps0: asked 1 Gbit/s, got 800 Mbit/s",
        "round trip ps0 to worker0: asked 1 ms, got 2 ms",
        "node ps0: the disk cannot be limited",
    ]


def test_a_precision_that_the_hardware_does_not_have_is_a_warning(folder: RunFolder) -> None:
    for attempt in (0, 1):  # a task that was started again says it again
        write(
            folder.events("worker-0"),
            {"t": 3.0 + attempt, "kind": "ready", "attempt": attempt, "pid": 1, "native_precision": False},
        )
    write(folder.events("chief-0"), {"t": 3.0, "kind": "ready", "attempt": 0, "pid": 1, "native_precision": True})
    [warning] = Run(folder).summary()["warnings"]
    assert warning.startswith("worker/0 has no arithmetic for workload.precision")


# --- live ------------------------------------------------------------------------------------------------------
def test_the_quickest_of_many_answers_tells_the_time() -> None:
    clock = Clock()
    assert clock.hear(sent=0.0, there=100.05, now=0.2) is None
    assert clock.hear(sent=1.0, there=101.002, now=1.004) is None
    found = clock.hear(sent=2.0, there=102.3, now=2.5)
    assert found is not None
    assert found.seconds == pytest.approx(100.0)
    assert found.uncertainty == pytest.approx(0.002)
    assert clock.hear(sent=3.0, there=103.0, now=3.0) is None
    assert clock.hear(sent=3.0 + EVERY, there=103.0 + EVERY, now=3.0 + EVERY) is not None


def test_gauges_show_a_gap_and_begin_anew_behind_it() -> None:
    gauges = Gauges()
    gauges.hear(
        [node_row(1.0, 1.0), node_row(1.2, 1.1), node_row(5.0, 3.0, sampler=2.0), node_row(5.2, 3.2, sampler=2.0)]
    )
    assert gauges.nodes["worker0"].series("cpus", 10) == [None, pytest.approx(0.5), None, pytest.approx(1.0)]


def test_a_gauge_of_what_is_sampled_less_often_stays() -> None:
    gauges = Gauges()
    task = {"kind": "task_sample", "task": "ps/0", "attempt": 0, "sampler": 1.0}
    for tenth in range(11):
        sent = {"sent_bytes": tenth * 10} if tenth % 5 == 0 else {}
        gauges.hear([{**task, "t": tenth / 10, "cpu_seconds": tenth / 10, **sent}])
    series = gauges.tasks["ps/0"].series("sent", 20)
    assert series[5] == series[-1] == pytest.approx(100.0)
    assert series[7] == pytest.approx(100.0)
