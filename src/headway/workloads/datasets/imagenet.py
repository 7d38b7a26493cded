"""ImageNet (ILSVRC 2012) as the usual 1,024 training and 128 validation shards, which you must bring: its licence does
not allow anyone to hand it on. `headway data standin` writes shards of the same format and sizes, to measure reading.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from headway.errors import DataError
from headway.workloads import cache_folder, shards
from headway.workloads.base import DataInfo, Progress, Split
from headway.workloads.records import Content
from headway.workloads.shards import Index, Layout, Shards
from headway.workloads.streamed import ImageSize, StreamedData, WholePath

SUMMARY = "1,281,167 + 50,000 photographs, 1,000 classes (144 GB, yours); {name: imagenet, path: ...}"
CLASSES = 1000
NUM_TRAIN, NUM_TEST = 1_281_167, 50_000
PREFIX: dict[Split, str] = {"train": "train", "test": "validation"}


class Settings(StreamedData):
    name: Literal["imagenet"] = "imagenet"
    path: WholePath | None = None
    """The folder with train-00000-of-01024 ... and validation-00000-of-00128 ...; not needed for synthetic data."""
    image_size: ImageSize = (224, 224)
    """Height and width that images are brought to (Inception V3: 299)."""

    @model_validator(mode="after")
    def _somewhere(self) -> Settings:
        if self.path is None and not self.synthetic:
            raise ValueError("path: write the folder that holds the shards, or synthetic: true")
        return self


def describe(settings: Settings) -> DataInfo:
    if settings.path is None:
        return DataInfo((*settings.image_size, 3), CLASSES, settings.sized(NUM_TRAIN), NUM_TEST, 1 / 255, "uint8")
    index = find(settings, cache_folder())
    return index.describe(settings.sized(sum(len(shard.lengths) for shard in index.splits["train"])))


def fetch(settings: Settings, cache: Path, progress: Progress) -> None:
    progress("index of the shards", 0, None)
    find(settings, cache)


def verify(settings: Settings, cache: Path) -> list[str]:
    try:
        return find(settings, cache).problems()
    except DataError as error:
        return [str(error)]


def load(settings: Settings, cache: Path, split: Split) -> Shards:
    return find(settings, cache).records(split)


def find(settings: Settings, cache: Path) -> Index:
    """The shards of both splits; DataError when one is missing."""
    folder = Path(settings.path or "")
    splits = {}
    for split, prefix in PREFIX.items():
        paths = sorted(folder.glob(f"{prefix}-*-of-*"))
        if not paths:
            raise DataError(f"imagenet: no {prefix}-00000-of-... in {folder}")
        if missing := shards.missing_shards(paths):
            raise DataError(f"imagenet: {shards.missing_text(missing)} in {folder}")
        splits[split] = shards.scanned(paths, cache)
    content = Content("image", (*settings.image_size, 3))
    return Index(Layout(content, CLASSES, 1 / 255, first_label=1), splits)
