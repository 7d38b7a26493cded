"""From a job's site and layout to its nodes, with their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import HeadwayError
from headway.launch.calibrate import training_alone
from headway.spec.job import Job
from headway.spec.load import parse_job
from headway.spec.nodes import hosts, needs_core_speed, scaled
from headway.spec.resolve import Resolved, resolve
from headway.spec.site import Credits, Disk, NodeSettings


def job(**changes: Any) -> Job:
    asked: dict[str, Any] = {
        "workload": {"model": "mnist_cnn", "dataset": "mnist"},
        "strategy": "ps-async",
        "site": "emulated",
    }
    return parse_job({**asked, **changes})


def reasons(resolved: Resolved) -> dict[str, tuple[Any, str]]:
    return {choice.path: (choice.value, choice.reason) for choice in resolved.choices}


def test_the_layout_says_which_tasks_there_are() -> None:
    resolved = resolve(job(layout="PS-W-W"), 2)
    assert [str(task) for task in resolved.job.cluster.tasks()] == ["worker/0", "worker/1", "ps/0"]
    assert [(host.name, list(map(str, host.tasks))) for host in hosts(resolved.job)] == [
        ("ps0", ["ps/0"]),
        ("worker0", ["worker/0"]),
        ("worker1", ["worker/1"]),
    ]
    assert "the layout PS-W-W" in reasons(resolved)["cluster"][1]


def test_without_layout_and_cluster_each_machine_has_a_task() -> None:
    resolved = resolve(job(site={"kind": "emulated", "nodes": {"ps": {}, "worker": {"count": 3}}}), 2)
    assert [host.name for host in hosts(resolved.job)] == ["ps0", "worker0", "worker1", "worker2"]
    assert reasons(resolved)["cluster"][1] == "one task on each of the site's machines"


def test_without_a_layout_each_task_has_its_own_node() -> None:
    resolved = resolve(job(cluster={"chief": 1, "worker": 1, "ps": 1}), 2)
    assert [len(host.tasks) for host in hosts(resolved.job)] == [1, 1, 1]
    assert reasons(resolved)["layout"][1] == "each task has a node of its own"


def test_a_layout_may_use_fewer_machines_than_there_are_but_not_more() -> None:
    site = {"kind": "emulated", "nodes": {"worker": {"count": 2}}}
    assert len(hosts(resolve(job(site=site, layout="PS-W"), 2).job)) == 2
    with pytest.raises(HeadwayError, match=r"nodes.worker.count: 2, but the layout needs 3 nodes"):
        resolve(job(site=site, layout="PS-W-W-W"), 2)


def test_a_layout_that_does_not_fit_the_cluster_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(HeadwayError, match="has 1 server and 2 training tasks, but the cluster has 1 server and 3"):
        resolve(job(layout="PS-W-W", cluster={"worker": 3, "ps": 1}), 2)


def test_a_local_site_is_one_machine() -> None:
    assert len(hosts(resolve(job(site="local", layout="PWW"), 2).job)) == 1
    with pytest.raises(HeadwayError, match=r"has 3 nodes \(ps0, worker0, worker1\), but site local is one machine"):
        resolve(job(site="local", layout="PS-W-W"), 2)


def test_a_layout_that_cannot_be_read_is_a_mistake_of_the_job() -> None:
    with pytest.raises(HeadwayError, match="'Q' is no node"):
        job(layout="PS-Q")


def test_a_single_task_has_one_node() -> None:
    resolved = resolve(job(strategy="single", site={"kind": "emulated", "nodes": {"worker": {"cpus": 0.5}}}), 2)
    (host,) = hosts(resolved.job)
    assert [str(task) for task in host.tasks] == ["chief/0"]
    assert resolved.job.site.node(host.kind).cpus == 0.5


def test_machine_types_become_numbers_and_the_jobs_own_numbers_win() -> None:
    nodes = {"ps": {"type": "t2.small", "rate": "1Gbit"}, "worker": {"type": "n1-standard-1", "count": 1}}
    resolved = resolve(job(site={"kind": "emulated", "nodes": nodes}, layout="PS-W"), 4)
    server, worker = resolved.job.site.node("ps"), resolved.job.site.node("worker")
    assert (worker.cpus, worker.memory) == (1.0, round(3.75 * 2**30))
    assert (server.cpus, server.rate) == (1.0, 125e6)
    assert server.credits is not None
    assert server.credits.baseline == pytest.approx(0.2)
    assert reasons(resolved)["site.nodes.ps"][1] == "machine type t2.small"


def test_an_unknown_machine_type_is_refused() -> None:
    with pytest.raises(HeadwayError, match="no machine type 'n1-standard-3'"):
        resolve(job(site={"kind": "emulated", "nodes": {"worker": {"type": "n1-standard-3"}}}, layout="PS-W"), 2)


def test_more_cpus_than_cores_are_a_warning_that_says_what_would_fit() -> None:
    nodes = {"ps": {"cpus": 0.5}, "worker": {"cpus": 1}}
    resolved = resolve(job(site={"kind": "emulated", "nodes": nodes}, layout="PS-W-W"), 2)
    value, reason = reasons(resolved)["site.cpus"]
    assert value == 2.5
    assert reason.startswith("WARNING: 2.5 CPUs are asked in all, but this machine has 2 cores")
    assert "site.dilation: 1.5" in reason
    fitting = resolve(job(site={"kind": "emulated", "nodes": nodes, "dilation": 1.5}, layout="PS-W-W"), 2)
    assert "site.cpus" not in reasons(fitting)


def test_a_gpu_is_worth_as_many_cores_as_its_speed_says_and_time_runs_slower_until_it_fits() -> None:
    nodes = {"ps": {"cpus": 1}, "worker": {"type": "p3.2xlarge", "speed": 10_000}}
    asked = job(site={"kind": "emulated", "nodes": nodes}, layout="PS-W-W")
    assert needs_core_speed(asked)
    resolved = resolve(asked, 2, core_speed=500.0)
    assert resolved.job.site.node("worker").cpus == 20.0
    dilation = resolved.job.site.dilation
    assert dilation == pytest.approx((1 + 2 * 20) / 1.7, rel=0.01)
    assert resolved.job.site.core_speed == 500.0
    assert "41 cores here" in reasons(resolved)["site.dilation"][1]
    assert not needs_core_speed(resolved.job)


@pytest.mark.parametrize(
    ("batch", "size"), [({}, 100), ({"batch_size": 30}, 30), ({"global_batch_size": 51}, 25)], ids=str
)
def test_a_core_is_measured_with_the_batch_of_one_task(batch: dict[str, int], size: int) -> None:
    alone = training_alone(job(layout="PS-W-W", workload={"model": "mnist_cnn", "dataset": "mnist", **batch}))
    assert (alone.strategy.kind, alone.training.batch_size, alone.training.global_batch_size) == ("single", size, None)
    assert [resolve(alone, 2).job.batch_size_of(task) for task in alone.cluster.tasks()] == [size]


def test_a_gpu_type_without_a_speed_for_the_model_is_refused_with_advice() -> None:
    with pytest.raises(HeadwayError, match=r"Give it: site.nodes.worker.speed"):
        resolve(job(site={"kind": "emulated", "nodes": {"worker": {"type": "p2.xlarge"}}}, layout="PS-W"), 2)


def test_dilation_slows_everything_alike() -> None:
    machine = NodeSettings(cpus=4, rate=1e9, latency=0.001, disk=Disk(read=1000.0), memory=2**30)
    slow = scaled(machine, 10)
    assert (slow.cpus, slow.rate, slow.latency, slow.disk.read, slow.memory) == (0.4, 1e8, 0.01, 100.0, 2**30)
    assert scaled(machine, 1.0) is machine


def test_threads_are_those_of_the_node() -> None:
    nodes = {"worker": {"cpus": 2}, "ps": {"cpus": 0.5}}
    resolved = resolve(job(site={"kind": "emulated", "nodes": nodes}, layout="PS-W-W"), 8)
    assert resolved.job.cluster.worker.threads.intra_op == 2
    beside = resolve(job(site={"kind": "emulated", "nodes": nodes}, layout="PWW"), 8)
    assert beside.job.cluster.worker.threads.intra_op == 1


def test_a_resolved_job_reads_back_as_itself() -> None:
    resolved = resolve(job(site={"kind": "emulated", "nodes": {"worker": {"type": "n1-standard-1"}}}, layout="PS-W"), 2)
    assert parse_job(resolved.job.model_dump(mode="json")) == resolved.job


def test_a_local_site_takes_no_machines() -> None:
    with pytest.raises(HeadwayError, match="nodes: a local site is this machine as it is"):
        job(site={"kind": "local", "nodes": {"worker": {"cpus": 1}}})


def test_credits_that_cannot_be_saved_up_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 2 credits can be saved up"):
        Credits(per_hour=6, start=3, most=2)
    assert Credits(per_hour=6).limit == 144
