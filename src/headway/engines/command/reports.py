"""From what a program says of its progress to the events that every task of ours writes."""

from __future__ import annotations

import json
import threading

from headway.engines.assignment import Assignment

LOG, BOARD, LINE = "headway.log()", "TensorBoard files", "its output"


class Reporter:
    """The first source that tells of a step is listened to, for the others tell the same again; but headway.log(),
    which somebody wrote for us, is always right."""

    def __init__(self, assignment: Assignment) -> None:
        job = assignment.job
        assert job.program is not None
        self._assignment = assignment
        self._batch_size = job.cluster.role(assignment.task.role).batch_size or job.program.batch_size
        self._warmup = job.measure.warmup
        self._source: str | None = None
        self._lock = threading.Lock()
        self._last: tuple[float, int] | None = None  # when, and the step as the program counts
        self._moved = 1  # steps between the last two reports
        self._first_own = 0
        self.step = 0
        self.own_steps = assignment.own_steps_before

    def said(self, lines: str) -> None:
        """Lines that headway.log() wrote."""
        for line in lines.splitlines():
            try:
                values = {name: float(value) for name, value in json.loads(line).items()}
                t = values.pop("t")
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # somebody else wrote it
            self.report(LOG, t, values)

    def report(self, source: str, t: float, values: dict[str, float]) -> None:
        with self._lock:
            if not self._listens_to(source, values):
                return
            values = dict(values)
            step = values.pop("step", None)
            loss, accuracy = values.pop("loss", None), values.pop("accuracy", None)
            if step is not None:
                self._stepped(t, int(step), loss, values.pop("examples", None))
            if accuracy is not None:
                self._evaluated(t, self.step, accuracy, None)
            if values:
                self._assignment.event("reported", t=t, step=self.step, values=values)

    def evaluated(self, t: float, step: int, accuracy: float | None, loss: float | None) -> None:
        with self._lock:
            self._evaluated(t, step, accuracy, loss)

    def _evaluated(self, t: float, step: int, accuracy: float | None, loss: float | None) -> None:
        self._assignment.event("evaluation", t=t, step=step, accuracy=accuracy, loss=loss)

    def _listens_to(self, source: str, values: dict[str, float]) -> bool:
        if "step" in values and (self._source is None or (source == LOG and self._source != LOG)):
            self._source = source
            self._last = None
            self._assignment.event("reports_from", source=source)
        return self._source is None or source == self._source or "step" not in values

    def _stepped(self, t: float, step: int, loss: float | None, examples: float | None) -> None:
        if self._last is None:  # when it began is not known: the first report is where measuring begins
            moved, seconds, self._first_own = 1, 0.0, self.own_steps
            self.step = step
        else:
            before, last = self._last
            if step == last:
                return
            # A counter that begins anew, in each epoch say, is taken to have come as far as the last time.
            moved = step - last if step > last else self._moved
            seconds = max(0.0, t - before)
            self.step += moved
        self._last, self._moved = (t, step), moved
        self.own_steps += moved
        if examples is None and self._batch_size is not None:
            examples = moved * self._batch_size
        self._assignment.event(
            "step",
            later=True,
            t=t,
            step=self.step,
            own_step=self.own_steps,
            num_steps=moved,
            seconds=seconds,
            loss=loss,
            accepted=moved,
            examples=None if examples is None else int(examples),
            warmup=self.own_steps - self._first_own <= max(1, self._warmup),
            generation=0,
        )
