"""Opens the files of a folder that is not to be trusted: a run's or a sweep's, perhaps a stranger's.

Only regular files inside of the folder are opened. A link, a FIFO or a device in their place is damage. So is a file
that is too large, nested too deeply or of the wrong type. Each is a FormatError that says where and why. The folder
itself may be a link, and what a program keeps in `model_dir/` is never opened.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from headway.errors import FormatError, HeadwayError, MissingFile

MOST_JSON = 64 * 2**20  # bytes of a JSON file
MOST_ROWS = 16 * 2**30  # bytes of a file of rows
MOST_LINE = 16 * 2**20  # bytes of a row, as DuckDB has it
MOST_LEVELS = 60  # of nesting; a job file has 50 at most
LAST_BYTES = 64 * 2**10
LARGEST = 2**63  # of a number, also Parquet's
TEXT, NUMBER, ANYTHING = "text", "number", "anything"
_CUT_NUMBER = re.compile(r"[.eE+-]{0,3}")
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# What goes wrong where a value has another type than the code expects.
UNEXPECTED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class Reader:
    """Reads the files of one folder, which are named by their paths or relative to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def open(self, path: Path | str, most: int = MOST_ROWS) -> BinaryIO:
        """A regular file, to be read. MissingFile where there is none, FormatError where it is something else."""
        path = self._folder / path
        inner = path.relative_to(self._folder)
        if ".." in inner.parts:
            raise FormatError(f"{path}: damaged: not inside of the folder")
        try:
            place = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                for part in inner.parts[:-1]:
                    # O_PATH needs no permission to list, as the path would need none.
                    deeper = os.open(part, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=place)
                    os.close(place)
                    place = deeper
                file = os.open(inner.name, _OPEN, dir_fd=place)
            finally:
                os.close(place)
        except FileNotFoundError:
            raise MissingFile(f"{path}: missing (deleted since, or not copied with the rest of its folder)") from None
        except OSError as error:
            raise FormatError(f"{path}: damaged: cannot be opened as a file of the folder ({error.strerror})") from None
        except ValueError as error:  # a name with a null byte
            raise FormatError(f"{path!r}: damaged: {error}") from None
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            os.close(file)
            why = f"{status.st_size:,} bytes, at most {most:,} are read" if stat.S_ISREG(status.st_mode) else "no file"
            raise FormatError(f"{path}: damaged: {why}")
        return os.fdopen(file, "rb")

    def exists(self, path: Path | str) -> bool:
        """Whether there is something by that name, of whatever kind."""
        return os.path.lexists(self._folder / path)

    def checked(self, path: Path | str, most: int = MOST_ROWS) -> Path:
        """Its path, for a library that opens files by name; FormatError where that is no file of the folder."""
        self.open(path, most).close()
        return self._folder / path

    def files(self, inner: str, suffix: str) -> list[Path]:
        """The files of an inner folder whose names end so, in order; none where there is no such folder."""
        folder = self._folder / inner
        try:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise FormatError(f"{folder}: damaged: no folder")
            names = [entry.name for entry in os.scandir(folder)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FormatError(f"{folder}: damaged: cannot be read ({error.strerror})") from None
        return [folder / name for name in sorted(names) if name.endswith(suffix) and not name.startswith(".")]

    def json(self, path: Path | str, version: int) -> dict[str, Any]:
        """A JSON object that carries `format`; a newer one is refused."""
        path = self._folder / path
        with self.open(path, MOST_JSON) as file:
            value = parse(file.read(), str(path))
        if not isinstance(value, dict) or not isinstance(value.get("format"), int):
            raise FormatError(f"{path}: not a file of a run folder (it has no format number)")
        if value["format"] > version:
            raise FormatError(
                f"{path}: written by a newer Headway (format {value['format']}, this one reads up to {version}); "
                "install a newer Headway to read it"
            )
        return dict(numbers_again(value))

    def lines(self, path: Path | str) -> Iterator[dict[str, Any]]:
        """The events of a JSON-lines file.

        A torn line is normal where a writer died: at the end of the file, or right before the line of its
        successor. It is dropped. A line that is whole but no JSON object is damage, and an error.
        """
        with self.open(path) as file:
            number = 0
            while line := file.readline(MOST_LINE):
                number += 1
                event = parse_line(line)
                if event is not None:
                    yield event
                elif not is_torn(line):
                    raise FormatError(f"{self._folder / path}, line {number}: damaged: {line[:80]!r}")

    def last_lines(self, path: Path | str, num_bytes: int = LAST_BYTES) -> list[dict[str, Any]]:
        """The events in the last bytes of a file; none where there is no such file."""
        try:
            file = self.open(path)
        except MissingFile:
            return []
        with file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - num_bytes))
            lines = file.read(num_bytes).splitlines(keepends=True)
        # The first line may have lost its beginning, one that a killed task wrote its end.
        return [event for line in lines if (event := parse_line(line)) is not None]

    def refuse_links(self) -> None:
        """FormatError where anything below the folder is neither a file nor a folder, so that nobody who writes there
        writes somewhere else. Sockets are the launcher's. A program's own `model_dir` may have links."""
        for place, folders, files in os.walk(self._folder):
            if Path(place) == self._folder:
                folders[:] = [name for name in folders if name != "model_dir" or (Path(place) / name).is_symlink()]
            for name in (*folders, *files):
                path = Path(place) / name
                with suppress(FileNotFoundError):
                    mode = path.lstat().st_mode
                    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)):
                        raise FormatError(
                            f"{path}: damaged: a link or a device, and a run folder has only files. Nothing is written "
                            "there; remove it to go on"
                        )


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Around whatever interprets the record of a run or a sweep: what does not fit is damage of that one."""
    try:
        yield
    except HeadwayError:
        raise
    except UNEXPECTED as error:
        words = " ".join(str(error).split())[:200]
        raise FormatError(f"{name}: its record is damaged ({type(error).__name__}: {words})") from error


def read_json(path: Path, version: int) -> dict[str, Any]:
    """A JSON file with a format number, of whatever folder."""
    return Reader(path.parent).json(path.name, version)


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a file, of whatever folder."""
    return Reader(path.parent).lines(path.name)


def parse(data: bytes | str, where: str) -> Any:
    """JSON; FormatError with `where` where it is none, or nested too deeply."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value = json.loads(text)
    except RecursionError:
        raise FormatError(f"{where}: damaged: nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{where}: damaged ({error})") from None
    if text.count("[") + text.count("{") > MOST_LEVELS and _levels(value) > MOST_LEVELS:
        raise FormatError(f"{where}: damaged: nested too deeply")
    return value


def _levels(value: Any) -> int:
    deepest, level = 0, [value]
    while level := [each for each in level if isinstance(each, (dict, list))]:
        deepest += 1
        if deepest > MOST_LEVELS:
            break
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return deepest


def numbers_again(value: Any) -> Any:
    """What the writer made of numbers that JSON does not have, as numbers."""
    if isinstance(value, str):
        return _NOT_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: numbers_again(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [numbers_again(inner) for inner in value]
    return value


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The event of one line; None if it is no JSON object."""
    if not line.endswith(b"\n"):
        return None
    try:
        value = parse(line, "")
    except FormatError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return None
    return dict(numbers_again(value)) if b'"NaN"' in line or b'Infinity"' in line else value


def is_torn(line: bytes) -> bool:
    """Whether a line is the beginning of an event that a dying writer left: JSON that only lacks its end."""
    text = line.strip().decode("utf-8", errors="ignore")
    try:
        json.loads(text)
    except RecursionError:
        return False
    except json.JSONDecodeError as error:
        rest = text[error.pos :]
        cut = (
            error.msg.startswith("Unterminated")
            or any(word.startswith(rest) for word in ("true", "false", "null"))
            or _CUT_NUMBER.fullmatch(rest) is not None
            or (error.msg.startswith("Invalid \\u") and len(rest) < 6)
        )
        return cut and text.startswith('{"t"'[: len(text)])
    except ValueError:  # a whole number of thousands of digits
        return False
    return not line.endswith(b"\n")  # whole, but for the line's end: perhaps a longer number was meant


def fits(value: Any, shape: Any, where: str) -> None:
    """FormatError unless a value has a shape: TEXT, NUMBER, ANYTHING, a list of one, or a dict in which `...` stands
    for all other keys. What is not known (None) fits everywhere."""
    if value is None or shape == ANYTHING:
        return
    if shape == NUMBER:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_right = is_number and (abs(value) < LARGEST or (isinstance(value, float) and not math.isfinite(value)))
    elif shape == TEXT:
        is_right = isinstance(value, str)
    else:
        is_right = isinstance(value, type(shape))
    if not is_right:
        wanted = shape if isinstance(shape, str) else "table" if isinstance(shape, dict) else "list"
        raise FormatError(f"{where}: {str(value)[:60]!r} is no {wanted}")
    if isinstance(shape, list):
        for number, one in enumerate(value):
            fits(one, shape[0], f"{where}: {number}")
            if one is None:
                raise FormatError(f"{where}: {number} is not there")
    elif isinstance(shape, dict):
        for key, inner in value.items():
            fits(inner, shape.get(key, shape.get(..., ANYTHING)), f"{where}: {str(key)[:60]}")
