"""Every model under every strategy, in tiny sizes: it learns, and it ends where it must.

All examples together are one batch, so that there is one right answer for each step. Without dropout and noise
    ps-async with one task  = single, to the last moving average
    ps-sync with two tasks  = allreduce with two tasks, though one has its variables in parts on two servers
    both of them            = single on the joined batch, unless the model normalises batches: each task takes the
                              statistics of its own examples
As in test_engine_allreduce.py a pair of processes (`python test_engine_contract.py` is one) goes through all models.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_engine_allreduce import MEMBERS, Case, Members, initial_of, member

from headway import workloads

pytestmark = [pytest.mark.real, pytest.mark.system, pytest.mark.timeout(900)]  # minutes on two cores, more on busy ones
HALF = 8  # examples of one of two tasks
STEPS = 3
FALLS = 0.99  # the least loss after the first step, of the first; nothing is random, so this is no accident


def images(*shape: int) -> dict[str, Any]:
    return {"name": "synthetic", "shape": list(shape), "classes": 4, "size": 2 * HALF, "test_size": 4, "noise": 0.1}


@dataclass(frozen=True)
class Row:
    """A model in a tiny size, without anything random; data for it; a learning rate."""

    settings: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=lambda: images(8, 8, 1))
    rate: float = 0.1
    normalises: bool = False
    compared: int = STEPS
    """After how many steps variables are compared. Where few numbers are normalised, again and again, rounding grows
    by orders of magnitude with each step."""
    near: float = 0.01
    """How much two trainings may differ, of what each has changed. How large rounding grows depends on the CPU."""

    def workload(self, model: str, batch_size: int) -> dict[str, Any]:
        return {
            "model": {"name": model, **self.settings},
            "dataset": self.data,
            "batch_size": batch_size,
            "optimizer": {"name": "sgd", "learning_rate": self.rate},
        }


NARROW = {"width": 0.125, "dropout": 0.0}
MODELS = {
    "alexnet": Row(NARROW, images(63, 63, 3)),
    "autoencoder": Row({"hidden": [12, 6]}, rate=0.01),
    "inception_resnet_v1": Row(NARROW, images(75, 75, 3), rate=0.003, normalises=True, compared=1, near=0.1),
    # Larger than it need be: it normalises what is left of an image at its end, and of a pixel that is only noise.
    "inception_v3": Row(
        {**NARROW, "width": 0.25}, images(107, 107, 3), rate=0.003, normalises=True, compared=1, near=0.1
    ),
    "linear": Row({}, {**images(3), "classes": None}),
    "mnist_cnn": Row({"dropout": 0.0}),
    "resnet": Row({"depth": 8}, rate=0.03, normalises=True),
    "resnet50": Row({"width": 0.125}, images(32, 32, 3), rate=0.003, normalises=True, compared=1, near=0.1),
    "softmax": Row({"init": "normal"}),
    "spatial_transformer": Row(),
    "vgg16": Row(NARROW, images(32, 32, 3)),
}
CASES = {name: Case(row.workload(name, HALF), calls=(1,) * row.compared) for name, row in MODELS.items()}

if __name__ == "__main__":
    member(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]), CASES)
    os._exit(0)


def test_there_is_a_row_for_every_model() -> None:
    assert list(MODELS) == workloads.model_names()


@pytest.fixture(scope="module")
def allreduce(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """At work beside what this process does: there are two cores."""
    with Members(tmp_path_factory.mktemp("contract"), __file__, CASES, limit=800) as members:
        yield members


def trained(root: Path, model: str, strategy: str, servers: int, tasks: int) -> tuple[list[float], dict[str, Any]]:
    """The loss of each step, of all tasks together, and the variables when they are to be compared."""
    from inprocess import cluster, job_of

    row = MODELS[model]
    settings = row.workload(model, 2 * HALF // tasks)
    with cluster(root, job_of(servers, tasks, strategy=strategy, workload=settings)) as run:
        first, values, rest = run.steps(row.compared), run.values(), run.steps(STEPS - row.compared)
    return losses_of([one.loss for one in first[name] + rest[name]] for name in first), values


def losses_of(tasks: Iterable[list[float]]) -> list[float]:
    return np.mean(list(tasks), axis=0).tolist()  # type: ignore[no-any-return]


def assert_learnt_alike(found: dict[str, Any], expected: dict[str, Any], before: dict[str, Any], near: float) -> None:
    """What two trainings made of a variable differs by less than this share of what each has changed."""
    assert found.keys() == expected.keys()
    moved = 0
    for name, value in expected.items():
        change = np.linalg.norm(value - before.get(name, 0))
        moved += int(name in before and change > 0)
        assert np.linalg.norm(found[name] - value) <= near * change + 1e-6 * np.linalg.norm(value), name
    assert moved == len(before), "every variable has learnt something"


@pytest.mark.parametrize("model", MODELS)
def test_it_learns_the_same_in_every_strategy(tmp_path: Path, model: str, allreduce: Members) -> None:
    row, before = MODELS[model], initial_of(CASES[model].job())
    alone, expected = trained(tmp_path, model, "single", 0, 1)
    assert min(alone[1:]) < FALLS * alone[0]

    losses, found = trained(tmp_path, model, "ps-async", 1, 1)
    np.testing.assert_allclose(losses[: row.compared], alone[: row.compared], rtol=1e-3)
    assert_learnt_alike(found, expected, before, row.near)

    losses, shared = trained(tmp_path, model, "ps-sync", 2, 2)
    chief, worker = (allreduce.trained(model)[name] for name in MEMBERS)
    ring = losses_of([[result["loss"] for result in one.results] for one in (chief, worker)])
    np.testing.assert_allclose(losses[: row.compared], ring, rtol=1e-3)
    assert_learnt_alike(shared, chief.values, before, row.near)
    assert min(losses[1:]) < FALLS * losses[0]
    if not row.normalises:
        np.testing.assert_allclose(losses, alone, rtol=1e-3)
        assert_learnt_alike(shared, expected, before, row.near)
