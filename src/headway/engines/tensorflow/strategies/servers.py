"""What strategies with parameter servers have in common: how to reach the servers.

Each training task (with `replication: in_graph` only the chief) has its own graph, and its own in-process server as
session target.
Variables of the same name on the same server are the same variable, whoever made the session.

When a server dies, the launcher ends all servers before it starts any again. So a session from before can never
push into restored variables: the new servers do not know its graph, and it gets an error (graph.GONE).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from headway.engines.assignment import Assignment
from headway.engines.tensorflow import ports, server
from headway.engines.tensorflow.strategies.graph import GraphTrainer


def devices(assignment: Assignment) -> list[str]:
    """Of the parameter servers."""
    return [f"/job:ps/task:{index}/device:CPU:0" for index in range(len(assignment.addresses["ps"]))]


class ServerTrainer(GraphTrainer):
    def __init__(self, assignment: Assignment) -> None:
        self._server = server.start(assignment)
        super().__init__(assignment)
        task = f"/job:{assignment.task.role}/task:{assignment.task.index}"
        self.device = f"{task}/device:CPU:0"
        # Without filters a session waits for every task of the cluster, the other workers too.
        self.config.device_filters.extend(["/job:ps", task])

    def state_devices(self) -> list[str]:
        return devices(self.assignment)

    def open_session(self, graph: Any) -> Any | None:
        # TensorFlow would wait silently, and without a limit, for a server that does not answer.
        if not all(ports.answers(address) for address in self.assignment.addresses["ps"]):
            return None
        return tf.compat.v1.Session(self._server.target, graph=graph, config=self.config)
