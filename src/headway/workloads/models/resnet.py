"""Residual network for small images (He 2015), 6n + 2 layers deep; E5 trains 44 on CIFAR-10 (658,586 parameters).

Three stages of n blocks of two convolutions, with 16, 32 and 64 filters. Where a stage halves the image, the shortcut
takes every second pixel and has zeros for the new channels, so shortcuts have no parameters.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass


class Settings(base.Settings):
    name: Literal["resnet"] = "resnet"
    depth: Annotated[int, Field(ge=1, le=2000)] = 44
    """Layers with weights: 6n + 2, usually 20, 32, 44 or 56."""

    @field_validator("depth")
    @classmethod
    def _is_possible(cls, depth: int) -> int:
        if depth < 8 or depth % 6 != 2:
            raise ValueError("a residual network has 6n + 2 layers: 8, 14, 20, 26, 32, 38, 44, 50, 56 ...")
        return depth


# Averages over about ten steps, as usual for this network: at its high rates weights soon are others.
conv_norm = partial(layers.conv_norm, size=3, momentum=0.9)
TYPICAL = DataInfo((32, 32, 3), 10, 50_000, 10_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    objectives.needs_classes("resnet", data)
    objectives.needs_images("resnet", data, smallest=8)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    x = layers.relu(conv_norm(run, "first", features, 16))
    for stage, filters in enumerate((16, 32, 64), 1):
        for number in range(1, (settings.depth - 2) // 6 + 1):
            with layers.layer(run, f"stage{stage}_block{number}"):
                x = block(run, x, filters, stride=2 if stage > 1 and number == 1 else 1)
    return layers.dense(run, "logits", layers.global_average(run, x), objectives.needs_classes("resnet", data))


def block(run: ForwardPass, x: Any, filters: int, stride: int) -> Any:
    import tensorflow as tf

    if stride > 1:  # a frame on all sides: with SAME the filters would lie a pixel beside those that the shortcut takes
        residual = conv_norm(run, "one", layers.pad(run, x, 1), filters, stride=stride, padding="VALID")
    else:
        residual = conv_norm(run, "one", x, filters)
    residual = layers.relu(residual)
    residual = conv_norm(run, "two", residual, filters)
    if new := filters - layers.channels(run, x):
        x = layers.channels_last(run, x)[:, ::stride, ::stride]
        x = layers.as_formatted(run, tf.pad(x, [[0, 0], [0, 0], [0, 0], [new // 2, new - new // 2]]))
    return layers.relu(x + residual)


loss = objectives.cross_entropy
correct = objectives.is_largest
