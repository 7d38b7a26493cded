"""Made-up data of any shape, in memory: nothing to fetch, nothing to read, and yet something to learn.

With classes: each class has a prototype of numbers between 0 and 1 (like pixels); an example is its class's prototype
and noise. Without: the label is 3 times the sum of the features and noise (E2's y = 3x + noise).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from headway.workloads import base
from headway.workloads.base import Arrays, DataInfo, Progress, Split

MOST_CLASSES, MOST_EXAMPLES = 10_000_000, 2**31 - 1
SUMMARY = "made-up data of any shape and number of classes, in memory"


def _default_shape(settings: dict[str, Any]) -> list[int]:
    return [1] if settings.get("classes", 10) is None else [28, 28, 1]


class Settings(base.Settings):
    name: Literal["synthetic"] = "synthetic"
    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] | None = 10
    """Number of classes; null: the label is a number."""
    shape: list[Annotated[int, Field(ge=1, le=1_000_000)]] = Field(
        default_factory=_default_shape, min_length=1, max_length=8
    )
    """Shape of one example; [28, 28, 1] unless said otherwise, [1] without classes."""
    size: int = Field(default=10_000, ge=1, le=MOST_EXAMPLES)
    """Number of training examples."""
    test_size: int = Field(default=1_000, ge=1, le=MOST_EXAMPLES)
    """Number of test examples."""
    noise: float = Field(default=0.5, ge=0, le=1e6)
    """Standard deviation of the noise in the features; without classes, in the label."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Same seed, same data, whatever the seed of the run."""


def describe(settings: Settings) -> DataInfo:
    return DataInfo(tuple(settings.shape), settings.classes, settings.size, settings.test_size)


def fetch(settings: Settings, cache: Path, progress: Progress) -> None:
    pass


def verify(settings: Settings, cache: Path) -> list[str]:  # noqa: ARG001
    return []


def load(settings: Settings, cache: Path, split: Split) -> Arrays:  # noqa: ARG001
    """Features as float32 (n, *shape); labels as int32 or, without classes, float32 (n,)."""
    num_examples = settings.size if split == "train" else settings.test_size
    # Streams of their own: the size of one split does not change the other, and both have the same prototypes.
    shared, own = (np.random.default_rng([settings.seed, stream]) for stream in (0, 1 + (split == "test")))
    num_features = math.prod(settings.shape)
    features = own.standard_normal((num_examples, num_features), np.float32)
    labels: np.ndarray[Any, Any]
    if settings.classes is None:
        noise = own.standard_normal(num_examples, np.float32)
        labels = 3 * features.sum(axis=1) + np.float32(settings.noise) * noise
    else:
        prototypes = shared.random((settings.classes, num_features), np.float32)
        labels = own.integers(settings.classes, size=num_examples, dtype=np.int32)
        features *= np.float32(settings.noise)
        features += prototypes[labels]
    return features.reshape(num_examples, *settings.shape), labels
