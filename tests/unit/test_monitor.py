"""The monitor, on this machine's own counters."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headway.agent.monitor import Monitor, Watched
from headway.record.reader import read_events


def test_a_sample_has_the_node_and_every_task(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    monitor = Monitor(tmp_path / "here.jsonl", "here", 0.02, told.extend, {})
    tasks = {"worker/0": Watched(os.getpid(), 0), "worker/1": Watched(2**22 - 1, 0)}
    for _ in range(3):
        monitor.sample(tasks)
        time.sleep(0.02)
    monitor.close()
    started, *rows = read_events(tmp_path / "here.jsonl")
    assert (started["kind"], started["node"], started["interval"]) == ("sampler_started", "here", 0.02)
    nodes = [row for row in rows if row["kind"] == "node_sample"]
    own = [row for row in rows if row["kind"] == "task_sample"]
    assert len(nodes) == len(own) == 3  # the one that is gone has no row
    assert all(row["cpu_seconds"] > 0 and row["memory"] > 0 and row["received_bytes"] >= 0 for row in nodes)
    assert all(row["rss"] > 10e6 and row["task"] == "worker/0" for row in own)
    assert "context_switches" in own[0]
    assert "context_switches" not in own[1]  # what costs more comes less often
    assert "sent_bytes" in own[0]
    assert {row["sampler"] for row in rows} == {started["sampler"]}
    assert told[0]["kind"] == "node_sample"


def test_the_launcher_is_told_a_few_times_a_second_whatever_the_rate(tmp_path: Path) -> None:
    calls: list[int] = []
    monitor = Monitor(tmp_path / "here.jsonl", "here", 0.01, lambda rows: calls.append(len(rows)), {})
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        monitor.sample({})
        time.sleep(0.01)
    monitor.close()
    assert 2 <= len(calls) <= 3


def test_a_part_of_a_machine_without_a_control_group_is_its_tasks(tmp_path: Path) -> None:
    """Two processes that spin, of which one is killed: what it has used stays counted, and its memory is free."""
    spin = [sys.executable, "-c", "x = bytearray(30_000_000)\nwhile True: pass"]
    monitor = Monitor(tmp_path / "part.jsonl", "part", 0.05, lambda _: None, {"is_part": True})
    monitor.sample({})
    with subprocess.Popen(spin) as first, subprocess.Popen(spin) as second:
        try:
            tasks = {"ps/0": Watched(first.pid, 0), "worker/0": Watched(second.pid, 0)}
            time.sleep(0.6)
            monitor.sample(tasks)
            second.kill()
            second.wait()
            monitor.sample(tasks)
        finally:
            first.kill()
            second.kill()
    monitor.close()
    rows = list(read_events(tmp_path / "part.jsonl"))[1:]
    before, both, one = (row for row in rows if row["kind"] == "node_sample")
    own = [row for row in rows if row["kind"] == "task_sample"]
    assert [row["task"] for row in own] == ["ps/0", "worker/0", "ps/0"]
    assert (before["cpu_seconds"], before["memory"]) == (0, 0)
    assert both["cpu_seconds"] == pytest.approx(own[0]["cpu_seconds"] + own[1]["cpu_seconds"]) != 0
    assert both["memory"] == own[0]["memory"] + own[1]["memory"] > 20e6
    assert one["cpu_seconds"] == pytest.approx(own[1]["cpu_seconds"] + own[2]["cpu_seconds"])
    assert one["memory"] == own[2]["memory"]
    assert both["machine_cpu_seconds"] > both["cpu_seconds"]
    assert not {"memory_limit", "context_switches", "cpu_pressure_seconds"} & set(both)


def test_a_burstable_cpu_without_a_control_group_has_no_account(tmp_path: Path) -> None:
    credits = {"cpus": 1.0, "per_hour": 6, "start": 1, "most": 10, "dilation": 1.0}
    monitor = Monitor(tmp_path / "here.jsonl", "here", 0.2, lambda _: None, {"credits": credits})
    monitor.sample({})
    monitor.close()
    assert "credits" not in list(read_events(tmp_path / "here.jsonl"))[1]


@pytest.mark.parametrize("interval", [0.2, 0.02])
def test_rows_name_only_what_is_known(tmp_path: Path, interval: float) -> None:
    monitor = Monitor(tmp_path / "here.jsonl", "here", interval, lambda _: None, {})
    monitor.sample({"ps/0": Watched(os.getpid(), 3)})
    monitor.close()
    assert all(value is not None for row in list(read_events(tmp_path / "here.jsonl"))[1:] for value in row.values())
