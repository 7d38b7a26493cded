"""A model of my own: one hidden layer.

Only `build` is required. What else may stand here (TYPICAL, loss, correct) is in Headway's docs/own-models.md.
TensorFlow is imported inside functions, where it is needed, so that a job is checked in a moment.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from headway.workloads import base, layers, objectives
from headway.workloads.base import DataInfo, ForwardPass


class Settings(base.Settings):
    """What a job can say about it: `model: {name: "my_model:build", hidden: 128}`."""

    hidden: int = Field(default=64, ge=1)
    """Units of the hidden layer."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the hidden layer's outputs that is zeroed in each training step."""


def check(settings: Settings, data: DataInfo) -> None:  # noqa: ARG001
    """Raises ValueError, before anything starts, when this data cannot be learnt."""
    objectives.needs_classes("my_model", data)


def build(features: Any, settings: Settings, data: DataInfo, run: ForwardPass) -> Any:
    """float32 features [batch, ...] -> logits [batch, classes]. Every variable comes from a layer with a name."""
    x = layers.relu(layers.dense(run, "hidden", layers.flatten(run, features), settings.hidden))
    x = layers.dropout(run, x, settings.dropout)
    return layers.dense(run, "logits", x, objectives.needs_classes("my_model", data))
