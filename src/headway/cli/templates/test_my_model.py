"""python -m pytest test_my_model.py"""

from __future__ import annotations

from headway.testing import count_parameters, train_on_few
from headway.workloads.base import DataInfo

IMAGES = DataInfo(shape=(8, 8, 1), classes=10, num_train=100, num_test=10)


def test_it_has_the_parameters_of_its_two_layers() -> None:
    assert count_parameters("my_model:build", IMAGES, hidden=32) == 64 * 32 + 32 + 32 * 10 + 10


def test_it_learns_32_examples_by_heart() -> None:
    losses = train_on_few("my_model:build", IMAGES, learning_rate=0.01)
    assert losses[-1] < 0.1 * losses[0]
