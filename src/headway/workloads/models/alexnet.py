"""AlexNet (E3): five convolutions and three dense layers, 61,100,840 parameters at 224x224 and 1,000 classes.

The original was cut in two for two small GPUs; this is its author's later form in one piece (Krizhevsky 2014), with the
overlapping pooling and the local response normalisation of 2012. The first dense layer follows the image's size.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass

CONVOLUTIONS = ((64, 11), (192, 5), (384, 3), (256, 3), (256, 3))  # filters, size


class Settings(base.Settings):
    name: Literal["alexnet"] = "alexnet"
    width: float = Field(default=1.0, gt=0, le=16)
    """Factor on the filters of every convolution and the units of every hidden dense layer."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Share of the inputs of both hidden dense layers that is zeroed in each training step."""


TYPICAL = DataInfo((224, 224, 3), 1000, 1_281_167, 50_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    objectives.needs_classes("alexnet", data)
    objectives.needs_images("alexnet", data, smallest=63)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    x = layers.pad(run, features, 2)
    for number, (filters, size) in enumerate(CONVOLUTIONS, 1):
        stride, padding = (4, "VALID") if number == 1 else (1, "SAME")
        x = layers.conv2d(
            run,
            f"conv{number}",
            x,
            layers.widened(filters, settings.width),
            size=size,
            stride=stride,
            padding=padding,
            weights=layers.he_normal,
        )
        x = layers.relu(x)
        if number <= 2:
            x = layers.local_response_norm(run, x)
        if number in (1, 2, 5):
            x = layers.max_pool(run, x, size=3, stride=2)
    x = layers.flatten(run, x)
    for name in ("dense1", "dense2"):
        x = layers.dropout(run, x, settings.dropout)
        x = layers.relu(layers.dense(run, name, x, layers.widened(4096, settings.width)))
    return layers.dense(run, "logits", x, objectives.needs_classes("alexnet", data))


loss = objectives.cross_entropy
correct = objectives.is_largest
