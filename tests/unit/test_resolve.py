"""What Headway chooses where nothing was asked, each with its reason; and what was asked stays."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from headway.spec.job import Job
from headway.spec.load import parse_job
from headway.spec.resolve import Resolved, resolve

STEPS = {"model": "softmax", "dataset": "synthetic", "batch_size": 10, "stop": {"steps": 5}}


def job(**changes: Any) -> Job:
    return parse_job({"workload": STEPS, "strategy": "ps-async", **changes})


def chosen(asked: Job, num_cores: int = 4, **more: Any) -> dict[str, Any]:
    return {choice.path: choice.value for choice in resolve(asked, num_cores, **more).choices}


def reason(resolved: Resolved, path: str) -> str:
    return next(choice.reason for choice in resolved.choices if choice.path == path)


def threads(resolved: Resolved, role: str) -> tuple[int | None, int | None]:
    found = getattr(resolved.job.cluster, role).threads
    return found.intra_op, found.inter_op


# --- the network ------------------------------------------------------------------------------------------------------
def test_only_a_program_gets_a_way_out_of_its_private_network() -> None:
    own = resolve(job(), 4)
    assert own.job.site.network == "private"
    assert reason(own, "site.network") == "data is fetched before the tasks start"
    program = resolve(parse_job({"workload": {"command": "python train.py"}}), 4)
    assert program.job.site.network == "outbound"
    assert reason(program, "site.network") == "a program may need other hosts"


def test_a_network_that_was_asked_for_stays_and_an_exposed_cluster_has_the_machines_own() -> None:
    assert resolve(job(site={"kind": "local", "network": "outbound"}), 4).job.site.network == "outbound"
    exposed = resolve(job(expose="cluster"), 4)
    assert exposed.job.site.network is None
    assert "site.network" not in chosen(job(expose="cluster"))


# --- the cluster ------------------------------------------------------------------------------------------------------
def test_the_smallest_cluster_is_a_chief_a_worker_and_a_server() -> None:
    resolved = resolve(job(), 4)
    assert list(map(str, resolved.job.cluster.tasks())) == ["chief/0", "worker/0", "ps/0"]
    assert chosen(job())["cluster"] == "chief: 1, worker: 1, ps: 1"
    assert reason(resolved, "cluster") == "nothing was asked: the smallest cluster"


def test_without_servers_the_smallest_cluster_is_a_chief_and_a_worker() -> None:
    resolved = resolve(job(strategy="allreduce"), 4)
    assert list(map(str, resolved.job.cluster.tasks())) == ["chief/0", "worker/0"]
    assert chosen(job(strategy="allreduce"))["cluster"] == "chief: 1, worker: 1"


def test_a_program_of_which_nothing_was_asked_is_one_worker() -> None:
    resolved = resolve(parse_job({"workload": {"command": "x"}}), 4)
    assert list(map(str, resolved.job.cluster.tasks())) == ["worker/0"]
    assert reason(resolved, "strategy") == "one task"
    one = resolve(parse_job({"workload": {"command": "x"}, "cluster": {"chief": 1}}), 4)
    assert list(map(str, one.job.cluster.tasks())) == ["chief/0"]


def test_a_program_with_one_training_task_is_that_task() -> None:
    resolved = resolve(parse_job({"workload": {"command": "x"}, "cluster": {"training": 1}}), 4)
    assert list(map(str, resolved.job.cluster.tasks())) == ["chief/0"]


def test_a_program_with_its_strategy_asked_keeps_it_and_nothing_is_chosen() -> None:
    asked = parse_job({"workload": {"command": "x"}, "cluster": {"worker": 2, "ps": 1}, "strategy": "ps-sync"})
    assert resolve(asked, 4).job.strategy.kind == "ps-sync"
    assert "strategy" not in chosen(asked)


def test_a_program_that_trains_with_several_tasks_and_no_server_begins_anew_together() -> None:
    for cluster in ({"training": 2}, {"chief": 1, "worker": 1}, {"worker": 2}):
        assert (
            resolve(parse_job({"workload": {"command": "x"}, "cluster": cluster}), 4).job.strategy.kind == "allreduce"
        )
    for cluster in ({"training": 1}, {"chief": 1}):
        assert resolve(parse_job({"workload": {"command": "x"}, "cluster": cluster}), 4).job.strategy.kind == "single"


def test_a_single_task_keeps_its_settings_and_a_cluster_that_fits_is_not_replaced() -> None:
    asked = job(strategy="single", cluster={"chief": 1, "evaluator": 1})
    assert "cluster" not in chosen(asked)
    assert resolve(asked, 4).job.cluster.evaluator.count == 1
    replaced = job(strategy="single", cluster={"chief": 1, "worker": 1, "ps": 1})
    assert chosen(replaced)["cluster"] == "chief: 1"
    worker = job(strategy="single", cluster={"worker": {"count": 3, "devices": 2}})
    assert resolve(worker, 4).job.cluster.chief.devices == 2


def test_counts_that_come_from_the_layout_are_told_unless_there_is_one_task_only() -> None:
    site = {"kind": "emulated"}
    assert chosen(job(site=site, layout="PS-W-W"))["cluster"] == "worker: 2, ps: 1"
    alone = resolve(job(site=site, layout="PS-W", strategy="single"), 4)
    assert [choice.value for choice in alone.choices if choice.path == "cluster"] == ["chief: 1"]


def test_training_tasks_that_were_counted_together_are_a_chief_and_workers() -> None:
    resolved = resolve(job(cluster={"training": 3, "ps": 1}), 4)
    assert chosen(job(cluster={"training": 3, "ps": 1}))["cluster"] == "chief: 1, worker: 2"
    assert resolved.job.cluster.training is None
    assert reason(resolved, "cluster") == "training: 3 counts the chief, which trains too"


# --- the layout and the site ------------------------------------------------------------------------------------------
def test_each_emulated_task_has_a_node_of_its_own_unless_a_layout_says_otherwise() -> None:
    cluster = {"chief": 1, "ps": 1}
    site = {"kind": "emulated"}
    assert chosen(job(site=site, cluster=cluster))["layout"] == "ps0-worker0"
    assert "layout" not in chosen(job(site=site, cluster=cluster, layout="PS-M"))
    assert "layout" not in chosen(job(site=site, strategy="single"))
    assert "layout" not in chosen(job(cluster=cluster))


def test_the_speed_of_a_core_is_the_jobs_own_or_else_the_measured_one() -> None:
    measured = resolve(job(site={"kind": "emulated"}), 4, core_speed=7.0)
    assert measured.job.site.core_speed == 7.0
    told = resolve(job(site={"kind": "emulated", "core_speed": 3.0}), 4, core_speed=7.0)
    assert told.job.site.core_speed == 3.0


# --- threads ----------------------------------------------------------------------------------------------------------
def test_servers_and_evaluators_have_one_thread_for_each_operation() -> None:
    resolved = resolve(job(cluster={"chief": 1, "ps": 1, "evaluator": 1}), 8)
    assert threads(resolved, "chief") == (8, 2)
    assert threads(resolved, "ps") == (1, 2)
    assert threads(resolved, "evaluator") == (1, 1)
    assert reason(resolved, "cluster.ps.threads.inter_op") == "with 1 TensorFlow's server can hang"
    assert reason(resolved, "cluster.evaluator.threads.intra_op") == "evaluation must not take the cores of training"


@pytest.mark.parametrize(("devices", "operations"), [(1, 2), (2, 2), (3, 3), (4, 4)])
def test_as_many_operations_at_once_as_devices_and_two_at_least(devices: int, operations: int) -> None:
    resolved = resolve(job(cluster={"chief": {"count": 1, "devices": devices}, "ps": 1}), 8)
    assert threads(resolved, "chief") == (8, operations)
    by_device = reason(resolved, "cluster.chief.threads.inter_op").startswith("one for each of its devices")
    assert by_device == (devices > 1)


def test_threads_that_were_asked_for_stay_and_only_the_others_are_chosen() -> None:
    asked = job(cluster={"chief": {"count": 1, "threads": {"inter_op": 5}}, "ps": 1})
    assert threads(resolve(asked, 8), "chief") == (8, 5)
    assert "cluster.chief.threads.inter_op" not in chosen(asked)
    assert "cluster.worker.threads.intra_op" not in chosen(asked), "there is none"


def test_of_a_programs_operations_nothing_is_known() -> None:
    resolved = resolve(parse_job({"workload": {"command": "x"}, "cluster": {"worker": 2, "ps": 1}}), 8)
    assert threads(resolved, "worker") == (4, None)
    asked = {"worker": {"count": 2, "threads": {"inter_op": 3}}, "ps": 1}
    assert threads(resolve(parse_job({"workload": {"command": "x"}, "cluster": asked}), 8), "worker") == (4, 3)


@pytest.mark.parametrize(
    ("layout", "cpus", "dilation", "expected"),
    [
        ("PS-W-W", 4, None, 4),
        ("PS-W-W", 40, None, 16),  # no more than this machine has
        ("PS-W-W", None, None, 16),
        ("PS-WW", 3, None, 2),  # shared by two, rounded up
        ("PS-W-W", 0.5, None, 1),
        ("PS-W-WW", 4, None, 2),  # of the smallest share, so that all compute alike
        ("PS-W-W", 4, 2, 2),
        ("PS-M-W", 4, None, 4),
    ],
)
def test_on_emulated_nodes_threads_are_what_the_node_really_gets(
    layout: str, cpus: float | None, dilation: int | None, expected: int
) -> None:
    kinds = {kind: {"cpus": cpus} for kind in ("worker", "chief")} if cpus is not None else {}
    site = {"kind": "emulated", "nodes": kinds, **({"dilation": dilation} if dilation else {})}
    resolved = resolve(job(site=site, layout=layout), 16)
    assert threads(resolved, "worker")[0] == expected
    assert reason(resolved, "cluster.worker.threads.intra_op").startswith("what its node has")


def test_a_chiefs_small_node_decides_too() -> None:
    site = {"kind": "emulated", "nodes": {"worker": {"cpus": 4}, "chief": {"cpus": 2}}}
    assert threads(resolve(job(site=site, layout="PS-M-W"), 16), "worker")[0] == 2


# --- batches and the end ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("size", "training", "words"),
    [
        (9, 3, "shared out over 3 training tasks"),
        (10, 3, "shared out over 3 training tasks; the first 1 of them takes one more"),
        (11, 3, "shared out over 3 training tasks; the first 2 of them take one more"),
    ],
)
def test_a_global_batch_says_who_takes_one_more(size: int, training: int, words: str) -> None:
    workload = {**{key: value for key, value in STEPS.items() if key != "batch_size"}, "global_batch_size": size}
    resolved = resolve(job(workload=workload, strategy="ps-sync", cluster={"training": training, "ps": 1}), 4)
    assert reason(resolved, "workload.batch_size") == f"global_batch_size: {size}, {words}"


def test_the_end_that_comes_first_is_the_one_that_counts() -> None:
    """An epoch of MNIST is 600 steps of 100 examples."""

    def stop(**asked: float) -> tuple[Any, bool]:
        workload = {"model": "softmax", "dataset": "mnist", "batch_size": 100, "stop": asked}
        resolved = resolve(job(workload=workload), 4)
        return resolved.job.training.stop.steps, "workload.stop.steps" in {each.path for each in resolved.choices}

    assert stop(epochs=1) == (600, True)
    assert stop(epochs=1, steps=601) == (600, True)
    assert stop(epochs=1, steps=600) == (600, False)
    assert stop(epochs=1, steps=50) == (50, False)
    assert stop(steps=50) == (50, False)
    assert stop() == (600, True)


def test_without_an_end_one_epoch_is_made() -> None:
    resolved = resolve(job(workload={"model": "softmax", "dataset": "mnist", "batch_size": 100}), 4)
    assert resolved.job.training.stop.epochs == 1.0
    assert next(choice.value for choice in resolved.choices if choice.path == "workload.stop.epochs") == 1
    assert reason(resolved, "workload.stop.epochs") == "nothing was asked: one epoch"
    assert reason(resolved, "workload.stop.steps") == "1 epoch of 60,000 examples at 100 per step"


# --- a model of the user's --------------------------------------------------------------------------------------------
@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "a_model_of_mine.py").write_text("def build(features, settings, data, run):\n    return features\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "a_model_of_mine", raising=False)
    return {**STEPS, "model": "a_model_of_mine:build"}


def test_the_folder_of_an_own_model_is_recorded_so_that_tasks_find_the_same(
    own: dict[str, Any], tmp_path: Path
) -> None:
    resolved = resolve(job(workload=own), 4, folder=tmp_path)
    assert resolved.job.training.code == str(tmp_path)
    assert reason(resolved, "workload.code") == (
        "headway was called here: a_model_of_mine:build is looked for here first"
    )


def test_a_folder_that_was_recorded_stays_and_models_of_ours_have_none(own: dict[str, Any], tmp_path: Path) -> None:
    assert resolve(job(workload={**own, "code": str(tmp_path)}), 4, folder=Path("/elsewhere")).job.training.code == str(
        tmp_path
    )
    assert resolve(job(workload=own), 4).job.training.code is None
    assert resolve(job(), 4, folder=tmp_path).job.training.code is None


# --- the record -------------------------------------------------------------------------------------------------------
def test_the_record_holds_what_was_asked_what_will_run_and_every_choice() -> None:
    stored = resolve(job(name="a-job", cluster={"worker": 2, "ps": 1}), 4).as_file()
    assert stored["asked"].keys() == {"name", "workload", "strategy", "cluster"}, "what was not asked is not in it"
    assert stored["resolved"]["cluster"]["worker"]["threads"]["intra_op"] == 2
    assert {"path": "cluster.chief", "value": "worker/0", "reason": "no chief was asked: worker/0 is the chief"} in (
        stored["choices"]
    )
