"""Image files as they lie on a disk, looked at without decoding them: what kind one is, and whether it is whole."""

from __future__ import annotations

import zlib

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def kind_of(content: bytes) -> str | None:
    """JPEG, PNG, GIF or BMP, by its first bytes, whatever the file's name says."""
    if content.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if content.startswith(PNG_SIGNATURE):
        return "PNG"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    return "BMP" if content.startswith(b"BM") else None


def problem(content: bytes) -> str | None:
    """What can be seen to be wrong with an image file; an error in the middle of a JPEG only decoding shows."""
    match kind_of(content):
        case None:
            return "not a JPEG, PNG, GIF or BMP image"
        case "JPEG":
            # The end marker; cameras and web pages put a few bytes behind it.
            return None if b"\xff\xd9" in content[-1024:] else "a JPEG image without its end: truncated"
        case "PNG":
            return _problem_of_png(content)
        case "GIF":
            return None if content.rstrip(b"\0").endswith(b";") else "a GIF image without its end: truncated"
        case _:
            size = int.from_bytes(content[2:6], "little")
            return f"a BMP image of {size} bytes that has only {len(content)}" if len(content) < size else None


def _problem_of_png(content: bytes) -> str | None:
    position = len(PNG_SIGNATURE)
    while position < len(content):
        length = int.from_bytes(content[position : position + 4], "big")
        chunk = content[position + 4 : position + 8 + length]
        checksum = content[position + 8 + length : position + 12 + length]
        if len(checksum) < 4:
            break
        if zlib.crc32(chunk) != int.from_bytes(checksum, "big"):
            return f"a PNG image with a wrong checksum at byte {position}"
        if chunk.startswith(b"IEND"):
            return None
        position += 12 + length
    return "a PNG image without its end: truncated"
