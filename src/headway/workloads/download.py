"""How the files of a data set get into the cache, whoever else is fetching them and whatever is there already.

    ensure(folder, files, sources)   files that are there and right stay; the others come from the first source that
                                     has them, are checked, and only then get their name

A source is anything with a label and `get`. What it brings is never trusted: size and checksum decide.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Protocol

from headway import locks
from headway.errors import Busy, DataError
from headway.workloads.base import Progress

CHUNK = 1 << 16
# Long enough for another process to try every source of a data set; then it is more likely stuck.
LOCK_SECONDS = 1800.0


@dataclass(frozen=True)
class File:
    """A file as it must be in the cache."""

    name: str
    size: int
    sha256: str

    def problem(self, folder: Path) -> str | None:
        """What is wrong with this file in that folder; None when nothing is."""
        path = folder / self.name
        try:
            size = path.stat().st_size
            if size != self.size:
                return f"{self.name} has {size:,} bytes instead of {self.size:,}"
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                    return f"{self.name} is damaged (wrong checksum)"
        except FileNotFoundError:
            return f"{self.name} is missing"
        except OSError as error:
            return f"{self.name} cannot be read: {error.strerror or error}"
        return None


class Source(Protocol):
    """A place where files may be had."""

    @property
    def label(self) -> str: ...

    def get(self, files: Sequence[File], into: Path, progress: Progress) -> None:
        """Puts as many of the files as it can into the folder `into`; raises SourceError or OSError when it stops."""
        ...


class SourceError(Exception):
    """Why a source cannot help; the next one is tried."""


@dataclass(frozen=True)
class Download:
    """Files side by side under one address."""

    address: str
    seconds: float = 300.0
    """Limit for all files together."""
    silence: float = 15.0
    """Limit for a connection that says nothing."""
    gzipped: bool = False
    """There they are packed, each with .gz behind its name."""

    @property
    def label(self) -> str:
        return f"download from {self.address}"

    def get(self, files: Sequence[File], into: Path, progress: Progress) -> None:
        deadline = time.monotonic() + self.seconds
        for file in files:
            if not self.gzipped:
                _download(self.address + file.name, into / file.name, file.size, self, deadline, progress)
                continue
            packed = into / f"{file.name}.gz"
            # Packed it is smaller; how much is not known.
            _download(self.address + packed.name, packed, file.size, self, deadline, progress)
            gunzip(packed.read_bytes(), file, into)


Unpack = Callable[[Path, Sequence[File], Path], None]
"""unpack(package, files, into): takes these files out of a package, or makes them from what is in it."""


@dataclass(frozen=True)
class Archive:
    """Files in one archive at an address."""

    address: str
    size: int
    unpack: Unpack
    seconds: float = 900.0
    silence: float = 15.0

    @property
    def label(self) -> str:
        return f"download of {self.address}"

    def get(self, files: Sequence[File], into: Path, progress: Progress) -> None:
        package = into / "archive"
        _download(self.address, package, self.size, self, time.monotonic() + self.seconds, progress)
        self.unpack(package, files, into)


class _Limits(Protocol):
    @property
    def seconds(self) -> float: ...
    @property
    def silence(self) -> float: ...


def _download(address: str, target: Path, largest: int, limits: _Limits, deadline: float, progress: Progress) -> None:
    name = address.rpartition("/")[2]
    try:
        with urllib.request.urlopen(address, timeout=limits.silence) as response, target.open("wb") as file:
            done = 0
            # read1 returns what has arrived, so that a server that trickles meets the deadline too.
            while chunk := response.read1(CHUNK):
                done += len(chunk)
                if done > largest:
                    raise SourceError(f"{name}: sends more than the expected {largest:,} bytes")
                if time.monotonic() > deadline:
                    raise SourceError(f"{name}: not here after {limits.seconds:.0f} s")
                file.write(chunk)
                progress(name, done, largest)
    except HTTPException as error:  # not an OSError, unlike everything else urllib raises
        raise SourceError(f"{name}: {error!r}") from None


def gunzip(packed: bytes, file: File, into: Path) -> None:
    """Unpacks into the file of that name, and no more than it may have."""
    unpacker = zlib.decompressobj(wbits=31)  # gzip
    try:
        (into / file.name).write_bytes(unpacker.decompress(packed, file.size + 1))
    except zlib.error as error:
        raise SourceError(f"{file.name}: {error}") from None


def ensure(folder: Path, files: Sequence[File], sources: Sequence[Source], progress: Progress) -> None:
    """Makes every file be in the folder, whole and right; DataError says what was tried when that cannot be."""
    if not problems(folder, files):  # first without the lock: a shared cache may be read-only
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder, progress):
            missing = problems(folder, files)
            failures = []
            for source in sources:
                if missing and (failure := _try(source, list(missing), folder, progress)):
                    failures.append(f"{source.label}: {failure}")
                missing = problems(folder, list(missing))
    except OSError as error:
        raise DataError(f"the data set's folder {folder} cannot be used: {error.strerror or error}") from None
    if missing:
        lines = [f"{folder.name} cannot be had:", *missing.values(), *failures]
        raise DataError(
            "\n  ".join(lines) + f"\nTry again with a network connection, or put the files into {folder} yourself; "
            "they are checked before use."
        )


def problems(folder: Path, files: Iterable[File]) -> dict[File, str]:
    """What is wrong with which of these files."""
    return {file: problem for file in files if (problem := file.problem(folder))}


def _try(source: Source, files: Sequence[File], folder: Path, progress: Progress) -> str | None:
    """Takes what the source has into the folder; returns why it has not everything."""
    failure = None
    # One fixed name, used under the lock only: what a killed process left is cleared away by the next.
    arrivals = folder / ".arriving"
    shutil.rmtree(arrivals, ignore_errors=True)
    arrivals.mkdir()
    try:
        source.get(files, arrivals, progress)
    except (OSError, SourceError) as error:
        failure = str(error)
    for file in files:
        if (problem := file.problem(arrivals)) is None:
            with (arrivals / file.name).open("rb") as arrived:
                os.fsync(arrived.fileno())
            (arrivals / file.name).replace(folder / file.name)
        elif failure is None:
            failure = f"what came: {problem}"
    shutil.rmtree(arrivals, ignore_errors=True)
    return failure


@contextmanager
def _lock(folder: Path, progress: Progress) -> Iterator[None]:
    """Held by one process at a time; the system frees it when its holder ends, however that happens."""

    def waiting() -> None:
        progress("waiting for another process that fetches the same data", 0, None)

    complaint = (
        f"another process has been fetching into {folder} for {LOCK_SECONDS / 60:.0f} minutes; end it and try again"
    )
    try:
        lock = locks.take(folder / ".lock", complaint, LOCK_SECONDS, waiting, pause=0.2)
    except Busy as error:
        raise DataError(str(error)) from None
    try:
        yield
    finally:
        os.close(lock)
