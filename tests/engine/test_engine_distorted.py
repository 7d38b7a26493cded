"""The distorted digits that the accuracy benchmark compares the spatial transformer on."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import distorted

from headway import workloads
from headway.workloads.datasets import mnist


@pytest.mark.system
@pytest.mark.parametrize("kind", distorted.KINDS)
def test_digits_are_distorted_as_their_kind_says_and_keep_their_labels(kind: str) -> None:
    workloads.fetch(mnist.Settings(), workloads.cache_folder(), lambda *_: None)
    plain, labels = mnist.load(mnist.Settings(), workloads.cache_folder(), "test")
    images, kept = distorted.distorted(kind, "test")
    assert images.shape == (10_000, 40, 40, 1)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(kept, labels)
    np.testing.assert_array_equal(images, distorted.distorted(kind, "test")[0])
    ink, before = (each.reshape(10_000, -1).sum(axis=1, dtype=np.int64) for each in (images, plain))
    rows = np.arange(40) - 19.5
    heights = (images.sum(axis=(2, 3), dtype=np.int64) @ rows) / ink
    if kind == "shifted":
        np.testing.assert_array_equal(ink, before)  # nothing is cut off
        assert 3 < heights.std() < 5  # -6 to 6 pixels, all alike: 3.7
    elif kind == "rotated":
        assert np.abs(ink / before - 1).max() < 0.1
        assert heights.std() < 1.5
    else:
        assert (ink >= before).mean() > 0.99
        assert (ink / before).mean() > 1.2
