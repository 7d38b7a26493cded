"""The evaluator task: evaluates each new checkpoint, apart from training (so that the chief need not stop for it)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import checkpoint, server
from headway.engines.tensorflow.evaluation import Evaluation
from headway.engines.tensorflow.problem import Problem
from headway.engines.tensorflow.stream import reporter
from headway.engines.tensorflow.tensorboard import Board

POLL_SECONDS = 0.3


class Identity(NamedTuple):
    """Of a checkpoint: after a rollback there may be another one of the same name."""

    name: str
    generation: int
    t: float


def watch(assignment: Assignment) -> None:
    """Until told to stop. When it falls behind, the newest checkpoint comes first and older ones are left out."""
    control = assignment.control
    evaluation = Evaluation(Problem(assignment.job), server.config(assignment), reporter(assignment))
    board = Board(assignment.folder.tensorboard(assignment.task))
    assignment.event("ready", pid=os.getpid(), port=None)
    seen: Identity | None = None
    while control.stop_reason is None:
        newest = _newer(assignment.folder.checkpoints, seen)
        if newest is None:
            control.wait(POLL_SECONDS)
            continue
        seen, values = newest
        assignment.event("evaluating", step=int(values["global_step"]))
        result = evaluation.evaluate(values, cancelled=lambda: control.stop_reason is not None)
        if result is None:
            break
        step = int(values["global_step"])
        assignment.event(
            "evaluation",
            step=step,
            generation=seen.generation,
            accuracy=result.accuracy,
            loss=result.loss,
            num_examples=result.num_examples,
            seconds=result.seconds,
        )
        board.scalars(step, test_loss=result.loss, **({} if result.accuracy is None else {"accuracy": result.accuracy}))
    board.close()


def _newer(folder: Path, seen: Identity | None) -> tuple[Identity, Any] | None:
    """What identifies the newest checkpoint, and its values; None when there is none that was not seen yet."""
    path = checkpoint.latest(folder)
    if path is None:
        return None
    try:
        facts = checkpoint.facts(path)
        identity = Identity(path.name, int(facts["generation"]), facts["t"])
        return None if identity == seen else (identity, checkpoint.load(path))
    except (OSError, ValueError, tf.errors.OpError):
        return None  # the chief has just removed it
