"""`ps-async`: variables live on parameter servers; each training task pulls, computes and pushes at its own pace.

With `pull_ahead: 1` a step computes with what was pulled while the last step computed. The pull then costs no time, and
the variables are older by one own update; what the record calls staleness counts that one too.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from headway.engines.tensorflow import step
from headway.engines.tensorflow.step import StepTensors, Wire
from headway.engines.tensorflow.strategies.servers import ServerTrainer


class PsAsync(ServerTrainer):
    def one_step(self, iterator: Any, known_step: Any) -> StepTensors:
        del known_step  # others push all the time: the step is read with each pull
        state = self.state
        wire = Wire(state, self.device, self.job.strategy.transfer)
        with tf.device(state.global_step.device):
            pulled = tf.raw_ops.ReadVariableOp(resource=state.global_step.handle, dtype=tf.int64)
        values = wire.pull()
        batch = step.next_batch(iterator)
        computed = step.compute(self.problem, self.optimizer, batch, values)
        # Clipped here, where all gradients of the update are together.
        clipped = self.optimizer.clipped([each for each in computed.gradients.values() if each is not None])
        names = [name for name, gradient in computed.gradients.items() if gradient is not None]
        pairs = wire.split(dict(zip(names, clipped, strict=True)))
        received = [(piece, wire.received(piece, gradient)) for piece, gradient in pairs]
        pushed = step.update(self.optimizer, state, received, computed.averages, pulled)
        with tf.device(state.global_step.device):
            before = step.count(state, [*pushed, pulled])
            counted = tf.stack([before + 1, before - pulled, tf.ones_like(before)])
        return StepTensors(computed.loss, computed.penalty, batch.seconds, counted)
