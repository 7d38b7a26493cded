"""Findings of a run folder: read from its files, alive, sealed or old, and shown by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from headway.cli import app
from headway.findings import findings
from headway.findings.evidence import read
from headway.launch.prepare import create_run
from headway.record.files import to_json
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.run import Run
from headway.record.seal import seal
from headway.spec.load import parse_job

RATE = 12.5e6
SECONDS = 20


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(to_json(row) + "\n" for row in rows)


def step_row(t: float, own_step: int, **more: Any) -> dict[str, Any]:
    row = {"t": t, "kind": "step", "attempt": 0, "generation": 1, "step": own_step, "own_step": own_step, "loss": 1.0}
    more = {"examples": 100, "warmup": False, "accepted": 1, "staleness": [1], "input_seconds": 0.001, **more}
    return {**row, "num_steps": 1, "seconds": 0.5, **more}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A server whose link is full, and two tasks; the first second is warm-up."""
    job = {
        "workload": {"model": "mnist_cnn", "dataset": "synthetic"},
        "strategy": "ps-async",
        "layout": "PS-W-W",
        "site": {"kind": "emulated", "nodes": {"ps": {"cpus": 0.5, "rate": RATE}, "worker": {"cpus": 0.4}}},
    }
    folder = create_run(parse_job(job), tmp_path)
    folder.write_facts({**folder.facts(), "launches": [{"started": 0.0, "ended": 100.0}], "state": "finished"})
    nodes = {"ps0": ["ps/0"], "worker0": ["worker/0"], "worker1": ["worker/1"]}
    ready = [
        {
            "t": 1.0,
            "kind": "node_ready",
            "node": name,
            "tasks": tasks,
            "asked": {"cpus": 0.5, "rate": RATE},
            "cores": [0, 1],
        }
        for name, tasks in nodes.items()
    ]
    write(folder.events(LAUNCHER), ready)
    for number in (0, 1):
        rows = [step_row(10 + 0.5 * n, n, warmup=n <= 2) for n in range(1, 2 * SECONDS + 1)]
        write(folder.events(f"worker-{number}"), rows)
    for name in nodes:
        share = 0.9 if name == "ps0" else 0.4
        samples = [
            {"t": t, "kind": "node_sample", "node": name, "sampler": 1.0, "cpu_seconds": 0.1 * t,
             "received_bytes": int(share * RATE * t), "sent_bytes": int(share * RATE * t), "memory": 10**8}
            for t in np.arange(10, 10 + SECONDS, 0.2)
        ]  # fmt: skip
        write(folder.metrics(name), samples)
    return folder


def rules_of(folder: RunFolder) -> set[str]:
    return {one.rule for one in findings(Run(folder)) if one.trouble}


def test_a_program_that_tells_of_no_step_has_its_full_link_named(tmp_path: Path) -> None:
    """Measured is the time in which all of its tasks ran."""
    job = {
        "workload": {"command": "python train.py"},
        "strategy": "allreduce",
        "layout": "W-W",
        "site": {"kind": "emulated", "nodes": {"worker": {"cpus": 0.4, "rate": RATE}}},
    }
    folder = create_run(parse_job(job), tmp_path)
    folder.write_facts({**folder.facts(), "launches": [{"started": 0.0, "ended": 100.0}], "state": "finished"})
    asked = {"cpus": 0.4, "rate": RATE}
    for number in (0, 1):
        name, task, first = f"worker{number}", f"worker/{number}", 10.0 + number
        ready = {"t": 1.0, "kind": "node_ready", "node": name, "tasks": [task], "asked": asked, "cores": [0, 1]}
        write(folder.events(LAUNCHER), [ready])
        moved = [(t, int(0.85 * RATE * t)) for t in np.arange(first, first + SECONDS, 0.2)]
        node = {"kind": "node_sample", "node": name, "sampler": 1.0}
        own = {"kind": "task_sample", "task": task, "attempt": 0, "sampler": 1.0, "rss": 10**8}
        nodes = [{"t": t, **node, "cpu_seconds": 0.1 * t, "received_bytes": b, "sent_bytes": b} for t, b in moved]
        write(folder.metrics(name), [*nodes, *({"t": t, **own, "cpu_seconds": 0.1 * t} for t, _ in moved)])
    facts = read(Run(folder))
    assert (facts.start, facts.end) == pytest.approx((11.0, 29.8))
    (found,) = findings(Run(folder))
    assert found.rule == "network"
    assert found.settings == ("site.nodes",)


def test_only_the_measured_time_counts(folder: RunFolder) -> None:
    facts = read(Run(folder))
    assert (facts.start, facts.end) == pytest.approx((11.0, 30.0))
    assert facts.num_steps == 2 * (2 * SECONDS - 2)
    (server, *_) = facts.nodes
    assert server.mean("cpus") == pytest.approx(0.1)
    assert server.mean("received") == pytest.approx(0.9 * RATE)
    assert server.t.min() >= 10.5
    assert server.cores == 2
    assert facts.node_of(facts.training[0]).name == "worker0"  # type: ignore[union-attr]
    assert len(facts.staleness) == facts.num_steps


def test_a_sealed_run_says_what_it_said_before(folder: RunFolder) -> None:
    before = findings(Run(folder))
    assert rules_of(folder) == {"network"}
    seal(folder)
    assert findings(Run(folder)) == before


def test_a_limit_that_was_not_set_is_no_limit_to_reach(folder: RunFolder) -> None:
    """As without root: the nodes were asked to have 0.5 CPUs and a network, and have the machine's."""
    assert {node.cpus for node in read(Run(folder)).nodes} == {0.5}  # a record from before there was such a field
    path = folder.events(LAUNCHER)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.unlink()
    write(path, [{**row, "limits": {}} if row["kind"] == "node_ready" else row for row in rows])
    assert {(node.cpus, node.rate, node.memory_limit) for node in read(Run(folder)).nodes} == {(None, None, None)}
    assert rules_of(folder) == set()


def test_an_old_record_without_samples_gives_no_wrong_findings(folder: RunFolder) -> None:
    for path in folder.metrics_folder.glob("*.jsonl"):
        path.unlink()
    assert rules_of(folder) == set()


def test_a_run_without_a_step_has_no_findings(folder: RunFolder) -> None:
    for path in folder.events_folder.glob("worker-*.jsonl"):
        path.unlink()
    assert findings(Run(folder)) == []
    folder.write_facts({**folder.facts(), "launches": []})  # prepared, and never launched
    assert findings(Run(folder)) == []


def test_a_task_killed_for_want_of_memory_is_named_though_no_sample_shows_it(folder: RunFolder) -> None:
    reason = "killed: its node has no more memory"
    write(folder.events(LAUNCHER), [{"t": 31.0, "kind": "task_exited", "task": "worker/1", "reason": reason}])
    assert "memory_limit" in rules_of(folder)


def test_the_command_shows_them_and_show_does_in_brief(folder: RunFolder) -> None:
    full = CliRunner().invoke(app, ["findings", str(folder.path), "--evidence"])
    assert full.exit_code == 0
    assert "1 finding of trouble" in full.output
    assert "! A server's network is saturated (certain)" in full.output
    assert "rate of the interface (ps0): 100 Mbit/s" in full.output
    brief = CliRunner().invoke(app, ["show", str(folder.path)])
    assert "The network of ps0 (ps/0) was full 100 % of the time" in brief.output
    told = json.loads(CliRunner().invoke(app, ["findings", str(folder.path), "-o", "json"]).output)
    assert told[0]["rule"] == "network"
    assert told[0]["evidence"][0]["task_or_node"] == "ps0"
