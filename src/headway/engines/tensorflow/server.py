"""TensorFlow's gRPC server: a parameter server's whole life, and the in-process part of a training task."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import ports
from headway.errors import SiteError


def config(assignment: Assignment) -> Any:
    """The thread pools and devices that the job gives this task."""
    settings = assignment.job.cluster.role(assignment.task.role)
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=settings.threads.intra_op or 0,
        inter_op_parallelism_threads=settings.threads.inter_op or 0,
        allow_soft_placement=True,
        device_count={"CPU": settings.devices},
        # Tasks on one machine share its GPUs; by itself the first would take all their memory.
        gpu_options=tf.compat.v1.GPUOptions(allow_growth=True),
    )
    if assignment.job.training.precision == "bfloat16" and assignment.job.strategy.kind != "single":
        # On CPUs with bfloat16 TensorFlow joins a convolution and its ReLU into an operation that only sessions without
        # servers know how to compute.
        config.graph_options.rewrite_options.remapping = rewriter_config_pb2.RewriterConfig.OFF
    return config


def start(assignment: Assignment) -> Any:
    """This task's server, listening on its port. Raises ports.PortTaken."""
    port = assignment.port
    if port is None:
        raise SiteError(f"TF_CONFIG gives {assignment.task} no address")
    ports.check_free(port)
    try:
        return tf.distribute.Server(
            tf.train.ClusterSpec(assignment.addresses),
            job_name=assignment.task.role,
            task_index=assignment.task.index,
            config=config(assignment),
        )
    except tf.errors.UnknownError as error:
        if "Could not start gRPC server" in error.message:  # taken since the check
            raise ports.PortTaken(f"port {port} is taken by another program") from None
        raise


def serve(assignment: Assignment) -> None:
    """Hold variables until the agent ends this process (TensorFlow's server has no stop), or says stop."""
    held = start(assignment)
    signal.signal(signal.SIGTERM, lambda *_: assignment.control.stop("SIGTERM"))  # the record's last lines are written
    assignment.event("ready", pid=os.getpid(), port=assignment.port)
    if assignment.job.strategy.kind == "ps-sync" and assignment.task.index == 0:
        from headway.engines.tensorflow.updater import Updater

        broken: list[BaseException] = []
        thread = threading.Thread(
            target=_until_broken, args=(Updater(assignment, held.target).run, broken), daemon=True
        )
        thread.start()
    else:
        broken, thread = [], None
    while assignment.control.stop_reason is None and not broken:
        assignment.control.wait(0.5 if thread else 3600)
    if broken:
        raise broken[0]


def _until_broken(work: Callable[[], None], broken: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        broken.append(error)
