"""Programs of others for system tests, from Debian's packages: unpacked into a folder of ours, never installed.

Nothing of the system changes, no daemon is started, and no root is needed. What a package depends on is not fetched.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from parts import need

from headway.workloads import cache_folder

LIMIT = 300.0  # seconds for a download of some ten megabytes


def unpacked(package: str) -> Path:
    """The root folder of a package's files, kept for later. Where it cannot be had: a skip, or in CI a failure."""
    there = cache_folder() / "debian" / package
    if not there.is_dir():
        need(_unpack(package, there))
    return there


def _unpack(package: str, there: Path) -> str | None:
    """None, or why not. The folder appears when it is whole."""
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            return f"the command `{tool}`, to get the package {package}"
    there.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=there.parent) as scratch:
        problem = _run("apt-get", "download", "--quiet", package, cwd=scratch)
        if problem:
            return f"package {package} ({problem}; `apt-get update` may help)"
        (archive,) = Path(scratch).glob("*.deb")
        if problem := _run("dpkg", "-x", str(archive), "files", cwd=scratch):
            return f"package {package} ({problem})"
        (Path(scratch) / "files").replace(there)
    return None


def _run(*command: str, cwd: str) -> str | None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` took over {LIMIT:g} s"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
