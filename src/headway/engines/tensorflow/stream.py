"""Batches of data that is too large for memory.

    numbers of records --> read --------------> decode ---------------> settle --> (features, labels)
      (input.py)           Python: bytes,       TensorFlow, several     a bad record: the end, or another one of the
                           checksums, labels    images at a time        batch in its place

Files are read in Python: it says what is wrong, and where. A batch is read in one call, so that costs little. What a
batch holds depends on its numbers alone, bad records or not: a restarted task sees the same batches again.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from headway.engines.assignment import Assignment
from headway.errors import DataError
from headway.plural import counted
from headway.workloads import images
from headway.workloads.augment import MOVES
from headway.workloads.base import Arrays, DataInfo
from headway.workloads.records import BadRecord, Example, Records
from headway.workloads.streamed import StreamedData

v1 = tf.compat.v1
Array = np.ndarray[Any, Any]
Report = Callable[[BadRecord], None]
# A batch is read and decoded while the one before is still being decoded: threads have work at a batch's end too.
BATCHES_AT_ONCE = 2
PREFETCH_BATCHES = 2
as_written = tf.autograph.experimental.do_not_convert


def reporter(assignment: Assignment) -> Report:
    """Bad records that are skipped stand in the record, from where the result counts them."""
    return lambda bad: assignment.event("bad_record", file=bad.file, offset=bad.offset, reason=bad.reason)


class Stream:
    """One split, read batch by batch."""

    def __init__(self, records: Records, info: DataInfo, settings: StreamedData, threads: int, report: Report) -> None:
        self.records = records
        self.failure: DataError | None = None
        self.settings = settings
        self._threads = settings.decode_threads or max(1, threads)
        self._report = report
        self._label_type = tf.float32 if info.classes is None else tf.int32
        self._known: set[tuple[str, int]] = set()
        self._lock = threading.Lock()

    def explained(self, error: Exception) -> Exception:
        """The bad record that TensorFlow's error comes from, if there was one."""
        return self.failure or error

    # --- the pipeline ------------------------------------------------------------------------------------------
    def batches(self, indices: Any, finish: Callable[..., Any], crop: float | None = None, full: bool = True) -> Any:
        """A Dataset of finish(features, *random numbers), labels for each element of `indices`: numbers of records, or
        those and random numbers for each.

        `full`: where a record is skipped, another one of the batch takes its place; else the batch is smaller.
        """
        content = self.records.content
        is_raw = content.encoding == "raw"

        def read(chosen: Any, *random: Any) -> Any:
            known, stored, labels = tf.numpy_function(
                lambda numbers: self._read(numbers, full), [chosen], [tf.int64, tf.string, self._label_type]
            )
            for tensor in (known, stored, labels):
                tensor.set_shape(chosen.shape if full else [None])
            if not is_raw:
                return known, stored, labels, *random
            flat = tf.io.decode_raw(stored, tf.as_dtype(content.dtype))
            return tf.reshape(flat, [-1, *content.shape]), labels, *random

        def decode(known: Any, stored: Any, labels: Any, *random: Any) -> Any:
            """A data set of one element: what could be decoded, and from which places of the batch."""
            num_records = tf.size(stored, tf.int64)
            each = tf.data.Dataset.from_tensor_slices((tf.range(num_records), stored, *random))
            decoded = each.map(
                as_written(lambda place, stored, *random: (place, _image(stored, content.shape, crop, *random))),
                num_parallel_calls=self._threads,
                deterministic=True,
            ).ignore_errors()
            # One more at the end: a batch of which nothing can be decoded still is one.
            none = tf.data.Dataset.from_tensors((tf.constant(-1, tf.int64), tf.zeros(content.shape, tf.uint8)))
            together = decoded.concatenate(none).batch(num_records + 1)
            return together.map(as_written(lambda places, images: (known, labels, places, images, *random)))

        def settle(known: Any, labels: Any, places: Any, images: Any, *random: Any) -> Any:
            kept = tf.numpy_function(
                lambda numbers, places: self._settle(numbers, places, full), [known, places], tf.int64
            )
            kept.set_shape(known.shape if full else [None])
            places = tf.gather(places, kept)
            return tf.gather(images, kept), tf.gather(labels, places), *(tf.gather(each, places) for each in random)

        dataset = indices.map(as_written(read), num_parallel_calls=BATCHES_AT_ONCE, deterministic=True)
        if not is_raw:
            dataset = dataset.interleave(
                as_written(decode),
                cycle_length=BATCHES_AT_ONCE,
                num_parallel_calls=BATCHES_AT_ONCE,
                deterministic=True,
            ).map(as_written(settle))
        dataset = dataset.map(as_written(lambda features, labels, *random: (finish(features, *random), labels)))
        options = tf.data.Options()
        options.deterministic = True
        options.autotune.enabled = False
        options.threading.max_intra_op_parallelism = 1
        options.threading.private_threadpool_size = self._threads + 1  # one waits for files
        return dataset.prefetch(PREFETCH_BATCHES).with_options(options)

    def in_order(self, batch_size: int, finish: Callable[..., Any]) -> Any:
        """A Dataset of all records once, without those that are skipped."""
        num_records = len(self.records)

        def numbers(first: Any) -> Any:
            return tf.range(first, tf.minimum(first + batch_size, num_records))

        firsts = tf.data.Dataset.range(0, num_records, batch_size)
        return self.batches(firsts.map(as_written(numbers)), finish, full=False)

    def into_memory(self, batch_size: int, config: Any) -> Arrays:
        """Everything, decoded."""
        content = self.records.content
        features = np.empty((len(self.records), *content.shape), content.dtype)
        labels = np.empty(len(self.records), self._label_type.as_numpy_dtype)
        done = 0
        with tf.Graph().as_default(), v1.Session(config=config) as session:
            iterator = v1.data.make_initializable_iterator(self.in_order(batch_size, lambda stored: stored))
            following = iterator.get_next()
            session.run(iterator.initializer)
            while True:
                try:
                    some, theirs = session.run(following)
                except tf.errors.OutOfRangeError:
                    return features[:done], labels[:done]
                except tf.errors.OpError as error:
                    raise self.explained(error) from error
                features[done : done + len(some)], labels[done : done + len(some)] = some, theirs
                done += len(some)

    # --- what happens in Python -----------------------------------------------------------------------------
    def _read(self, numbers: Array, full: bool) -> tuple[Array, Array, Array]:
        """Record numbers, bytes and labels of a batch."""
        chosen = numbers % len(self.records)
        found = self.records.read(chosen.tolist())
        for result in found:
            if isinstance(result, BadRecord):
                self._found(result)
        kept = self._kept([place for place, result in enumerate(found) if isinstance(result, Example)], chosen, full)
        stored = np.empty(len(kept), object)
        labels = np.empty(len(kept), self._label_type.as_numpy_dtype)
        for target, place in enumerate(kept):
            stored[target], labels[target] = found[place]  # type: ignore[misc]
        return chosen[kept], stored, labels

    def _settle(self, numbers: Array, places: Array, full: bool) -> Array:
        """Which of the decoded images make the batch."""
        places = places[:-1]
        if len(places) < len(numbers):
            for place in sorted(set(range(len(numbers))) - set(places.tolist())):
                self._found(self._undecodable(int(numbers[place])))
        order = {place: number for number, place in enumerate(places.tolist())}
        return np.array([order[place] for place in self._kept(places.tolist(), numbers, full)], np.int64)

    def _undecodable(self, number: int) -> BadRecord:
        [again] = self.records.read([number])
        if isinstance(again, BadRecord):
            return again
        return BadRecord(*self.records.place(number), images.problem(again.content) or "the image cannot be decoded")

    def _kept(self, good: Sequence[int], numbers: Array, full: bool) -> list[int]:
        """The places of a batch that are used: the good ones, and in a full batch these again for the bad ones."""
        if not good:
            file, offset = self.records.place(int(numbers[0]))
            self._fail(
                f"none of {counted(len(numbers), 'record')} of a batch can be used; the first: {file}, offset {offset}"
            )
        if not full or len(good) == len(numbers):
            return list(good)
        spare = (good[number % len(good)] for number in range(len(numbers)))
        is_good = set(good)
        return [place if place in is_good else next(spare) for place in range(len(numbers))]

    def _found(self, bad: BadRecord) -> None:
        if self.settings.on_bad_record == "fail":
            self._fail(f"bad record: {bad} (on_bad_record: skip trains without it)")
        with self._lock:
            is_new = (bad.file, bad.offset) not in self._known
            self._known.add((bad.file, bad.offset))
        if is_new:
            self._report(bad)

    def _fail(self, message: str) -> None:
        self.failure = self.failure or DataError(message)
        raise self.failure


def _image(stored: Any, shape: tuple[int, ...], crop: float | None, random: Any | None = None) -> Any:
    """An image file as uint8 of that shape: the largest part of the right form from its middle, or a random part."""
    height, width, channels = shape
    image = tf.io.decode_image(stored, channels=channels, expand_animations=False)
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    form = (width / height) * size[0] / size[1]  # width by height of the cut, both as shares of the image
    if crop is None or random is None:
        share = tf.stack([tf.minimum(1.0, 1.0 / form), tf.minimum(1.0, form)])
        corner = (1.0 - share) / 2.0
    else:
        area = crop + (1.0 - crop) * random[MOVES]
        form *= tf.exp((2.0 * random[MOVES + 1] - 1.0) * math.log(4 / 3))
        share = tf.minimum(1.0, tf.sqrt(tf.stack([area / form, area * form])))
        corner = (1.0 - share) * random[MOVES + 2 : MOVES + 4]
    extent = tf.maximum(1.0, tf.round(share * size))
    begin = tf.minimum(tf.round(corner * size), size - extent)
    cut = tf.slice(
        image, tf.pad(tf.cast(begin, tf.int32), [[0, 1]]), [*tf.unstack(tf.cast(extent, tf.int32)), channels]
    )
    scaled = tf.image.resize(cut, [height, width])
    return tf.ensure_shape(tf.cast(tf.round(scaled), tf.uint8), shape)
