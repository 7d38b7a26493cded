"""`ps-async`: variables live on parameter servers; each training task pulls, computes and pushes at its own pace.

With `pull_ahead: 1` a step computes with what was pulled while the last step computed. The pull then costs no time, and
the variables are older by one own update; what the record calls staleness counts that one too. With `exchange: in_turn`
tasks use a server's link one after the other (wire.py).
"""

from __future__ import annotations

import time
from typing import Any, Literal

import tensorflow as tf

from headway.engines.tensorflow import step
from headway.engines.tensorflow.state import State
from headway.engines.tensorflow.step import StepTensors
from headway.engines.tensorflow.strategies.servers import ServerTrainer
from headway.engines.tensorflow.wire import Turn, Wire


class PsAsync(ServerTrainer):
    def extend(self, state: State) -> None:
        self._wire = Wire(state, self.device, self.job.strategy.transfer)
        self._ahead: Any = None
        self.can_repeat_step = not self.job.strategy.pull_ahead  # else the queue might hold a pull too many
        if self.job.strategy.pull_ahead:
            names = [each.name for each in self._declared if each.trainable]
            shapes = [list(state.declared[name].shape) for name in names]
            with tf.device(self.device):
                # A name of its own for each start: what was pulled before a disconnection must not come back.
                self._ahead = tf.queue.FIFOQueue(
                    2, [tf.int64] + [tf.float32] * len(names), [[], *shapes], shared_name=f"ahead_{time.monotonic_ns()}"
                )
            self._fill = self._pull_into_queue()
            self._pulled_ahead = self._ahead.size()
            self._throw_away = tf.group(*self._ahead.dequeue())

    def joined(self, step: int) -> int:
        if self._ahead is not None:
            for _ in range(self._session.run(self._pulled_ahead)):  # before something failed
                self._session.run(self._throw_away)
            self._session.run(self._fill)
        return step

    def one_step(self, iterator: Any) -> StepTensors:
        state, wire = self.state, self._wire
        if self._ahead is None:
            pulled, values, pull_ended = self._pull()
            done = []
        else:
            pulled, values = self._from_queue()
            pull_ended, done = [], [self._pull_into_queue()]
        batch = step.next_batch(iterator)
        computed = step.compute(self.problem, self.optimizer, batch, values, self.towers)
        # Clipped here, where all gradients of the update are together.
        turn = self._turn("push")
        gradients = wire.push(step.clipped(self.optimizer, computed.gradients), turn)
        pushed = step.update(self.optimizer, state, gradients, computed.averages, pulled)
        with tf.device(state.global_step.device):
            before = step.count(state, [*pushed, pulled, *pull_ended, *turn.ended])
            counted = tf.stack([before + 1, before - pulled, tf.ones_like(before)])
        with tf.control_dependencies(done):
            return StepTensors(tf.identity(computed.loss), computed.penalty, batch.seconds, counted)

    def _turn(self, direction: Literal["pull", "push"]) -> Turn:
        return Turn(self.device, direction if self.job.strategy.exchange == "in_turn" else None)

    def _pull(self) -> tuple[Any, dict[str, Any], list[Any]]:
        """The global step and the values, when it is our turn, and operations without which that has not ended."""
        global_step, turn = self.state.global_step, self._turn("pull")
        with tf.device(global_step.device), tf.control_dependencies(turn.at(global_step.device)):
            pulled = tf.raw_ops.ReadVariableOp(resource=global_step.handle, dtype=tf.int64)
        return pulled, self._wire.pull(turn), turn.ended

    def _pull_into_queue(self) -> Any:
        pulled, values, ended = self._pull()
        tensors = [value for value in values.values() if isinstance(value, tf.Tensor)]
        return tf.group(self._ahead.enqueue([pulled, *tensors]), *ended)

    def _from_queue(self) -> tuple[Any, dict[str, Any]]:
        pulled, *tensors = self._ahead.dequeue()
        values: dict[str, Any] = {name: pieces[0].variable for name, pieces in self.state.pieces.items()}
        trained = [each.name for each in self._declared if each.trainable]
        return pulled, {**values, **dict(zip(trained, tensors, strict=True))}
