"""Runs reading commands, each in a forked child with limits: `python tests/unit/read_hostile.py`.

A request is a line of JSON: the arguments of a command. The answer is one, too: how it ended, how long it took, how
much memory it used and what it printed. Everything is imported once, before the first fork.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any

from headway import cli

SECONDS = 20  # until a command is killed; the test allows less
ADDRESSES = 6 * 2**30  # bytes: a thread's stack and an allocator's arena take more than they use


def ask(arguments: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            code = 70
            try:
                sys.argv = ["headway", *arguments]
                cli.main()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                with suppress(BaseException):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)
        _, status, usage = os.wait4(child, 0)
        seconds = time.monotonic() - began
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it has started, and left
        output.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "seconds": seconds,
            "memory": usage.ru_maxrss * 1024,
            "output": output.read(2**20).decode("utf-8", errors="replace"),
        }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(ask(json.loads(line))), flush=True)
