"""What training must come to, computed by hand (NumPy, double precision) from the same examples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from headway.engines.tensorflow.initial import Values
from headway.engines.tensorflow.input import index_batches
from headway.engines.tensorflow.problem import Problem
from headway.spec.cluster import Task
from headway.spec.job import Job

Array = np.ndarray[Any, Any]
Batch = tuple[Array, Array]


def assert_close(found: Values, expected: Values, rtol: float = 1e-5, atol: float = 2e-6) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=atol, err_msg=name)


def assert_descended(found: Values, expected: Values) -> None:
    assert_close({name: found[name] for name in expected}, expected)


def examples(job: Job, name: str, batch: int) -> Batch:
    """Features and labels of a task's batch."""
    tasks, task = job.cluster.training_tasks(), Task.parse(name)
    source = Problem(job).load("train")
    assert isinstance(source, tuple), "in memory"
    features, labels = source
    indices = index_batches(
        len(features),
        job.batch_size_of(task),
        seed=job.seed,
        task_number=tasks.index(task),
        num_tasks=len(tasks),
        first_batch=batch,
    )
    [chosen] = itertools.islice(indices, 1)
    return features[chosen.numpy()].astype(np.float64), labels[chosen.numpy()]


def softmax_by_hand(values: Values, batches: list[Batch]) -> tuple[float, Values]:
    """The mean loss of the softmax model over all these examples, and its gradients."""
    x = np.concatenate([features.reshape(len(features), -1) for features, _ in batches])
    labels = np.concatenate([labels for _, labels in batches])
    logits = x @ values["softmax/weights"] + values["softmax/bias"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    own = (np.arange(len(x)), labels)
    loss = -np.mean(np.log(shares[own]))
    shares[own] -= 1
    return float(loss), {"softmax/weights": x.T @ shares / len(x), "softmax/bias": shares.mean(axis=0)}


def descend(values: Values, batches: list[Batch], rate: float = 0.1) -> Values:
    _, gradients = softmax_by_hand(values, batches)
    return {name: values[name] - rate * gradient for name, gradient in gradients.items()}


def statistics_by_hand(values: Values, features: Array) -> dict[str, Array]:
    """What a batch says of the CNN's moving averages."""
    x, said = features, {}
    for block in ("1", "2"):
        padded = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(1, 2))
        x = np.einsum("nhwcij,ijco->nhwo", windows, values[f"conv{block}/weights"]) + values[f"conv{block}/bias"]
        mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
        said[f"norm{block}/moving_mean"] = mean
        said[f"norm{block}/moving_variance"] = x.var(axis=(0, 1, 2), ddof=1)
        x = (x - mean) / np.sqrt(variance + 1.001e-5) * values[f"norm{block}/scale"] + values[f"norm{block}/offset"]
        n, height, width, channels = np.maximum(x, 0).shape
        x = np.maximum(x, 0).reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4)) if block == "1" else x
    return said


def assert_moved(before: Values, after: Values, said: dict[str, Array]) -> None:
    """The moving averages were brought forward once, by what was said."""
    for name, value in said.items():
        expected = before[name] - 0.01 * (before[name] - value)
        np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)
        assert np.max(np.abs(after[name] - before[name])) > 1e-4
