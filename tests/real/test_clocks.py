"""A node whose clock is off: a real one, by libfaketime."""

from __future__ import annotations

from pathlib import Path

import pytest
from debian import unpacked

from headway.launch import nodes
from headway.launch.calibrate import Nobody
from headway.launch.launcher import Launcher
from headway.launch.prepare import create_run
from headway.record.files import read_events
from headway.record.run import Run
from headway.sites.isolation import Isolation, choose
from headway.sites.local import LocalSite
from headway.spec.load import parse_job

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]
AHEAD = 7.0


def test_a_node_whose_clock_is_ahead_is_put_on_the_launchers_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (library,) = unpacked("libfaketime").rglob("libfaketime.so.1")
    here = choose(private_network=True)
    faked = ("env", f"LD_PRELOAD={library}", f"FAKETIME=+{AHEAD:g}s", "DONT_FAKE_MONOTONIC=1")
    site = LocalSite(private=Isolation((*here.command, *faked), here.private_network, here.private_processes, "faked"))
    monkeypatch.setattr(nodes, "site", lambda _: site)
    workload = {"model": "softmax", "dataset": {"name": "synthetic", "size": 2000}, "stop": {"steps": 300}}
    folder = create_run(parse_job({"workload": workload}), tmp_path)
    end = Launcher(folder, Nobody()).run()
    assert end.state == "finished", end
    (launch,) = folder.facts()["launches"]
    raw = [event["t"] for event in read_events(folder.events("chief-0")) if event["kind"] == "step"]
    assert min(raw) > launch["started"] + AHEAD
    run = Run(folder)
    clocks = [event for event in read_events(folder.events("launcher")) if event["kind"] == "clock"]
    assert clocks[0]["offset"] == pytest.approx(AHEAD, abs=0.1)
    assert clocks[0]["uncertainty"] < 0.1
    for table in ("steps", "node_samples", "task_samples"):
        times = run.table(table)["t"]
        assert len(times) > 0
        assert times.min() > launch["started"], table
        assert times.max() < launch["ended"], table
    assert run.summary()["steps"] == 300
