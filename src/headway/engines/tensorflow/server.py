"""TensorFlow's gRPC server: a parameter server's whole life, and the in-process part of a training task."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from headway.engines.tensorflow import ports
from headway.engines.tensorflow.assignment import Assignment
from headway.errors import SiteError


def config(assignment: Assignment) -> Any:
    """The thread pools that the job gives this task."""
    threads = assignment.job.cluster.role(assignment.task.role).threads
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads.intra_op or 0,
        inter_op_parallelism_threads=threads.inter_op or 0,
        allow_soft_placement=True,
    )


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
    assignment.event("ready", pid=os.getpid(), port=assignment.port)
    while assignment.control.stop_reason is None:
        assignment.control.wait(3600)
    del held
