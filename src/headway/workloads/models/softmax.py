"""Softmax (multinomial logistic) regression: E3's model, 7,850 parameters on MNIST."""

from __future__ import annotations

from typing import Any, Literal

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass


class Settings(base.Settings):
    name: Literal["softmax"] = "softmax"
    init: Literal["zeros", "normal"] = "zeros"
    """Where weights and bias start: at zero, or drawn from N(0, 1) as in E3."""


TYPICAL = DataInfo((28, 28, 1), 10, 60_000, 10_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    objectives.needs_classes("softmax", data)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    classes = objectives.needs_classes("softmax", data)
    initial = layers.zeros if settings.init == "zeros" else layers.standard_normal
    return layers.dense(run, "softmax", layers.flatten(run, features), classes, weights=initial, bias=initial)


loss = objectives.cross_entropy
correct = objectives.is_largest
