"""From what a program says of its progress to the events that every task of ours writes."""

from __future__ import annotations

import json
import math
import threading

from headway.engines.assignment import Assignment
from headway.record.sources import LOG, rank


class Reporter:
    """Writes the steps of the best source that was heard so far. When a better one appears, counting begins anew with
    it: what the worse one told of before is not counted (record/sources.py). What a worse one tells of afterwards is
    kept for its losses."""

    def __init__(self, assignment: Assignment) -> None:
        job = assignment.job
        assert job.program is not None
        self._assignment = assignment
        self._batch_size = job.cluster.role(assignment.task.role).batch_size or job.program.batch_size
        # Of a global step of several tasks, a task's own examples follow from its batch size only where each of these
        # steps takes a batch of every task.
        if job.program.report.steps == "global" and job.num_training_tasks > 1 and not job.strategy.is_synchronous:
            self._batch_size = None
        self._warmup = job.measure.warmup
        self._source: str | None = None
        self._evaluates: str | None = None
        self._lock = threading.Lock()
        self._last: tuple[float, int] | None = None  # when, and the step as the program counts
        self._moved = 1  # steps between the last two reports
        self._first_own = 0
        self._said: set[str] = set()
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
            values = dict(values)
            step = values.pop("step", None)
            loss, accuracy = values.pop("loss", None), values.pop("accuracy", None)
            examples = values.pop("examples", None)
            if not all(math.isfinite(number) for number in (step, examples) if number is not None):
                return  # counted, they would be no numbers
            if step is not None and self._counts(source):
                self._stepped(t, int(step), loss, examples)
            elif loss is not None:
                self._assignment.event("told", later=True, t=t, source=source, step=step, loss=loss)
            if accuracy is not None:
                self._evaluated(source, t, None, accuracy, None)
            if values:
                self._assignment.event("reported", t=t, step=self.step, values=values)

    def evaluated(self, source: str, t: float, step: int | None, accuracy: float | None, loss: float | None) -> None:
        """`step` None: at the last step that was told of."""
        with self._lock:
            self._evaluated(source, t, step, accuracy, loss)

    def not_counted(self, source: str, seen: str, why: str, is_partial: bool = False) -> None:
        """Something that may tell of steps, or may not. `is_partial`: it matters also where other steps were counted.
        Each reason is said once."""
        with self._lock:
            if why not in self._said:
                self._said.add(why)
                self._assignment.event("not_counted", source=source, seen=seen, why=why, is_partial=is_partial)

    def _counts(self, source: str) -> bool:
        if self._source is None or rank(source) < rank(self._source):
            self._source, self._last = source, None
            self.step, self.own_steps = 0, self._assignment.own_steps_before
            self._assignment.event("reports_from", source=source)
        return source == self._source

    def _evaluated(self, source: str, t: float, step: int | None, accuracy: float | None, loss: float | None) -> None:
        if self._evaluates is None or rank(source) < rank(self._evaluates):
            self._evaluates = source
        if source == self._evaluates:
            step = self.step if step is None else step
            self._assignment.event("evaluation", t=t, step=step, accuracy=accuracy, loss=loss)

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
            source=self._source,
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
