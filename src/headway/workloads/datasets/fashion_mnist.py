"""Fashion-MNIST: 70,000 articles of clothing, in MNIST's format: 28x28 grey pixels, ten classes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from headway.workloads import base
from headway.workloads.augment import ClutterAugment
from headway.workloads.base import Arrays, DataInfo, Progress, Split
from headway.workloads.datasets import mnist
from headway.workloads.download import Download, File, Source, ensure, problems
from headway.workloads.packages import DebianPackage

SUMMARY = "articles of clothing, 28x28 grey, 10 classes, 60,000 + 10,000 images (31 MB)"


class Settings(base.RealData):
    name: Literal["fashion_mnist"] = "fashion_mnist"
    augment: ClutterAugment = ClutterAugment()
    """How training images are varied."""


# Kept unpacked: the official files and Debian's have different gzip headers around the same bytes.
FILES = {
    file.name: file
    for file in (
        File("train-images-idx3-ubyte", 47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
        File("train-labels-idx1-ubyte", 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
        File("t10k-images-idx3-ubyte", 7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
        File("t10k-labels-idx1-ubyte", 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    )
}
SOURCES: tuple[Source, ...] = (
    Download("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", gzipped=True),
    DebianPackage(
        "dataset-fashion-mnist",
        31_000_000,
        {name: f"usr/share/datasets/fashion-mnist/{name}.gz" for name in FILES},
    ),
)


def describe(settings: Settings) -> DataInfo:
    return DataInfo((28, 28, 1), 10, settings.sized(60_000), 10_000, 1 / 255, "uint8")


def fetch(settings: Settings, cache: Path, progress: Progress) -> None:  # noqa: ARG001
    ensure(cache / "fashion_mnist", list(FILES.values()), SOURCES, progress)


def verify(settings: Settings, cache: Path) -> list[str]:  # noqa: ARG001
    return list(problems(cache / "fashion_mnist", FILES.values()).values())


def load(settings: Settings, cache: Path, split: Split) -> Arrays:  # noqa: ARG001
    """Images as uint8 (n, 28, 28, 1), labels as int32 (n,)."""
    return mnist.read_split(cache / "fashion_mnist", split, FILES)
