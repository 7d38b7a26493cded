"""When a folder cannot be written: the disk is full or read-only, the folder is missing, deleted or not a folder.

Every writer of a record raises StorageError for that, with the reason first and what to do about it last.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.errors import StorageError

RESERVE = 256 * 1024  # bytes that a run keeps, so that a full disk still takes its end: state, reason, last events
PROBE = 64 * 1024  # bytes that a folder must take to count as writable
CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.ENOENT: "missing, or deleted since",
    errno.ESTALE: "missing, or deleted since",
    errno.ENOTDIR: "not a folder",
    errno.EEXIST: "not a folder",
    errno.ELOOP: "a link that leads to itself",
    errno.ENAMETOOLONG: "the path is too long",
    errno.EFBIG: "the file is larger than allowed (ulimit -f)",
    errno.EMFILE: "too many open files (ulimit -n)",
    errno.EIO: "the disk cannot be written (I/O error)",
    errno.ENXIO: "the disk cannot be written (I/O error)",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)
# What other libraries (TensorFlow, DuckDB) say in their own exceptions.
_IN_TEXT = {number: os.strerror(number) for number in (*_FULL, errno.EROFS, errno.EIO, errno.EFBIG)}


def cause(error: BaseException) -> int | None:
    """The errno of an error that means that storage failed; None for any other error."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in CAUSES else None
    text = str(error)
    return next((number for number, words in _IN_TEXT.items() if words in text), None)


def in_words(error: BaseException, path: Path | None = None) -> str | None:
    """What happened, and to which path; None where it is no matter of storage. `path`: where an error names none."""
    if (number := cause(error)) is None:
        return None
    named = error.filename if isinstance(error, OSError) else None
    where = os.fsdecode(named) if named and (path is None or number not in _FULL) else path
    return f"{CAUSES[number]}: {'' if where is None else f'{where} '}({os.strerror(number)})"


def explained(error: BaseException, folder: Path) -> StorageError | None:
    """The same for whoever wanted a run, with what to do. `folder`: where it was to be."""
    if isinstance(error, StorageError):
        return error
    said = in_words(error, folder)
    if said is None or not _concerns(error, folder):
        return None
    if cause(error) in _FULL:
        said += f"\nFree some space, or choose another folder with --runs or $HEADWAY_RUNS{_free(folder)}."
    else:
        said += "\nChoose another folder with --runs or $HEADWAY_RUNS."
    return StorageError(said)


def _concerns(error: BaseException, folder: Path) -> bool:
    """Whether it is about the folder, something in it, or a folder that it is in: else a program may be missing."""
    if not isinstance(error, OSError) or error.filename is None or cause(error) in _IN_TEXT:
        return True
    named, folder = Path(os.fsdecode(error.filename)).absolute(), folder.absolute()
    return named.is_relative_to(folder) or folder.is_relative_to(named)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around whatever writes there: what storage does to it becomes a StorageError."""
    try:
        yield
    except Exception as error:
        found = explained(error, path)
        if found is None or found is error:
            raise
        raise found from None


def probe(folder: Path) -> None:
    """StorageError where nothing can be written to a folder just now."""
    path = folder / f".probe.{os.getpid()}"
    with writing(folder):
        try:
            with path.open("wb") as file:
                file.write(bytes(PROBE))
                file.flush()
                os.fsync(file.fileno())
        finally:
            path.unlink(missing_ok=True)


def _free(path: Path) -> str:
    from headway.units import format_bytes  # which needs pydantic, and an agent does without

    try:
        found = os.statvfs(path if path.exists() else path.parent)
    except OSError:
        return ""
    free, size = (format_bytes(blocks * found.f_frsize) for blocks in (found.f_bavail, found.f_blocks))
    return f" (free: {free} of {size})"
