"""`ps-async`: variables live on parameter servers; each training task pulls, computes and pushes at its own pace.

Between-graph replication: each training task has its own graph and its own in-process server as session target.
Variables of the same name on the same server are the same variable, whoever made the session.

When a server dies, the launcher ends all servers before it starts any again. So a session from before can never
push into restored variables: the new servers do not know its graph, and it gets an error (graph.GONE).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from headway.engines.tensorflow import ports, server
from headway.engines.tensorflow.assignment import Assignment
from headway.engines.tensorflow.strategies.graph import GraphTrainer

v1 = tf.compat.v1


class PsAsync(GraphTrainer):
    def __init__(self, assignment: Assignment) -> None:
        self._server = server.start(assignment)
        super().__init__(assignment)
        task = assignment.task
        self._device = f"/job:{task.role}/task:{task.index}"
        # Without filters a session waits for every task of the cluster, the other workers too.
        self.config.device_filters.extend(["/job:ps", self._device])

    def scope(self) -> Any:
        return v1.device(
            v1.train.replica_device_setter(
                worker_device=self._device,
                ps_device="/job:ps/device:CPU:0",
                cluster=tf.train.ClusterSpec(self.assignment.addresses),
            )
        )

    def state_device(self) -> str:
        return "/job:ps/task:0/device:CPU:0"

    def open_session(self, graph: Any) -> Any | None:
        # TensorFlow would wait silently, and without a limit, for a server that does not answer.
        if not all(ports.answers(address) for address in self.assignment.addresses["ps"]):
            return None
        return v1.Session(self._server.target, graph=graph, config=self.config)

    def device_name(self, variable: Any) -> str:
        device = tf.DeviceSpec.from_string(variable.device)
        return f"{device.job}/{device.task}"
