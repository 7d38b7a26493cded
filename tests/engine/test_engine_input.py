"""The input pipeline: disjoint, complete, reshuffled, seeded, and continued where it was left."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from harness import make_job

from headway.engines.tensorflow.input import batches, index_batches, share_length
from headway.engines.tensorflow.problem import Problem


def stream(num_examples: int, num_indices: int, batch_size: int = 7, **settings: Any) -> list[int]:
    """The first indices of a task's batches."""
    dataset = index_batches(num_examples, batch_size, **{"seed": 5, **settings})
    num_batches = -(-num_indices // batch_size)
    found = [batch.numpy() for batch in itertools.islice(dataset, num_batches)]
    assert {len(batch) for batch in found} == {batch_size}, "every batch is full"
    return [int(index) for index in np.concatenate(found)[:num_indices]]


@pytest.mark.parametrize("num_tasks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("num_examples", [60, 61, 64])
def test_in_every_epoch_each_example_is_read_once_by_one_task(num_tasks: int, num_examples: int) -> None:
    epochs: list[list[int]] = [[], [], []]
    for number in range(num_tasks):
        share = share_length(num_examples, number, num_tasks)
        indices = stream(num_examples, 3 * share, task_number=number, num_tasks=num_tasks)
        for epoch, found in enumerate(epochs):
            found.extend(indices[epoch * share : (epoch + 1) * share])
    for found in epochs:
        assert sorted(found) == list(range(num_examples))
    assert epochs[0] != epochs[1] != epochs[2], "each epoch is shuffled anew"


def test_the_order_depends_on_the_seed_alone() -> None:
    assert stream(50, 120) == stream(50, 120)
    assert stream(50, 120) != stream(50, 120, seed=6)
    assert stream(50, 120, batch_size=7) == stream(50, 120, batch_size=11)


@pytest.mark.parametrize("first_batch", [0, 1, 7, 8, 30])
def test_a_restarted_task_goes_on_where_it_left_off(first_batch: int) -> None:
    settings: dict[str, Any] = {"task_number": 1, "num_tasks": 3}
    whole = stream(50, 7 * (first_batch + 10), **settings)
    assert stream(50, 70, first_batch=first_batch, **settings) == whole[7 * first_batch :]


def test_a_batch_may_be_larger_than_a_tasks_share() -> None:
    settings: dict[str, Any] = {"task_number": 1, "num_tasks": 2}
    assert stream(10, 50, batch_size=25, **settings) == stream(10, 50, batch_size=7, **settings)


def test_more_tasks_than_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="3 examples cannot be shared out over 5 training tasks"):
        index_batches(3, 1, seed=1, task_number=4, num_tasks=5)


def test_features_and_labels_stay_together() -> None:
    features, labels = np.arange(40, dtype=np.uint8), np.arange(40, dtype=np.int32) * 10
    dataset = batches(features, labels, lambda stored: stored * 2, index_batches(40, 8, seed=1))
    for got, label in itertools.islice(dataset, 12):
        np.testing.assert_array_equal(got.numpy().astype(int) * 5, label.numpy())


def test_colours_are_brought_about_zero() -> None:
    black, white = np.zeros([1, 32, 32, 3], np.uint8), np.full([1, 32, 32, 3], 255, np.uint8)
    workload = {"model": "resnet", "dataset": {"name": "cifar10"}}
    problem = Problem(make_job(workload=workload))
    np.testing.assert_allclose(problem.scaled(black)[0, 0, 0], [-1.9895, -1.9803, -1.7068], atol=1e-4)
    np.testing.assert_allclose(problem.scaled(white)[0, 31, 31], [2.0591, 2.1265, 2.1158], atol=1e-4)
    plain = Problem(make_job(workload={**workload, "dataset": {"name": "cifar10", "colours": None}}))
    assert (plain.scaled(white).numpy() == 1).all()
