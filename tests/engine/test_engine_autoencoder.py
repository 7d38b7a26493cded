"""A model whose target is its input, through the whole engine: training, evaluation, export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from inprocess import DATA, cluster, job_of, workload

from headway.engines.tensorflow.evaluation import Evaluation
from headway.engines.tensorflow.export import export
from headway.engines.tensorflow.problem import Problem
from headway.workloads.datasets import synthetic

ADAM = {"name": "adam", "learning_rate": 0.01}


@pytest.mark.parametrize("kind", ["plain", "variational"])
def test_it_learns_and_is_evaluated_and_exported_without_an_accuracy(tmp_path: Path, kind: str) -> None:
    model = {"name": "autoencoder", "kind": kind, "hidden": [16, 8]}
    with cluster(tmp_path, job_of(0, 1, workload=workload(model=model, optimizer=ADAM))) as run:
        problem = Problem(run.job)
        evaluation = Evaluation(problem, None)
        before = evaluation.evaluate(run.values())
        steps = run.steps(100)[run.chief]
        values = run.values()
        after = evaluation.evaluate(values)
    assert before is not None
    assert after is not None
    assert before.accuracy is after.accuracy is None
    assert after.loss < 0.7 * before.loss
    assert steps[-1].loss < 0.7 * steps[0].loss

    export(problem, values, tmp_path / "model", None)
    source = problem.load("test")
    assert isinstance(source, tuple), "in memory"
    features, _ = source
    answer = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"](features=tf.constant(features))
    assert set(answer) == {"outputs"}, "its answer is an image, so there are no classes"
    image = answer["outputs"].numpy()
    assert image.shape == features.shape
    distance = 0.5 * np.square(image - features).sum(axis=(1, 2, 3)).mean()
    if kind == "plain":
        assert distance == pytest.approx(after.loss, rel=1e-4)
    else:  # the rest is the code's divergence
        assert 0 < distance < after.loss


def alike() -> dict[str, Any]:
    """Four equal examples: without noise, and of a seed that happens to draw one class only."""
    for seed in range(100):
        data = {**DATA, "classes": 2, "size": 4, "noise": 0.0, "seed": seed}
        _, labels = synthetic.load(synthetic.Settings.model_validate(data), Path(), "train")
        if len(set(labels.tolist())) == 1:
            return data
    raise AssertionError("no such seed")


@pytest.mark.parametrize("kind", ["plain", "gaussian", "masking", "variational"])
def test_each_task_and_each_step_draws_its_own_noise(tmp_path: Path, kind: str) -> None:
    model = {"name": "autoencoder", "kind": kind, "hidden": [8]}
    settings = workload(2, model=model, dataset=alike(), optimizer={"name": "sgd", "learning_rate": 1e-30})
    with cluster(tmp_path, job_of(1, 2, strategy="ps-sync", workload=settings)) as run:
        losses = [round(step.loss, 4) for steps in run.steps(4).values() for step in steps]
    assert len(losses) == 8
    assert len(set(losses)) == (1 if kind == "plain" else 8)
