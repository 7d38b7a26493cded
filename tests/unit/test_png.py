"""PNG images, with every way to store a line."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from pictures import picture, png

from headway.workloads.png import read_png


@pytest.mark.parametrize("size", [(10, 7, 3), (3, 9, 1), (1, 1, 4), (6, 6, 2)])
@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, None])
def test_an_image_comes_back(size: tuple[int, int, int], kind: int | None) -> None:
    pixels = picture(5, size)
    filters = [y % 5 if kind is None else kind for y in range(size[0])]
    np.testing.assert_array_equal(read_png(png(pixels, filters)), pixels)


def test_what_is_damaged_or_unknown_is_refused() -> None:
    whole = png(picture(1))
    for content, reason in (
        (b"GIF89a", "not a PNG"),
        (whole[:-20], "truncated"),
        (whole[:60] + bytes([whole[60] ^ 1]) + whole[61:], "wrong checksum"),
        (_with_header(whole, depth=16), "of a kind that is not read here"),
        (_with_header(whole, interlaced=1), "of a kind that is not read here"),
        (_with_header(whole, height=9), "bytes of pixels instead of"),
    ):
        with pytest.raises(ValueError, match=reason):
            read_png(content)


def _with_header(content: bytes, height: int = 8, depth: int = 8, interlaced: int = 0) -> bytes:
    header = bytearray(content[16:29])
    header[4:8], header[8], header[12] = height.to_bytes(4, "big"), depth, interlaced
    checksum = zlib.crc32(b"IHDR" + header).to_bytes(4, "big")
    return content[:16] + bytes(header) + checksum + content[33:]
