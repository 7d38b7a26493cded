"""Strategies by name: one file each, imported on use. A new one is that file and a row here."""

from __future__ import annotations

import importlib

from headway.engines.assignment import Assignment
from headway.engines.tensorflow.trainer import Trainer

STRATEGIES = {
    "single": "headway.engines.tensorflow.strategies.single:Single",
    "ps-async": "headway.engines.tensorflow.strategies.ps_async:PsAsync",
    "ps-sync": "headway.engines.tensorflow.strategies.ps_sync:PsSync",
    "ps-sync in_graph": "headway.engines.tensorflow.strategies.in_graph:InGraph",
    "allreduce": "headway.engines.tensorflow.strategies.allreduce:AllReduce",
}


def trainer(assignment: Assignment) -> Trainer:
    """The Trainer of the job's strategy, for this task."""
    strategy = assignment.job.strategy
    kind = f"{strategy.kind} in_graph" if strategy.replication == "in_graph" else strategy.kind
    module, _, name = STRATEGIES[kind].partition(":")
    made: Trainer = getattr(importlib.import_module(module), name)(assignment)
    return made
