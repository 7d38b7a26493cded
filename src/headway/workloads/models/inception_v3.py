"""InceptionV3 (E2; Szegedy 2015): 23,817,352 parameters at 1,000 classes; made for images of 299x299.

The auxiliary classifier in its middle, a help in training that later networks do without, is left out.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass
from headway.workloads.inception import Convolution, Inception


class Settings(base.Settings):
    name: Literal["inception_v3"] = "inception_v3"
    width: float = Field(default=1.0, gt=0, le=16)
    """Factor on the filters of every convolution."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of the last layer's inputs that is zeroed in each training step."""


TYPICAL = DataInfo((299, 299, 3), 1000, 1_281_167, 50_000)


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    objectives.needs_classes("inception_v3", data)
    objectives.needs_images("inception_v3", data, smallest=75)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    net = Inception(run, settings.width)
    x = net.convolution("stem1", features, 32, 3, stride=2, padding="VALID")
    x = net.convolution("stem2", x, 32, 3, padding="VALID")
    x = net.convolution("stem3", x, 64, 3)
    x = layers.max_pool(run, x, size=3, stride=2)
    x = net.convolution("stem4", x, 80, 1)
    x = net.convolution("stem5", x, 192, 3, padding="VALID")
    x = layers.max_pool(run, x, size=3, stride=2)
    for number, pooled in enumerate((32, 64, 64)):  # 35x35 pixels, of 299x299
        x = net.mixed(f"mixed{number}", x, [(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)], pooled=pooled)
    x = net.reduction("mixed3", x, [(384, 3)], [(64, 1), (96, 3), (96, 3)])
    wide, high = (1, 7), (7, 1)
    for number, few in enumerate((128, 160, 160, 192), 4):  # 17x17
        x = net.mixed(
            f"mixed{number}",
            x,
            [(192, 1)],
            [(few, 1), (few, wide), (192, high)],
            [(few, 1), (few, high), (few, wide), (few, high), (192, wide)],
            pooled=192,
        )
    x = net.reduction("mixed8", x, [(192, 1), (320, 3)], [(192, 1), (192, wide), (192, high), (192, 3)])
    for number in (9, 10):  # 8x8
        fork: list[Convolution] = [(384, (1, 3)), (384, (3, 1))]
        x = net.mixed(f"mixed{number}", x, [(320, 1)], [(384, 1), fork], [(448, 1), (384, 3), fork], pooled=192)
    x = layers.dropout(run, layers.global_average(run, x), settings.dropout)
    return layers.dense(run, "logits", x, objectives.needs_classes("inception_v3", data))


loss = objectives.cross_entropy
correct = objectives.is_largest
