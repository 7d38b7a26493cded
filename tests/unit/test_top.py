"""The picture of a run: what it shows, and that it fits."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from statuses import BURSTABLE, MACHINE, OTHER, RUN, WORKER, Told, three_nodes, trained, trained_here
from supervising import KILL

from headway.cli.top import BLOCKS, Column, evaluation_text, fitting, progress_text, render, spark
from headway.launch.messages import TaskExited
from headway.sites import PlannedNode
from headway.spec import Task
from headway.spec.site import NodeSettings


def drawn(status: dict[str, Any], width: int, height: int = 50, spare: int | None = None) -> list[str]:
    console = Console(width=width, height=height, color_system=None, force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        console.print(render(status, spare))
    return [line.rstrip() for line in capture.get().splitlines()]


def row(lines: list[str], begins: str) -> str:
    found = [line for line in lines if line.startswith(begins)]
    assert len(found) == 1, lines
    return found[0]


# --- sparklines ------------------------------------------------------------------------------------------------------
def test_a_sparkline_goes_from_0_to_the_highest_value_shown() -> None:
    assert spark([0, 1, 2, 3, 4, 5, 6, 7], 8) == BLOCKS
    assert spark([100, 7, 0, 7], 3) == "█▁█"  # what is not shown does not count


def test_a_limit_is_the_top_where_there_is_one() -> None:
    assert spark([1, 2, 4], 3, top=8) == "▂▃▅"
    assert spark([9, 20], 2, top=8) == "██"


def test_gaps_and_what_is_no_number_are_blank() -> None:
    assert spark([7, None, 7, math.nan, math.inf], 5) == "█ █  "


def test_the_newest_value_is_at_the_right_edge() -> None:
    assert spark([1], 4) == "   █"
    assert spark([], 4) == "    "
    assert spark([None, None], 4) == "    "


def test_nothing_moves_at_the_bottom() -> None:
    assert spark([0, 0, 0], 3) == "▁▁▁"
    assert spark([-1.0, 0.0, 7.0], 3) == "▁▁█"  # a loss below 0


# --- the picture -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 160, 250])
@pytest.mark.parametrize("machine", [MACHINE, BURSTABLE], ids=["plain", "burstable"])
def test_no_line_is_wider_than_the_terminal(width: int, machine: Any) -> None:
    lines = drawn(trained(machine), width)
    assert max(cell_len(line) for line in lines) <= width


def test_80_columns_show_nodes_and_tasks_with_sparklines() -> None:
    lines = drawn(trained(), 80)
    assert row(lines, "node").split() == ["node", "CPUs", "memory", "in", "bit/s", "out", "bit/s"]
    assert "…" not in "".join(lines[1:])
    shown = row(lines, "worker0")
    # Five eighths of what it may use; 2 and 4 MB/s of 125.
    assert "0.25/0.4 ▅▅▅▅▅▅▅▅" in shown
    assert "300 MB 28%" in shown
    assert "16 M ▁▁▁▁▁▁▁▁" in shown
    assert "32 M ▁▁▁▁▁▁▁▁" in shown
    assert row(lines, "task").split()[:5] == ["task", "phase", "own", "steps", "steps/s"]
    assert "training" in row(lines, "worker/1")
    assert "████████" in row(lines, "worker/1")


def test_160_columns_show_more() -> None:
    lines = drawn(trained(), 160)
    heading = row(lines, "node")
    assert heading.split()[-2:] == ["loopback", "tasks"]
    shown = row(lines, "ps0")
    assert shown.endswith("ps/0")
    assert shown.count("▅" * 12) == 1
    assert row(lines, "task").split()[-2:] == ["CPUs", "memory"]
    assert row(lines, "ps/0").split() == ["ps/0", "ready", "0.10", "200", "MB"]


def test_the_headline_says_run_state_step_and_rate() -> None:
    status = trained()
    status |= {"step": 40, "t": status["started"] + 75}
    lines = drawn(status, 120)
    assert lines[0] == f"{RUN}: running, 1 min 15 s, about 2.0 s left"
    assert lines[1] == "step 40 of 100, 30 steps/s, 3000 examples/s, loss 1"
    assert lines[2].endswith("40%")
    status["evaluation"] = {"step": 400, "accuracy": 0.97, "loss": 0.1, "num_examples": 10_000}
    assert drawn(status, 120)[3] == f"evaluated: {evaluation_text(status['evaluation'])}"


def test_a_node_alone_has_one_row_and_no_empty_columns() -> None:
    status = trained_here()
    for series in ("received", "sent"):  # a private network: nothing comes in or goes out
        status["nodes"][0]["history"][series] = [0.0] * 60
    lines = drawn(status, 80)
    assert "bit/s" not in row(lines, "node")
    assert row(lines, "local").startswith("local  0.25/2 ▂▂▂▂▂▂▂▂")
    assert len(lines) == 1 + 1 + 1 + (1 + 1) + (1 + 3)  # headline, progress, bar, node, tasks


def test_credits_are_shown_where_there_are_any() -> None:
    assert "credits" in row(drawn(trained(BURSTABLE), 160), "node")
    assert "29.4" in row(drawn(trained(BURSTABLE), 160), "ps0")
    assert "credits" not in row(drawn(trained(), 160), "node")
    headings = row(drawn(trained(BURSTABLE), 80), "node")
    assert all(what in headings for what in ("CPUs", "memory", "in bit/s", "out bit/s", "credits"))


def test_a_monitor_that_begins_anew_leaves_a_gap_and_a_lost_node_no_figures() -> None:
    told = Told(three_nodes())
    told.goes_on(10)
    began_anew = {"kind": "node_sample", "t": 1e9, "node": "ps0", "sampler": 2.0, "cpu_seconds": 7.0}
    told.nodes.gauges.hear([began_anew])
    status = told.value(gone=["worker0"])
    assert status["nodes"][0]["history"]["cpus"][-1] is None
    assert "▅ " in row(drawn(status, 160), "ps0")
    assert status["nodes"][1]["now"] == {}
    assert row(drawn(status, 80), "worker0").split()[1] == "-"


def test_a_pause_is_a_gap_in_the_steps_and_no_slow_step() -> None:
    told = Told(three_nodes())
    told.goes_on(10)
    told.world.say(WORKER, "evaluating", step=10)
    told.goes_on(4, steps=(0, 5))
    told.goes_on(10)
    history = told.value()["tasks"][0]["history"]["steps_per_s"]
    assert history[10:14] == [None] * 4
    assert {round(rate, 3) for rate in history if rate is not None} == {20.0}


def test_a_change_of_pace_is_seen_at_once_and_a_standstill_sinks() -> None:
    told = Told(three_nodes())
    told.goes_on(10)
    told.goes_on(6, steps=(2, 5))
    assert told.value()["tasks"][0]["history"]["steps_per_s"][-3:] == pytest.approx([4.0] * 3)
    told.goes_on(10, steps=(0, 5))
    last = told.value()["tasks"][0]["history"]["steps_per_s"][-4:]
    assert last == sorted(last, reverse=True)
    assert last[-1] == pytest.approx(0.2, rel=0.3)


def test_restarts_and_what_stands_still_are_shown() -> None:
    told = Told(three_nodes())
    told.goes_on(4)
    assert "restarts" not in row(drawn(told.value(), 160), "task")
    told.world.tell(TaskExited(OTHER, 0, -KILL))
    told.world.wait(5, alive=[WORKER, Task("ps", 0)])
    lines = drawn(told.value(), 80)
    assert row(lines, "task").endswith("restarts")
    assert row(lines, "worker/1").endswith(" 1")
    assert row(lines, "worker/1").split()[1] == "starting"
    status = trained()
    status["tasks"][0]["trouble"] = "stopped"
    assert row(drawn(status, 80), "worker/0").split()[1] == "stopped"


def test_a_run_that_prepares_has_a_headline_only() -> None:
    status: dict[str, Any] = {"run": "r", "state": "preparing", "tasks": [], "nodes": [], "step": None, "stop": {}}
    assert drawn(status, 80) == ["r: preparing"]


def test_a_diverged_run_can_be_drawn() -> None:
    status = trained()
    for task in status["tasks"]:
        task["loss"] = math.nan
        task["history"]["loss"] = [1.0, math.nan, math.nan]
    assert "loss NaN" in progress_text(status)
    assert "NaN" in row(drawn(status, 80), "worker/0")


@pytest.mark.parametrize("height", [12, 16, 24, 40])
def test_what_does_not_fit_the_terminals_height_is_counted(height: int) -> None:
    many = [PlannedNode(f"worker{n}", f"10.0.0.{n}", (WORKER,) if n == 0 else (), MACHINE) for n in range(30)]
    told = Told(many)
    told.goes_on(3)
    lines = drawn(told.value(), 80, height=height, spare=1)
    assert len(lines) <= height
    if height < 40:
        (more,) = (line for line in lines if "more nodes" in line)
        assert int(more.split()[2]) + sum(line.startswith("worker") and "/0.4" in line for line in lines) == 30


def test_columns_of_least_interest_go_first_and_sparklines_shrink_before() -> None:
    columns = [
        Column("a", ["1"]),
        Column("bb", ["2"], goes=1, series=[[1.0]], tops=[None], flattens=2),
        Column("ccc", ["3"], goes=3),
    ]
    assert [column.heading for column in fitting(columns, 100)[0]] == ["a", "bb", "ccc"]
    assert fitting(columns, 100)[1] == 24
    assert fitting(columns, 25) == (columns, 14)
    assert [column.heading for column in fitting(columns, 15)[0]] == ["a", "bb"]
    flat, _ = fitting(columns, 12)
    assert [(column.heading, column.series) for column in flat] == [("a", None), ("bb", None)]
    assert [column.heading for column in fitting(columns, 3)[0]] == ["a"]


def test_a_status_survives_the_control_socket() -> None:
    status = trained()
    assert json.loads(json.dumps(status)) == status


def test_gpus_are_shown_where_there_are_any() -> None:
    told = Told(three_nodes())
    told.goes_on(2)
    assert "GPU" not in row(drawn(told.value(), 160), "node")
    told.computes("worker0", [0.1, 0.2, 0.4, 1.0], [0.2, 0.4, 0.5])
    told.computes("worker1", [0.5, 0.5])
    lines = drawn(told.value(), 160)
    assert "GPU" in row(lines, "node")
    assert "2 x 75% " in row(lines, "worker0")
    assert " 50% " in row(lines, "worker1")
    # The mean of the newest three, which both have; of a monitor's first sample nothing is shown.
    assert row(lines, "worker0").split("2 x 75%")[1].split()[0] == "▂▄▆"


def test_a_node_without_a_limit_has_the_machines_memory() -> None:
    told = Told(three_nodes(NodeSettings()))
    told.goes_on(2)
    told.nodes.gauges.nodes["ps0"].last["memory_limit"] = 2**63 - 4096  # control groups of version 1
    ps, worker, _ = told.value()["nodes"]
    assert ps["limits"] == {"cpus": 2, "memory": 2**33, "rate": None}
    assert worker["limits"]["memory"] == 2**30
