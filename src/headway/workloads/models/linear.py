"""Linear regression, E2's smallest example (y = 3x + noise): one unit with a bias on the flattened features."""

from __future__ import annotations

from typing import Any, Literal

from headway.plural import counted
from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass


class Settings(base.Settings):
    name: Literal["linear"] = "linear"


TYPICAL = DataInfo((1,), None, 10_000, 1_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    if data.classes is not None:
        raise ValueError(
            f"model linear needs labels that are numbers; the data set has {counted(data.classes, 'class')} "
            "(models for those: softmax, mnist_cnn)"
        )


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:  # noqa: ARG001
    return layers.dense(run, "linear", layers.flatten(run, features), units=1)[:, 0]


loss = objectives.squared_error
correct = None  # a number is near or far, not right or wrong
