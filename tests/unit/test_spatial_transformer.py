"""E4's spatial transformer: the sampler is right, and so is its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from modelling import IMAGES, examples, graph, num_parameters, session

from headway.workloads.base import ForwardPass
from headway.workloads.models import spatial_transformer
from headway.workloads.models.spatial_transformer import IDENTITY, grid, sample

Array = np.ndarray[Any, Any]


def transformed(images: Array, *affine: float) -> Array:
    import tensorflow as tf

    maps = tf.constant([affine] * len(images), images.dtype)
    found: Array = sample(tf.constant(images), *grid(maps, *images.shape[1:3])).numpy()
    return found


@pytest.fixture
def images() -> Array:
    """Higher than wide, two channels, three different ones."""
    return np.random.default_rng(0).random((3, 9, 5, 2))


def test_the_identity_changes_nothing(images: Array) -> None:
    np.testing.assert_allclose(transformed(images, *IDENTITY), images, atol=1e-12)


def test_shifts_turns_and_mirrors_are_exact_and_what_comes_from_outside_is_zero(images: Array) -> None:
    one = 2 / (5 - 1)  # pixel, across
    expected = np.pad(images, ((0, 0), (0, 0), (0, 1), (0, 0)))[:, :, 1:]
    np.testing.assert_allclose(transformed(images, 1, 0, one, 0, 1, 0), expected, atol=1e-12)
    expected = np.pad(images, ((0, 0), (2, 0), (0, 0), (0, 0)))[:, :-2]
    np.testing.assert_allclose(transformed(images, 1, 0, 0, 0, 1, -2 * 2 / (9 - 1)), expected, atol=1e-12)
    np.testing.assert_allclose(transformed(images, -1, 0, 0, 0, 1, 0), images[:, :, ::-1], atol=1e-12)
    square = images[:, :5]
    np.testing.assert_allclose(transformed(square, 0, 1, 0, -1, 0, 0), np.rot90(square, -1, axes=(1, 2)), atol=1e-12)
    assert not transformed(images, 1, 0, 3, 0, 1, 0).any()
    assert not transformed(images, 1, 0, 0, 0, 1, -1e6).any()


def test_between_pixels_it_is_the_mean_weighed_by_nearness(images: Array) -> None:
    quarter = 0.25 * 2 / (5 - 1)
    expected = 0.75 * images[:, :, :-1] + 0.25 * images[:, :, 1:]
    np.testing.assert_allclose(transformed(images, 1, 0, quarter, 0, 1, 0)[:, :, :-1], expected, atol=1e-12)
    # fading out: the last column is a quarter of nothing
    np.testing.assert_allclose(transformed(images, 1, 0, quarter, 0, 1, 0)[:, :, -1], 0.75 * images[:, :, -1])


def test_gradients_are_those_of_small_differences(images: Array) -> None:
    import tensorflow as tf

    generator = np.random.default_rng(1)
    maps = np.tile(IDENTITY, (3, 1)) + generator.normal(0, 0.3, (3, 6))
    weights = generator.normal(size=images.shape)  # of each pixel in the number that is derived

    def value(images: Any, maps: Any) -> Any:
        return tf.reduce_sum(weights * sample(images, *grid(maps, 9, 5)))

    given = [tf.constant(images), tf.constant(maps)]
    with tf.GradientTape() as tape:
        tape.watch(given)
        gradients = tape.gradient(value(*given), given)
    for which, array in enumerate((images, maps)):
        for place in np.ndindex(array.shape):
            step = np.zeros_like(array)
            step[place] = 1e-7
            above, below = ([array + sign * step if i == which else given[i] for i in (0, 1)] for sign in (1, -1))
            difference = (value(*map(tf.constant, above)) - value(*map(tf.constant, below))) / 2e-7
            assert gradients[which].numpy()[place] == pytest.approx(float(difference), rel=1e-4, abs=1e-5), place
    assert np.abs(gradients[1]).min() > 1e-3, "every number of every map matters"


def test_it_begins_with_about_the_identity() -> None:
    features, _ = examples(IMAGES, 4)
    with graph() as v1:
        maps = spatial_transformer.localise(v1.constant(features), ForwardPass(training=True))
        with session(v1) as opened:
            np.testing.assert_allclose(opened.run(maps), np.tile(IDENTITY, (4, 1)), atol=0.05)


def test_parameter_counts_and_the_classifier_alone() -> None:
    localisation = 784 * 20 + 20 + 20 * 6 + 6
    small = 9 * 16 + 16 + 9 * 16 * 16 + 16 + 7 * 7 * 16 * 1024 + 1024
    large = 9 * 16 + 16 + 9 * 16 * 32 + 32 + 9 * 32 * 64 + 64 + 4 * 4 * 64 * 1024 + 1024
    logits = 1024 * 10 + 10
    for size, classifier in (("small", small + logits), ("large", large + logits)):
        assert num_parameters("spatial_transformer", size=size) == localisation + classifier
        assert num_parameters("spatial_transformer", size=size, transformer=False) == classifier
