"""TFRecord files as a data set: the index that makes every record reachable, and reading by it.

`headway data convert` writes the index beside its files (index.json, see docs/formats.md). For files from elsewhere it
is made by walking through their headers once, and kept in the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import DataError, FormatError
from headway.plural import counted
from headway.workloads import example, tfrecord
from headway.workloads.base import DataInfo, Split
from headway.workloads.records import Array, BadRecord, Content, Example, Records

INDEX = "index.json"
FORMAT = 1
VERIFIED_AT_ONCE = 256  # records
_NUMBERED = re.compile(r"(.*?)(\d+)-of-(\d+)(.*)")


@dataclass(frozen=True)
class Shard:
    """One TFRecord file."""

    file: str
    """Its name; in an index of the cache, its whole path."""
    bytes: int
    lengths: list[int]
    """Of each record's content."""
    sha256: str | None = None
    changed: int | None = None
    """When it was last changed (nanoseconds), where there is no checksum."""


@dataclass(frozen=True)
class Layout:
    """What the records of a set of shards hold."""

    content: Content
    classes: int | None
    scale: float = 1.0
    features: str = "image/encoded"
    """The name of the feature with the example's bytes."""
    label: str = "image/class/label"
    """The name of the feature with its label."""
    first_label: int = 0
    """The label of the first class: 1 in ImageNet's shards."""


@dataclass(frozen=True)
class Index:
    """What `headway data convert` leaves beside its shards."""

    layout: Layout
    splits: Mapping[Split, list[Shard]]
    class_names: list[str] = field(default_factory=list)
    source: str = ""
    skipped: int = 0
    """Bad records that were left out."""

    def write(self, folder: Path) -> None:
        write_json(folder / INDEX, {"format": FORMAT, **asdict(self)})

    @staticmethod
    def read(path: Path) -> Index:
        """FormatError when it is damaged or of a newer Headway."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            version = stored.pop("format")
            if version > FORMAT:
                raise FormatError(
                    f"{path}: written by a newer Headway (format {version}, this one reads up to {FORMAT})"
                )
            layout = stored.pop("layout")
            content = layout.pop("content")
            return Index(
                layout=Layout(content=Content(**{**content, "shape": tuple(content["shape"])}), **layout),
                splits={split: [Shard(**shard) for shard in shards] for split, shards in stored.pop("splits").items()},
                **stored,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{path}: not an index of shards, or damaged ({error!r})") from None

    def describe(self, num_train: int) -> DataInfo:
        content = self.layout.content
        num_test = sum(len(shard.lengths) for shard in self.splits["test"])
        return DataInfo(content.shape, self.layout.classes, num_train, num_test, self.layout.scale, content.dtype)

    def records(self, split: Split) -> Shards:
        """Of an index with whole paths."""
        return Shards.of(self.layout, Path(), self.splits[split])

    def problems(self) -> list[str]:
        """Of an index with whole paths: everything that is wrong with its files."""
        return [wrong for shards in self.splits.values() for wrong in problems(self.layout, Path(), shards)]


@dataclass(frozen=True)
class Shards(Records):
    """The records of several TFRecord files, one file after the other."""

    content: Content
    layout: Layout
    files: tuple[Path, ...]
    file: Array
    """For each record: which file it is in,"""
    offset: Array
    """where it begins,"""
    length: Array
    """and the length of its content."""

    @staticmethod
    def of(layout: Layout, folder: Path, shards: Sequence[Shard]) -> Shards:
        counts = [len(shard.lengths) for shard in shards]
        return Shards(
            content=layout.content,
            layout=layout,
            files=tuple(folder / shard.file for shard in shards),
            file=np.repeat(np.arange(len(shards)), counts),
            offset=np.concatenate([tfrecord.offsets(shard.lengths) for shard in shards]),
            length=np.concatenate([np.asarray(shard.lengths, np.int64) for shard in shards]),
        )

    def __len__(self) -> int:
        return len(self.file)

    def take(self, rows: Array) -> Shards:
        return replace(self, file=self.file[rows], offset=self.offset[rows], length=self.length[rows])

    def place(self, number: int) -> tuple[str, int]:
        return str(self.files[self.file[number]]), int(self.offset[number])

    def num_bytes(self) -> int:
        return int(self.length.sum()) + tfrecord.AROUND * len(self)

    def read(self, chosen: Sequence[int]) -> list[Example | BadRecord]:
        results = {number: self._checked(number, framed) for number, framed in self._framed(chosen).items()}
        return [results[int(number)] for number in chosen]

    def _checked(self, number: int, framed: bytes | str) -> Example | BadRecord:
        if isinstance(framed, str):
            return self._bad(number, framed)
        if wrong := tfrecord.problem(framed, int(self.length[number]), int(self.offset[number])):
            return self._bad(number, wrong)
        return self._parsed(number, memoryview(framed)[tfrecord.HEADER : -tfrecord.FOOTER])

    def _framed(self, chosen: Sequence[int]) -> dict[int, bytes | str]:
        """Each record's bytes, with what is around them; or, as text, why it cannot be read."""
        framed: dict[int, bytes | str] = {}
        wanted = sorted({int(number) for number in chosen}, key=lambda n: (self.file[n], self.offset[n]))
        for file, group in groupby(wanted, key=lambda n: int(self.file[n])):
            numbers = list(group)
            spans = [(int(self.offset[n]), int(self.length[n]) + tfrecord.AROUND) for n in numbers]
            try:
                with self.files[file].open("rb", buffering=0) as opened:
                    # The disk can fetch all of them at once while the first is being read.
                    for offset, size in spans:
                        os.posix_fadvise(opened.fileno(), offset, size, os.POSIX_FADV_WILLNEED)
                    for number, (offset, size) in zip(numbers, spans, strict=True):
                        framed[number] = os.pread(opened.fileno(), size, offset)
            except OSError as error:
                for number in numbers:
                    framed.setdefault(number, f"cannot be read: {error.strerror or error}")
        return framed

    def _parsed(self, number: int, content: memoryview[int]) -> Example | BadRecord:
        layout = self.layout
        try:
            found = example.decode(content, (layout.features, layout.label))
        except ValueError as error:
            return self._bad(number, f"no tf.train.Example: {error}")
        for name in (layout.features, layout.label):
            if len(found.get(name, ())) != 1:
                return self._bad(
                    number, f"has {counted(len(found.get(name, ())), 'value')} of feature {name!r} instead of one"
                )
        [features], [label] = found[layout.features], found[layout.label]
        if not isinstance(features, bytes) or isinstance(label, bytes):
            return self._bad(number, f"{layout.features!r} must be bytes and {layout.label!r} a number")
        if layout.classes is not None:
            last = layout.first_label + layout.classes - 1
            if not isinstance(label, int) or not layout.first_label <= label <= last:
                return self._bad(number, f"label {label} is not in {layout.first_label}..{last}")
            label -= layout.first_label
        if layout.content.encoding == "raw":
            size = int(np.prod(layout.content.shape)) * np.dtype(layout.content.dtype).itemsize
            if len(features) != size:
                return self._bad(number, f"has {len(features)} bytes of features instead of {size}")
        return Example(features, label)

    def _bad(self, number: int, reason: str) -> BadRecord:
        return BadRecord(*self.place(number), reason)


def shard_name(split: Split, number: int, count: int, suffix: str = ".tfrecord") -> str:
    return f"{split}-{number:05d}-of-{count:05d}{suffix}"


def missing_shards(paths: Sequence[Path]) -> list[str]:
    """Of files that are numbered like train-00003-of-01024: those that should be there too."""
    families: dict[tuple[Path, str, str, str], set[str]] = {}
    for path in paths:
        if match := _NUMBERED.fullmatch(path.name):
            before, number, count, behind = match.groups()
            families.setdefault((path.parent, before, count, behind), set()).add(number)
    missing = []
    for (_, before, count, behind), numbers in families.items():
        width = len(next(iter(numbers)))
        expected = (f"{number:0{width}d}" for number in range(int(count)))
        missing += [f"{before}{number}-of-{count}{behind}" for number in expected if number not in numbers]
    return missing


def missing_text(missing: Sequence[str]) -> str:
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return f"missing: {', '.join(missing[:3])}{more}"


def scanned(paths: Sequence[Path], cache: Path) -> list[Shard]:
    """The index of files from elsewhere: from the cache if it was made before and no file has changed since."""
    identity = hashlib.sha256("\n".join(str(path) for path in paths).encode()).hexdigest()[:16]
    kept = cache / "tfrecords" / f"{identity}.json"
    known: dict[str, Shard] = {}
    try:
        stored = json.loads(kept.read_text(encoding="utf-8"))
        if stored["format"] == FORMAT:
            known = {shard["file"]: Shard(**shard) for shard in stored["shards"]}
    except (OSError, ValueError, KeyError, TypeError):
        pass  # it is only a copy of what the files say
    shards = [_scanned(path, known.get(str(path))) for path in paths]
    if shards != list(known.values()):
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_json(kept, {"format": FORMAT, "shards": [asdict(shard) for shard in shards]})
        except OSError:
            pass  # a cache that cannot be written to costs time, no more
    return shards


def _scanned(path: Path, known: Shard | None) -> Shard:
    try:
        facts = path.stat()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    if known is not None and (known.bytes, known.changed) == (facts.st_size, facts.st_mtime_ns):
        return known
    return Shard(str(path), facts.st_size, tfrecord.scan(path), changed=facts.st_mtime_ns)


def problems(layout: Layout, folder: Path, shards: Sequence[Shard]) -> list[str]:
    """Everything that is wrong with these files: the first bad record of each, or its checksum."""
    found = []
    for shard in shards:
        path = folder / shard.file
        try:
            if path.stat().st_size != shard.bytes:
                found.append(f"{path} has {path.stat().st_size:,} bytes instead of {shard.bytes:,}")
                continue
        except OSError as error:
            found.append(f"{path}: {'is missing' if isinstance(error, FileNotFoundError) else error.strerror}")
            continue
        bad = _first_bad(Shards.of(layout, folder, [shard]))
        if bad is not None:
            found.append(str(bad))
        elif shard.sha256 is not None:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                    found.append(f"{path} is damaged (wrong checksum)")
    return found


def _first_bad(records: Shards) -> BadRecord | None:
    for first in range(0, len(records), VERIFIED_AT_ONCE):
        for result in records.read(range(first, min(first + VERIFIED_AT_ONCE, len(records)))):
            if isinstance(result, BadRecord):
                return result
    return None


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    temporary.replace(path)
