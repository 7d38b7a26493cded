"""PNG images as arrays, with zlib and NumPy alone: CIFAR-10's second source is a row of very tall ones."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from headway.workloads.images import PNG_SIGNATURE, problem

Array = np.ndarray[Any, Any]
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # colour type -> numbers per pixel


def read_png(content: bytes) -> Array:
    """uint8 (height, width, channels); ValueError where it is damaged, or of a kind that nobody needed yet."""
    if not content.startswith(PNG_SIGNATURE):
        raise ValueError("not a PNG image")
    if wrong := problem(content):
        raise ValueError(wrong)
    header, packed, position = b"", [], len(PNG_SIGNATURE)
    while position < len(content):
        length = int.from_bytes(content[position : position + 4], "big")
        kind, data = content[position + 4 : position + 8], content[position + 8 : position + 8 + length]
        if kind == b"IHDR":
            header = data
        elif kind == b"IDAT":
            packed.append(data)
        position += 12 + length
    if len(header) != 13:
        raise ValueError("a PNG image without a header")
    width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
    depth, colour, interlaced = header[8], header[9], header[12]
    if depth != 8 or colour not in _CHANNELS or interlaced:
        raise ValueError(f"a PNG image of a kind that is not read here: {depth} bits, colour type {colour}")
    channels = _CHANNELS[colour]
    try:
        lines = np.frombuffer(zlib.decompress(b"".join(packed)), np.uint8)
    except zlib.error as error:
        raise ValueError(f"a damaged PNG image: {error}") from None
    if len(lines) != height * (1 + width * channels):
        raise ValueError(f"a PNG image with {len(lines)} bytes of pixels instead of {height * (1 + width * channels)}")
    lines = lines.reshape(height, 1 + width * channels)
    if lines[:, 0].max() > 4:
        raise ValueError(f"a damaged PNG image: filter {lines[:, 0].max()} does not exist")
    return _unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, channels))


def _unfiltered(filters: Array, stored: Array) -> Array:
    """A stored pixel is the difference to a prediction from the pixels on its left, above, and above on the left. All
    pixels of a diagonal from the lower left to the upper right can be computed at once: theirs lie on those before."""
    height, width, channels = stored.shape
    pixels = np.zeros((height + 1, width + 1, channels), np.int16)  # with a border of zeros above and on the left
    for diagonal in range(height + width - 1):
        y = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        x = diagonal - y
        left, above, corner = pixels[y + 1, x], pixels[y, x + 1], pixels[y, x]
        kind = filters[y][:, np.newaxis]
        predicted = np.select(
            [kind == 1, kind == 2, kind == 3, kind == 4],
            [left, above, (left + above) >> 1, _nearest(left, above, corner)],
            np.int16(0),
        )
        pixels[y + 1, x + 1] = (stored[y, x] + predicted) & 0xFF
    return pixels[1:, 1:].astype(np.uint8)


def _nearest(left: Array, above: Array, corner: Array) -> Array:
    """Paeth's choice: whichever of the three is nearest to left + above - corner."""
    to_left, to_above = np.abs(above - corner), np.abs(left - corner)
    to_corner = np.abs(left + above - 2 * corner)
    is_left = (to_left <= to_above) & (to_left <= to_corner)
    return np.where(is_left, left, np.where(to_above <= to_corner, above, corner))
