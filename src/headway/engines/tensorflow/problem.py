"""The job's model and data set, bound to their settings: what is learnt, whatever the strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from headway import workloads
from headway.engines.tensorflow.stream import Report, Stream
from headway.spec.job import Job
from headway.workloads.base import Arrays, ForwardPass, Split
from headway.workloads.layers import as_formatted
from headway.workloads.objectives import one_each
from headway.workloads.records import Records
from headway.workloads.streamed import StreamedData


def _in_float32(output: Any) -> Any:
    is_short = isinstance(output, tf.Tensor) and output.dtype in (tf.bfloat16, tf.float16)
    return tf.cast(output, tf.float32) if is_short else output


class Problem:
    def __init__(self, job: Job) -> None:
        self.settings = job.training
        self.data = workloads.dataset(job.training.dataset.name).describe(job.training.dataset)
        self._model = workloads.model(job.training.model.name, self.data)

    def load(self, split: Split) -> Arrays | Records:
        """Features as they are stored (bytes, for images) and labels; or where to read them."""
        return workloads.load(self.settings.dataset, workloads.cache_folder(), split)

    def stream(self, records: Records, config: Any, report: Report) -> Stream:
        """What reads and decodes these records, with as many threads as operations have."""
        settings = self.settings.dataset
        if not isinstance(settings, StreamedData):  # a plug-in's
            settings = StreamedData(name=settings.name)
        return Stream(records, self.data, settings, config.intra_op_parallelism_threads, report)

    def scaled(self, features: Any) -> Any:
        """Stored features -> the float32 numbers that the model sees."""
        features = tf.cast(features, tf.float32)
        colours = getattr(self.settings.dataset, "colours", None)
        if colours is None:
            return features if self.data.scale == 1.0 else features * self.data.scale
        deviation = np.array(colours.deviation, np.float32)
        return features * (self.data.scale / deviation) - np.array(colours.mean, np.float32) / deviation

    def build(self, features: Any, run: ForwardPass) -> Any:
        """Scaled features -> what the loss is made of, in float32, with variables made or found by name."""
        features = as_formatted(run, features) if len(self.data.shape) == 3 else features
        with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=tf.compat.v1.AUTO_REUSE):
            outputs = self._model.build(features, self.settings.model, self.data, run)
        return outputs if run.precision == "float32" else tf.nest.map_structure(_in_float32, outputs)

    def answer(self, outputs: Any) -> Any:
        """The part of the outputs that a user of the model wants: logits, numbers, an image."""
        return outputs[0] if isinstance(outputs, tuple) else outputs

    @property
    def classifies(self) -> bool:
        """Whether answers are logits. An autoencoder has none, also of data with classes."""
        return self.data.classes is not None and self._model.correct is not None

    def losses(self, outputs: Any, labels: Any) -> Any:
        """One loss per example."""
        return one_each(self._model.loss(outputs, labels))

    def correct(self, outputs: Any, labels: Any) -> Any | None:
        """1.0 for each example that is right; None where accuracy has no meaning."""
        return None if self._model.correct is None else self._model.correct(outputs, labels)
