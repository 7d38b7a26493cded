"""Programs of others for system tests, from Debian's packages: unpacked into a folder of ours, never installed.

Nothing of the system changes, no daemon is started, and no root is needed. What a package depends on is fetched only
where it is asked for, and lies in the same folder.
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


def unpacked_with_dependencies(*packages: str) -> Path:
    """The same of several packages and all that they need and this machine lacks, in one folder."""
    there = cache_folder() / "debian" / f"{packages[0]}-and-dependencies"
    if not there.is_dir():
        lacking = _lacking(*packages)
        need(lacking if isinstance(lacking, str) else _unpack(packages[0], there, *lacking))
    return there


def _lacking(*packages: str) -> list[str] | str:
    """The names of the packages that an installation would fetch; or why that is not known."""
    if not shutil.which("apt-get"):
        return f"the command `apt-get`, to get the package {packages[0]}"
    command = ["apt-get", "install", "--simulate", "--no-install-recommends", *packages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"package {packages[0]} ({why}; `apt-get update` may help)"
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Inst ")]


def _unpack(package: str, there: Path, *others: str) -> str | None:
    """None, or why not. The folder appears when it is whole. `others`: more packages into the same folder."""
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            return f"the command `{tool}`, to get the package {package}"
    there.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=there.parent) as scratch:
        problem = _run("apt-get", "download", "--quiet", *dict.fromkeys([package, *others]), cwd=scratch)
        if problem:
            return f"package {package} ({problem}; `apt-get update` may help)"
        for archive in sorted(Path(scratch).glob("*.deb")):
            if problem := _run("dpkg", "-x", str(archive), "files", cwd=scratch):
                return f"package {archive.name} ({problem})"
        (Path(scratch) / "files").replace(there)
    return None


def _run(*command: str, cwd: str) -> str | None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` took over {LIMIT:g} s"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
