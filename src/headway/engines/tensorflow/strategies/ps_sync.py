"""`ps-sync`: variables live on parameter servers; an update takes one gradient from each of several training tasks.

TensorFlow's SyncReplicasOptimizer does not guarantee that: a fast task may give two. Here a task sends its gradients
and waits for the answer, which comes when the update that they belong to was made (barrier.py has the rules, updater.py
makes the updates); of a gradient that came too late, at once. So a task never has more than one gradient under way, and
every pull comes after the last update that the task was told of.

The batches of step k are those of the k-th step, whoever computes them again after a fault.

Between-graph replication: each task has a graph of its own. in_graph.py is the other way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from headway.engines.tensorflow import step
from headway.engines.tensorflow.barrier import Answer, Message
from headway.engines.tensorflow.exchange import MESSAGE, Exchange
from headway.engines.tensorflow.state import State
from headway.engines.tensorflow.step import Batch, StepTensors
from headway.engines.tensorflow.strategies.graph import GONE, in_one_line, surely
from headway.engines.tensorflow.strategies.servers import ServerTrainer
from headway.engines.tensorflow.towers import Tower
from headway.engines.tensorflow.trainer import Disconnected, Snapshot, Stopped
from headway.engines.tensorflow.wire import Wire
from headway.spec.job import Job

v1 = tf.compat.v1
WELCOME_SECONDS = 10.0  # then the task says again that it joined
LEAVE_SECONDS = 5.0


def expected_examples(job: Job) -> float:
    """Examples in an update, in the mean. Tasks weigh their gradients by it, so that their sum is the joined batch's
    mean."""
    sizes = [job.batch_size_of(task) for task in job.cluster.training_tasks()]
    return sum(sizes) * (job.strategy.aggregate or len(sizes)) / len(sizes)


class PsSync(ServerTrainer):
    counts_staleness = False  # an accepted gradient is never stale

    @property
    def spoken_for(self) -> list[int]:
        """The tasks, by number, whose gradients this process sends: its own."""
        return [self.assignment.task_number]

    def extend(self, state: State) -> None:
        self._exchange = exchange = Exchange(state, self.state_devices(), self.assignment.num_training_tasks)
        self._message = v1.placeholder(tf.int64, [MESSAGE], "message")
        self._say = exchange.arrivals.enqueue(self._message)
        self._listen = {task: exchange.replies[task].dequeue() for task in self.spoken_for}
        self._know = tf.group(
            *(exchange.known[task].assign(self._message[2], read_value=False) for task in self.spoken_for)
        )

    def one_step(self, iterator: Any) -> StepTensors:
        return self.gradients_of(self.assignment.task_number, self.device, step.next_batch(iterator), self.towers)

    def gradients_of(self, task: int, device: str, batch: Batch, towers: Sequence[Tower]) -> StepTensors:
        """A task's step: pull to its device, compute, send the gradients, and wait for the answer to them."""
        exchange = self._exchange
        wire = Wire(self.state, device, self.job.strategy.transfer)
        values = wire.pull()
        weight = sum(tower.examples for tower in towers) / expected_examples(self.job)
        computed = step.compute(self.problem, self.optimizer, batch, values, towers, weight)
        gradients = {
            name: tf.zeros_like(values[name]) if gradient is None else gradient
            for name, gradient in computed.gradients.items()
        }
        ready = {id(piece): gradient for piece, gradient in wire.push(gradients)}
        said = {average.variable: average.value for average in computed.averages}
        sent = []
        for place, server in enumerate(exchange.used):
            tensors = [ready[id(piece)] for piece in exchange.pieces[server]]
            tensors += [said[each.name] for each in exchange.averages[server]]
            with tf.device(exchange.devices[server]):
                sent.append(exchange.gradients[task][place].enqueue(tensors))
        known = exchange.known[task]
        with tf.device(exchange.devices[0]):
            with tf.control_dependencies(sent):
                message = tf.stack([int(Message.ARRIVED), task, known.read_value()])
                arrived = exchange.arrivals.enqueue(message)
            with tf.control_dependencies([arrived]):
                reply = exchange.replies[task].dequeue()
            with tf.control_dependencies([known.assign(reply[0], read_value=False)]):
                counted = tf.stack([reply[0], tf.zeros_like(reply[0]), reply[1]])
        return StepTensors(computed.loss, computed.penalty, batch.seconds, counted)

    def joined(self, step: int) -> int:
        """Tell the updater, and wait for its welcome: from then on no answer is due to an earlier process of this
        task."""
        now = step
        for task in self.spoken_for:
            now, answer, _ = self._ask(Message.JOINED, task)
            if answer == Answer.CLOSED and task == self.assignment.task_number:
                raise Stopped(now)
        surely(self._session.run, self._know, {self._message: [0, 0, now]})
        return now

    def _ask(self, message: Message, task: int) -> list[int]:
        """Say it until it is answered: an earlier process may take an answer with its last breath."""
        while True:
            echo = time.monotonic_ns()
            self._tell(message, task, echo)
            if (reply := self._reply(task, echo)) is not None:
                return reply

    def _reply(self, task: int, echo: int) -> list[int] | None:
        """The answer to what was said with this echo; earlier ones are thrown away."""
        options = v1.RunOptions(timeout_in_ms=int(1000 * WELCOME_SECONDS))
        try:
            while (reply := self._session.run(self._listen[task], options=options).tolist())[2] != echo:
                pass
        except tf.errors.DeadlineExceededError:
            return None
        return list(reply)

    def first_batch(self, own_steps: int, step: int) -> int:
        del own_steps
        return step

    def snapshot(self) -> Snapshot:
        """Of one step: where others could update without this task (backups), the updater pauses meanwhile. Where they
        could not, it is called only between an answer and this task's next gradient."""
        if self.job.strategy.aggregate == self.assignment.num_training_tasks or self._session is None:
            return super().snapshot()
        try:
            self._ask(Message.PAUSED, self.assignment.task_number)
            snapshot = super().snapshot()
            self._tell(Message.RESUMED, self.assignment.task_number)
        except GONE as error:
            raise Disconnected(in_one_line(error)) from error
        return snapshot

    def leave(self, reason: str) -> None:
        """With `steps_per_task` each task has an end of its own; every other reason is one for all of them."""
        self.tell_in_time(Message.LEFT if reason == "steps_per_task" else Message.CLOSED)

    def tell_in_time(self, message: Message) -> None:
        """Tell the updater, if it hears; never for long."""
        teller = threading.Thread(target=self._tell_quietly, args=(message,), daemon=True)
        teller.start()
        teller.join(LEAVE_SECONDS)

    def _tell(self, message: Message, task: int, number: int = 0) -> None:
        surely(self._session.run, self._say, {self._message: [message, task, number]})

    def _tell_quietly(self, message: Message) -> None:
        try:
            if self._session is not None:
                self._tell(message, self.assignment.task_number)
        except tf.errors.OpError as error:  # the servers are gone: nobody waits there
            print(f"leaving: {error.message[:200]}", flush=True)
