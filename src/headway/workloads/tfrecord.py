"""TFRecord files, read and written without TensorFlow.

    record = length (8 bytes, little-endian), its masked CRC-32C (4), content (length bytes), its masked CRC-32C (4)

Records follow one another without gaps. So the lengths are all the index that a file needs: with them a record in the
middle is read alone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from headway.errors import DataError

HEADER, FOOTER = 12, 4
AROUND = HEADER + FOOTER
MASK_DELTA = 0xA282EAD8


def checksum(content: bytes) -> bytes:
    """The masked CRC-32C: a checksum of data that holds checksums would be a poor one."""
    plain = google_crc32c.value(content)
    return struct.pack("<I", (((plain >> 15) | (plain << 17)) + MASK_DELTA) & 0xFFFFFFFF)


def frame(contents: Sequence[bytes]) -> bytes:
    """These records, as they stand in a file."""
    parts = []
    for content in contents:
        length = struct.pack("<Q", len(content))
        parts += [length, checksum(length), content, checksum(content)]
    return b"".join(parts)


def offsets(lengths: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where each record of a file begins."""
    sizes = np.asarray(lengths, np.int64) + AROUND
    return np.cumsum(sizes) - sizes


def scan(path: Path) -> list[int]:
    """The length of each record's content, from the headers alone; DataError names the place of damage."""
    lengths: list[int] = []
    try:
        with path.open("rb", buffering=0) as file:
            size, offset = os.fstat(file.fileno()).st_size, 0
            while offset < size:
                header = os.pread(file.fileno(), HEADER, offset)
                place = f"{path}, offset {offset}"
                if len(header) == HEADER and checksum(header[:8]) != header[8:]:
                    hint = "" if lengths else " (is this a TFRecord file?)"
                    raise DataError(f"{place}: record {len(lengths)} begins with a wrong checksum{hint}")
                length = struct.unpack("<Q", header[:8])[0] if len(header) == HEADER else size
                if offset + length + AROUND > size:
                    raise DataError(f"{place}: truncated: the file ends at byte {size}, inside record {len(lengths)}")
                lengths.append(length)
                offset += length + AROUND
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    return lengths


def problem(framed: bytes, length: int, offset: int) -> str | None:
    """What is wrong with a record, as it was read, whose content must have this length."""
    if len(framed) < length + AROUND:
        return f"truncated: the file ends at byte {offset + len(framed)}, inside the record"
    if struct.unpack("<Q", framed[:8])[0] != length:
        return f"no record of {length} bytes begins here, as the index says; was the file changed?"
    if checksum(framed[HEADER : HEADER + length]) != framed[HEADER + length : length + AROUND]:
        return "wrong checksum"
    return None
