"""Augmentation: what it does to an image, and that it follows from seed, epoch and example."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from harness import make_job

from headway.engines.assignment import Assignment
from headway.engines.tensorflow.augment import vary
from headway.engines.tensorflow.input import TrainingInput, index_batches
from headway.engines.tensorflow.problem import Problem
from headway.record.files import to_json
from headway.record.folder import RunFolder
from headway.workloads.augment import MOVES, PIECE, Augment, ClutterAugment

IMAGES = np.random.default_rng(1).integers(1, 256, size=(6, 9, 7, 3), dtype=np.uint8)


def moved(augment: Augment, *numbers: float) -> Any:
    rows = np.tile(np.array(numbers, np.float32), (len(IMAGES), 1))
    return vary(augment, tf.constant(IMAGES), tf.constant(rows)).numpy()


def test_nothing_asked_nothing_done() -> None:
    assert Augment().num_random == 0
    assert vary(Augment(), IMAGES, None) is IMAGES


def test_every_second_image_is_turned_round() -> None:
    flip = Augment(flip=True)
    np.testing.assert_array_equal(moved(flip, 0.49, 0, 0, 0), IMAGES[:, :, ::-1])
    np.testing.assert_array_equal(moved(flip, 0.5, 0, 0, 0), IMAGES)


@pytest.mark.parametrize(("down", "right"), [(-2, 0), (0, 2), (1, -1), (0, 0), (2, 2)])
def test_an_image_is_shifted_by_whole_pixels_and_black_comes_in(down: int, right: int) -> None:
    """The same as padding by 2 and cropping at a random place."""
    u, v = ((shift + 2 + 0.5) / 5 for shift in (down, right))
    for images, augment in ((IMAGES, Augment(shift=2)), (IMAGES[:, :, ::-1], Augment(shift=2, flip=True))):
        padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))
        expected = padded[:, 2 - down : 11 - down, 2 - right : 9 - right]
        np.testing.assert_array_equal(moved(augment, 0, u, v, 0), expected)


def test_shifts_reach_both_ends_alike() -> None:
    found = {
        tuple(np.argwhere(moved(Augment(shift=1), 0, u, 0.5, 0)[0, :, 3, 0] == 0).ravel().tolist())
        for u in (0.0, 0.33, 0.34, 0.66, 0.67, 0.999)
    }
    assert found == {(8,), (), (0,)}


def test_an_image_is_rotated_round_its_middle() -> None:
    square = IMAGES[:, :7]
    rows = np.tile(np.array([0, 0, 0, 1.0], np.float32), (len(square), 1))  # the largest angle
    quarter = vary(Augment(rotate=90), tf.constant(square), tf.constant(rows)).numpy().astype(int)
    expected = np.rot90(square, -1, axes=(1, 2)).astype(int)
    other = np.rot90(square, 1, axes=(1, 2)).astype(int)
    inner = (slice(None), slice(1, -1), slice(1, -1))
    assert min(np.abs(quarter[inner] - each[inner]).max() for each in (expected, other)) <= 1
    rows[:, 3] = 0.5
    still = vary(Augment(rotate=90), tf.constant(square), tf.constant(rows)).numpy().astype(int)
    assert np.abs(still[inner] - square[inner]).max() <= 1


def test_clutter_is_pieces_of_other_images() -> None:
    images = np.zeros((2, 20, 20, 1), np.uint8)
    every = np.random.default_rng(1).integers(1, 256, size=(5, 20, 20, 1), dtype=np.uint8)
    numbers = np.zeros((2, MOVES + 2 * PIECE), np.float32)
    numbers[0, MOVES:] = [0.99, 3 / 15 + 0.01, 0, 14 / 15 + 0.01, 2 / 15 + 0.01, 0, 0, 0, 0, 0]
    augment = ClutterAugment(clutter=2)
    assert augment.num_random == numbers.shape[1]
    found = vary(augment, tf.constant(images), tf.constant(numbers), tf.constant(every)).numpy()
    expected = np.zeros_like(images)
    expected[0, 14:20, 2:8] = every[4, 3:9, 0:6]
    expected[:, 0:6, 0:6] = np.maximum(expected[:, 0:6, 0:6], every[0, 0:6, 0:6])
    np.testing.assert_array_equal(found, expected)


# --- where the randomness comes from ---------------------------------------------------------------------------
def rows_of(num_batches: int, **settings: Any) -> list[tuple[int, bytes]]:
    dataset = index_batches(30, 4, **{"seed": 5, "num_random": 3, **settings})
    return [
        (int(index), numbers.tobytes())
        for chosen, random in itertools.islice(dataset.as_numpy_iterator(), num_batches)
        for index, numbers in zip(chosen, random, strict=True)
    ]


def test_random_numbers_follow_from_seed_epoch_and_example_whoever_reads_it() -> None:
    alone = rows_of(15)  # two epochs
    assert [index for index, _ in alone] == [
        int(index) for chosen in itertools.islice(index_batches(30, 4, seed=5), 15) for index in chosen.numpy()
    ], "the order does not depend on them"
    first, second = dict(alone[:30]), dict(alone[30:])
    assert len(first) == len(second) == 30
    assert all(first[index] != second[index] for index in range(30)), "another epoch, other numbers"
    shared = [row for task in range(3) for row in rows_of(3, task_number=task, num_tasks=3)[:10]]
    assert dict(shared) == first
    assert rows_of(4, first_batch=3) == alone[12:28], "the same after a restart"
    assert dict(rows_of(8, seed=6)[:30]) != first


def training_input(tmp_path: Path, **dataset: Any) -> TrainingInput:
    job = make_job(workload={"dataset": dataset, "model": "softmax", "batch_size": 50})
    folder = RunFolder.create(tmp_path, "augment")
    folder.job_file.write_text(to_json({"format": 1, "resolved": job.model_dump(mode="json")}))
    assignment = Assignment({"HEADWAY_RUN": str(folder.path), "HEADWAY_TASK": "chief/0"})
    return TrainingInput(Problem(job), assignment, tf.compat.v1.ConfigProto())


def test_a_multiple_of_the_data_is_every_example_several_times_each_otherwise(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"name": "mnist", "synthetic": True, "size": 0.005}  # 300 examples
    plain = [f.numpy() for f, _ in itertools.islice(training_input(tmp_path, **settings).batches(0), 6)]
    varied = training_input(tmp_path, **{**settings, "augment": {"shift": 3, "rotate": 20, "clutter": 2}})
    other = [f.numpy() for f, _ in itertools.islice(varied.batches(0), 6)]
    assert not np.array_equal(plain, other)
    again = [f.numpy() for f, _ in itertools.islice(varied.batches(3), 3)]
    np.testing.assert_array_equal(again, other[3:])


def test_an_epoch_of_a_multiple_has_every_example_that_often(tmp_path: Path) -> None:
    source = training_input(tmp_path, name="mnist", synthetic=True, size=3)
    source._arrays = (np.arange(100, dtype=np.float32), np.zeros(100, np.int32))  # fewer than are counted
    source._problem.data = source._problem.data.__class__((1,), 10, 250, 10)
    seen = np.concatenate([f.numpy() for f, _ in itertools.islice(source.batches(0), 5)])
    assert sorted(np.unique_counts(seen).counts.tolist()) == [2] * 50 + [3] * 50
