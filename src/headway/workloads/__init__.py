"""Models and data sets, by name. One file each; a new one is that file and a row here.

A plug-in adds its own through the entry points `headway.models` and `headway.datasets`; it cannot hide a built-in.
"""

from __future__ import annotations

import importlib
import os
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from headway.workloads.base import DataInfo, Dataset, Model

__all__ = ["DataInfo", "Dataset", "Model", "cache_folder", "dataset", "dataset_names", "model", "model_names"]

MODELS = {
    "linear": "headway.workloads.models.linear",
    "softmax": "headway.workloads.models.softmax",
    "mnist_cnn": "headway.workloads.models.mnist_cnn",
}
DATASETS = {
    "mnist": "headway.workloads.datasets.mnist",
    "synthetic": "headway.workloads.datasets.synthetic",
}


@cache
def _table(family: str) -> dict[str, str]:
    built_in = MODELS if family == "models" else DATASETS
    plugged = {point.name: point.value for point in entry_points(group=f"headway.{family}")}
    return plugged | built_in


def _module(family: str, name: str) -> object:
    table = _table(family)
    if name not in table:
        nearest = get_close_matches(name, table, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise ValueError(f"no such {family[:-1]}{hint} Known: {', '.join(sorted(table))}")
    return importlib.import_module(table[name])


def model_names() -> list[str]:
    return sorted(_table("models"))


def dataset_names() -> list[str]:
    return sorted(_table("datasets"))


def model(name: str) -> Model:
    """The model file of that name; ValueError with the nearest name when there is none."""
    return cast(Model, _module("models", name))


def dataset(name: str) -> Dataset:
    """The data-set file of that name; ValueError with the nearest name when there is none."""
    return cast(Dataset, _module("datasets", name))


def cache_folder() -> Path:
    """Where data sets are kept between runs: $HEADWAY_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("HEADWAY_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headway"
