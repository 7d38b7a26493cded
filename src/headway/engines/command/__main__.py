"""`python -m headway.engines.command -- PROGRAM ARGUMENTS`: one task of a run; see the package's docstring."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from headway.engines.assignment import Assignment
from headway.engines.command.program import Program
from headway.record.storage import explained


def main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the launcher decides
    assignment = Assignment(os.environ)
    try:
        code = Program(assignment, sys.argv[2:]).run()
        assignment.events.close()
    except OSError as error:
        if explained(error, assignment.folder.path) is None:
            raise
        assignment.end_for_storage(error)  # and with us the program: it must not go on unrecorded
    if code < 0:  # ended by a signal: so do we, and whoever looks sees what it was
        os.kill(os.getpid(), -code)
    os._exit(abs(code))


if __name__ == "__main__":
    main()
