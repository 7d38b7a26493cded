"""E4's autoencoders: their target is their input, and only training is disturbed by noise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from modelling import IMAGES, examples, graph, num_parameters, session

from headway.workloads.base import DataInfo, ForwardPass
from headway.workloads.models import autoencoder

NOISY = ["gaussian", "masking", "variational"]


def softplus(x: Any) -> Any:
    return np.log1p(np.exp(x))


def test_parameter_counts_follow_the_hidden_layers() -> None:
    def between(*units: int) -> int:
        return sum(before * after + after for before, after in pairwise(units))

    assert num_parameters("autoencoder") == between(784, 200, 784) == 314_584
    assert num_parameters("autoencoder", hidden="large") == between(784, 400, 200, 400, 784) == 788_984
    assert num_parameters("autoencoder", hidden=[30, 20, 10]) == between(784, 30, 20, 10, 20, 30, 784)
    # a mean and a variance for each unit of the code
    assert (
        num_parameters("autoencoder", kind="variational", hidden=[30, 20])
        == between(784, 30, 20, 30, 784) + 30 * 20 + 20
    )


def test_the_loss_is_half_the_squared_distance_from_the_input() -> None:
    features, labels = examples(IMAGES, 5)
    with graph() as v1:
        run = ForwardPass(training=True)
        outputs = autoencoder.build(v1.constant(features), autoencoder.Settings(hidden=[9, 4]), IMAGES, run)
        losses = autoencoder.loss(outputs, v1.constant(labels))
        with session(v1) as opened:
            image, loss, values = opened.run([outputs.image, losses, run.variables])
    x = features.reshape(5, 784)
    for layer in ("encode1", "code", "decode1"):
        x = softplus(x @ values[f"{layer}/weights"] + values[f"{layer}/bias"])
    x = x @ values["reconstruction/weights"] + values["reconstruction/bias"]
    np.testing.assert_allclose(image, x.reshape(features.shape), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, 0.5 * np.sum((x - features.reshape(5, 784)) ** 2, axis=1), rtol=1e-4)


@pytest.mark.parametrize("kind", NOISY)
def test_noise_differs_between_steps_and_seeds_and_rests_in_evaluation(kind: Any) -> None:
    features, _ = examples(IMAGES, 3)
    seen = []
    for seed in (1, 2):
        with graph(seed) as v1:
            settings = autoencoder.Settings(kind=kind, hidden=[8])
            training, evaluation = (
                autoencoder.build(v1.constant(features), settings, IMAGES, ForwardPass(training=training))
                for training in (True, False)
            )
            # with weights that do not depend on the seed: whatever differs is the noise
            same = [variable.assign(v1.fill(variable.shape, 0.01)) for variable in v1.trainable_variables()]
            with session(v1) as opened:
                opened.run(same)
                seen += [opened.run(training.image) for _ in range(3)]
                resting = [opened.run(evaluation.image) for _ in range(2)]
                np.testing.assert_array_equal(*resting)
                np.testing.assert_array_equal(
                    opened.run(training.target), features.reshape(3, -1), "the target has no noise"
                )
    assert len(np.unique(np.stack(seen), axis=0)) == len(seen) == 6


def test_what_the_noise_is() -> None:
    """A hidden layer without weights of its own would show it: here the first layer sees it through the identity."""
    data = DataInfo((1000,), None, 10, 10)
    x = np.full((20, 1000), 0.5, np.float32)
    with graph() as v1:
        for kind, noise in (("gaussian", 0.2), ("masking", 0.25)):
            settings = autoencoder.Settings(kind=kind, noise=noise, hidden=[1000])  # type: ignore[arg-type]
            run = ForwardPass(training=True, variables={"code/weights": v1.eye(1000), "code/bias": v1.zeros([1000])})
            run.variables |= {"reconstruction/weights": v1.eye(1000), "reconstruction/bias": v1.zeros([1000])}
            image = autoencoder.build(v1.constant(x), settings, data, run).image
            with session(v1) as opened:
                noisy = np.log(np.expm1(opened.run(image)))  # what softplus was given
            if kind == "gaussian":
                assert noisy.mean() == pytest.approx(0.5, abs=0.01)
                assert noisy.std() == pytest.approx(0.2, rel=0.03)
            else:
                assert (noisy < 0.01).mean() == pytest.approx(0.25, abs=0.02)
                assert noisy.max() == pytest.approx(0.5 / 0.75, rel=1e-3)


def test_the_variational_code_is_a_sample_and_its_divergence_is_in_the_loss() -> None:
    features, labels = examples(IMAGES, 4)
    copies = 4000
    many = np.repeat(features[:1], copies, axis=0)
    settings = autoencoder.Settings(kind="variational", hidden=[3])
    with graph() as v1:
        run = ForwardPass(training=True)
        x = v1.placeholder(v1.float32, [None, 28, 28, 1])
        trained = autoencoder.build(x, settings, IMAGES, run)
        evaluated = autoencoder.build(x, settings, IMAGES, ForwardPass(training=False, variables=run.variables))
        loss = autoencoder.loss(evaluated, v1.constant(labels))
        with session(v1) as opened:
            values = opened.run(run.variables)
            image, losses, divergence = opened.run([evaluated.image, loss, evaluated.divergence], {x: features})
            samples = opened.run(trained.image, {x: many})
    flat = features.reshape(4, 784)
    mean = flat @ values["mean/weights"] + values["mean/bias"]
    deviation = np.exp(flat @ values["log_variance/weights"] + values["log_variance/bias"]) ** 0.5
    # from N(mean, deviation) to N(0, 1)
    expected = np.sum(-np.log(deviation) + (deviation**2 + mean**2) / 2 - 0.5, axis=1)
    np.testing.assert_allclose(divergence, expected, rtol=1e-4)
    distance = 0.5 * np.sum((image - features) ** 2, axis=(1, 2, 3))
    np.testing.assert_allclose(losses, distance + expected, rtol=1e-4)
    # The decoder is linear here: samples' mean is the mean's image, and their variance is carried through its weights.
    through = values["reconstruction/weights"]
    np.testing.assert_allclose(image.reshape(4, 784), mean @ through, atol=1e-4)
    spread = samples.reshape(copies, 784).std(axis=0)
    expected_spread = np.sqrt((deviation[0] ** 2) @ through**2)
    np.testing.assert_allclose(samples.mean(axis=0), image[0], atol=5 * expected_spread.max() / copies**0.5)
    np.testing.assert_allclose(spread, expected_spread, rtol=0.08)
