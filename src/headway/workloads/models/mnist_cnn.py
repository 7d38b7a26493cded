"""E1's convolutional network: 3,274,634 parameters on MNIST, 98 % of them in one dense layer."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass


class Settings(base.Settings):
    name: Literal["mnist_cnn"] = "mnist_cnn"
    dropout: float = Field(default=0.4, ge=0, lt=1)
    """Share of the dense layer's outputs that is zeroed in each training step."""
    batch_norm: bool = False
    """Normalise each convolution's output before its ReLU (not in E1)."""


TYPICAL = DataInfo((28, 28, 1), 10, 60_000, 10_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    objectives.needs_classes("mnist_cnn", data)
    objectives.needs_images("mnist_cnn", data, smallest=4)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    x = features
    for block, filters in (("1", 32), ("2", 64)):
        x = layers.conv2d(run, f"conv{block}", x, filters, size=5)
        if settings.batch_norm:
            x = layers.batch_norm(run, f"norm{block}", x)
        x = layers.max_pool(run, layers.relu(x))
    x = layers.relu(layers.dense(run, "dense", layers.flatten(run, x), units=1024))
    x = layers.dropout(run, x, settings.dropout)
    return layers.dense(run, "logits", x, units=objectives.needs_classes("mnist_cnn", data))


loss = objectives.cross_entropy
correct = objectives.is_largest
