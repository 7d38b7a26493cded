"""Inception-ResNet-v1 (Szegedy 2016), which E5 draws: 22,742,808 parameters at 1,000 classes.

Inception blocks, each of which adds something to what came in.
What a block adds is scaled down (by 0.17, 0.1 and 0.2), else training of so many of them is not stable.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass
from headway.workloads.inception import Chain, Inception


class Settings(base.Settings):
    name: Literal["inception_resnet_v1"] = "inception_resnet_v1"
    width: float = Field(default=1.0, gt=0, le=16)
    """Factor on the filters of every convolution."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of the last layer's inputs that is zeroed in each training step."""


TYPICAL = DataInfo((299, 299, 3), 1000, 1_281_167, 50_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    objectives.needs_classes("inception_resnet_v1", data)
    objectives.needs_images("inception_resnet_v1", data, smallest=75)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    net = Inception(run, settings.width)
    x = net.convolution("stem1", features, 32, 3, stride=2, padding="VALID")
    x = net.convolution("stem2", x, 32, 3, padding="VALID")
    x = net.convolution("stem3", x, 64, 3)
    x = layers.max_pool(run, x, size=3, stride=2)
    x = net.convolution("stem4", x, 80, 1)
    x = net.convolution("stem5", x, 192, 3, padding="VALID")
    x = net.convolution("stem6", x, 256, 3, stride=2, padding="VALID")

    def residual(name: str, x: Any, scale: float, *chains: Chain) -> Any:
        with layers.layer(run, name):
            added = layers.conv2d(run, "added", net.mixed("mixed", x, *chains), layers.channels(run, x), size=1)
            return layers.relu(x + scale * added)

    for number in range(1, 6):  # 35x35 pixels, of 299x299
        x = residual(f"a{number}", x, 0.17, [(32, 1)], [(32, 1), (32, 3)], [(32, 1), (32, 3), (32, 3)])
    x = net.reduction("reduction_a", x, [(384, 3)], [(192, 1), (192, 3), (256, 3)])
    for number in range(1, 11):  # 17x17
        x = residual(f"b{number}", x, 0.1, [(128, 1)], [(128, 1), (128, (1, 7)), (128, (7, 1))])
    x = net.reduction("reduction_b", x, [(256, 1), (384, 3)], [(256, 1), (256, 3)], [(256, 1), (256, 3), (256, 3)])
    for number in range(1, 6):  # 8x8
        x = residual(f"c{number}", x, 0.2, [(192, 1)], [(192, 1), (192, (1, 3)), (192, (3, 1))])
    x = layers.dropout(run, layers.global_average(run, x), settings.dropout)
    return layers.dense(run, "logits", x, objectives.needs_classes("inception_resnet_v1", data))


loss = objectives.cross_entropy
correct = objectives.is_largest
