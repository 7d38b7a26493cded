"""ResNet-50 (He 2015): 25,557,032 parameters at 1,000 classes.

16 blocks of three convolutions: 1x1 to few channels, 3x3, 1x1 to four times as many; added to what came in.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # filters, blocks


class Settings(base.Settings):
    name: Literal["resnet50"] = "resnet50"
    version: Literal["v1", "v1.5"] = "v1.5"
    """Which convolution halves the image: the first one of a block (v1, as published), or its 3x3 one (v1.5, as in most
    benchmarks: a little more work, and a little more accurate)."""
    width: float = Field(default=1.0, gt=0, le=16)
    """Factor on the filters of every convolution."""


TYPICAL = DataInfo((224, 224, 3), 1000, 1_281_167, 50_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    objectives.needs_classes("resnet50", data)
    objectives.needs_images("resnet50", data, smallest=32)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    x = layers.pad(run, features, 3)
    filters = layers.widened(64, settings.width)
    x = layers.relu(layers.conv_norm(run, "first", x, filters, size=7, stride=2, padding="VALID"))
    x = layers.max_pool(run, layers.pad(run, x, 1), size=3, stride=2)
    for stage, (filters, blocks) in enumerate(STAGES, 1):
        for number in range(1, blocks + 1):
            with layers.layer(run, f"stage{stage}_block{number}"):
                stride = 2 if stage > 1 and number == 1 else 1
                x = block(run, x, layers.widened(filters, settings.width), stride, settings.version)
    return layers.dense(run, "logits", layers.global_average(run, x), objectives.needs_classes("resnet50", data))


def block(run: ForwardPass, x: Any, filters: int, stride: int, version: str) -> Any:
    shortcut = x
    if layers.channels(run, x) != 4 * filters:
        shortcut = layers.conv_norm(run, "shortcut", x, 4 * filters, size=1, stride=stride)
    first, second = (stride, 1) if version == "v1" else (1, stride)
    x = layers.relu(layers.conv_norm(run, "one", x, filters, size=1, stride=first))
    if second > 1:  # a frame on all sides: SAME would put it on the right and below only
        x = layers.conv_norm(run, "two", layers.pad(run, x, 1), filters, size=3, stride=second, padding="VALID")
    else:
        x = layers.conv_norm(run, "two", x, filters, size=3)
    x = layers.conv_norm(run, "three", layers.relu(x), 4 * filters, size=1)
    return layers.relu(shortcut + x)


loss = objectives.cross_entropy
correct = objectives.is_largest
