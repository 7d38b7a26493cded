"""Processes in a network of their own: started in new namespaces (`unshare`), reads from standard input what to start,
and writes their exit codes. The namespaces, and with them whatever is left of the processes, end when this one does.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headway.agent.__main__ import bring_loopback_up

AFTER_A_FAILURE = 15.0  # seconds that the others have to notice; some would wait for ever


def exit_codes(asked: dict[str, Any]) -> dict[str, int | None]:
    """By name, when all that end by themselves have done so; None of those that had to be ended."""
    with contextlib.ExitStack() as open_files:
        started = {
            one["name"]: subprocess.Popen(
                one["argv"],
                cwd=asked["folder"],
                env={**os.environ, **one["env"]},
                stdin=subprocess.DEVNULL,
                stdout=open_files.enter_context(Path(one["log"]).open("wb")),
                stderr=subprocess.STDOUT,
            )
            for one in asked["processes"]
        }
        enders = [started[one["name"]] for one in asked["processes"] if not one["is_server"]]
        deadline = time.monotonic() + asked["limit"]
        has_failed = False
        while any(process.poll() is None for process in enders) and time.monotonic() < deadline:
            if not has_failed and any(process.poll() for process in started.values()):
                has_failed = True
                deadline = min(deadline, time.monotonic() + AFTER_A_FAILURE)
            time.sleep(0.1)
        codes = {name: process.poll() for name, process in started.items()}
        for process in started.values():
            if process.poll() is None:
                process.kill()
            process.wait()
    return codes


if __name__ == "__main__":
    bring_loopback_up()
    json.dump(exit_codes(json.load(sys.stdin)), sys.stdout)
