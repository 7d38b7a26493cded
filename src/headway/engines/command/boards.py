"""Steps, losses and evaluations in the TensorBoard files that a program writes.

A file is a row of TFRecords, each an Event: wall_time (1), step (2), summary (5) { value (1) { tag (1), and the number
as simple_value (2) or as a tensor (8) { float_val (5) | double_val (6) | tensor_content (4) } } }.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import psutil

from headway import clock
from headway.engines.assignment import Assignment
from headway.engines.command.reports import Reporter
from headway.record.sources import BOARD
from headway.workloads.protobuf import fields
from headway.workloads.tfrecord import FOOTER, HEADER

PATTERN = "*tfevents*"
_PID = re.compile(r"\.(\d+)\.\d+(?:\.v2)?$")
_EVALUATION = ("eval", "val", "test")  # how folders of evaluations begin
_EVALUATIONS = {"val", "valid", "validation", "eval", "evaluation", "test", "dev"}
_DOUBLES = 2  # TensorFlow's number for the type
_EPOCHS = (
    "it is counted in epochs, not in steps. Keras writes steps with TensorBoard(update_freq=1); or call "
    "headway.log(step=...) in the program"
)
_PERHAPS = "it may be counted in steps or in epochs. If in steps, name it: workload.report.loss_tag"


class Boards:
    """Follows the files of one task: those that its own processes write; of those whose names do not tell, the chief
    takes all, but an evaluator the evaluations."""

    def __init__(self, folder: Path, pid: int, assignment: Assignment, reporter: Reporter) -> None:
        job = assignment.job
        assert job.program is not None
        self._folder, self._pid, self._reporter = folder, pid, reporter
        self._tag = job.program.report.loss_tag
        has_evaluator = job.cluster.evaluator.count > 0
        self._is_evaluator = assignment.task.role == "evaluator"
        self._is_chief = assignment.is_chief
        self._evaluations_are_ours = self._is_evaluator if has_evaluator else self._is_chief
        self._evaluation: tuple[float, int, dict[str, float]] | None = None
        self._files: dict[Path, int | None] = dict.fromkeys(self._found())  # None: not ours, or from before

    def look(self) -> None:
        for path in self._found():
            if path not in self._files:
                self._files[path] = 0 if self._is_ours(path) else None
        for path, offset in self._files.items():
            if offset is not None:
                self._files[path] = self._read(path, offset)
                self._tell_evaluation()

    def _found(self) -> list[Path]:
        return sorted(self._folder.rglob(PATTERN)) if self._folder.is_dir() else []

    def _is_evaluation(self, path: Path) -> bool:
        parts = path.relative_to(self._folder).parts[:-1]
        return any(part.startswith(_EVALUATION) for part in parts)

    def _is_ours(self, path: Path) -> bool:
        if named := _PID.search(path.name):
            try:
                mine = {self._pid, *(child.pid for child in psutil.Process(self._pid).children(recursive=True))}
            except psutil.NoSuchProcess:
                mine = {self._pid}
            return int(named[1]) in mine
        return self._evaluations_are_ours if self._is_evaluation(path) else self._is_chief

    def _read(self, path: Path, offset: int) -> int:
        """Whole records from here on; where the next one begins."""
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = memoryview(file.read())
        except OSError:
            return offset
        position = 0
        while position + HEADER <= len(data):
            (length,) = struct.unpack("<Q", data[position : position + 8])
            end = position + HEADER + length + FOOTER
            if end > len(data):
                break  # it is being written
            with contextlib.suppress(ValueError, IndexError, OverflowError, struct.error):  # a damaged record
                self._hear(path, data[position + HEADER : end - FOOTER])
            position = end
        return offset + position

    def _hear(self, path: Path, event: memoryview) -> None:
        t, step, scalars = _event(event)
        t = clock.from_unix(t)
        if self._tag in scalars:
            self._reporter.report(BOARD, t, {"step": step, "loss": scalars[self._tag]})
            return
        for tag, value in scalars.items():
            counted_in, what = meaning(tag)
            if what is None or counted_in == "epochs":
                if self._tag is None and "loss" in _words(tag) and not self._is_evaluation(path):
                    self._reporter.not_counted(BOARD, f"the scalar {tag}", _EPOCHS if counted_in else _PERHAPS)
            elif counted_in == "evaluations" or self._is_evaluation(path):
                self._evaluated(t, step, {what: value})
            elif what == "loss" and self._tag is None:
                self._reporter.report(BOARD, t, {"step": step, "loss": value})

    def _evaluated(self, t: float, step: int, values: dict[str, float]) -> None:
        """Accuracy and loss of one evaluation may be in two events."""
        if self._evaluation is not None and self._evaluation[1] != step:
            self._tell_evaluation()
        before = {} if self._evaluation is None else self._evaluation[2]
        self._evaluation = (t, step, {**before, **values})

    def _tell_evaluation(self) -> None:
        if self._evaluation is not None:
            t, step, values = self._evaluation
            self._reporter.evaluated(BOARD, t, step, values.get("accuracy"), values.get("loss"))
            self._evaluation = None


def meaning(tag: str) -> tuple[str | None, str | None]:
    """What a scalar is counted in, as far as its name says so (`epochs`, `evaluations`, or None: steps), and whether it
    is a `loss`, an `accuracy` or something else (None).

    Steps: `loss`, `train/loss`, `batch_loss`, `loss_1`, Lightning's `train_loss_step`. Epochs: Keras's `epoch_loss`.
    Evaluations: `val/loss`, Keras's `evaluation_loss_vs_iterations`.
    """
    words = _words(tag.removesuffix("_vs_iterations"))
    while words and (words[-1].isdigit() or (words[-1] == "step" and len(words) > 1)):
        words.pop()
    what = {"loss": "loss", "accuracy": "accuracy", "acc": "accuracy"}.get(words[-1] if words else "")
    if "epoch" in words:
        return "epochs", what
    return ("evaluations" if _EVALUATIONS.intersection(words) else None), what


def _words(tag: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", tag.lower()) if word]


def _event(view: memoryview) -> tuple[float, int, dict[str, float]]:
    t, step, scalars = 0.0, 0, {}
    for number, value in fields(view):
        if number == 1 and not isinstance(value, int):
            (t,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and not isinstance(value, int):
            scalars = dict(_scalars(value))
    return t, step, scalars


def _scalars(summary: memoryview) -> Iterator[tuple[str, float]]:
    for number, value in fields(summary):
        parts = dict(fields(value)) if number == 1 and not isinstance(value, int) else {}
        tag, simple, tensor = parts.get(1), parts.get(2), parts.get(8)
        if tag is None or isinstance(tag, int):
            continue
        name = bytes(tag).decode(errors="replace")
        if isinstance(simple, memoryview) and len(simple) == 4:
            yield name, struct.unpack("<f", simple)[0]
        elif isinstance(tensor, memoryview) and (found := _number(tensor)) is not None:
            yield name, found


def _number(tensor: memoryview) -> float | None:
    """Of a tensor that holds one number."""
    parts = dict(fields(tensor))
    content = parts.get(4) or parts.get(5) or parts.get(6)
    if not isinstance(content, memoryview):
        return None
    is_double = parts.get(1) == _DOUBLES
    if len(content) != (8 if is_double else 4):
        return None
    (value,) = struct.unpack("<d" if is_double else "<f", content)
    return float(value)
