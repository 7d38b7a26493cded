"""`allreduce`: every training task holds all variables; in each step the tasks sum up their gradients in a ring, and
each makes the same update.

TensorFlow's MultiWorkerMirroredStrategy starts the servers and knits the ring. The variables are plain local ones: all
members begin with the chief's values and add the same sums, so they stay equal to the last bit.

    batch -> loss -> gradients -> SUM over members -> the same update everywhere
                     [closing?] ->      "           -> any? then nobody updates, and training is over
                     [one more?] ->     "           -> all? then the call goes on with another step

So the members agree on everything within the step itself. One that leaves says so in a last step (`leave`), and all of
them end with the same variables. How many steps a call has is agreed on too: members whose own counts differ (a
restarted one may have recorded less) would otherwise wait for each other for ever.

A broken ring cannot be mended inside a process: when a member is gone, all are started again, and go on from the
chief's newest checkpoint. The batches of step k are those of the k-th step, so what is computed again is the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any, NoReturn, TypeVar

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
from tensorflow.python.eager import context

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import checkpoint, input, ports, server, step
from headway.engines.tensorflow.initial import initial_values
from headway.engines.tensorflow.optimizers import Optimizer
from headway.engines.tensorflow.placement import place
from headway.engines.tensorflow.problem import Problem
from headway.engines.tensorflow.state import State, declared
from headway.engines.tensorflow.strategies.graph import GONE, POLL_SECONDS
from headway.engines.tensorflow.towers import towers
from headway.engines.tensorflow.trainer import Disconnected, Snapshot, Started, StepResult, Stopped
from headway.engines.tensorflow.wire import Wire
from headway.errors import FormatError, HeadwayError, SiteError

Result = TypeVar("Result")
# Tensors of at least this many bytes travel alone, which spares copying them into one with the others and back.
ALONE_BYTES = 256 * 1024
BEGIN_SECONDS = 5.0
OVER = "training is over"
GROUP_KEY = 1000  # TensorFlow's name for the set of members; its own strategy counts from 1


class Ring:
    """The members of a run, knitted together: this task's server, and sums over all of them.

    There can be one in a process, and it cannot be mended.
    """

    def __init__(self, assignment: Assignment) -> None:
        """The server listens from now on, and waits for nobody. Raises ports.PortTaken."""
        self._num_members = assignment.num_training_tasks
        self._num_sums = 0
        task, port = assignment.task, assignment.port
        if port is None:
            raise SiteError(f"TF_CONFIG gives {task} no address")
        ports.check_free(port)
        settings = assignment.job.cluster.role(task.role)
        tf.config.threading.set_intra_op_parallelism_threads(settings.threads.intra_op or 0)
        tf.config.threading.set_inter_op_parallelism_threads(settings.threads.inter_op or 0)
        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * settings.devices)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)  # as in server.config
        # Who is alive is the supervisor's business. TensorFlow's own coordination service would make us wait here for
        # every member, without a limit, and would report an error in those that are left when one has ended in order.
        context.context().configure_coordination_service(service_type="")
        CollectiveAllReduceExtended._enable_check_health = False
        members = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(assignment.addresses), task_type=task.role, task_id=task.index, rpc_layer="grpc"
        )
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        try:
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy(members, options)
        except tf.errors.UnknownError as error:
            if "Could not start gRPC server" in error.message:  # taken since the check
                raise ports.PortTaken(f"port {port} is taken by another program") from None
            raise

    def sum(self, tensors: Sequence[Any]) -> list[Any]:
        """The sum of each of these tensors, all of one type; the same bits in every member. All must ask for the
        same sums in the same order.

        TensorFlow's operation is called directly, for its strategy's `all_reduce` takes a new key for each sum, which
        costs the members one more message, and copies all tensors into one before it sends anything.
        """
        if self._num_members == 1:
            return list(tensors)
        summed: list[Any] = [None] * len(tensors)
        small = []
        for place_, tensor in enumerate(tensors):
            if tensor.shape.num_elements() * tensor.dtype.size >= ALONE_BYTES:
                summed[place_] = self._sum(tensor)
            else:
                small.append(place_)
        if small:
            sizes = [tensors[place_].shape.num_elements() for place_ in small]
            together = self._sum(tf.concat([tf.reshape(tensors[place_], [-1]) for place_ in small], axis=0))
            for place_, part in zip(small, tf.split(together, sizes), strict=True):
                summed[place_] = tf.reshape(part, tensors[place_].shape)
        return summed

    def _sum(self, tensor: Any) -> Any:
        self._num_sums += 1
        return tf.raw_ops.CollectiveReduceV2(
            input=tensor,
            group_size=self._num_members,
            group_key=GROUP_KEY,
            instance_key=self._num_sums,
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
            communication_hint="ring",
            # Halves of what goes to a neighbour: one is added up while the other one travels.
            max_subdivs_per_device=2,
        )


class AllReduce:
    def __init__(self, assignment: Assignment, ring: Ring | None = None) -> None:
        self.assignment = assignment
        self.job = assignment.job
        self.ring = ring or Ring(assignment)
        self.device = f"/job:{assignment.task.role}/task:{assignment.task.index}/device:CPU:0"
        self.towers = towers(self.job, assignment.task, self.device)
        self.problem = Problem(self.job)
        self.optimizer = Optimizer(self.job.training.optimizer)
        self.batch_size = self.job.batch_size_of(assignment.task)
        self._examples = sum(self.job.batch_size_of(task) for task in self.job.cluster.training_tasks())
        self._train = input.TrainingInput(self.problem, assignment, server.config(assignment))
        self._call: Any = None
        self._begun: Future[Started] | None = None
        self._was_started = False
        self._has_variables = False  # the chief's values are here
        self._is_connected = False  # ... and nobody has left
        self._generation = 0
        self._step = 0

    # --- how training begins ---------------------------------------------------------------------------------
    def start(self, own_steps: int) -> Started:
        if self._was_started:
            self._wait_for_the_end()
        self._was_started = True
        limit = self.job.limits.start
        deadline = time.monotonic() + limit
        addresses = [address for role in ("chief", "worker") for address in self.assignment.addresses.get(role, [])]
        while silent := [address for address in addresses if not ports.answers(address)]:
            if self.assignment.control.stop_reason is not None:
                raise Stopped
            if time.monotonic() > deadline:
                raise HeadwayError(
                    f"{self.assignment.task} waited {limit:g} s for {', '.join(silent)} to answer (limits.start)"
                )
            self.assignment.control.wait(POLL_SECONDS)
        # In a thread: inside TensorFlow, the wait for a member has no limit.
        self._begun = begun = _in_background(lambda: self._begin(own_steps))
        while not begun.done():
            if self.assignment.control.stop_reason is not None:
                raise Stopped
            if time.monotonic() > deadline:
                task = self.assignment.task
                raise HeadwayError(f"{task} waited {limit:g} s for the chief's variables (limits.start)")
            wait([begun], POLL_SECONDS)
        try:
            return begun.result()
        except GONE as error:
            raise Disconnected(_what_broke(error)) from error

    def _wait_for_the_end(self) -> NoReturn:
        """A ring cannot be knitted anew in this process: the launcher ends it, and starts another one."""
        limit = self.job.limits.start
        deadline = time.monotonic() + limit
        while self.assignment.control.stop_reason is None:
            if time.monotonic() > deadline:
                raise HeadwayError(f"{self.assignment.task} waited {limit:g} s to be started again (limits.start)")
            self.assignment.control.wait(POLL_SECONDS)
        raise Stopped

    def _begin(self, own_steps: int) -> Started:
        """Variables, input and step; then the chief's values for everybody."""
        with tf.device(self.device):
            tf.random.set_seed(self.assignment.seed(own_steps))
            variables = declared(self.problem)
            whole = place(variables, 1, "round_robin")  # nothing is in parts
            self.state = State(variables, whole, self.optimizer, [self.device])
            how, name, generation = self._make_variables() if self.assignment.is_chief else (None, None, 0)
            counts = self._handing_out()(tf.constant(generation, tf.int64)).numpy()
            self._step, self._generation = int(counts[0]), int(counts[1])
            self._call = self._calling(iter(self._train.batches(self._step)))
        self._has_variables = self._is_connected = True
        return Started(how, self._step, self._generation, name)  # type: ignore[arg-type]

    def _make_variables(self) -> tuple[str, str | None, int]:
        checkpoint.repair(self.assignment.folder.checkpoints)
        newest = checkpoint.latest(self.assignment.folder.checkpoints)
        generation = 1 + checkpoint.last_generation(self.assignment.folder.events(self.assignment.task), newest)
        if newest is None:
            values = initial_values(self.problem, self.job.seed, server.config(self.assignment))
        else:
            values = checkpoint.load(newest)
            if missing := sorted(self.state.names - values.keys()):
                raise FormatError(f"checkpoint {newest.name} is of another job: it has no {', '.join(missing[:3])}")
        self.state.assign(lambda variable, value: variable.assign(value), values)
        return ("fresh", None, generation) if newest is None else ("restored", newest.name, generation)

    def _handing_out(self) -> Callable[[Any], Any]:
        """A function of the generation that gives every member the chief's variables: the others add zeros to them.
        It returns [global step, generation]."""
        floats = [variable for variable in self.state.variables if variable is not self.state.global_step]
        is_chief = self.assignment.is_chief

        def hand_out(generation: Any) -> Any:
            own = [tf.identity(variable) if is_chief else tf.zeros_like(variable) for variable in floats]
            for variable, value in zip(floats, self.ring.sum(own), strict=True):
                variable.assign(value)
            own_counts = tf.stack([self.state.global_step, generation])
            (counts,) = self.ring.sum([own_counts if is_chief else tf.zeros_like(own_counts)])
            self.state.global_step.assign(counts[0])
            return counts

        handed: Callable[[Any], Any] = tf.function(hand_out, autograph=False)
        return handed

    # --- the step --------------------------------------------------------------------------------------------
    def _calling(self, iterator: Any) -> Any:
        """The function that makes steps: (how many, closing?) -> [made, loss, penalty, input seconds], as sums."""

        def call(num_steps: Any, closing: Any) -> Any:
            if self.job.training.steps_per_call == 1:  # then nobody ever asks for more
                return self._one_step(iterator, 0.0, num_steps, closing)[0]

            def another(seen: Any, _: Any) -> tuple[Any, Any]:
                more, go_on = self._one_step(iterator, seen[0], num_steps, closing)
                return seen + more, go_on

            begin = (tf.zeros([4], tf.float64), tf.constant(True))
            return tf.while_loop(lambda _, go_on: go_on, another, begin, parallel_iterations=1)[0]

        return tf.function(call, autograph=False).get_concrete_function(
            tf.TensorSpec([], tf.float64), tf.TensorSpec([], tf.bool)
        )

    def _one_step(self, iterator: Any, made: Any, num_steps: Any, closing: Any) -> tuple[Any, Any]:
        """What one step adds to the call's result, and whether another one follows."""
        wire = Wire(self.state, self.state.global_step.device, "float32")  # nothing travels: all of it is here
        batch = step.next_batch(iterator)
        weight = self.batch_size / self._examples  # the sum is then the joined batch's mean
        computed = step.compute(self.problem, self.optimizer, batch, wire.pull(), self.towers, weight)
        pairs = wire.push(computed.gradients)
        pieces, gradients = [piece for piece, _ in pairs], [gradient for _, gradient in pairs]
        said = [average.value for average in computed.averages]
        said.append(tf.cast(tf.stack([closing, made + 1 < num_steps]), tf.float32))
        if self.job.strategy.transfer == "float32":
            summed = self.ring.sum([*gradients, *said])
            gradients, said = summed[: len(gradients)], summed[len(gradients) :]
        else:
            dtype = tf.as_dtype(self.job.strategy.transfer)
            sent = self.ring.sum([tf.cast(gradient, dtype) for gradient in gradients])
            gradients, said = [tf.cast(each, tf.float32) for each in sent], self.ring.sum(said)
        averages = [each._replace(value=value) for each, value in zip(computed.averages, said, strict=False)]
        num_closing, num_going_on = tf.unstack(said[-1])
        # Every sum is awaited before anything is updated: a ring that breaks leaves the variables at one step. The
        # update is refused by an operation that fails; a condition around it would make every step slower.
        with tf.control_dependencies([*gradients, *said]):
            agreed = tf.debugging.Assert(tf.equal(num_closing, 0), [OVER])
        with tf.control_dependencies([agreed]):
            ready = list(zip(pieces, self.optimizer.clipped(gradients), strict=True))
            now = tf.raw_ops.ReadVariableOp(resource=self.state.global_step.handle, dtype=tf.int64)
            step.update(self.optimizer, self.state, ready, averages, now)
            self.state.global_step.assign_add(1, read_value=False)
            penalty = tf.constant(0.0) if computed.penalty is None else computed.penalty
            numbers = tf.stack([tf.constant(1.0), computed.loss, penalty])
            seen = tf.concat([tf.cast(numbers, tf.float64), [batch.seconds]], axis=0)
        return seen, tf.equal(num_going_on, float(self.assignment.num_training_tasks))

    def step(self, num_steps: int) -> StepResult:
        if not self._is_connected:
            raise Disconnected("not connected")
        try:
            made, loss, penalty, input_seconds = self._run(num_steps, self.assignment.control.stop_reason is not None)
        except tf.errors.OpError as error:
            if not isinstance(error, GONE) and OVER not in error.message:
                raise self._train.explained(error) from error
            self._is_connected = False
            if OVER in error.message:
                raise Stopped(self._step) from None
            raise Disconnected(_what_broke(error)) from error
        self._step += int(made)
        return StepResult(
            step=self._step,
            num_steps=int(made),
            loss=loss / made,
            penalty=penalty / made if self.job.training.optimizer.weight_decay else None,
            accepted=int(made),
            staleness=None,
            input_seconds=input_seconds,
        )

    def _run(self, num_steps: int, is_closing: bool) -> list[float]:
        seen = self._call(tf.constant(num_steps, tf.float64), tf.constant(is_closing))
        numbers: list[float] = seen.numpy().tolist()
        return numbers

    # --- the end ---------------------------------------------------------------------------------------------
    def leave(self, reason: str) -> None:
        """Take part in one more step, in which everybody hears of it and nobody updates.

        It waits while another member evaluates, for that one will come to the step; an end before would look like a
        death to it. Whoever is dead or frozen is the supervisor's business, and then the step breaks off.
        """
        del reason
        if self._begun is not None:  # stopped while we waited for it: the others may have begun
            wait([self._begun], BEGIN_SECONDS)
        asked = self.job.training.stop.steps
        if not self._is_connected or (asked is not None and self._step >= asked):
            return  # the others have counted the same steps, and leave too
        self._is_connected = False
        deadline = time.monotonic() + self.job.limits.stall
        closing = _in_background(lambda: self._run(1, is_closing=True))
        while not closing.done() and not self.assignment.control.hurry and time.monotonic() < deadline:
            wait([closing], POLL_SECONDS)
        if closing.done() and (error := closing.exception()) is not None and OVER not in str(error):
            print(f"leaving: {_what_broke(error)}", flush=True)

    def snapshot(self) -> Snapshot:
        """Of this member's variables: there to the end, whatever became of the others."""
        if not self._has_variables:
            raise Disconnected("not connected")
        values = self.state.join([variable.numpy() for variable in self.state.variables])
        # A call that broke off may have made some of its steps.
        return Snapshot(int(values["global_step"]), self._generation, values)

    def placement(self) -> list[dict[str, Any]]:
        """Every training task holds all of them; this is the view of one."""
        return self.state.placement(lambda _: str(self.assignment.task))

    def graph(self) -> Any:
        return self._call.graph

    def close(self) -> None:
        """Nothing can be given up: the server has no stop."""


def _what_broke(error: BaseException) -> str:
    """TensorFlow's error in one line: why the ring broke, without the traceback that it puts before."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    why = next((line for line in lines if line.startswith("Collective ops is aborted by")), lines[-1])
    return f"{type(error).__name__}: {why[:300]}"


def _in_background(call: Callable[[], Result]) -> Future[Result]:
    """The outcome of `call`, which a thread works on. If it hangs, it ends with the process."""
    outcome: Future[Result] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return outcome
