"""Any data set as TFRecord shards: `headway data convert`.

Each shard is a random sample, written by one thread (reading, hashing and NumPy leave the others room), under a
temporary name until it is whole. The index comes last: a folder that has one is complete.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headway import workloads
from headway.errors import DataError
from headway.plural import counted
from headway.workloads import example, images, tfrecord
from headway.workloads.base import Arrays, DataInfo, Progress, Settings, Split
from headway.workloads.records import BadRecord, Content, Example, Records
from headway.workloads.shards import INDEX, Index, Layout, Shard, shard_name

Sources = dict[Split, Arrays | Records]
AT_ONCE = 64  # records
SEED = 0


@dataclass(frozen=True)
class Written:
    shard: Shard
    skipped: list[BadRecord]


def convert(
    settings: Settings,
    folder: Path,
    num_shards: int,
    progress: Progress,
    skip_bad: bool = False,
    num_threads: int | None = None,
) -> tuple[Index, list[BadRecord]]:
    """Both splits into `folder`: `num_shards` files for training, and as many for the test set as its size is worth.
    Returns the index and the bad records that were left out; without `skip_bad` the first one is a DataError."""
    _refuse_to_overwrite(folder)
    cache = workloads.cache_folder()
    workloads.fetch(settings, cache, progress)
    module = workloads.dataset(settings.name)
    info = module.describe(settings)
    sources: Sources = {split: workloads.load(settings, cache, split) for split in ("train", "test")}
    names: Callable[[Any], list[str]] = getattr(module, "class_names", lambda _: [])
    return write_shards(
        sources, info, folder, num_shards, progress, skip_bad, num_threads, names(settings), settings.name
    )


def write_shards(
    sources: Sources,
    info: DataInfo,
    folder: Path,
    num_shards: int,
    progress: Progress,
    skip_bad: bool = False,
    num_threads: int | None = None,
    class_names: Sequence[str] = (),
    origin: str = "",
) -> tuple[Index, list[BadRecord]]:
    """The same of examples that are here already."""
    _refuse_to_overwrite(folder)
    layout = _layout(info, sources["train"])
    counts = {split: _count(source) for split, source in sources.items()}
    if num_shards > counts["train"]:
        raise DataError(f"{counted(counts['train'], 'example')} cannot fill {counted(num_shards, 'shard')}")
    num_test_shards = min(counts["test"], max(1, round(num_shards * counts["test"] / counts["train"])))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made: {error.strerror or error}") from None
    total = sum(_num_bytes(source) for source in sources.values())
    report = _Sum(f"into {folder.name}", total, progress)
    written: dict[Split, list[Written]] = {}
    with ThreadPoolExecutor(num_threads or os.cpu_count()) as threads:
        asked: dict[Split, int] = {"train": num_shards, "test": num_test_shards}
        for split, count in asked.items():
            source = sources[split]
            parts = np.array_split(np.random.default_rng(SEED).permutation(_count(source)), count)
            begun = [
                threads.submit(
                    _write, folder / shard_name(split, number, count), source, layout, rows, skip_bad, report
                )
                for number, rows in enumerate(parts)
            ]
            try:
                written[split] = [future.result() for future in begun]
            except BaseException:
                threads.shutdown(wait=True, cancel_futures=True)
                raise
    skipped = [bad for split in written.values() for one in split for bad in one.skipped]
    index = Index(
        layout,
        {split: [one.shard for one in done] for split, done in written.items()},
        class_names=list(class_names),
        source=origin,
        skipped=len(skipped),
    )
    index.write(folder)
    return index, skipped


def _refuse_to_overwrite(folder: Path) -> None:
    if (folder / INDEX).exists():
        raise DataError(f"{folder} holds converted data already; choose another folder or remove it")


def _layout(info: DataInfo, source: Arrays | Records) -> Layout:
    if isinstance(source, Records) and source.content.encoding == "image":
        return Layout(source.content, info.classes, info.scale)
    content = Content("raw", info.shape, info.dtype)
    return Layout(content, info.classes, info.scale, features="features", label="label")


def _count(source: Arrays | Records) -> int:
    return len(source) if isinstance(source, Records) else len(source[0])


def _num_bytes(source: Arrays | Records) -> int:
    return source.num_bytes() if isinstance(source, Records) else source[0].nbytes


class _Sum:
    """The progress of several threads."""

    def __init__(self, what: str, total: int, progress: Progress) -> None:
        self._what, self._total, self._progress = what, total, progress
        self._done = 0
        self._lock = threading.Lock()

    def add(self, num_bytes: int) -> None:
        with self._lock:
            self._done += num_bytes
            self._progress(self._what, min(self._done, self._total), self._total)


def _write(
    path: Path, source: Arrays | Records, layout: Layout, rows: np.ndarray[Any, Any], skip_bad: bool, report: _Sum
) -> Written:
    temporary = path.with_name(f".{path.name}.tmp")
    lengths: list[int] = []
    skipped: list[BadRecord] = []
    digest = hashlib.sha256()
    try:
        with temporary.open("wb") as file:
            for first in range(0, len(rows), AT_ONCE):
                contents = []
                for result in _examples(source, rows[first : first + AT_ONCE]):
                    if isinstance(result, Example):
                        contents.append(example.encode(_features(result, layout)))
                    elif skip_bad:
                        skipped.append(result)
                    else:
                        raise DataError(f"bad record: {result} (--skip-bad leaves it out)")
                block = tfrecord.frame(contents)
                file.write(block)
                digest.update(block)
                lengths += map(len, contents)
                report.add(len(block))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return Written(Shard(path.name, path.stat().st_size, lengths, digest.hexdigest()), skipped)


def _examples(source: Arrays | Records, rows: np.ndarray[Any, Any]) -> Iterator[Example | BadRecord]:
    if not isinstance(source, Records):
        for row in rows.tolist():
            yield Example(source[0][row].tobytes(), source[1][row].item())
        return
    for number, result in zip(rows.tolist(), source.read(rows.tolist()), strict=True):
        is_image = isinstance(result, Example) and source.content.encoding == "image"
        wrong = images.problem(result.content) if is_image and isinstance(result, Example) else None
        yield BadRecord(*source.place(number), wrong) if wrong else result


def _features(one: Example, layout: Layout) -> dict[str, Any]:
    features: dict[str, Any] = {layout.features: one.content, layout.label: one.label}
    if layout.content.encoding == "image":
        features["image/format"] = (images.kind_of(one.content) or "").encode()
    return features
