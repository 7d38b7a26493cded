"""Towers: copies of the model, one on each device of a training task.

A task's batch is split over its towers; what they say of it is joined again inside the task (step.compute). To all
others the task has one gradient, however many devices it has.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from headway.spec.cluster import Task, shared_out
from headway.spec.job import Job


class Tower(NamedTuple):
    device: str
    examples: int
    """Its part of the task's batch."""


def device_names(job: Job, task: Task) -> list[str]:
    """What a training task computes on: as many GPUs as it asks for, where this machine has them, else logical CPU
    devices, which share the task's threads."""
    count = job.cluster.role(task.role).devices
    kind = "GPU" if len(tf.config.list_physical_devices("GPU")) >= count else "CPU"
    return [f"{kind}:{number}" for number in range(count)]


def towers(job: Job, task: Task, device: str) -> list[Tower]:
    """`device`: where the task has its batch and its variables' values, such as /job:worker/task:0/device:CPU:0."""
    process, _, _ = device.rpartition("CPU:0")
    names = device_names(job, task)
    sizes = shared_out(job.batch_size_of(task), len(names))
    return [Tower(f"{process}{name}", size) for name, size in zip(names, sizes, strict=True)]
