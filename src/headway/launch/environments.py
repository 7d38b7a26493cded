"""A Python environment for a user's own program: made from a requirements file, once, and kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from headway.errors import SiteError, SpecError
from headway.workloads import cache_folder
from headway.workloads.base import Progress

LIMIT = 1800.0  # seconds for pip: frameworks are large


def python_for(asked: str, directory: Path) -> Path:
    """The Python that a job asks for, whether it is there yet or not. A relative path begins in `directory`."""
    path = (directory / Path(asked).expanduser()).absolute()
    return _folder(path) / "bin" / "python" if path.suffix == ".txt" else path


def check(asked: str, directory: Path) -> None:
    """SpecError where nothing can come of it."""
    path = (directory / Path(asked).expanduser()).absolute()
    if path.suffix == ".txt":
        if not path.is_file():
            raise SpecError(f"workload.python: there is no requirements file {path}")
    elif not (path.is_file() and os.access(path, os.X_OK)):
        raise SpecError(
            f"workload.python: {path} is no program. Give the path of a Python (env/bin/python), or of a requirements "
            "file that ends in .txt"
        )


def make(asked: str, directory: Path, progress: Progress) -> None:
    """What `python_for` names, if it is for us to make."""
    requirements = (directory / Path(asked).expanduser()).absolute()
    if requirements.suffix == ".txt":
        python_of(requirements, progress)


def python_of(requirements: Path, progress: Progress = lambda *_: None) -> Path:
    """The Python of the environment that has just these requirements; a new one takes minutes. SiteError, with pip's
    last words, when it cannot be made."""
    folder = _folder(requirements)
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs may want it at once
        if (folder / "complete").exists():
            return python
        progress(f"a Python environment for {requirements.name}", 0, None)
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)], requirements)
        # Its own place, not a temporary one that is renamed: an environment's scripts know where they are.
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "-r", str(requirements)]
        _run(pip, requirements)
        (folder / "complete").touch()
    return python


def _folder(requirements: Path) -> Path:
    """Named by all that it depends on."""
    try:
        content = requirements.read_bytes()
    except OSError as error:
        raise SpecError(f"workload.python: {requirements}: {error.strerror}") from None
    key = hashlib.sha256(content + sys.version.encode()).hexdigest()[:16]
    return cache_folder().absolute() / "environments" / f"{requirements.stem}-{key}"


def _run(command: list[str], requirements: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise SiteError(f"the environment of {requirements} was not there within {LIMIT / 60:g} minutes") from None
    if done.returncode != 0:
        last = "\n  ".join(done.stderr.strip().splitlines()[-5:])
        raise SiteError(f"the environment of {requirements} cannot be made:\n  {last}")
