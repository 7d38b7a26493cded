"""Small images, folders and shards for tests, made without any image library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.workloads import example, tfrecord
from headway.workloads.base import Split
from headway.workloads.images import PNG_SIGNATURE
from headway.workloads.records import Content
from headway.workloads.shards import Index, Layout, Shard, shard_name

Array = np.ndarray[Any, Any]
COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> PNG's colour type


def png(pixels: Array, filters: Sequence[int] | None = None) -> bytes:
    """A PNG file; `filters` says how each line is stored (PNG's numbers 0 to 4)."""
    height, width, channels = pixels.shape
    lines = bytearray()
    before = np.zeros((width, channels), np.int16)
    for y in range(height):
        line = pixels[y].astype(np.int16)
        left, corner = (np.vstack([np.zeros((1, channels), np.int16), row[:-1]]) for row in (line, before))
        kind = filters[y] if filters is not None else 0
        predicted = {
            0: np.zeros_like(line),
            1: left,
            2: before,
            3: (left + before) // 2,
            4: _paeth(left, before, corner),
        }[kind]
        lines += bytes([kind]) + ((line - predicted) & 0xFF).astype(np.uint8).tobytes()
        before = line
    header = struct.pack(">IIBBBBB", width, height, 8, COLOURS[channels], 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(lines))), (b"IEND", b"")]
    return PNG_SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _paeth(left: Array, above: Array, corner: Array) -> Array:
    out = np.zeros_like(left)
    for place in np.ndindex(left.shape):
        a, b, c = int(left[place]), int(above[place]), int(corner[place])
        guess = a + b - c
        out[place] = min((abs(guess - a), 0, a), (abs(guess - b), 1, b), (abs(guess - c), 2, c))[2]
    return out


def picture(number: int, size: tuple[int, int, int] = (8, 8, 3)) -> Array:
    """An image that says which one it is: its upper left pixel is the number."""
    pixels = np.random.default_rng(number).integers(256, size=size, dtype=np.uint8)
    pixels[0, 0, :] = number
    return pixels


def image_folder(root: Path, counts: dict[str, int], size: tuple[int, int, int] = (8, 8, 3)) -> Path:
    """A folder for each class; images are numbered through, over all classes."""
    number = 0
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for _ in range(count):
            (root / name / f"{number:04d}.png").write_bytes(png(picture(number, size)))
            number += 1
    return root


def numbered_shards(folder: Path, sizes: Sequence[int], test_sizes: Sequence[int] = (2,), classes: int = 4) -> Path:
    """Raw shards of these sizes, with an index; the features of an example are its number, its label that modulo
    `classes`."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    splits: dict[Split, list[Shard]] = {}
    asked: dict[Split, Sequence[int]] = {"train": sizes, "test": test_sizes}
    for split, counts in asked.items():
        shards = []
        for place, count in enumerate(counts):
            contents = [
                example.encode({"features": struct.pack("<f", n), "label": n % classes})
                for n in range(number, number + count)
            ]
            number += count
            name = shard_name(split, place, len(counts))
            (folder / name).write_bytes(tfrecord.frame(contents))
            shards.append(Shard(name, (folder / name).stat().st_size, [len(content) for content in contents]))
        splits[split] = shards
    layout = Layout(Content("raw", (1,), "float32"), classes, features="features", label="label")
    Index(layout, splits).write(folder)
    return folder


def damage(path: Path, offset: int) -> None:
    """One bit of a file is another."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
