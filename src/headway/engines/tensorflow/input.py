"""The input pipeline: each training task reads its own share of every epoch.

The order is a pure function of (seed, epoch): all tasks shuffle 0..N-1 alike, and task t of T takes every T-th
index from the t-th on. So in each epoch every example is read exactly once by exactly one task, without a word
between them. A task's share has the same length in every epoch; its batches run on across epoch borders, so all
batches are full, and where the n-th batch begins can be computed: a restarted task goes on there at once.

Whole vectors of indices flow through the pipeline, never single examples: that is what keeps it fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

PREFETCH_BATCHES = 4
FOREVER = 2**62
# There are no Python loops or conditions in here to be translated; only to look for them takes a tenth of a second.
as_written = tf.autograph.experimental.do_not_convert


def share_length(num_examples: int, task_number: int, num_tasks: int) -> int:
    """Examples that a task reads in one epoch."""
    return (num_examples - task_number + num_tasks - 1) // num_tasks


def index_batches(
    num_examples: int, batch_size: int, *, seed: int, task_number: int = 0, num_tasks: int = 1, first_batch: Any = 0
) -> Any:
    """A Dataset of int64 [batch_size]: the examples of this task's batches, from `first_batch` (a number, or an int64
    tensor) on, for ever."""
    share = share_length(num_examples, task_number, num_tasks)
    if share < 1:
        raise ValueError(f"{num_examples} examples cannot be shared out over {num_tasks} training tasks")
    first_example = tf.cast(first_batch, tf.int64) * batch_size
    first_epoch, offset = first_example // share, first_example % share

    def of_epoch(epoch: Any) -> Any:
        seeds = tf.stack([tf.constant(seed, tf.int64), epoch])
        order = tf.random.experimental.stateless_shuffle(tf.range(num_examples, dtype=tf.int64), seeds, alg="philox")
        # tf.equal: in a v1 graph `==` asks whether two tensors are the same object.
        skipped = tf.where(tf.equal(epoch, first_epoch), offset, tf.constant(0, tf.int64))
        return order[task_number::num_tasks][skipped:]

    epochs = tf.data.Dataset.range(first_epoch, FOREVER)
    # prefetch: the next epoch is shuffled while this one is read.
    return epochs.map(as_written(of_epoch)).prefetch(1).rebatch(batch_size)


def batches(features: Any, labels: Any, prepare: Callable[[Any], Any], indices: Any, ahead: bool = True) -> Any:
    """A Dataset of (features, labels): the examples at `indices`, with `prepare` applied to the features.

    `features` and `labels` may be arrays, or placeholders of a v1 graph that are fed when the iterator is
    initialised: so 47 MB of images do not become a constant in the graph.

    `ahead`: the next batches are made by a thread of their own while a step computes or waits. A task that never waits
    and has one core gains nothing from it, and the hand-overs between threads are an eighth of a small step.
    """

    def gather(chosen: Any) -> Any:
        return prepare(tf.gather(features, chosen)), tf.gather(labels, chosen)

    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.threading.max_intra_op_parallelism = 1
    dataset = indices.map(as_written(gather))
    if ahead:
        options.threading.private_threadpool_size = 1  # beside the step's own threads
        dataset = dataset.prefetch(PREFETCH_BATCHES)
    return dataset.with_options(options)
