"""Programs of others for system tests, from Debian's packages: unpacked into a folder of ours, never installed.

Nothing of the system changes, no daemon is started, and no root is needed. What a package depends on is fetched only
where it is asked for, and lies in the same folder.
"""

from __future__ import annotations

import re
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
    """The same of several packages and what the first one needs, in one folder."""
    there = cache_folder() / "debian" / f"{packages[0]}-with-dependencies"
    if not there.is_dir():
        if not shutil.which("apt-get"):
            need(f"the command `apt-get`, to get the package {packages[0]}")
        lacking, needed = _installation(*packages), _installation(*packages, on_empty_machine=True)
        for problem in (lacking, needed):
            if isinstance(problem, str):
                need(f"package {packages[0]} ({problem}; `apt-get update` may help)")
        assert isinstance(lacking, dict)
        assert isinstance(needed, dict)
        need(_unpack(packages[0], there, *to_unpack(packages[0], lacking, needed)))
    return there


def to_unpack(package: str, lacking: dict[str, str], needed: dict[str, str]) -> list[str]:
    """The packages to unpack, of those that this machine lacks and those that an empty one needs (names and versions).

    Libraries that are installed are found where they are. Packages of one source are not libraries of each other:
    Chromium looks for its data beside its program, so what is built with the package (the same version) is always
    unpacked with it, installed or not.
    """
    return sorted({package, *lacking} | {name for name, version in needed.items() if version == needed[package]})


def _installation(*packages: str, on_empty_machine: bool = False) -> dict[str, str] | str:
    """Names and versions of what `apt-get install` would fetch; or why that is not known."""
    command = ["apt-get", "install", "--simulate", "--no-install-recommends", *packages]
    if on_empty_machine:
        command += ["-o", "Dir::State::status=/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return simulated(done.stdout)


def simulated(printed: str) -> dict[str, str]:
    """Names and versions out of lines such as "Inst NAME [INSTALLED VERSION] (VERSION SUITE [ARCHITECTURE])"."""
    return dict(re.findall(r"^Inst (\S+) (?:\[[^]]*\] )?\((\S+) ", printed, flags=re.MULTILINE))


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
