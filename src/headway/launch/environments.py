"""A Python environment for a user's own program: made from a requirements file, once, and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from headway import locks
from headway.errors import SiteError, SpecError
from headway.spec.command import Command
from headway.workloads import cache_folder
from headway.workloads.base import Progress

LIMIT = 1800.0  # seconds for pip: frameworks are large
LOOK_LIMIT = 20.0  # seconds for a Python to say what it has: a file system may be slow
# What programs that train are made of. Only names are looked up, nothing is imported.
TRAINED_WITH = (
    *("torch", "torchvision", "lightning", "pytorch-lightning", "deepspeed", "accelerate", "transformers", "datasets"),
    *("tensorflow", "tensorflow-cpu", "keras", "tf-keras", "jax", "jaxlib", "flax", "optax", "mxnet", "paddlepaddle"),
    *("horovod", "ray", "mpi4py", "dask", "xgboost", "lightgbm", "scikit-learn", "numpy", "protobuf", "grpcio"),
)
_ASK = """
import importlib.metadata as metadata, json, platform, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps({"python": platform.python_version(), "packages": found}))
"""


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


def python_of_command(program: Command) -> Path:
    """The Python that a command runs with, as far as its first word says so: that word, or one beside it (torchrun),
    or else the first on its path."""
    own = python_for(program.python, Path(program.directory or ".")) if program.python else Path(sys.executable)
    path = f"{own.parent}:{os.environ.get('PATH', os.defpath)}"
    found = shutil.which(program.command[0], path=path)
    if found and re.fullmatch(r"python(\d+(\.\d+)*)?", Path(found).name):
        return Path(found)
    beside = Path(found).parent / "python" if found else own
    return beside if beside.exists() else own


def described(program: Command) -> dict[str, Any]:
    """`executable`, `python` (its version) and `packages` of what a program runs with; only `executable` where it does
    not say so."""
    python = python_of_command(program)
    try:
        # -I: nothing of the folder that it is started in is imported.
        done = subprocess.run(
            [str(python), "-I", "-c", _ASK, *TRAINED_WITH],
            capture_output=True,
            text=True,
            timeout=LOOK_LIMIT,
            check=True,
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        found = {}
    return {"executable": str(python), **found}


def python_of(requirements: Path, progress: Progress = lambda *_: None) -> Path:
    """The Python of the environment that has just these requirements; a new one takes minutes. SiteError, with pip's
    last words, when it cannot be made."""
    folder = _folder(requirements)
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locks.held(folder.with_suffix(".lock")):  # two runs may want it at once
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
