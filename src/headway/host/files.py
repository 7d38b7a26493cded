"""Small files that the kernel makes when they are read (`/proc`, control groups): read fast, many times a second.

A `Path.read_text` costs three times as much as the kernel's own work.
"""

from __future__ import annotations

import os

ENOUGH = 1 << 16


def content(path: str | os.PathLike[str]) -> bytes:
    """All of it; OSError where it cannot be read."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(file, ENOUGH)]
        while len(parts[-1]) == ENOUGH:
            parts.append(os.read(file, ENOUGH))
        return b"".join(parts) if len(parts) > 1 else parts[0]
    finally:
        os.close(file)


def lines(path: str | os.PathLike[str]) -> list[list[bytes]]:
    """Words of each line that has any; nothing where the file cannot be read."""
    try:
        return [words for line in content(path).splitlines() if (words := line.split())]
    except OSError:
        return []


def pairs(path: str | os.PathLike[str]) -> dict[str, int]:
    """Lines of `name number` or `name: number`; others are left out."""
    return {
        words[0].rstrip(b":").decode("ascii", "replace"): int(words[1])
        for words in lines(path)
        if len(words) == 2 and words[1].isdigit()
    }


def number(path: str | os.PathLike[str]) -> int | None:
    """None where the file is missing (older kernels) or says something else (`max`)."""
    try:
        text = content(path).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
