"""Shards in ImageNet's format, with as large records, for measuring how fast they are read: `headway data standin`.

The photographs are noise on smooth patches, made so that their JPEG files have ImageNet's sizes (100 kB in the middle,
112 kB in the mean) and about as many pixels. There is nothing to learn in them.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from headway.errors import DataError
from headway.workloads import example, tfrecord
from headway.workloads.base import Progress, Split
from headway.workloads.datasets.imagenet import CLASSES, NUM_TEST, NUM_TRAIN, PREFIX
from headway.workloads.shards import shard_name

MEDIAN_BYTES, SPREAD = 100_000, 0.5  # of a log-normal distribution
TYPICAL_BYTES, TYPICAL_HEIGHT, TYPICAL_WIDTH = 110_000, 375, 500
NUM_PHOTOGRAPHS = 48  # different ones; each comes often
NUM_SHARDS: dict[Split, int] = {"train": 1024, "test": 128}
QUALITY = 90


def write_standin(
    folder: Path, share: float, progress: Progress, num_shards: dict[Split, int] | None = None, seed: int = 0
) -> int:
    """Writes this share of ImageNet's records, at least one for each shard; returns the number of bytes."""
    num_shards = num_shards or NUM_SHARDS
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} is not empty; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    photographs = make_photographs(random, NUM_PHOTOGRAPHS)
    counts: dict[Split, int] = {"train": NUM_TRAIN, "test": NUM_TEST}
    totals = {split: max(num_shards[split], round(share * count)) for split, count in counts.items()}
    mean = sum(len(content) for content, _, _ in photographs) / len(photographs)
    expected, done = round(sum(totals.values()) * mean), 0
    for split, total in totals.items():
        for number, part in enumerate(np.array_split(np.arange(total), num_shards[split])):
            path = folder / shard_name(split, number, num_shards[split], suffix="").replace(split, PREFIX[split])
            records = [_record(photographs[random.integers(len(photographs))], int(row), random) for row in part]
            content = tfrecord.frame(records)
            temporary = path.with_name(f".{path.name}.tmp")
            temporary.write_bytes(content)
            temporary.replace(path)
            done += len(content)
            progress(f"into {folder.name}", min(done, expected), expected)
    return done


def _record(photograph: tuple[bytes, int, int], number: int, random: np.random.Generator) -> bytes:
    """With all the features that ImageNet's records have."""
    content, height, width = photograph
    label = int(random.integers(1, CLASSES + 1))
    return example.encode(
        {
            "image/height": height,
            "image/width": width,
            "image/colorspace": b"RGB",
            "image/channels": 3,
            "image/class/label": label,
            "image/class/synset": f"n{label:08d}".encode(),
            "image/class/text": b"made up",
            "image/object/bbox/xmin": [0.1],
            "image/object/bbox/xmax": [0.9],
            "image/object/bbox/ymin": [0.1],
            "image/object/bbox/ymax": [0.9],
            "image/object/bbox/label": [label],
            "image/format": b"JPEG",
            "image/filename": f"made_up_{number:08d}.JPEG".encode(),
            "image/encoded": content,
        }
    )


def make_photographs(random: np.random.Generator, count: int) -> list[tuple[bytes, int, int]]:
    """(JPEG file, height, width) of images whose sizes are spread like ImageNet's."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # encodes JPEG, which nothing smaller here does

    made = []
    for number in range(count):
        deviation = NormalDist().inv_cdf((number + 0.5) / count)
        size = MEDIAN_BYTES * math.exp(SPREAD * deviation)
        factor = math.sqrt(size / TYPICAL_BYTES)
        height, width = round(TYPICAL_HEIGHT * factor), round(TYPICAL_WIDTH * factor)
        patches = random.integers(40, 216, size=(height // 25 + 1, width // 25 + 1, 3)).astype(np.float32)
        smooth = np.asarray(tf.image.resize(patches, [height, width], "bicubic"))
        noise = random.standard_normal((height, width, 3), np.float32)

        def file_with(strength: float, smooth: Any = smooth, noise: Any = noise) -> bytes:
            pixels = np.clip(smooth + strength * noise, 0, 255).astype(np.uint8)
            return bytes(tf.io.encode_jpeg(pixels, quality=QUALITY).numpy())

        low, high = 0.0, 64.0
        for _ in range(8):  # to within one part in 256 of the range
            middle = (low + high) / 2
            low, high = (middle, high) if len(file_with(middle)) < size else (low, middle)
        made.append((file_with(high), height, width))
    return made
