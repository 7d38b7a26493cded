"""Runs `headway` on a small disk, and tells what it said and left. Run in a mount namespace of its own:

    unshare --mount python small_disk.py '{"disk": ..., "size": "3m", "arguments": [...], "then": "fill"}'

`then`: what happens once the run has made its first steps: fill, delete, or nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIMIT = 90.0
HEADWAY = [sys.executable, "-m", "headway"]


def fill(disk: Path) -> None:
    """To the last byte."""
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with contextlib.suppress(OSError), (disk / "filler").open("ab", buffering=0) as file:
        while True:
            file.write(b"x")


def has_stepped(runs: Path) -> bool:
    return any(b'"kind": "step"' in path.read_bytes() for path in runs.rglob("events/*.jsonl"))


def everything(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        yield str(path.relative_to(folder))


def main(disk: Path, size: str, arguments: list[str], then: str, options: str = "") -> dict[str, Any]:
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}{options}", "tmpfs", str(disk)], check=True)
    runs = disk / "runs"
    environment = {**os.environ, "HEADWAY_RUNS": str(runs)}
    process = subprocess.Popen(
        [*HEADWAY, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + LIMIT
    while then != "nothing" and process.poll() is None and not has_stepped(runs) and time.monotonic() < deadline:
        time.sleep(0.1)
    began = time.monotonic()
    if then == "fill":
        fill(disk)
    elif then == "delete":
        shutil.rmtree(runs, ignore_errors=True)
        shutil.rmtree(runs, ignore_errors=True)  # what was made while it was being deleted
    out, err = process.communicate(timeout=LIMIT)
    seconds = time.monotonic() - began
    with contextlib.suppress(OSError):  # a read-only disk has none
        (disk / "filler").unlink(missing_ok=True)
    shown, show = (
        subprocess.run([*HEADWAY, *command], env=environment, capture_output=True, text=True, check=False)
        for command in (("runs", "-o", "json"), ("show", "last"))
    )
    return {
        "code": process.returncode,
        "out": out,
        "err": err,
        "seconds": seconds,
        "runs": json.loads(shown.stdout or "[]"),
        "show": [show.returncode, show.stdout, show.stderr],
        "files": list(everything(disk)),
        "logs": "".join(path.read_text(errors="replace") for path in runs.rglob("logs/*.log")),
    }


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    print(json.dumps(main(Path(order.pop("disk")), **order)))
