"""Follows a growing JSON-lines file."""

from __future__ import annotations

import os
from pathlib import Path

CHUNK = 4 * 2**20


class Tail:
    """Gives the whole lines that were added since the last look."""

    def __init__(self, path: Path, from_end: bool = True) -> None:
        """`from_end`: what an earlier attempt wrote has been told before."""
        self.path = path
        try:
            self.offset = path.stat().st_size if from_end else 0
        except FileNotFoundError:
            self.offset = 0

    def read(self) -> tuple[int, str]:
        """(offset of the first byte, new lines); the text is empty when there are none."""
        start = self.offset
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size <= start:
                    return start, ""
                file.seek(start)
                data = file.read(CHUNK)
        except FileNotFoundError:
            return start, ""
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return start, whole.decode("utf-8", errors="replace")
