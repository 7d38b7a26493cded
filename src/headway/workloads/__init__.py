"""Models and data sets, by name. One file each; a new one is that file and a row here.

A plug-in adds its own through the entry points `headway.models` and `headway.datasets`; it cannot hide a built-in. A
model may also be a function of the user's, `package.module:function` (own.py).
"""

from __future__ import annotations

import importlib
import os
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from headway.workloads.base import Arrays, DataInfo, Dataset, Model, Progress, RealData, Settings, Split
from headway.workloads.own import is_own, own_model
from headway.workloads.records import Records
from headway.workloads.sizing import made_up, sized

__all__ = [
    "DataInfo",
    "Dataset",
    "Model",
    "cache_folder",
    "dataset",
    "dataset_names",
    "default_settings",
    "fetch",
    "load",
    "model",
    "model_names",
]

MODELS = {
    "alexnet": "headway.workloads.models.alexnet",
    "autoencoder": "headway.workloads.models.autoencoder",
    "inception_resnet_v1": "headway.workloads.models.inception_resnet_v1",
    "inception_v3": "headway.workloads.models.inception_v3",
    "linear": "headway.workloads.models.linear",
    "mnist_cnn": "headway.workloads.models.mnist_cnn",
    "resnet": "headway.workloads.models.resnet",
    "resnet50": "headway.workloads.models.resnet50",
    "softmax": "headway.workloads.models.softmax",
    "spatial_transformer": "headway.workloads.models.spatial_transformer",
    "vgg16": "headway.workloads.models.vgg16",
}
DATASETS = {
    "cifar10": "headway.workloads.datasets.cifar10",
    "fashion_mnist": "headway.workloads.datasets.fashion_mnist",
    "image_folder": "headway.workloads.datasets.image_folder",
    "imagenet": "headway.workloads.datasets.imagenet",
    "mnist": "headway.workloads.datasets.mnist",
    "synthetic": "headway.workloads.datasets.synthetic",
    "tfrecords": "headway.workloads.datasets.tfrecords",
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


def model(name: str, data: DataInfo | None = None) -> Model:
    """The model file of that name; ValueError with the nearest name when there is none. `data`: what it is to learn,
    for a user's own model, of which loss and accuracy may follow from that."""
    return cast(Model, own_model(name, data) if is_own(name) else _module("models", name))


def dataset(name: str) -> Dataset:
    """The data-set file of that name; ValueError with the nearest name when there is none."""
    return cast(Dataset, _module("datasets", name))


def default_settings(name: str) -> Settings | None:
    """Of a data set that can be had by its name alone; None where a user must say which files are meant."""
    try:
        return dataset(name).Settings.model_validate({"name": name})
    except ValidationError:
        return None


def fetch(settings: Settings, cache: Path, progress: Progress) -> None:
    """Makes sure that what these settings ask for can be loaded; DataError when it cannot be had."""
    if not (isinstance(settings, RealData) and settings.synthetic):
        dataset(settings.name).fetch(settings, cache, progress)


def load(settings: Settings, cache: Path, split: Split) -> Arrays | Records:
    """One split of a data set, as the settings ask for it. Where `describe` counts more training examples than there
    are here, reading begins again at the first."""
    if not isinstance(settings, RealData):
        return dataset(settings.name).load(settings, cache, split)
    if settings.synthetic:
        return made_up(dataset(settings.name).describe(settings), split)
    source = dataset(settings.name).load(settings, cache, split)
    return sized(source, settings.size) if split == "train" else source


def cache_folder() -> Path:
    """Where data sets are kept between runs: $HEADWAY_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("HEADWAY_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headway"
