"""A real Prometheus scrapes a real run."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from debian import unpacked
from running import LIMIT, Running

from headway.agent.agent import free_ports

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
PROJECT = Path(__file__).parents[2]
EXAMPLE = PROJECT / "examples" / "linear.yaml"
DASHBOARD = PROJECT / "docs" / "grafana" / "headway.json"
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: headway
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    def __init__(self, port: int, log: Path) -> None:
        self._port, self._log = port, log

    def get(self, path: str, **parameters: str) -> Any:
        address = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)["data"]

    def wait_for(self, query: str) -> dict[str, float]:
        """The values of a query by task or node, as soon as there are any."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            try:
                if found := self.get("query", query=query)["result"]:
                    return {
                        one["metric"].get("task") or one["metric"].get("node", ""): float(one["value"][1])
                        for one in found
                    }
            except OSError:
                pass  # it is still starting
            time.sleep(0.5)
        raise AssertionError(f"nothing for {query}:\n{self._log.read_text()[-3000:]}")


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """On loopback, with its data in `folder`; ended and gone afterwards."""
    program = unpacked("prometheus") / "usr" / "bin" / "prometheus"
    (folder / "prometheus.yml").write_text(CONFIG.format(target=target))
    (port,) = free_ports(1, None, None)
    log = folder / "prometheus.log"
    command = [
        str(program),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log.open("wb") as out, subprocess.Popen(command, cwd=folder, stdout=out, stderr=out) as process:
        try:
            yield Prometheus(port, log)
        finally:
            process.kill()


def asked_by_the_dashboard() -> list[str]:
    """With Grafana's variables filled in."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    filled = [one.replace("$__rate_interval", "10s").replace("$run", ".*").replace("$node", ".*") for one in found]
    assert filled
    assert not any("$" in one for one in filled)
    return filled


def complaints(address: str) -> str:
    """What Prometheus' own checker has to say of names, types and units."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read()
    command = [str(unpacked("prometheus") / "usr" / "bin" / "promtool"), "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, timeout=LIMIT, check=False)
    return str((done.stdout + done.stderr).decode())


def test_prometheus_has_series_of_nodes_and_tasks(tmp_path: Path) -> None:
    overrides = ["workload.stop.steps=10000000", "workload.evaluate={}"]
    with Running(tmp_path / "runs", "run", str(EXAMPLE), *overrides, "--metrics-port", "0") as running:
        (served,) = running.wait_for(lambda: running.events("metrics_served"), "an address of /metrics")
        target = urllib.parse.urlsplit(served["address"]).netloc
        with prometheus(tmp_path, target) as server:
            run = f'run="{running.folder.name}"'
            assert server.wait_for('up{job="headway"} == 1')
            steps = server.wait_for(f"rate(headway_task_steps_total{{{run}}}[10s]) > 0")
            assert steps.keys() <= {"worker/0", "worker/1"}
            assert server.wait_for(f"headway_task_loss{{{run}}}").keys() <= {"worker/0", "worker/1"}
            assert server.wait_for(f"headway_task_memory_bytes{{{run}}} > 50e6")
            cpus = server.wait_for(f"rate(headway_node_cpu_seconds_total{{{run}}}[10s]) > 0")
            assert cpus.keys() == {"local"}
            assert 0 < cpus["local"] < 1000
            loopback = 'interface="loopback"'
            moved = f"rate(headway_node_network_transmit_bytes_total{{{run},{loopback}}}[10s]) > 0"
            assert server.wait_for(moved).keys() == {"local"}
            assert server.wait_for(f'headway_run_state{{{run},state="running"}} == 1')
            # Prometheus has understood each type, and refused no line.
            kinds = {name: known[0]["type"] for name, known in server.get("metadata").items()}
            assert kinds["headway_task_steps_total"] == "counter"
            assert kinds["headway_node_memory_bytes"] == "gauge"
            (seen,) = server.get("targets")["activeTargets"]
            assert seen["lastError"] == ""
            assert server.get("status/buildinfo")["version"].startswith("2.")
            for expression in asked_by_the_dashboard():
                server.get("query", query=expression)  # an error where it does not understand one
        assert complaints(served["address"]) == ""
        assert running.process.poll() is None, running.output()
        assert served["address"] in running.output()
        running.stop()
