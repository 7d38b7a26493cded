"""The input pipeline: each training task reads its own share of every epoch.

The order is a pure function of (seed, epoch): all tasks shuffle 0..N-1 alike, and task t of T takes every T-th
index from the t-th on. So in each epoch every example is read exactly once by exactly one task, without a word
between them. A task's share has the same length in every epoch; its batches run on across epoch borders, so all
batches are full, and where the n-th batch begins can be computed: a restarted task goes on there at once.

Whole vectors of indices flow through the pipeline, never single examples: that is what keeps it fast. Examples in
memory are then gathered from arrays, others are read from files (stream.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from headway.engines.assignment import Assignment
from headway.engines.tensorflow.augment import vary
from headway.engines.tensorflow.problem import Problem
from headway.engines.tensorflow.stream import Stream, reporter
from headway.plural import counted
from headway.spec.cluster import Task
from headway.workloads.augment import Augment, PhotoAugment
from headway.workloads.records import Records

PREFETCH_BATCHES = 4
FOREVER = 2**62
# There are no Python loops or conditions in here to be translated; only to look for them takes a tenth of a second.
as_written = tf.autograph.experimental.do_not_convert


def share_length(num_examples: int, task_number: int, num_tasks: int) -> int:
    """Examples that a task reads in one epoch."""
    return (num_examples - task_number + num_tasks - 1) // num_tasks


def index_batches(
    num_examples: int,
    batch_size: int,
    *,
    seed: int,
    task_number: int = 0,
    num_tasks: int = 1,
    first_batch: Any = 0,
    num_random: int = 0,
) -> Any:
    """A Dataset of int64 [batch_size]: the examples of this task's batches, from `first_batch` (a number, or an int64
    tensor) on, for ever. With `num_random`, of pairs: the examples, and float32 [batch_size, num_random] numbers
    between 0 and 1 that follow from seed, epoch and example."""
    share = share_length(num_examples, task_number, num_tasks)
    if share < 1:
        raise ValueError(
            f"{counted(num_examples, 'example')} cannot be shared out over {counted(num_tasks, 'training task')}"
        )
    first_example = tf.cast(first_batch, tf.int64) * batch_size
    first_epoch, offset = first_example // share, first_example % share

    def of_epoch(epoch: Any) -> Any:
        seeds = tf.stack([tf.constant(seed, tf.int64), epoch])
        order = tf.random.experimental.stateless_shuffle(tf.range(num_examples, dtype=tf.int64), seeds, alg="philox")
        # tf.equal: in a v1 graph `==` asks whether two tensors are the same object.
        skipped = tf.where(tf.equal(epoch, first_epoch), offset, tf.constant(0, tf.int64))
        chosen = order[task_number::num_tasks][skipped:]
        if not num_random:
            return chosen
        seeds = tf.stack([tf.constant(seed, tf.int64), -1 - epoch])  # not those of the order
        return chosen, tf.gather(tf.random.stateless_uniform([num_examples, num_random], seeds, alg="philox"), chosen)

    epochs = tf.data.Dataset.range(first_epoch, FOREVER)
    # prefetch: the next epoch is shuffled while this one is read.
    return epochs.map(as_written(of_epoch)).prefetch(1).rebatch(batch_size)


def batches(
    features: Any,
    labels: Any,
    prepare: Callable[..., Any],
    indices: Any,
    ahead: bool = True,
    num_rows: int | None = None,
) -> Any:
    """A Dataset of (features, labels): the examples at `indices`, with `prepare` applied to the features (and their
    random numbers, where `indices` has any).

    `features` and `labels` may be arrays, or placeholders of a v1 graph that are fed when the iterator is
    initialised: so 47 MB of images do not become a constant in the graph. `num_rows`: they have fewer examples than are
    counted, and are used again from the first on.

    `ahead`: the next batches are made by a thread of their own while a step computes or waits. A task that never waits
    and has one core gains nothing from it, and the hand-overs between threads are an eighth of a small step.
    """

    def gather(chosen: Any, *random: Any) -> Any:
        rows = chosen if num_rows is None else chosen % num_rows
        return prepare(tf.gather(features, rows), *random), tf.gather(labels, rows)

    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.threading.max_intra_op_parallelism = 1
    dataset = indices.map(as_written(gather))
    if ahead:
        options.threading.private_threadpool_size = 1  # beside the step's own threads
        dataset = dataset.prefetch(PREFETCH_BATCHES)
    return dataset.with_options(options)


class TrainingInput:
    """What training tasks read, from memory or from files; built into a graph, or eagerly, as often as needed."""

    def __init__(self, problem: Problem, assignment: Assignment, config: Any) -> None:
        self._problem = problem
        self._assignment = assignment
        self._augment: Augment = getattr(problem.settings.dataset, "augment", None) or Augment()
        self._arrays: Any = None
        self._stream: Stream | None = None
        self._graph: Any = None
        self.feeds: dict[Any, Any] = {}
        """What iterators' initialisers must be fed with, in the graph that was built last."""
        source = problem.load("train")
        if isinstance(source, Records):
            self._stream = problem.stream(source, config, reporter(assignment))
            if self._stream.settings.in_memory:
                batch_size = assignment.job.batch_size_of(assignment.task)
                source, self._stream = self._stream.into_memory(batch_size, config), None
        if not isinstance(source, Records):
            self._arrays = source

    def batches(self, first_batch: Any, ahead: bool = True, task: Task | None = None) -> Any:
        """A Dataset of a task's batches (this one's, unless told otherwise), from `first_batch` on, for ever."""
        num_examples, job = self._problem.data.num_train, self._assignment.job
        task, tasks = task or self._assignment.task, job.cluster.training_tasks()
        indices = index_batches(
            num_examples,
            job.batch_size_of(task),
            seed=job.seed,
            task_number=tasks.index(task),
            num_tasks=len(tasks),
            first_batch=first_batch,
            num_random=self._augment.num_random,
        )
        if self._stream is not None:
            crop = self._augment.crop if isinstance(self._augment, PhotoAugment) else None
            return self._stream.batches(indices, self._prepared(None), crop)
        names = ("train_features", "train_labels")
        features, labels = (self._tensor(array, name) for array, name in zip(self._arrays, names, strict=True))
        num_rows = len(self._arrays[0])
        return batches(
            features,
            labels,
            self._prepared(features),
            indices,
            ahead,
            num_rows if num_rows < num_examples else None,
        )

    def _tensor(self, array: Any, name: str) -> Any:
        if tf.executing_eagerly():
            return tf.constant(array)
        if self._graph is not (graph := tf.compat.v1.get_default_graph()):
            self._graph, self.feeds = graph, {}
        for placeholder, fed in self.feeds.items():  # another task's batches come from the same arrays
            if fed is array:
                return placeholder
        placeholder = tf.compat.v1.placeholder(array.dtype, array.shape, name)
        self.feeds[placeholder] = array
        return placeholder

    def _prepared(self, every: Any | None) -> Callable[..., Any]:
        def prepare(stored: Any, numbers: Any | None = None) -> Any:
            varied = stored if numbers is None else vary(self._augment, stored, numbers, every)
            return self._problem.scaled(varied)

        return prepare

    def explained(self, error: Exception) -> Exception:
        """Why there is no next batch, if it was a bad record; else the error itself."""
        return self._stream.explained(error) if self._stream is not None else error
