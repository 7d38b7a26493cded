"""What a task's devices can do: which number formats they have arithmetic for, and how they keep images."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf

from headway.engines.assignment import Assignment
from headway.engines.tensorflow.towers import device_names
from headway.errors import SiteError
from headway.spec.job import Job

# What Linux calls the instructions that multiply and add such numbers, on x86 and on ARM.
CPU_FLAGS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}
GPU_CAPABILITY = {"bfloat16": (8, 0), "float16": (7, 0)}  # since when there are tensor cores for them
CPU_FACTS = Path("/proc/cpuinfo")


def tell_ready(assignment: Assignment) -> None:
    """To the record: a training task is here, and what it computes with. SiteError as in `check`."""
    names = device_names(assignment.job, assignment.task)
    native = check(assignment.job, names)
    assignment.event("ready", pid=os.getpid(), port=assignment.port, devices=names, native_precision=native)


def check(job: Job, devices: Iterable[str]) -> bool:
    """Whether these devices ("GPU:0") have arithmetic for the job's precision. SiteError where they cannot train at all
    as the job asks."""
    on_gpus = all(name.startswith("GPU") for name in devices)
    if job.training.data_format == "NCHW" and not on_gpus:
        raise SiteError(
            "workload.data_format: NCHW needs a GPU for each device of a training task: TensorFlow's convolutions on "
            "CPUs know only NHWC"
        )
    precision = job.training.precision
    if precision == "float32":
        return True
    if on_gpus:
        gpus = tf.config.list_physical_devices("GPU")
        capabilities = [tf.config.experimental.get_device_details(gpu).get("compute_capability") for gpu in gpus]
        return all(capability is not None and capability >= GPU_CAPABILITY[precision] for capability in capabilities)
    return bool(CPU_FLAGS[precision] & cpu_flags(CPU_FACTS.read_text()))


def cpu_flags(facts: str) -> set[str]:
    """Of the first CPU in /proc/cpuinfo: x86 says `flags`, ARM `Features`."""
    for line in facts.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()
