"""The job's model and data set, bound to their settings: what is learnt, whatever the strategy."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from headway import workloads
from headway.spec.job import Job
from headway.workloads.base import Arrays, ForwardPass, Split


class Problem:
    def __init__(self, job: Job) -> None:
        self.settings = job.workload
        self._model = workloads.model(job.workload.model.name)
        self._dataset = workloads.dataset(job.workload.dataset.name)
        self.data = self._dataset.describe(job.workload.dataset)

    def load(self, split: Split) -> Arrays:
        """Features as they are stored (bytes, for images) and labels."""
        return self._dataset.load(self.settings.dataset, workloads.cache_folder(), split)

    def scaled(self, features: Any) -> Any:
        """Stored features -> the float32 numbers that the model sees."""
        features = tf.cast(features, tf.float32)
        return features if self.data.scale == 1.0 else features * self.data.scale

    def build(self, features: Any, run: ForwardPass) -> Any:
        """Scaled features -> outputs, with variables made or found by name."""
        with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=tf.compat.v1.AUTO_REUSE):
            return self._model.build(features, self.settings.model, self.data, run)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """One loss per example."""
        return self._model.loss(outputs, labels)

    def correct(self, outputs: Any, labels: Any) -> Any | None:
        """1.0 for each example that is right; None where accuracy has no meaning."""
        return self._model.correct(outputs, labels)
