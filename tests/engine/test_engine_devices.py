"""Several devices in one training task: to the outside it is one task with one gradient. (allreduce: see
test_engine_allreduce.py.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from byhand import assert_close, assert_moved, examples, statistics_by_hand
from inprocess import CNN, Cluster, cluster, job_of, workload

from headway.spec.cluster import Task, shared_out
from headway.spec.job import Job

v1 = tf.compat.v1
pytestmark = pytest.mark.system  # so that make test stays under ten minutes
STEPS = 6
# Servers, training tasks and strategy.
CASES: dict[str, tuple[int, int, Any]] = {
    "single": (0, 1, "single"),
    "ps-async": (2, 1, "ps-async"),
    "ps-async ahead": (1, 1, {"kind": "ps-async", "pull_ahead": 1}),
    "ps-sync": (2, 2, "ps-sync"),
}
OPTIMIZER = {"name": "momentum", "learning_rate": 0.05, "weight_decay": 0.1, "clip": {"norm": 0.5}}


def placed_on(run: Cluster, name: str, kind: str) -> set[str]:
    """The devices that hold operations of this kind in a step of a task, as they were really placed."""
    trainer, trace = run.trainers[name], v1.RunMetadata()
    options = v1.RunOptions(output_partition_graphs=True)
    others = [run.step(other) for other in run.names if other != name]
    run.result(run.go(trainer._session.run, trainer._one_step, None, options, trace))
    for other in others:
        run.result(other)
    return {node.device for graph in trace.partition_graphs for node in graph.node if kind in node.op}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize(("devices", "per_call"), [(2, 1), (3, 3)])
def test_as_many_devices_as_you_like_learn_the_same(tmp_path: Path, kind: str, devices: int, per_call: int) -> None:
    """A batch of 20 on three devices is 7, 7 and 6 examples."""
    servers, tasks, strategy = CASES[kind]
    settings = workload(model=CNN, optimizer=OPTIMIZER, steps_per_call=per_call)
    found, losses = [], list[Any]()
    for count in (1, devices):
        job = job_of(servers, tasks, devices=count, strategy=strategy, workload=settings)
        with cluster(tmp_path, job) as run:
            results = run.steps(STEPS // per_call, num_steps=per_call)
            found.append(run.values())
            losses.append([[(one.loss, one.penalty) for one in results[name]] for name in run.names])
            for name in run.names:
                task = "localhost" if kind == "single" else Task.parse(name).role
                assert placed_on(run, name, "Conv2D") == {
                    f"/job:{task}/replica:0/task:0/device:CPU:{number}" for number in range(count)
                }
    if "pull_ahead" not in strategy:  # which variables a step had seen there is left to chance
        assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def test_one_thread_is_enough_for_two_devices(tmp_path: Path) -> None:
    job = job_of(0, 1, devices=2, workload=workload()).model_dump(mode="json")
    job["cluster"]["chief"]["threads"] = {"intra_op": 1, "inter_op": 1}
    with cluster(tmp_path, Job.model_validate(job)) as run:
        assert [one.step for one in run.steps(3)["chief/0"]] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["single", "ps-async", "ps-sync"])
def test_moving_averages_are_the_mean_over_devices_by_examples(tmp_path: Path, kind: str) -> None:
    """Each device normalises its own part of the batch: 4, 4 and 3 examples."""
    servers, _, strategy = CASES[kind]
    settings = workload(11, model={**CNN, "batch_norm": True})
    with cluster(tmp_path, job_of(servers, 1, devices=3, strategy=strategy, workload=settings)) as run:
        for number in range(2):
            before = run.values()
            run.steps(1)
            sizes = shared_out(11, 3)
            parts = np.split(examples(run.job, run.chief, number)[0], np.cumsum(sizes)[:-1])
            said = [statistics_by_hand(before, part) for part in parts]
            mean = {name: np.average([each[name] for each in said], axis=0, weights=sizes) for name in said[0]}
            assert_moved(before, run.values(), mean)
