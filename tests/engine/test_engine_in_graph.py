"""ps-sync with one client: equal to a client in every task, and what becomes of it when one of its parts dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from byhand import assert_close
from harness import Launched, launched, make_job
from inprocess import CNN, Cluster, cluster, job_of, single, workload

from headway.engines.tensorflow.strategies.in_graph import JOINED, STEPPED, InGraph, told_steps
from headway.engines.tensorflow.trainer import Disconnected
from headway.spec.cluster import Task

v1 = tf.compat.v1
pytestmark = pytest.mark.system  # so that make test stays under ten minutes
STEPS = 6
IN_GRAPH = {"kind": "ps-sync", "replication": "in_graph"}
OPTIMIZER = {"name": "momentum", "learning_rate": 0.05, "weight_decay": 0.1, "clip": {"norm": 0.5}}


def told(run: Cluster, name: str) -> list[list[float]]:
    """What the client has told a task so far."""
    with tf.Graph().as_default():
        steps = told_steps(Task.parse(name))
        size, one = steps.size(), steps.dequeue()
        with v1.Session(run.target(name)) as session:
            return [session.run(one).tolist() for _ in range(session.run(size))]


# --- what is learnt ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("tasks", "sizes", "settings", "devices", "per_call"),
    [
        (2, {}, {"optimizer": OPTIMIZER}, 1, 1),
        (3, {}, {"optimizer": {"name": "adam", "learning_rate": 0.05}}, 1, 3),
        (3, {"chief": 30, "worker": 11}, {"model": CNN, "optimizer": OPTIMIZER}, 2, 1),
        (2, {"chief": 12, "worker": 4}, {"model": {**CNN, "batch_norm": True}}, 1, 2),
    ],
    ids=["equal batches", "several in a call", "unlike batches and devices", "batch normalisation"],
)
def test_one_client_learns_what_a_client_in_every_task_does(
    tmp_path: Path, tasks: int, sizes: dict[str, int], settings: dict[str, Any], devices: int, per_call: int
) -> None:
    """Parameters, slots and moving averages; and each task hears of its own steps what it would have seen itself."""
    settings = workload(steps_per_call=per_call, **settings)
    calls = STEPS // per_call
    with cluster(tmp_path, job_of(2, tasks, sizes, devices, strategy="ps-sync", workload=settings)) as run:
        expected, others = run.steps(calls, num_steps=per_call), run.workers
        values = run.values()
    with cluster(tmp_path, job_of(2, tasks, sizes, devices, strategy=IN_GRAPH, workload=settings)) as run:
        found = run.steps(calls, num_steps=per_call)["chief/0"]
        assert_close(run.values(), values, rtol=1e-4, atol=1e-5)
        rows = {name: told(run, name) for name in others}
        updates = run.updates()
        examples = sum(run.job.batch_size_of(task) for task in run.job.cluster.training_tasks())
    if not sizes:
        _, alone = single(tmp_path, STEPS, **{**settings, "batch_size": 20 * tasks, "steps_per_call": 1})
        assert_close(values, alone)
    for one, other in zip(found, expected["chief/0"], strict=True):
        assert (one.step, one.num_steps, one.accepted) == (other.step, per_call, per_call)
        assert one.loss == pytest.approx(other.loss, rel=1e-4)
        assert one.penalty == (None if other.penalty is None else pytest.approx(other.penalty, rel=1e-4))
    names = sorted(["chief/0", *others])
    seen = [(sorted(each["tasks"]), each["examples"], each["dropped"]) for each in updates]
    assert seen == [(names, examples, [])] * STEPS
    for name in others:
        (joined, *steps) = rows[name]
        assert joined == [JOINED, 0, 1, 0, 0, 0, 0]
        assert [(kind, step, accepted) for kind, step, accepted, *_ in steps] == [
            (STEPPED, number + 1, 1) for number in range(STEPS)
        ]
        losses = np.reshape([loss for _, _, _, loss, *_ in steps], [calls, per_call]).mean(axis=1)
        np.testing.assert_allclose(losses, [one.loss for one in expected[name]], rtol=1e-4)
        assert all(0 <= input_seconds < 10 and 0 < seconds < 10 for *_, input_seconds, seconds in steps)


def test_every_task_computes(tmp_path: Path) -> None:
    job = job_of(1, 3, devices=2, strategy=IN_GRAPH, workload=workload(model=CNN))
    with cluster(tmp_path, job) as run:
        trainer, trace = run.trainers[run.chief], v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        run.result(run.go(trainer._session.run, trainer._one_step, None, options, trace))
    kinds = {
        kind: {node.device for graph in trace.partition_graphs for node in graph.node if kind in node.op}
        for kind in ("Conv2D", "IteratorGetNext")
    }
    assert kinds["Conv2D"] == {
        f"/job:{task.role}/replica:0/task:{task.index}/device:CPU:{number}"
        for task in job.cluster.training_tasks()
        for number in range(2)
    }
    assert kinds["IteratorGetNext"] == {"/job:chief/replica:0/task:0/device:CPU:0"}, "the client reads for all"


def test_a_client_that_begins_anew_adopts_what_it_finds(tmp_path: Path) -> None:
    _, expected = single(tmp_path, 5, batch_size=40)
    with cluster(tmp_path, job_of(2, 2, strategy=IN_GRAPH, workload=workload())) as run:
        run.steps(3)
        [again] = run.start(own_steps=3).values()
        assert (again.how, again.step, again.generation) == ("adopted", 3, 1)
        run.steps(2)
        assert_close(run.values(), expected)
        assert [row[:3] for row in told(run, "worker/0") if row[0] == JOINED] == [[JOINED, 0, 1], [JOINED, 3, 1]]


def test_without_its_session_a_client_still_gets_what_the_servers_hold(tmp_path: Path) -> None:
    with cluster(tmp_path, job_of(2, 2, strategy=IN_GRAPH, workload=workload())) as run:
        trainer = run.trainers[run.chief]
        assert isinstance(trainer, InGraph)
        run.steps(3)
        connected = trainer.snapshot()
        trainer.close()
        alone = trainer.snapshot()
        assert (alone.step, alone.generation) == (connected.step, connected.generation) == (3, 1)
        assert_close(alone.values, connected.values, rtol=0, atol=0)
        trainer._generation = 2  # as if another chief had restored them meanwhile
        with pytest.raises(Disconnected, match="anew"):
            trainer.snapshot()


# --- deaths -----------------------------------------------------------------------------------------------------------
def last_step(run: Launched, name: str, **where: Any) -> dict[str, Any]:
    steps = run.events(name, "step", **where)
    return steps[-1] if steps else {"step": 0, "own_step": 0}


@pytest.mark.real
@pytest.mark.fault
def test_one_client_survives_the_death_of_a_task_of_its_own_and_of_the_servers(tmp_path: Path) -> None:
    job = make_job(
        strategy=IN_GRAPH,
        cluster={"chief": 1, "worker": 1, "ps": 2},
        workload={"stop": {"steps": 10**9}},
        checkpoint={"steps": 50, "seconds": None},
    )
    both = ("chief/0", "worker/0")

    def goes_on(name: str, **where: Any) -> None:
        before = last_step(run, name)["own_step"]
        run.wait_for(f"steps of {name}", lambda: last_step(run, name, **where)["own_step"] > before + 20)

    with launched(tmp_path, job) as run:
        for name in both:
            goes_on(name)

        # --- a task dies: the client waits for it, and nothing is lost ---
        run.kill("worker/0")
        run.wait_for("the client to notice", lambda: run.events("chief/0", "disconnected"))
        run.start("worker/0", own_steps=last_step(run, "worker/0")["own_step"])
        goes_on("worker/0", attempt=1)
        goes_on("chief/0")
        assert {event["how"] for event in run.events("chief/0", "initialized")} == {"fresh", "adopted"}

        # --- the client dies: another one adopts the servers, and the task stays ---
        run.kill("chief/0")
        run.start("chief/0", own_steps=last_step(run, "chief/0")["own_step"])
        goes_on("chief/0", attempt=1)
        goes_on("worker/0", attempt=1)
        [adopted] = run.events("chief/0", "initialized", attempt=1)
        assert (adopted["how"], adopted["generation"]) == ("adopted", 1)

        # --- the servers die: all go back to one checkpoint ---
        run.wait_for("a checkpoint", lambda: run.events("chief/0", "checkpoint"))
        run.kill("ps/0", "ps/1")
        run.start("ps/0", "ps/1")
        restored = run.wait_for("the restored state", lambda: run.events("chief/0", "initialized", attempt=1)[1:])[0]
        assert (restored["how"], restored["generation"]) == ("restored", 2)
        for name in both:
            goes_on(name, attempt=1)
            assert last_step(run, name)["generation"] == 2

        # --- every update was made once, with a gradient of each ---
        for generation, first in ((1, 1), (2, restored["step"] + 1)):
            updates = [event for event in run.events("ps/0", "update") if event["generation"] == generation]
            assert [event["step"] for event in updates] == list(range(first, first + len(updates)))
            assert {(*sorted(event["tasks"]), event["examples"]) for event in updates} == {(*both, 40)}

        # --- the launcher's order at the end: the client, then the task ---
        run.tell("chief/0", do="stop", reason="enough")
        [done] = run.wait_for("the client to be done", lambda: run.events("chief/0", "done"))
        assert not run.events("worker/0", "done")
        run.tell("worker/0", do="stop", reason="enough")
        run.finish()
        [ended] = run.events("worker/0", "done")
        assert (ended["reason"], ended["step"]) == ("stopped: enough", done["step"])
        assert run.events("chief/0", "finished")[-1]["step"] == done["step"]
