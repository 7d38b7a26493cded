"""The program's life: start it, hear it, end it, and say how it ended."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import threading
import time
from collections import deque
from pathlib import Path

from headway import clock
from headway.engines.assignment import Assignment
from headway.engines.command.boards import Boards
from headway.engines.command.known_limits import explanation, would_fail_again
from headway.engines.command.lines import Lines, Stream
from headway.engines.command.reports import Reporter
from headway.record.tail import Tail
from headway.spec.command import CHIEF_ENDED, ENDED, filled_in

LOOK = 0.1  # seconds between looks at what the program wrote
BOARDS = 1.0  # seconds between looks for TensorBoard files
LAST_LINES = 40
OUTPUT_LIMIT = 2.0  # seconds for the rest of the output, where the program left children that hold it open
CANNOT_START = 127  # as a shell says it
SOON = 30.0  # seconds: who fails later has started
PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EINTR, errno.ETXTBSY)  # why a program cannot be started just now
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


class Program:
    def __init__(self, assignment: Assignment, argv: list[str]) -> None:
        self._assignment, self._argv = assignment, argv
        self._control, self._job = assignment.control, assignment.job
        program = self._job.program
        assert program is not None
        self._program = program
        self._reporter = Reporter(assignment)
        self._lines = Lines(assignment, self._reporter)
        self._reports = Tail(assignment.folder.reports(assignment.task))
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._boards_at = 0.0
        self._term_at: float | None = None  # when it is sent SIGTERM; infinite: it was

    def run(self) -> int:
        """Until the program has ended, and for the chief until every other training task has. The exit code; negative:
        the signal that ended it."""
        folder = self._assignment.folder
        folder.model_dir.mkdir(exist_ok=True)
        where = filled_in(self._program.report.tensorboard or "{model_dir}", {"model_dir": str(folder.model_dir)})
        boards = Path(self._program.directory or ".") / where
        try:
            process = self._start()  # before there are threads: what forks beside them may find their locks held
        except OSError as error:
            what = f"{error.filename or self._argv[0]}: {error.strerror}"
            is_lasting = error.errno not in PASSING
            self._assignment.event("failed", error="cannot start", message=what, hopeless=is_lasting)
            return CANNOT_START
        began = time.monotonic()
        self._boards = Boards(boards, process.pid, self._assignment, self._reporter)
        self._assignment.start_heartbeat()
        self._control.listen()
        self._assignment.event("ready", pid=os.getpid(), program=process.pid)
        if self._assignment.task in self._job.cluster.training_tasks():
            self._assignment.event("joined", step=0, generation=0)
        output = threading.Thread(target=self._pass_on, args=(process,), name="output", daemon=True)
        output.start()
        while process.poll() is None:
            self._hear(time.monotonic())
            if self._control.stop_reason is not None and self._term_at is None:
                # Where training is over because the chief's is, the others are about to end by themselves.
                patience = self._job.limits.stop / 2 if self._control.stop_reason == CHIEF_ENDED else 0.0
                self._term_at = time.monotonic() + patience
            if self._term_at is not None and time.monotonic() >= self._term_at:
                process.send_signal(signal.SIGTERM)
                self._term_at = float("inf")
            self._control.wait(LOOK)
        output.join(OUTPUT_LIMIT)
        self._hear(float("inf"))
        return self._ended(process.returncode, time.monotonic() - began)

    def _start(self) -> subprocess.Popen[bytes]:
        def in_child() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # it must not outlive us
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the launcher's

        return subprocess.Popen(
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._program.directory,
            preexec_fn=in_child,  # noqa: PLW1509 - safe: there is one thread
        )

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        """What it prints goes to our log as it comes, and line by line to whoever looks for steps."""
        assert process.stdout
        stream = Stream()
        while chunk := os.read(process.stdout.fileno(), 65_536):
            now = clock.now()
            try:
                _write(1, chunk)
                self._heard(stream.lines(now, chunk))
            except OSError as error:  # nobody else would empty the pipe: the program would wait for ever
                self._assignment.end_for_storage(error)
        self._heard(stream.end())

    def _heard(self, lines: list[tuple[float, str]]) -> None:
        for t, line in lines:
            self._last_lines.append(line)
            self._lines.hear(t, line)

    def _hear(self, now: float) -> None:
        self._reporter.said(self._reports.read()[1])
        if now - self._boards_at >= BOARDS:
            self._boards_at = now
            self._boards.look()

    def _ended(self, code: int, seconds: float) -> int:
        event, stopped = self._assignment.event, self._control.stop_reason
        last = next((line.strip() for line in reversed(self._last_lines) if line.strip()), "it printed nothing")
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        message = explanation("\n".join(self._last_lines)) or last
        if code != 0 and stopped is None:
            is_start = seconds < SOON and self._reporter.step == 0
            event("failed", error=how, message=message, hopeless=is_start and would_fail_again(code, last))
            return code
        # Whatever it ends with after our SIGTERM is no failure; by itself, while all were being stopped, it is one.
        failure = f"{how}: {message}" if code != 0 and self._term_at != float("inf") else None
        is_chief = self._assignment.is_chief
        ends_all = is_chief and self._program.ends_with == "chief"
        reason = f"stopped: {stopped}" if stopped else CHIEF_ENDED if ends_all else ENDED
        event("done", reason=reason, step=self._reporter.step, own_steps=self._reporter.own_steps, failure=failure)
        is_alone = self._assignment.num_training_tasks == 1
        while is_chief and not is_alone and not self._control.finalize and not self._control.hurry:
            self._control.wait(1.0)
        return 0
