"""Your own photographs: a folder for each class, in it images of any size (E5's age groups).

    photos/cats/1.jpg  photos/cats/2.png ...  photos/dogs/1.jpg ...

The folders' names, sorted, are the classes. A share of each class, drawn by `seed`, is the test set.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal
from zlib import crc32

import numpy as np
from pydantic import Field

from headway.errors import DataError
from headway.plural import counted
from headway.workloads import images
from headway.workloads.base import DataInfo, Progress, Split
from headway.workloads.records import BadRecord, Content, Files
from headway.workloads.streamed import ImageSize, StreamedData, WholePath

SUMMARY = "your own images: a folder for each class; {name: image_folder, path: ...}"
Listing = dict[str, tuple[str, ...]]
READ_AT_ONCE = 64


class Settings(StreamedData):
    name: Literal["image_folder"] = "image_folder"
    path: WholePath
    """The folder that holds a folder for each class. Nothing in it may change while a run uses it."""
    image_size: ImageSize = (224, 224)
    """Height and width that images are brought to."""
    channels: Literal[1, 3] = 3
    """3: colour; 1: grey."""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The share of each class that is kept for the test set; at least one image."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Which images these are."""


def describe(settings: Settings) -> DataInfo:
    found = listing(Path(settings.path))
    num_test = sum(_num_test(settings, len(names)) for names in found.values())
    num_train = sum(map(len, found.values())) - num_test
    shape = (*settings.image_size, settings.channels)
    return DataInfo(shape, len(found), settings.sized(num_train), num_test, 1 / 255, "uint8")


def fetch(settings: Settings, cache: Path, progress: Progress) -> None:  # noqa: ARG001
    listing(Path(settings.path))


def verify(settings: Settings, cache: Path) -> list[str]:
    found = []
    try:
        splits = [load(settings, cache, split) for split in ("train", "test")]
    except DataError as error:
        return [str(error)]
    for files in splits:
        for first in range(0, len(files), READ_AT_ONCE):
            numbers = range(first, min(first + READ_AT_ONCE, len(files)))
            for number, result in zip(numbers, files.read(numbers), strict=True):
                if isinstance(result, BadRecord):
                    found.append(str(result))
                elif wrong := images.problem(result.content):
                    found.append(str(BadRecord(*files.place(number), wrong)))
    return found


def load(settings: Settings, cache: Path, split: Split) -> Files:  # noqa: ARG001
    root = Path(settings.path)
    paths: list[Path] = []
    labels: list[int] = []
    for label, (name, files) in enumerate(listing(root).items()):
        # A stream for each class: another image in one of them does not change the others' split.
        order = np.random.default_rng([settings.seed, crc32(name.encode())]).permutation(len(files))
        num_test = _num_test(settings, len(files))
        for number in sorted(order[:num_test] if split == "test" else order[num_test:]):
            paths.append(root / name / files[number])
            labels.append(label)
    content = Content("image", (*settings.image_size, settings.channels))
    return Files(content, tuple(paths), np.array(labels, np.int32))


def _num_test(settings: Settings, num_images: int) -> int:
    return min(num_images - 1, max(1, round(settings.test_share * num_images)))


def class_names(settings: Settings) -> list[str]:
    return list(listing(Path(settings.path)))


def listing(root: Path) -> Listing:
    """The images of each class; DataError where a class has none."""
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        stamps = tuple((path.name, path.stat().st_mtime_ns) for path in folders)
    except OSError as error:
        raise DataError(f"image_folder: {root} cannot be read: {error.strerror or error}") from None
    if len(folders) < 2:
        found = f"it holds {counted(len(folders), 'folder')}" if folders else "it holds none"
        raise DataError(f"image_folder: {root} must hold a folder for each class, two at least; {found}")
    return _listing(root, stamps)


@lru_cache(maxsize=8)
def _listing(root: Path, stamps: tuple[tuple[str, int], ...]) -> Listing:
    """Kept as long as no folder changes: a job asks several times, and 65,000 names take a while."""
    found: Listing = {}
    for name, _ in stamps:
        try:
            inside = (path for path in (root / name).iterdir() if path.suffix.lower() in images.SUFFIXES)
            found[name] = tuple(sorted(path.name for path in inside if not path.name.startswith(".")))
        except OSError as error:
            raise DataError(f"image_folder: {root / name} cannot be read: {error.strerror or error}") from None
        if len(found[name]) < 2:
            has = "one image: there must be one to learn and one to test" if found[name] else "no image"
            suffixes = ", ".join(images.SUFFIXES)
            raise DataError(
                f"image_folder: class {name!r} ({root / name}) has {has} ({suffixes}); add some or remove it"
            )
    return found
