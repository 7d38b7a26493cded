"""The step graph and the single Trainer, inside this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from harness import SYNTHETIC, make_job

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import checkpoint, step
from headway.engines.tensorflow.strategies.single import Single
from headway.engines.tensorflow.trainer import Snapshot
from headway.errors import FormatError
from headway.record.files import to_json
from headway.record.folder import RunFolder

v1 = tf.compat.v1
CNN = {"model": {"name": "mnist_cnn", "dropout": 0.0}}


def single(root: Path, task: str = "chief/0", **settings: Any) -> Single:
    folder = RunFolder.create(root, "trainer")
    job = make_job(**settings)
    folder.job_file.write_text(to_json({"format": 1, "resolved": job.model_dump(mode="json")}))
    return Single(Assignment({"HEADWAY_RUN": str(folder.path), "HEADWAY_TASK": task}))


def assert_same(one: Snapshot, other: Snapshot) -> None:
    assert one.values.keys() == other.values.keys()
    for name, value in one.values.items():
        np.testing.assert_array_equal(value, other.values[name], err_msg=name)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "adam", "rmsprop"])
def test_several_steps_in_one_call_are_exactly_as_many_single_steps(tmp_path: Path, optimizer: str) -> None:
    workload = {**CNN, "optimizer": {"name": optimizer, "learning_rate": 0.01}}
    one, four = single(tmp_path, workload=workload), single(tmp_path, workload={**workload, "steps_per_call": 4})
    assert one.start(0).how == "fresh"
    four.start(0)
    results = [one.step(1) for _ in range(9)]
    calls = [four.step(4), four.step(4), four.step(1)]
    assert_same(one.snapshot(), four.snapshot())
    assert [call.step for call in calls] == [4, 8, 9]
    assert [call.num_steps for call in calls] == [4, 4, 1]
    assert calls[0].loss == pytest.approx(np.mean([result.loss for result in results[:4]]), rel=1e-6)
    assert all(call.staleness is None and call.input_seconds is not None for call in calls)
    assert results[-1].loss != results[0].loss


def test_dropout_differs_within_a_call_and_from_call_to_call() -> None:
    def coin() -> step.StepTensors:
        tossed = tf.reduce_sum(tf.nn.dropout(tf.ones([1]), 0.5)) / 2  # 0 or 1
        return step.StepTensors(tossed, None, tf.timestamp(), tf.constant([1, 0, 1], tf.int64))

    v1.disable_control_flow_v2()
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        call = session.make_callable(step.several_in_one_call(coin, 8))
        means = [float(call()[0][0]) for _ in range(5)]
    assert any(0 < mean < 1 for mean in means), "the same mask in all steps of a call"
    assert len(set(means)) > 1, "the same masks in every call"


def test_dropout_masks_differ_between_steps_tasks_and_restarts(tmp_path: Path) -> None:
    # One batch is the whole data and the rate is tiny: only the masks change the loss.
    settings: dict[str, Any] = {
        "workload": {
            "model": {"name": "mnist_cnn", "dropout": 0.5},
            "dataset": {**SYNTHETIC, "size": 20},
            "optimizer": {"name": "sgd", "learning_rate": 1e-30},
        }
    }
    chief = single(tmp_path, **settings)
    chief.start(0)
    first = [round(chief.step(1).loss, 4) for _ in range(4)]
    chief.start(4)  # as after a disconnection
    second = [round(chief.step(1).loss, 4) for _ in range(4)]
    assert len({*first, *second}) == 8
    worker = single(tmp_path, task="worker/0", cluster={"chief": 1, "worker": 1}, **settings)
    assert worker.assignment.seed(0) != chief.assignment.seed(0)


def test_batch_statistics_are_updated_with_each_step(tmp_path: Path) -> None:
    model = {"name": "mnist_cnn", "dropout": 0.0, "batch_norm": True}
    for per_call in (1, 4):
        trainer = single(tmp_path, workload={"model": model, "steps_per_call": per_call})
        trainer.start(0)
        before = trainer.snapshot().values["norm1/moving_mean"]
        after = [trainer.step(per_call) and trainer.snapshot().values["norm1/moving_mean"] for _ in range(2)]
        assert not np.array_equal(before, after[0])
        assert not np.array_equal(after[0], after[1])


def test_initial_values_depend_on_the_seed_alone(tmp_path: Path) -> None:
    first, same, other = (single(tmp_path, seed=seed, workload=CNN) for seed in (1, 1, 2))
    for trainer in (first, same, other):
        trainer.start(0)
    first.start(50)  # without a checkpoint, a restart begins with the same values again
    assert_same(first.snapshot(), same.snapshot())
    assert not np.array_equal(first.snapshot().values["dense/weights"], other.snapshot().values["dense/weights"])


def test_a_restart_restores_everything_and_counts_a_new_generation(tmp_path: Path) -> None:
    trainer = single(tmp_path, workload={**CNN, "optimizer": {"name": "adam", "learning_rate": 0.01}})
    assert trainer.start(0).generation == 1
    for _ in range(3):
        trainer.step(1)
    saved = trainer.snapshot()
    checkpoint.write(trainer.assignment.folder.checkpoints, saved, keep=1)
    trainer.step(1)
    started = trainer.start(4)
    assert (started.how, started.step, started.generation) == ("restored", 3, 2)
    assert started.checkpoint == "step-00000003"
    assert_same(trainer.snapshot(), saved)
    assert trainer.step(1).step == 4


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    trainer = single(tmp_path)
    values = {"global_step": np.array(3, np.int64)}
    checkpoint.write(trainer.assignment.folder.checkpoints, Snapshot(3, 1, values), keep=1)
    with pytest.raises(FormatError, match="another job: it has no softmax/bias, softmax/weights"):
        trainer.start(0)


def test_placement_lists_every_variable_with_its_size(tmp_path: Path) -> None:
    trainer = single(tmp_path, workload={"optimizer": {"name": "momentum", "learning_rate": 0.1}})
    trainer.start(0)
    rows = {row["name"]: row for row in trainer.placement()}
    assert rows["softmax/weights"] == {
        "name": "softmax/weights",
        "device": "chief/0",
        "bytes": 36 * 4 * 4,
        "shape": [36, 4],
        "trainable": True,
    }
    assert not rows["softmax/weights/Momentum"]["trainable"]
    assert "generation" not in rows
