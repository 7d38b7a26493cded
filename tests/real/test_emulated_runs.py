"""Whole runs on emulated hosts: what the record says of them is what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from emulating import NOBODY, become_nobody, need_emulation
from parts import need
from running import Running, headway, write_job

from headway.findings import findings
from headway.record.reader import read_events
from headway.record.run import Run, load

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]
VARIABLES = 3_274_634 * 4  # bytes of the E1 CNN


def finished(root: Path, job: Path) -> Run:
    done = headway("run", str(job), root=root, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return load("last", root)


def cnn(path: Path, steps: int, **changes: Any) -> Path:
    workload = {
        "model": "mnist_cnn",
        "dataset": "mnist",
        "batch_size": 20,
        "optimizer": {"name": "adagrad", "learning_rate": 0.01},
        "stop": {"steps": steps},
    }
    return write_job(path, workload=workload, cluster={}, checkpoint={}, measure={"warmup": 3}, export=False, **changes)


def test_traffic_of_a_step_comes_out_by_measurement(tmp_path: Path) -> None:
    """A task pulls all variables and pushes all gradients, 13.1 MB each way, over the network of its own node."""
    need_emulation("cpu", "memory")
    machine = {"memory": "2GiB", "rate": "1Gbit", "latency": "0.5ms"}
    nodes = {"ps": {**machine, "cpus": 0.5}, "worker": {**machine, "cpus": 0.6}}
    job = cnn(tmp_path / "job.yaml", 60, site={"kind": "emulated", "nodes": nodes}, layout="PS-W-W")
    run = finished(tmp_path, job)
    figures = run.summary()
    for name in ("worker/0", "worker/1"):
        task = next(task for task in figures["task_usage"] if task["task"] == name)
        assert task["sent_bytes_per_step"] == pytest.approx(VARIABLES, rel=0.1), task
        assert task["received_bytes_per_step"] == pytest.approx(VARIABLES, rel=0.1), task
        assert task["loopback_sent_bytes_per_step"] < 0.01 * VARIABLES
    by_name = {node["node"]: node for node in figures["nodes"]}
    assert set(by_name) == {"ps0", "worker0", "worker1"}
    # Importing TensorFlow is not slowed down, training is.
    events = read_events(run.folder.events("launcher"))
    limited = {event["node"]: event["cpus"] for event in events if event["kind"] == "cpu_limited"}
    assert limited == {"ps0": 0.5, "worker0": 0.6, "worker1": 0.6}
    assert by_name["worker0"]["cpus"] < 0.66
    # What the server sends is what the workers receive; interfaces count headers, too.
    received = by_name["worker0"]["received"] + by_name["worker1"]["received"]
    assert by_name["ps0"]["sent"] == pytest.approx(received, rel=0.1)
    samples = run.table("node_samples")
    assert len(samples["t"]) > 3 * 5 * 5  # three nodes, five a second, for some seconds
    shown = headway("show", "last", root=tmp_path).stdout
    assert "nodes while they trained" in shown
    assert "MB sent for each own step" in shown


def test_what_a_user_who_is_not_root_cannot_limit_is_no_limit_in_the_record(tmp_path: Path) -> None:
    """Asked for a tenth of a CPU each, server and worker have what there is. Each is charged with its own work, not
    with the machine's, and nobody says that it used up its tenth."""
    need_emulation()
    need(None if os.geteuid() == 0 else "root, to become somebody else")
    nodes = {kind: {"cpus": 0.1, "memory": "3GiB", "rate": "1Gbit"} for kind in ("ps", "worker")}
    with tempfile.TemporaryDirectory(prefix="hw-nobody-") as name:  # pytest's own folders are for root alone
        home = Path(name)
        job = write_job(
            home / "job.yaml",
            workload={"model": "softmax", "dataset": "synthetic", "batch_size": 500, "stop": {"steps": 2000}},
            cluster={},
            checkpoint={},
            export=False,
            site={"kind": "emulated", "nodes": nodes},
            layout="PS-W",
        )
        os.chown(home, NOBODY, NOBODY)
        env = {"PATH": os.environ["PATH"], "HOME": name, "XDG_RUNTIME_DIR": name, "HEADWAY_RUNS": f"{name}/runs"}
        env |= {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}

        def as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*become_nobody(home), sys.executable, "-m", "headway", *arguments],
                env=env,
                cwd=home,
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )

        need(None if as_nobody("--help").returncode == 0 else "an environment that others may read")
        done = as_nobody("run", str(job))
        need("user namespaces for everybody" if "no emulated hosts can be made here" in done.stderr else None)
        assert done.returncode == 0, done.stdout + done.stderr
        run = load("last", home / "runs")
        figures, found = run.summary(), findings(run)
    tasks = {task["task"]: task for task in figures["task_usage"]}
    assert {node["node"] for node in figures["nodes"]} == {"ps0", "worker0"}
    for node in figures["nodes"]:
        assert node["asked"]["cpus"] == 0.1
        assert set(node["limits"]) == {"rate"}
        (task,) = node["tasks"]
        assert node["cpus"] == pytest.approx(tasks[task]["cpus"], rel=0.1)
        assert node["memory_peak"] == pytest.approx(tasks[task]["memory_peak"], rel=0.1)
        assert "cpu" not in node["full"]
        assert f"{node['node']} " in done.stdout
    assert not {one.rule for one in found} & {"server_cpu", "chief_undersized", "memory_grows", "memory_limit"}
    assert "root is needed" in " ".join(figures["warnings"])


@pytest.mark.parametrize("count", [2, 3])
def test_servers_of_a_partitioned_model_move_as_much_as_each_other(tmp_path: Path, count: int) -> None:
    """98 % of the E1 CNN are in one variable: on one server it would make that one move nearly everything."""
    need_emulation()
    strategy = {"kind": "ps-async", "placement": "partitioned"}
    job = cnn(tmp_path / "job.yaml", 300, strategy=strategy, site="emulated", layout=f"PS*{count}-W-W")
    figures = finished(tmp_path, job).summary()
    assert [server["share"] for server in figures["servers"]] == [pytest.approx(1 / count, rel=0.1)] * count
    servers = [node for node in figures["nodes"] if node["node"].startswith("ps")]
    assert len(servers) == count
    for way in ("sent", "received"):  # bytes per second, by each node's own interface
        moved = [server[way] for server in servers]
        assert max(moved) < 1.1 * min(moved), moved


def test_servers_beside_workers_use_loopback_and_servers_apart_the_network(tmp_path: Path) -> None:
    """E4's layouts: what is sent to a server on the same node never leaves it."""
    need_emulation()
    share = {}
    for layout in ("PW-W", "PS-W-W"):
        site = {"kind": "emulated", "nodes": {"worker": {"rate": "1Gbit"}, "ps": {"rate": "1Gbit"}}}
        figures = finished(tmp_path, cnn(tmp_path / "job.yaml", 40, site=site, layout=layout)).summary()
        external = sum(node["sent"] for node in figures["nodes"])
        loopback = sum(node["loopback_sent"] for node in figures["nodes"])
        share[layout] = external / (external + loopback)
    assert share["PS-W-W"] > 0.99
    assert 0.05 < share["PW-W"] < 0.7  # the worker beside the server is faster, and makes more of the steps


def test_a_servers_slow_link_is_full_for_as_long_as_its_bytes_take(tmp_path: Path) -> None:
    """Two tasks, 13.1 MB each way for each step, over 100 Mbit/s: the link limits them, and the record says so."""
    need_emulation("cpu")
    nodes = {"ps": {"cpus": 0.5, "rate": "100Mbit", "latency": "0.5ms"}, "worker": {"cpus": 0.5}}
    job = cnn(
        tmp_path / "job.yaml",
        16,
        site={"kind": "emulated", "nodes": nodes},
        layout="PS-W-W",
        monitor={"hertz": 20},
    )
    figures = finished(tmp_path, job).summary()
    server = next(node for node in figures["nodes"] if node["node"] == "ps0")
    for moved, way in (("received", "inwards"), ("sent", "outwards")):
        used = server[moved] / 12.5e6
        # Less by the time in which a connection that was idle finds out how fast it may send.
        assert server["full"][way] == pytest.approx(used, abs=0.1), (way, used, server["full"])
        assert used > 0.4
    assert server["full"]["cpu"] < 0.1
    assert figures["nobody_full"] < 0.2
    assert "used up: network in" in headway("show", "last", root=tmp_path).stdout


def test_the_turn_of_a_killed_task_is_given_back(tmp_path: Path) -> None:
    """Over this slow link a task nearly always has a turn, or waits for one. Another one must not wait for ever."""
    need_emulation()
    job = cnn(
        tmp_path / "job.yaml",
        1_000_000,
        strategy={"kind": "ps-async", "exchange": "in_turn"},
        site={"kind": "emulated", "nodes": {"ps": {"rate": "200Mbit"}, "worker": {}}},
        layout="PS-W-W",
    )
    with Running(tmp_path / "runs", "run", str(job)) as run:
        run.trains("worker/0", "worker/1", steps=3)
        for attempt in (1, 2):
            is_it = {"HEADWAY_TASK": "worker/1"}.items()  # in a host of its own it has another number
            next(one for one in run.processes() if is_it <= one.environ().items()).kill()
            enough = len(run.steps("worker/0")) + 5
            run.trains("worker/0", steps=enough)
            run.trains("worker/1", attempt=attempt, steps=3)
        assert run.events("rollback") == []
        run.stop()


def test_a_host_without_power_is_made_again_and_its_task_rejoins(tmp_path: Path) -> None:
    need_emulation()
    job = write_job(tmp_path / "job.yaml", site="emulated", layout="M-PS-W", cluster={})
    with Running(tmp_path / "runs", "run", str(job)) as run:
        run.trains("chief/0", "worker/0")
        agents = {node["node"]: pid for node, pid in zip(run.status()["nodes"], run.status()["agents"], strict=True)}
        os.kill(agents["worker0"], signal.SIGKILL)
        run.trains("worker/0", attempt=1)
        assert [event["reason"] for event in run.events("agent_lost")] == ["the agent of node worker0 is gone"]
        assert run.events("rollback") == []  # the server and the chief went on
        assert len([event for event in run.events("node_ready") if event["node"] == "worker0"]) == 2
        run.stop()
    figures = run.run.summary()
    assert (figures["state"], figures["restarts"]) == ("stopped", 1)


def test_a_lost_servers_host_is_made_again_and_training_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    need_emulation()
    job = write_job(tmp_path / "job.yaml", site="emulated", layout="M-PS-W", cluster={})
    with Running(tmp_path / "runs", "run", str(job)) as run:
        run.trains("chief/0", "worker/0")
        run.wait_for(lambda: run.events("checkpoint"), "a checkpoint")
        agents = {node["node"]: pid for node, pid in zip(run.status()["nodes"], run.status()["agents"], strict=True)}
        os.kill(agents["ps0"], signal.SIGKILL)
        run.wait_for(lambda: run.events("rollback"), "a rollback", limit=120)
        before = len(run.steps("worker/0"))
        run.wait_for(lambda: len(run.steps("worker/0")) > before + 20, "steps after the rollback")
        run.stop()


def test_when_all_hosts_are_lost_at_once_all_are_made_again(tmp_path: Path) -> None:
    need_emulation()
    job = write_job(tmp_path / "job.yaml", site="emulated", layout="PS-W", cluster={})
    with Running(tmp_path / "runs", "run", str(job)) as run:
        run.trains("worker/0")
        run.wait_for(lambda: run.events("checkpoint"), "a checkpoint")
        box = next(one for one in run.processes() if "headway.sites.emulated.box" in one.cmdline())
        box.kill()
        run.wait_for(lambda: len(run.events("hosts_up")) == 2, "new hosts")
        before = len(run.steps("worker/0"))
        run.wait_for(lambda: len(run.steps("worker/0")) > before + 20, "steps on the new hosts")
        run.stop()


def test_a_task_that_needs_more_memory_than_its_node_has_says_so(tmp_path: Path) -> None:
    need_emulation("memory")
    site = {"kind": "emulated", "nodes": {"worker": {"memory": "120MiB"}}}
    job = write_job(tmp_path / "job.yaml", site=site, layout="PS-W", cluster={}, restart={"attempts": 0})
    done = headway("run", str(job), root=tmp_path, timeout=100)
    assert done.returncode == 6
    assert "worker/0 failed: killed: its node has no more memory" in done.stdout + done.stderr
