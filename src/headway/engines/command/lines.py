"""Steps and losses in what a program prints."""

from __future__ import annotations

import re

from headway.engines.assignment import Assignment
from headway.engines.command.formats import HOW, Format, Pattern, common, plain, shown
from headway.engines.command.reports import Reporter
from headway.record.sources import LINE

LONGEST = 8192  # bytes of a line that are kept: output without line ends (base64, say) must not fill the memory
_ENDS = re.compile(rb"[\r\n\b]+")  # of a line, or of a progress bar that is drawn over


class Stream:
    """Output that comes in pieces, as lines with the time at which the last of each came: a progress bar is whole only
    when the next one begins."""

    def __init__(self) -> None:
        self._rest, self._rest_t = b"", 0.0

    def lines(self, t: float, piece: bytes) -> list[tuple[float, str]]:
        *whole, rest = _ENDS.split(self._rest + piece)
        is_ended_by_this = bool(self._rest) and _ENDS.match(piece) is not None
        times = [self._rest_t if is_ended_by_this and not place else t for place in range(len(whole))]
        self._rest_t = t if piece else self._rest_t
        self._rest = rest[-LONGEST:]
        return [(when, line.decode(errors="replace")) for when, line in zip(times, whole, strict=True) if line]

    def end(self) -> list[tuple[float, str]]:
        rest, self._rest = self._rest, b""
        return [(self._rest_t, rest.decode(errors="replace"))] if rest else []


class Lines:
    def __init__(self, assignment: Assignment, reporter: Reporter) -> None:
        job = assignment.job
        assert job.program is not None
        asked = job.program.report.patterns
        size = job.cluster.role(assignment.task.role).batch_size or job.program.batch_size
        self._formats: list[Format] = (
            [Pattern(*asked, flags=0)] if asked else common(size, max(1, job.num_training_tasks))
        )
        self._counts: tuple[Format, str] | None = None  # whose steps are counted: the first that told of one
        self._reporter = reporter

    def hear(self, t: float, line: str) -> None:
        line = plain(line)
        for form in self._formats:
            try:
                reading = form.read(line)
            except (ValueError, OverflowError):  # a number that is none, or of hundreds of digits
                continue
            if reading is None:
                continue
            step = reading.step
            if step is not None:
                self._counts = self._counts or (form, reading.counter)
                step = step if self._counts == (form, reading.counter) else None
            said = {"step": step, "loss": reading.loss, **reading.values}
            if values := {name: float(value) for name, value in said.items() if value is not None}:
                self._reporter.report(LINE, t, values)
            if reading.evaluation:
                self._reporter.evaluated(LINE, t, reading.evaluated_step, *reading.evaluation)
            if reading.not_counted:
                why = f"{reading.not_counted}. {HOW}"
                self._reporter.not_counted(LINE, shown(line), why, reading.is_partial)
            return
