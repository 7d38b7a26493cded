"""Steps and losses in what a program prints."""

from __future__ import annotations

import re

from headway.engines.command.reports import LINE, Reporter
from headway.spec.command import Report

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
# What scripts print, if nobody says what this one does. The last two are tf_cnn_benchmarks' (E2).
COMMON = (
    rf"\b(?:global_?|train_?)?step[ :=#]*(?P<step>\d+)\b.*?\bloss[ :=]*(?P<loss>{_NUMBER})",
    rf"\bloss[ :=]*(?P<loss>{_NUMBER}).*?\b(?:global_?)?step[ :=]*(?P<step>\d+)\b",
    rf"^(?P<step>\d+)\timages/sec: (?P<examples_per_s>{_NUMBER}).*\t(?P<loss>{_NUMBER})",
    rf"^total images/sec: (?P<examples_per_s>{_NUMBER})",
)


class Lines:
    def __init__(self, asked: Report, reporter: Reporter) -> None:
        patterns = asked.patterns or COMMON
        self._patterns = [re.compile(pattern, 0 if asked.patterns else re.IGNORECASE) for pattern in patterns]
        self._reporter = reporter

    def hear(self, t: float, line: str) -> None:
        for pattern in self._patterns:
            if found := pattern.search(line):
                try:
                    values = {name: float(text) for name, text in found.groupdict().items() if text is not None}
                except ValueError:
                    continue  # the user's pattern takes more than a number: then it is not meant
                self._reporter.report(LINE, t, values)
                return
