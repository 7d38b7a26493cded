"""MNIST with each digit somewhere else, turned, or among pieces of other digits, in 40x40 pixels; training and test set
alike, and the same in every run. TFRecord shards in the cache folder, made when they are asked for first.

What `augment` of a data set does, it does to training images alone, and anew in each epoch: there the test set is easy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headway import workloads
from headway.workloads.augment import ClutterAugment
from headway.workloads.base import Arrays, DataInfo, Split
from headway.workloads.convert import Sources, write_shards
from headway.workloads.datasets import mnist
from headway.workloads.shards import INDEX

SIDE, MARGIN = 40, 6  # pixels
AT_ONCE = 5_000
KINDS = {
    "shifted": ClutterAugment(shift=MARGIN),  # so nothing is cut off
    "rotated": ClutterAugment(rotate=90),
    "cluttered": ClutterAugment(shift=MARGIN, clutter=16),
}


def settings_of(kind: str) -> dict[str, object]:
    """A job's `dataset`."""
    folder = workloads.cache_folder().absolute() / f"mnist-{kind}"
    if not (folder / INDEX).exists():
        _make(kind, folder)
    return {"name": "tfrecords", "files": str(folder), "in_memory": True}


def _make(kind: str, folder: Path) -> None:
    workloads.fetch(mnist.Settings(), workloads.cache_folder(), lambda *_: None)
    sources: Sources = {split: distorted(kind, split) for split in ("train", "test")}
    info = DataInfo((SIDE, SIDE, 1), 10, 60_000, 10_000, 1 / 255, "uint8")
    write_shards(sources, info, folder, 4, lambda *_: None, origin=f"mnist, {kind}")


def distorted(kind: str, split: Split) -> Arrays:
    import tensorflow as tf

    from headway.engines.tensorflow.augment import vary

    images, labels = mnist.load(mnist.Settings(), workloads.cache_folder(), split)
    every = np.pad(images, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)))
    chance = np.random.default_rng([list(KINDS).index(kind), split == "test"])
    numbers = chance.random((len(every), KINDS[kind].num_random), np.float32)
    parts = [
        vary(KINDS[kind], tf.constant(every[first : first + AT_ONCE]), numbers[first : first + AT_ONCE], every).numpy()
        for first in range(0, len(every), AT_ONCE)
    ]
    return np.concatenate(parts), labels
