"""Whole runs of real processes, in order: what a launcher sees when nothing goes wrong."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from harness import launched, make_job
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from headway import workloads
from headway.engines.tensorflow import checkpoint
from headway.engines.tensorflow.initial import Values
from headway.engines.tensorflow.trainer import Snapshot
from headway.spec.cluster import Task

pytestmark = pytest.mark.real


def test_single_learns_and_gives_the_same_losses_again(tmp_path: Path) -> None:
    job = make_job(
        workload={
            "model": {"name": "mnist_cnn", "dropout": 0.4},
            "optimizer": {"name": "adam", "learning_rate": 0.003},
            "stop": {"steps": 50},
            "evaluate": {"every": 25},
        },
        checkpoint={"steps": 15, "seconds": None, "keep": 2},
    )
    with launched(tmp_path, job) as run, launched(tmp_path, job) as again:
        run.finish()
        again.finish()
        steps = run.events("chief/0", "step")
        assert [event["step"] for event in steps] == list(range(1, 51))
        assert [event["loss"] for event in steps] == [event["loss"] for event in again.events("chief/0", "step")]
        assert [event["warmup"] for event in steps] == [True] * 10 + [False] * 40
        for event in steps:
            assert 0 <= event["input_seconds"] < event["seconds"]
            assert (event["examples"], event["num_steps"], event["staleness"]) == (20, 1, None)

        beginnings = ("step", "evaluating", "saving", "exporting")
        kinds = [event["kind"] for event in run.events("chief/0") if event["kind"] not in beginnings]
        assert kinds[:4] == ["ready", "initialized", "variables", "joined"]
        assert kinds[-4:] == ["done", "checkpoint", "exported", "finished"]  # evaluated at step 50 already
        first, last = run.events("chief/0", "evaluation")
        assert (first["step"], last["step"], last["num_examples"]) == (25, 50, 1203)
        assert last["loss"] < first["loss"]
        [finished] = run.events("chief/0", "finished")
        assert finished["accuracy"] == last["accuracy"] > 0.9
        assert [event["step"] for event in run.events("chief/0", "checkpoint")] == [15, 30, 45, 50]
        assert [path.name for path in checkpoint.find(run.folder.checkpoints)] == ["step-00000045", "step-00000050"]
        assert run.folder.alive(Task("chief", 0)).exists()

        check_model(run.folder.model, job, finished["accuracy"])
        board = EventAccumulator(str(run.folder.tensorboard(Task("chief", 0))))
        board.Reload()
        assert [scalar.step for scalar in board.Scalars("accuracy")] == [25, 50]
        assert board.Scalars("accuracy")[-1].value == pytest.approx(finished["accuracy"])
        assert board.Scalars("test_loss")[-1].value == pytest.approx(finished["loss"])
        assert {"loss", "steps_per_s"} <= set(board.Tags()["scalars"])


def check_model(path: Path, job: Any, accuracy: float) -> None:
    """A process that knows nothing of the training gets the recorded accuracy from the SavedModel."""
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    source = workloads.load(job.workload.dataset, Path(), "test")
    assert isinstance(source, tuple)
    features, labels = source
    answer = serve(features=tf.constant(features))
    assert np.mean(answer["classes"].numpy() == labels) == pytest.approx(accuracy, abs=1e-4)
    np.testing.assert_array_equal(answer["outputs"].numpy().argmax(axis=1), answer["classes"].numpy())


def test_ps_async_with_an_evaluator(tmp_path: Path) -> None:
    """Both tasks contribute, staleness is counted, the evaluator evaluates the chief's checkpoints."""
    job = make_job(
        strategy="ps-async",
        cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
        workload={"stop": {"steps_per_task": 120}, "evaluate": {"every": 100}, "steps_per_call": 7},
    )
    with launched(tmp_path, job) as run:
        run.finish()
        rows = {name: run.events(name, "step") for name in ("chief/0", "worker/0")}
        for name, steps in rows.items():
            # 120 is 17 calls of 7 steps and one of 1
            assert [event["num_steps"] for event in steps] == [7] * 17 + [1]
            assert [len(event["staleness"]) for event in steps] == [7] * 17 + [1]
            assert min(min(event["staleness"]) for event in steps) >= 0
            [done] = run.events(name, "done")
            assert (done["reason"], done["own_steps"]) == ("steps_per_task", 120)
        [finished] = run.events("chief/0", "finished")
        assert finished["step"] == 240
        assert finished["accuracy"] > 0.9
        # All updates are there, each was counted once, and stale ones only where the other task was at work.
        pushed = [event["step"] for steps in rows.values() for event in steps]
        assert len(set(pushed)) == len(pushed)
        assert max(pushed) == 240
        assert sum(sum(event["staleness"]) for steps in rows.values() for event in steps) <= 240
        assert [event["step"] for event in run.events("chief/0", "evaluation")] == [240]

        run.wait_for("the evaluator", lambda: 240 in [e["step"] for e in run.events("evaluator/0", "evaluation")])
        last = run.events("evaluator/0", "evaluation")[-1]
        assert last["accuracy"] == finished["accuracy"]
        run.tell("evaluator/0", do="stop", reason="the run is over")
        assert run.wait_exit("evaluator/0") == 0

        board = EventAccumulator(str(run.folder.tensorboard(Task("chief", 0))), size_guidance={"graph": 0})
        board.Reload()
        graph = tf.compat.v1.GraphDef.FromString(board.Graph().SerializeToString())
        devices = {node.name: node.device for node in graph.node}
        assert devices["softmax/weights"].startswith("/job:ps/task:0")
        assert devices["train_features"].startswith("/job:chief/task:0")
        board = EventAccumulator(str(run.folder.tensorboard(Task("evaluator", 0))))
        board.Reload()
        assert board.Scalars("accuracy")[-1].step == 240

        # An agent that is gone takes its tasks with it.
        server = run.processes[Task("ps", 0)]
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait(timeout=10) == 3


def test_ps_async_with_one_task_equals_single(tmp_path: Path) -> None:
    workload = {"model": {"name": "mnist_cnn", "dropout": 0.0}, "stop": {"steps": 25}}
    alone = make_job(workload=workload, export=False)
    served = make_job(strategy="ps-async", cluster={"worker": 1, "ps": 2}, workload=workload, export=False)
    with launched(tmp_path, alone) as one, launched(tmp_path, served) as other:
        one.finish()
        other.finish()
        steps = other.events("worker/0", "step")
        assert all(event["staleness"] == [0] for event in steps)
        expected = [event["loss"] for event in one.events("chief/0", "step")]
        np.testing.assert_allclose([event["loss"] for event in steps], expected, rtol=1e-4)
        assert other.events("worker/0", "initialized")[0]["how"] == "fresh"
        assert not other.folder.model.exists()
        saved = [checkpoint.load(run.folder.checkpoints / "step-00000025") for run in (one, other)]
        for name, value in saved[0].items():
            np.testing.assert_allclose(saved[1][name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_taken_port_is_reported(tmp_path: Path) -> None:
    job = make_job(strategy="ps-async", cluster={"worker": 1, "ps": 1})
    with launched(tmp_path, job, start=False) as run, socket.socket() as other:
        other.bind(("127.0.0.1", int(run.cluster["ps"][0].rpartition(":")[2])))
        other.listen()
        run.start("ps/0")
        assert run.wait_exit("ps/0") == 1
        [failed] = run.events("ps/0", "failed")
        assert failed["port_taken"]
        assert "is taken by another program" in failed["message"]


def test_a_wait_for_servers_has_a_limit_and_can_be_stopped(tmp_path: Path) -> None:
    job = make_job(strategy="ps-async", cluster={"chief": 1, "worker": 1, "ps": 1}, limits={"start": 2})
    with launched(tmp_path, job, start=False) as run:
        values: Values = {
            "softmax/weights": np.zeros([36, 4], np.float32),
            "softmax/bias": np.zeros([4], np.float32),
            "global_step": np.array(15, np.int64),
        }
        checkpoint.write(run.folder.checkpoints, Snapshot(15, 1, values), keep=1)
        run.start("chief/0", "worker/0")  # and no server
        run.wait_for("the chief", lambda: run.events("chief/0", "ready"))
        run.tell("chief/0", do="stop", reason="changed my mind")
        assert run.wait_exit("worker/0") == 1
        [failed] = run.events("worker/0", "failed")
        assert failed["message"] == "worker/0 waited 2 s for the parameter servers (limits.start)"
        run.tell("chief/0", do="finalize")
        assert run.wait_exit("chief/0") == 0
        [done] = run.events("chief/0", "done")
        assert done["reason"] == "stopped: changed my mind"
        # Nobody could train: the result is the checkpoint that was there.
        assert run.events("chief/0", "finished")[0]["step"] == 15


def test_reasons_to_stop(tmp_path: Path) -> None:
    accurate = make_job(
        workload={"stop": {"steps": 10**6, "accuracy": 0.9}, "evaluate": {"every": 10}}, checkpoint={"seconds": 0.01}
    )
    timed = make_job(workload={"stop": {"seconds": 1}}, export=False)
    with launched(tmp_path, accurate) as one, launched(tmp_path, timed) as other:
        one.finish()
        other.finish()
        [done] = one.events("chief/0", "done")
        *others, last = one.events("chief/0", "evaluation")
        assert done["reason"] == "accuracy"
        assert last["accuracy"] >= 0.9 > max((event["accuracy"] for event in others), default=0)
        assert last["step"] == done["step"]
        assert len(one.events("chief/0", "checkpoint")) > 1
        assert other.events("chief/0", "done")[0]["reason"] == "seconds"
        first, *_, latest = other.events("chief/0", "step")
        assert latest["t"] - first["t"] > 0.5


def test_a_second_stop_skips_the_end(tmp_path: Path) -> None:
    with launched(tmp_path, make_job(workload={"stop": {"steps": 10**6}})) as run:
        run.wait_for("steps", lambda: run.events("chief/0", "step"))
        for _ in range(2):
            run.tell("chief/0", do="stop", reason="Ctrl-C")
        assert run.wait_exit("chief/0") == 0
        assert run.events("chief/0", "done")[0]["reason"] == "stopped: Ctrl-C"
        assert not run.events("chief/0", "exported")
