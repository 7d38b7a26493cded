"""A report that is a folder of files: it is there whole or not at all, and takes the place of an older one alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway.errors import SpecError

MARK = "headway-report.json"  # in folders that we wrote; it lists their files
MOST_NAMED = 3


def check_place(folder: Path) -> None:
    """SpecError where something is in the folder's place that is not ours to delete."""
    if not folder.exists():
        return
    ours = _ours(folder)
    if ours is None:
        raise SpecError(f"{folder}: is there already, and is no report of ours; give another name")
    if others := sorted(path.name for path in folder.iterdir() if path not in ours):
        named = ", ".join(others[:MOST_NAMED]) + (" ..." if len(others) > MOST_NAMED else "")
        raise SpecError(
            f"{folder}: is a report that would be replaced, but not all in it is the report's ({named}); "
            "move that elsewhere, or give another name"
        )


@contextmanager
def written_whole(folder: Path, about: Mapping[str, Any]) -> Iterator[Path]:
    """An empty folder to write into, which then takes its place. Until that moment the old one stays as it is; where
    anything goes wrong, it just stays. `about`: what the mark says besides."""
    folder = Path(os.path.realpath(folder))  # of a link the folder that it leads to
    check_place(folder)
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        fresh.mkdir()
        yield fresh
        files = [MARK, *sorted(path.name for path in fresh.iterdir())]
        (fresh / MARK).write_text(json.dumps({**about, "files": files}) + "\n", encoding="utf-8")
        _put(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _put(fresh: Path, folder: Path) -> None:
    if not folder.exists():
        fresh.rename(folder)
        return
    check_place(folder)  # somebody may have put something there while we wrote
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    folder.rename(old)
    try:
        fresh.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    for path in _ours(old) or ():
        path.unlink()
    old.rmdir()


def _ours(folder: Path) -> set[Path] | None:
    """The files in it that its mark lists; None where it has none."""
    try:
        listed = json.loads((folder / MARK).read_text(encoding="utf-8")).get("files")
        if listed is None:  # before marks listed them
            listed = [MARK, *(path.name for path in folder.glob(f"*{folder.suffix}"))]
        return {path for path in folder.iterdir() if path.name in listed and path.is_file() and not path.is_symlink()}
    except (OSError, ValueError, AttributeError, TypeError):
        return None
