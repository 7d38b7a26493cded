"""How files of a run folder are written, so that a crash at any moment leaves them readable."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway import clock
from headway.errors import FormatError, MissingFile
from headway.record.storage import writing

_CUT_NUMBER = re.compile(r"[.eE+-]{0,3}")
LAST_BYTES = 64 * 2**10
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


_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _numbers_again(value: Any) -> Any:
    """What `_plain` made of numbers that JSON does not have, as numbers."""
    if isinstance(value, str):
        return _NOT_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: _numbers_again(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers_again(inner) for inner in value]
    return value


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON text; numbers that JSON does not have become strings."""
    encode = _encode if indent is None else json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent).encode
    try:
        return encode(value)
    except ValueError:
        return encode(_plain(value))


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old file or the new one, never half of it; where it cannot be written, nothing is left behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path.parent):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):  # where nothing could be written, there is nothing to remove
                temporary.unlink(missing_ok=True)
            raise


def read_json(path: Path, format_version: int) -> dict[str, Any]:
    """A JSON object that carries `format`; a newer one is refused, a damaged or missing one is an error."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingFile(f"{path}: missing (deleted since, or not copied with the rest of its folder)") from None
    except ValueError as error:
        raise FormatError(f"{path}: damaged ({error})") from None
    if not isinstance(value, dict) or not isinstance(value.get("format"), int):
        raise FormatError(f"{path}: not a file of a run folder (it has no format number)")
    if value["format"] > format_version:
        raise FormatError(
            f"{path}: written by a newer Headway (format {value['format']}, this one reads up to {format_version}); "
            "install a newer Headway to read it"
        )
    return dict(_numbers_again(value))


class EventWriter:
    """Appends events to a JSON-lines file. Each line has `t` (Unix seconds) and `kind`.

    Lines reach the kernel at once, so that they survive the death of the process; only rows written with
    `later=True` may wait for a quarter of a second, because there can be thousands of them a second.
    """

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        with writing(self._folder):
            path.parent.mkdir(exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
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


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a JSON-lines file.

    A torn line is normal where a writer died: at the end of the file, or right before the line of its
    successor. It is dropped. A line that is whole but no JSON object is damage, and an error.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            event = parse_line(line)
            if event is not None:
                yield event
            elif not is_torn(line):
                raise FormatError(f"{path}, line {number}: damaged: {line[:80]!r}")


def last_time(path: Path) -> float:
    """When the newest of a JSON-lines file's last events was written; 0 where none can be read."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_BYTES))
        last = (parse_line(line) for line in file)
        return max(
            (float(event["t"]) for event in last if event and isinstance(event.get("t"), (int, float))), default=0.0
        )


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The event of one line; None if it is no JSON object."""
    if not line.endswith(b"\n"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return None
    return dict(_numbers_again(value)) if b'"NaN"' in line or b'Infinity"' in line else value


def is_torn(line: bytes) -> bool:
    """Whether a line is the beginning of an event that a dying writer left: JSON that only lacks its end."""
    text = line.strip().decode("utf-8", errors="ignore")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :]
        cut = (
            error.msg.startswith("Unterminated")
            or any(word.startswith(rest) for word in ("true", "false", "null"))
            or _CUT_NUMBER.fullmatch(rest) is not None
            or (error.msg.startswith("Invalid \\u") and len(rest) < 6)
        )
        return cut and text.startswith('{"t"'[: len(text)])
    return not line.endswith(b"\n")  # whole, but for the line's end: perhaps a longer number was meant
