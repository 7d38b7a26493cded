"""The training loop, from top to bottom. It knows no sessions and no servers: those are the Trainer's.

start --> step, record, [chief: evaluate, checkpoint], stop? --> done --> [chief: the others end, final snapshot,
  ^         |                                                              checkpoint, evaluation, export, finished]
  '---------' disconnected
"""

from __future__ import annotations

import time

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import checkpoint, server
from headway.engines.tensorflow.evaluation import Evaluation, Result
from headway.engines.tensorflow.export import export
from headway.engines.tensorflow.hardware import tell_ready
from headway.engines.tensorflow.problem import Problem
from headway.engines.tensorflow.stream import reporter
from headway.engines.tensorflow.tensorboard import Board
from headway.engines.tensorflow.trainer import Disconnected, Snapshot, Started, Stopped, Trainer

BOARD_SECONDS = 1.0
# Disconnections in a row without a single step between them, after which the error is taken for a lasting one.
FRUITLESS_STARTS = 10


def train(assignment: Assignment, trainer: Trainer) -> None:
    """One training task's life. Returns when its part is done; everything it did is in its events."""
    tell_ready(assignment)
    Training(assignment, trainer).run()


class Training:
    def __init__(self, assignment: Assignment, trainer: Trainer) -> None:
        self.assignment = assignment
        self.trainer = trainer
        self.job = assignment.job
        self.control = assignment.control
        self.is_chief = assignment.is_chief
        self.board = Board(assignment.folder.tensorboard(assignment.task))
        self.problem = Problem(self.job)
        self.config = server.config(assignment)
        self.evaluation: Evaluation | None = None
        self.last_saved: tuple[int, int] | None = None  # generation, step
        self.last_result: tuple[int, int, Result] | None = None  # generation, step, result
        self.global_step = 0
        self.generation = 0
        self.own_steps = assignment.own_steps_before
        self.trained_seconds = assignment.trained_seconds_before
        self.loss = 0.0
        self.plotted = (0.0, self.own_steps)  # when and after how many own steps scalars were last written
        self.described = False
        # With an evaluator, the chief leaves evaluation to it, and gives it a checkpoint where one is asked for.
        self.has_evaluator = self.job.cluster.evaluator.count > 0

    def run(self) -> None:
        fruitless = 0
        while True:
            steps_before = self.own_steps
            try:
                reason = self.steps()
                self.trainer.leave(reason)
                self.plot(time.perf_counter())
                self.assignment.event("done", reason=reason, step=self.global_step, own_steps=self.own_steps)
                if not self.is_chief:
                    break
                self.wait_for_others()
                self.finish()
                break
            except Disconnected as error:
                fruitless = fruitless + 1 if self.own_steps == steps_before else 0
                if fruitless >= FRUITLESS_STARTS:
                    raise
                self.assignment.event("disconnected", error=str(error))
                self.trainer.close()
        self.board.close()
        self.trainer.close()

    def steps(self) -> str:
        """Train until there is a reason to stop."""
        try:
            started = self.trainer.start(self.own_steps)
        except Stopped as ended:
            return self.stopped(ended)
        self.global_step, self.generation = started.step, started.generation
        self.introduce(started)

        assignment, clock = self.assignment, time.perf_counter
        event, call = assignment.event, self.trainer.step
        stop, every, save = self.job.training.stop, self.job.training.evaluate.every, self.job.checkpoint
        batch_size, per_call = self.job.batch_size_of(self.assignment.task), self.job.training.steps_per_call
        first_own_step, generation = self.own_steps, started.generation
        next_evaluation = _next_multiple(every, started.step)
        next_save = _next_multiple(save.steps, started.step)
        trained_before, began = self.trained_seconds, clock()
        last_save = began
        self.plotted = (began, self.own_steps)

        while True:
            # --- is there a reason to stop? ---
            if self.control.stop_reason is not None:
                return self.stopped()
            if self.has_all_steps:
                return "steps"
            if stop.steps_per_task is not None and self.own_steps >= stop.steps_per_task:
                return "steps_per_task"
            if stop.seconds is not None and self.trained_seconds >= stop.seconds:
                return "seconds"

            # --- one call: the whole number of steps, or single ones where they would be too many ---
            left = min((stop.steps or 2**62) - self.global_step, (stop.steps_per_task or 2**62) - self.own_steps)
            call_began = clock()
            try:
                result = call(per_call if left >= per_call else 1)
            except Stopped as ended:
                return self.stopped(ended)
            now = clock()
            is_warmup = assignment.is_warmup(self.own_steps - first_own_step)
            self.global_step, self.loss = result.step, result.loss
            self.own_steps += result.num_steps
            self.trained_seconds = trained_before + now - began
            event(
                "step",
                later=True,
                step=result.step,
                own_step=self.own_steps,
                num_steps=result.num_steps,
                seconds=now - call_began,
                input_seconds=result.input_seconds,
                loss=result.loss,
                penalty=result.penalty,
                accepted=result.accepted,
                staleness=result.staleness,
                examples=result.num_steps * batch_size,
                warmup=is_warmup,
                generation=generation,
            )
            if now - self.plotted[0] >= BOARD_SECONDS:
                self.plot(now)

            # --- the chief's duties ---
            if not self.is_chief:
                continue
            is_evaluation_due = next_evaluation is not None and result.step >= next_evaluation
            is_save_due = (
                (next_save is not None and result.step >= next_save)
                or (save.seconds is not None and now - last_save >= save.seconds)
                or (is_evaluation_due and self.has_evaluator)
            )
            if not (is_evaluation_due or is_save_due):
                continue
            snapshot = self.trainer.snapshot()
            if is_save_due:
                self.save(snapshot)
                next_save, last_save = _next_multiple(save.steps, snapshot.step), clock()
            if is_evaluation_due:
                next_evaluation = _next_multiple(every, snapshot.step)
                accuracy = None if self.has_evaluator else self.evaluate(snapshot)
                if stop.accuracy is not None and accuracy is not None and accuracy >= stop.accuracy:
                    return "accuracy"

    @property
    def has_all_steps(self) -> bool:
        asked = self.job.training.stop.steps
        return asked is not None and self.global_step >= asked

    def stopped(self, ended: Stopped | None = None) -> str:
        """The reason, where somebody else had one: the user, or another task."""
        if ended is not None and ended.step is not None:
            self.global_step = ended.step
            if self.has_all_steps:
                return "steps"
        return f"stopped: {self.control.stop_reason or 'the others have ended training'}"

    def introduce(self, started: Started) -> None:
        """Say in the record how training begins."""
        event = self.assignment.event
        if started.how is not None:
            event(
                "initialized",
                how=started.how,
                step=started.step,
                checkpoint=started.checkpoint,
                generation=started.generation,
            )
            if not self.described:
                event("variables", placement=self.trainer.placement())
                if (graph := self.trainer.graph()) is not None:
                    self.board.graph(graph)
                self.described = True
        event("joined", step=started.step, generation=started.generation)

    def plot(self, now: float) -> None:
        """Write scalars for TensorBoard, if there was a step since the last ones."""
        then, own_steps = self.plotted
        if self.own_steps > own_steps:
            self.board.scalars(
                self.global_step, loss=self.loss, steps_per_s=(self.own_steps - own_steps) / (now - then)
            )
            self.plotted = (now, self.own_steps)

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, unless this very step was just saved."""
        if self.last_saved == (snapshot.generation, snapshot.step):
            return
        self.last_saved = (snapshot.generation, snapshot.step)
        self.assignment.event("saving", step=snapshot.step)
        began = time.perf_counter()
        path, size = checkpoint.write(self.assignment.folder.checkpoints, snapshot, self.job.checkpoint.keep)
        self.assignment.event(
            "checkpoint",
            step=snapshot.step,
            path=f"checkpoints/{path.name}",
            bytes=size,
            seconds=time.perf_counter() - began,
        )

    def evaluate(self, snapshot: Snapshot) -> float | None:
        """Accuracy on the test set; recorded, unless it was evaluated at this very step before."""
        if self.last_result is not None and self.last_result[:2] == (snapshot.generation, snapshot.step):
            return self.last_result[2].accuracy
        self.assignment.event("evaluating", step=snapshot.step)
        self.evaluation = self.evaluation or Evaluation(self.problem, self.config, reporter(self.assignment))
        result = self.evaluation.evaluate(snapshot.values, cancelled=lambda: self.control.hurry)
        if result is None:
            return None
        self.last_result = (snapshot.generation, snapshot.step, result)
        self.assignment.event(
            "evaluation",
            step=snapshot.step,
            generation=snapshot.generation,
            accuracy=result.accuracy,
            loss=result.loss,
            num_examples=result.num_examples,
            seconds=result.seconds,
        )
        scalars = {"test_loss": result.loss}
        if result.accuracy is not None:
            scalars["accuracy"] = result.accuracy
        self.board.scalars(snapshot.step, **scalars)
        return result.accuracy

    def wait_for_others(self) -> None:
        """Until the launcher says that all other training tasks have ended: theirs are the last updates.

        It has no limit of its own: the others have theirs, which the supervisor enforces, and when the agent is gone
        this process ends.
        """
        is_alone = self.assignment.num_training_tasks == 1
        while not is_alone and not self.control.finalize and not self.control.hurry:
            self.control.wait(1.0)

    def finish(self) -> None:
        """Save, evaluate and export the result. A second stop skips what is left; a measured run is its figures."""
        if self.job.measure.steps is not None:
            self.assignment.event(
                "finished", step=self.global_step, generation=self.generation, accuracy=None, loss=None
            )
            return
        if self.control.hurry or (snapshot := self.result()) is None:
            return
        self.save(snapshot)
        if self.control.hurry:
            return
        self.evaluate(snapshot)
        if self.control.hurry or self.last_result is None:
            return
        if self.job.export:
            self.assignment.event("exporting", step=snapshot.step)
            export(self.problem, snapshot.values, self.assignment.folder.model, self.config)
            self.assignment.event("exported", step=snapshot.step, path=self.assignment.folder.model.name)
        result = self.last_result[2]
        self.assignment.event(
            "finished",
            step=snapshot.step,
            generation=snapshot.generation,
            accuracy=result.accuracy,
            loss=result.loss,
        )

    def result(self) -> Snapshot | None:
        """The variables at the end. Where the servers are gone and a stop was asked for, nobody trains on: then the
        newest checkpoint is the result, if there is one."""
        try:
            return self.trainer.snapshot()
        except Disconnected:
            newest = checkpoint.latest(self.assignment.folder.checkpoints)
            if self.control.stop_reason is None:
                raise
            if newest is None:
                return None
            facts = checkpoint.facts(newest)
            return Snapshot(facts["step"], facts["generation"], checkpoint.load(newest))


def _next_multiple(every: int | None, step: int) -> int | None:
    """The first multiple of `every` behind `step`."""
    return None if every is None else (step // every + 1) * every
