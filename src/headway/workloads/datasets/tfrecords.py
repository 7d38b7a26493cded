"""TFRecord shards: those that `headway data convert` wrote, or any others that hold tf.train.Example.

{name: tfrecords, files: shards}                                     # a folder with an index
{name: tfrecords, files: "a/train-*", test_files: "a/val-*", classes: 10, image_size: [224, 224]}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headway.errors import DataError
from headway.workloads import cache_folder, shards
from headway.workloads.base import DataInfo, Progress, Split
from headway.workloads.records import Content
from headway.workloads.shards import Index, Layout, Shard, Shards
from headway.workloads.streamed import ImageSize, StreamedData, WholePath

SUMMARY = "TFRecord shards, from `headway data convert` or elsewhere; {name: tfrecords, files: ...}"


class Settings(StreamedData):
    name: Literal["tfrecords"] = "tfrecords"
    files: WholePath
    """A folder that `headway data convert` wrote; or the training shards, with * and ? for any characters."""
    test_files: WholePath | None = None
    """The test shards. Default: those of the index beside the training shards."""
    classes: Annotated[int, Field(ge=2, le=10_000_000)] | None = None
    """Number of classes; only for shards without an index, as all that follows."""
    image_size: ImageSize | None = None
    """Height and width that images are brought to. With an index: another size than its own."""
    channels: Literal[1, 3] = 3
    """3: colour; 1: grey."""
    features: str = "image/encoded"
    """The feature that holds the image: a JPEG, PNG, GIF or BMP file."""
    label: str = "image/class/label"
    """The feature that holds the label."""
    first_label: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    """The label of the first class."""


def describe(settings: Settings) -> DataInfo:
    index = find(settings, cache_folder())
    if index.layout.content.encoding == "raw" and settings.augment.crop is not None:
        raise ValueError("augment.crop: these shards hold images in their final size")
    return index.describe(settings.sized(sum(len(shard.lengths) for shard in index.splits["train"])))


def fetch(settings: Settings, cache: Path, progress: Progress) -> None:
    progress("index of the shards", 0, None)
    check_there(find(settings, cache))


def verify(settings: Settings, cache: Path) -> list[str]:
    try:
        return find(settings, cache).problems()
    except DataError as error:
        return [str(error)]


def load(settings: Settings, cache: Path, split: Split) -> Shards:
    return find(settings, cache).records(split)


def class_names(settings: Settings) -> list[str]:
    return find(settings, cache_folder()).class_names


def find(settings: Settings, cache: Path) -> Index:
    """The shards of both splits, with whole paths, and what they hold."""
    folder = Path(settings.files)
    if folder.is_dir() and not (folder / shards.INDEX).exists():
        raise DataError(
            f"tfrecords: {folder} has no {shards.INDEX} (headway data convert writes one); "
            f"for other shards write files: {folder}/train-* and test_files"
        )
    beside = folder if folder.is_dir() else folder.parent
    index = Index.read(beside / shards.INDEX) if (beside / shards.INDEX).exists() else None
    splits: dict[Split, list[Shard]] = {}
    asked: list[tuple[Split, str | None]] = [("train", settings.files), ("test", settings.test_files)]
    for split, pattern in asked:
        if index is not None and (pattern is None or folder.is_dir()):
            splits[split] = _with_paths(beside, index.splits[split])
        elif pattern is None:
            raise DataError(f"tfrecords: no {shards.INDEX} beside {settings.files}: write test_files too")
        else:
            splits[split] = _matching(pattern, index, cache)
    return Index(
        _layout(settings, index),
        splits,
        class_names=index.class_names if index is not None else [],
    )


def _with_paths(folder: Path, listed: list[Shard]) -> list[Shard]:
    return [Shard(str(folder / shard.file), shard.bytes, shard.lengths, shard.sha256) for shard in listed]


def _matching(pattern: str, index: Index | None, cache: Path) -> list[Shard]:
    root = Path(pattern).anchor
    paths = sorted(Path(root).glob(pattern.removeprefix(root)))
    if not paths:
        raise DataError(f"tfrecords: no file matches {pattern}")
    known: dict[str, Shard] = {}
    if index is not None:
        every = (shard for split in index.splits.values() for shard in split)
        known = {shard.file: shard for shard in every}
    if all(path.name in known for path in paths):
        return [shard for path in paths for shard in _with_paths(path.parent, [known[path.name]])]
    if missing := shards.missing_shards(paths):
        raise DataError(f"tfrecords: {shards.missing_text(missing)} of {pattern}")
    return shards.scanned(paths, cache)


def _layout(settings: Settings, index: Index | None) -> Layout:
    if index is None:
        if settings.classes is None or settings.image_size is None:
            missing = "classes" if settings.classes is None else "image_size"
            raise ValueError(f"{missing}: there is no {shards.INDEX} beside the shards, so it must be given")
        content = Content("image", (*settings.image_size, settings.channels))
        return Layout(content, settings.classes, 1 / 255, settings.features, settings.label, settings.first_label)
    layout = index.layout
    if settings.image_size is None or layout.content.encoding == "raw":
        return layout
    content = Content("image", (*settings.image_size, layout.content.shape[-1]))
    return Layout(content, layout.classes, layout.scale, layout.features, layout.label, layout.first_label)


def check_there(index: Index) -> None:
    """DataError when a shard is missing or has another size than the index says."""
    for split in index.splits.values():
        missing = [shard.file for shard in split if not Path(shard.file).exists()]
        if missing:
            raise DataError(f"tfrecords: {shards.missing_text(missing)}")
        for shard in split:
            size = Path(shard.file).stat().st_size
            if size != shard.bytes:
                raise DataError(f"{shard.file} has {size:,} bytes instead of {shard.bytes:,}, as the index says")
