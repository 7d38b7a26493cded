"""VGG16 (Simonyan 2014): 13 small convolutions and 3 dense layers, 138,357,544 parameters at 224x224 and 1,000 classes.

119.5 million of them are in the first two dense layers. No other model here asks as much of a network.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass

BLOCKS = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))  # convolutions, filters of each


class Settings(base.Settings):
    name: Literal["vgg16"] = "vgg16"
    width: float = Field(default=1.0, gt=0, le=16)
    """Factor on the filters of every convolution and the units of every hidden dense layer."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Share of the outputs of both hidden dense layers that is zeroed in each training step."""


TYPICAL = DataInfo((224, 224, 3), 1000, 1_281_167, 50_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    objectives.needs_classes("vgg16", data)
    objectives.needs_images("vgg16", data, smallest=32)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    x = features
    for block, (convolutions, filters) in enumerate(BLOCKS, 1):
        for number in range(1, convolutions + 1):
            name = f"conv{block}_{number}"
            count = layers.widened(filters, settings.width)
            x = layers.relu(layers.conv2d(run, name, x, count, size=3, weights=layers.he_normal))
        x = layers.max_pool(run, x)
    x = layers.flatten(run, x)
    for name in ("dense1", "dense2"):
        x = layers.relu(layers.dense(run, name, x, layers.widened(4096, settings.width)))
        x = layers.dropout(run, x, settings.dropout)
    return layers.dense(run, "logits", x, objectives.needs_classes("vgg16", data))


loss = objectives.cross_entropy
correct = objectives.is_largest
