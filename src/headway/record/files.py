"""How files of a run folder are written, so that a crash at any moment leaves them readable."""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

from headway import clock
from headway.record.storage import writing

FLUSH_SECONDS = 0.25  # rows that may wait do so at most this long


def _plain(value: Any) -> Any:
    """JSON has no NaN: non-finite numbers become the strings that DuckDB reads back as such."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # made once: a step's event is written often


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON text; numbers that JSON does not have become strings."""
    encode = _encode if indent is None else json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent).encode
    try:
        return encode(value)
    except ValueError:
        return encode(_plain(value))


def _never_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old file or the new one, never half of it; where it cannot be written, nothing is left behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path.parent):
        try:
            with open(temporary, "w", encoding="utf-8", opener=_never_a_link) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):  # where nothing could be written, there is nothing to remove
                temporary.unlink(missing_ok=True)
            raise


class EventWriter:
    """Appends events to a JSON-lines file. Each line has `t` (Unix seconds) and `kind`.

    Lines reach the kernel at once, so that they survive the death of the process; only rows written with
    `later=True` may wait for a quarter of a second, because there can be thousands of them a second.
    """

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        with writing(self._folder):
            path.parent.mkdir(exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        self._pending: list[dict[str, Any]] = []
        self._lock = threading.Lock()  # a heartbeat flushes what would else wait for the next event
        self._flushed = time.monotonic()
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._append(b"\n")  # a writer died in mid-line: its torn line ends here

    def write(self, kind: str, /, later: bool = False, **fields: Any) -> dict[str, Any]:
        event = {"t": clock.now(), "kind": kind, **fields}
        with self._lock:
            self._pending.append(event)
        if not later or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()
        return event

    def flush(self) -> None:
        with self._lock:
            # Many at once, not each when it comes: between the steps of a training the encoder is in no cache.
            pending, self._pending = "".join(to_json(event) + "\n" for event in self._pending).encode(), []
            self._flushed = time.monotonic()
            self._append(pending)

    def _append(self, data: bytes) -> None:
        """All of it or, where the disk is full, nothing: what is written later would make a torn line a damaged one."""
        written = 0
        with writing(self._folder):
            try:
                while written < len(data):
                    written += os.write(self._file, data[written:])
            except OSError:
                if written:
                    with contextlib.suppress(OSError):
                        os.ftruncate(self._file, os.fstat(self._file).st_size - written)
                raise

    def close(self) -> None:
        try:
            self.flush()
        finally:
            os.close(self._file)
