"""TensorFlow's ports have no authentication: whoever reaches them can run code. Nobody outside the run does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from parts import need
from running import Running, write_job

from headway.errors import SiteError
from headway.sites.isolation import NONE, choose
from headway.sites.isolation import candidates as isolation_candidates
from headway.sites.local import LocalSite
from headway.spec.load import parse_job
from headway.spec.resolve import resolve

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)"


def reachable_from_here(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


def reachable_from_inside(pid: int, port: int) -> bool:
    """From the network namespace of a process."""
    command = ["nsenter", "--target", str(pid), "--user", "--net", "--preserve-credentials"]
    if psutil.Process(pid).uids().real == 0:
        command.remove("--user")
    inside = subprocess.run([*command, sys.executable, "-c", CONNECT, "127.0.0.1", str(port)], check=False)
    return inside.returncode == 0


def addresses_of_this_machine() -> list[str]:
    return [
        address.address
        for interface in psutil.net_if_addrs().values()
        for address in interface
        if address.family == socket.AF_INET
    ]


@pytest.mark.real
@pytest.mark.parametrize("expose", ["nobody", "cluster"])
def test_ports_are_reached_from_outside_only_when_the_job_says_so(tmp_path: Path, expose: str) -> None:
    job = write_job(tmp_path / "job.yaml", cluster={"chief": 1, "ps": 1}, expose=expose)
    with Running(tmp_path / "runs", "run", str(job)) as running:
        running.trains("chief/0")
        for name in ("ps/0", "chief/0"):
            port = int(running.task(name)["address"].rpartition(":")[2])
            # It does listen: else this test would prove nothing.
            assert reachable_from_inside(running.pid(name), port)
            open_at = [address for address in addresses_of_this_machine() if reachable_from_here(address, port)]
            assert open_at == (addresses_of_this_machine() if expose == "cluster" else [])
        running.stop()


def job_with(**changes: object) -> object:
    settings = {
        "workload": {"model": "softmax", "dataset": "synthetic"},
        "strategy": "ps-async",
        "cluster": {"chief": 1, "ps": 1},
        **changes,
    }
    return resolve(parse_job(settings), 2).job


def test_where_ports_cannot_be_kept_private_the_run_is_refused_unless_the_job_accepts_it() -> None:
    site = LocalSite(private=NONE, open_to_cluster=NONE)
    with pytest.raises(SiteError, match="expose: cluster"):
        site.plan(job_with())  # type: ignore[arg-type]
    assert site.plan(job_with(expose="cluster")).command[0] == sys.executable  # type: ignore[arg-type]
    # A single task listens nowhere.
    assert site.plan(job_with(strategy="single")).nodes  # type: ignore[arg-type]


def test_the_plan_says_how_it_isolates_and_why() -> None:
    (choice,) = LocalSite().plan(job_with()).choices  # type: ignore[arg-type]
    assert choice.value == choose(private_network=True).reason
    assert choice.reason


def test_a_private_network_needs_no_root() -> None:
    """In a user namespace, as user `nobody` where we are root ourselves."""
    isolation = next(one for one in isolation_candidates() if "--user" in one.command and one.private_processes)
    identity = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
    show = [*isolation.command, "cat", "/proc/net/dev"]
    tried = subprocess.run(show, capture_output=True, text=True, check=False, **identity)  # type: ignore[call-overload]
    need(f"user namespaces: {tried.stderr}" if tried.returncode else None)
    interfaces = [line.partition(":")[0].strip() for line in tried.stdout.splitlines()[2:]]
    assert "lo" in interfaces
    assert not set(interfaces) & (set(psutil.net_if_addrs()) - {"lo"})


@pytest.mark.real
def test_it_works_without_namespaces_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`unshare` missing: with expose: cluster the run goes on without isolation, and still leaves nothing behind."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    job = write_job(
        tmp_path / "job.yaml",
        cluster={"chief": 1, "ps": 1},
        expose="cluster",
        workload={"model": "softmax", "dataset": "synthetic", "batch_size": 100, "stop": {"steps": 50}},
    )
    with Running(tmp_path / "runs", "run", str(job)) as running:
        running.wait_for(lambda: len(running.processes()) >= 4, "the tasks")
        family = running.processes()
        assert running.process.wait(timeout=60) == 0, running.output()
    assert not any(process.is_running() for process in family)
    assert "no namespaces" in running.output()
