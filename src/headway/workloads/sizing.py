"""Data of another size than it comes in, and made-up data in its place."""

from __future__ import annotations

import numpy as np

from headway.workloads.base import Arrays, DataInfo, Split
from headway.workloads.records import Records

SEED = 20_170_601  # of what is drawn here: the same data in every run, whatever the run's seed
MADE_UP_BYTES = 64 << 20


def sized(source: Arrays | Records, size: float) -> Arrays | Records:
    """A share of the examples. Of a multiple, the examples themselves: whoever reads them begins again at the first
    when there are no more. Then, where a part is left over, they are in a random order: it is a random part."""
    num_examples = len(source) if isinstance(source, Records) else len(source[0])
    if size == int(size):
        return source
    rows = np.random.default_rng(SEED).permutation(num_examples)
    if size < 1:
        rows = np.sort(rows[: max(1, round(size * num_examples))])  # near each other on the disk
    return source.take(rows) if isinstance(source, Records) else (source[0][rows], source[1][rows])


def made_up(info: DataInfo, split: Split) -> Arrays:
    """Noise of the data's shape and classes. Where that would take much memory, fewer examples, to be read again."""
    random = np.random.default_rng([SEED, split == "test"])
    num_examples = info.num_train if split == "train" else info.num_test
    dtype = np.dtype(info.dtype)
    size = int(np.prod(info.shape)) * dtype.itemsize
    num_rows = max(1, min(num_examples, MADE_UP_BYTES // size))
    shape = (num_rows, *info.shape)
    features = (
        random.integers(256, size=shape, dtype=np.uint8)
        if dtype == np.uint8
        else random.standard_normal(shape, np.float32).astype(dtype)
    )
    if info.classes is None:
        return features, random.standard_normal(num_rows, np.float32)
    return features, random.integers(info.classes, size=num_rows, dtype=np.int32)
