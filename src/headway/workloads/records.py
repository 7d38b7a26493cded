"""Data that is too large for memory: where the bytes of each example are, and how to read them.

A split has the records 0..n-1, so the engine shares out and shuffles their numbers as it does for arrays in memory;
bytes are read only when a batch needs them. What cannot be read is a value (BadRecord), not an error: whether it ends
the run is the engine's business (`on_bad_record`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np

Array = np.ndarray[Any, Any]
# Files that are opened at the same time: on a network each one costs a round trip, in which nothing is computed.
NUM_READERS = 4


class Example(NamedTuple):
    """One record as it is stored."""

    content: bytes
    label: float


class BadRecord(NamedTuple):
    """A record that cannot be used, and why."""

    file: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, offset {self.offset}: {self.reason}"


@dataclass(frozen=True)
class Content:
    """What the bytes of an example are."""

    encoding: Literal["image", "raw"]
    """image: a JPEG, PNG, GIF or BMP file of any size, to be brought to `shape`; raw: the numbers themselves."""
    shape: tuple[int, ...]
    dtype: str = "uint8"


class Records(ABC):
    """One split of a data set, read piece by piece."""

    content: Content

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, rows: Array) -> Self:
        """Only the records with these numbers, in this order."""

    @abstractmethod
    def read(self, chosen: Sequence[int]) -> list[Example | BadRecord]:
        """The records with these numbers. May be called by several threads at once."""

    @abstractmethod
    def place(self, number: int) -> tuple[str, int]:
        """File and offset of a record."""

    @abstractmethod
    def num_bytes(self) -> int:
        """Of all records, about: for the progress of whoever reads them all."""


@dataclass(frozen=True)
class Files(Records):
    """A file for each example, and the labels known beforehand."""

    content: Content
    paths: tuple[Path, ...]
    labels: Array

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, rows: Array) -> Files:
        return replace(self, paths=tuple(self.paths[row] for row in rows.tolist()), labels=self.labels[rows])

    def read(self, chosen: Sequence[int]) -> list[Example | BadRecord]:
        # The pool is made anew: it takes no longer than to open a file, and nobody has to end it.
        with ThreadPoolExecutor(NUM_READERS) as readers:
            return list(readers.map(self._read, chosen))

    def _read(self, number: int) -> Example | BadRecord:
        path = self.paths[number]
        try:
            content = path.read_bytes()
        except OSError as error:
            return BadRecord(str(path), 0, f"cannot be read: {error.strerror or error}")
        return Example(content, self.labels[number].item()) if content else BadRecord(str(path), 0, "is empty")

    def place(self, number: int) -> tuple[str, int]:
        return str(self.paths[number]), 0

    def num_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths if path.exists())
