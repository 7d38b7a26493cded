"""What a model file and a data-set file hold. Neither imports TensorFlow at its top, so that the spec can
validate settings and `headway data` works on a machine without TensorFlow.

A model file (see models/mnist_cnn.py) has
    Settings                              its settings, a pydantic model with a `name`
    TYPICAL                               DataInfo of the data that `headway models` describes it for
    check(settings, data)                 raises ValueError when it cannot learn this data
    build(features, settings, data, run)  float32 features -> outputs; variables through `layers` (get_variable)
    loss(outputs, labels)                 one loss per example
    correct(outputs, labels)              1.0 where an example is right; `correct = None` where accuracy has no meaning
Of a user's own model (own.py) only `build` is required.
Outputs are the model's answer, a tensor. Where the loss needs more (an autoencoder's target is its input) they are a
NamedTuple of tensors, the answer first.

A data-set file (see datasets/mnist.py) has
    Settings                              its settings, a pydantic model with a `name`
    SUMMARY                               one line for `headway data list`
    describe(settings)                    DataInfo, without reading the data
    fetch(settings, cache, progress)      makes sure the data is in the cache; DataError when it cannot be had
    verify(settings, cache)               the problems of what is in the cache, as text; [] when all is well
    load(settings, cache, split)          (features, labels) as NumPy arrays; or, of what is too large for memory,
                                          Records (records.py): where the bytes of each example are
Settings of data that comes from files derive from RealData: `workloads.load` then gives the asked share or multiple of
what the data set's own `load` does, or made-up data in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from headway.workloads.records import Records

Split = Literal["train", "test"]
DataFormat = Literal["NHWC", "NCHW"]
Precision = Literal["float32", "bfloat16", "float16"]
Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
# progress(what, done_bytes, total_bytes or None)
Progress = Callable[[str, int, int | None], None]


class Settings(BaseModel):
    """Base of every model's and data set's settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    """Which one it is."""


class Colours(BaseModel):
    """How the values of each channel, 0 to 1 in images, are brought about 0."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    mean: Annotated[tuple[Annotated[float, Field(ge=-1e6, le=1e6)], ...], Field(max_length=100)]
    """Of each channel, what is subtracted: its mean over the training set."""
    deviation: Annotated[tuple[Annotated[float, Field(gt=0, le=1e6)], ...], Field(max_length=100)]
    """Of each channel, what it is divided by then: its standard deviation."""


class RealData(Settings):
    """What every data set that comes from files can be asked."""

    colours: Colours | None = None
    """Mean and deviation of each channel, for models that expect values about 0; null: images are 0 to 1."""
    size: float = Field(default=1.0, gt=0, le=10_000, allow_inf_nan=False)
    """Of the training set: 0.1 is a tenth of it, drawn at random and always the same; 3 is every example three times in
    an epoch, each time with an augmentation of its own."""
    synthetic: bool = False
    """Made-up examples of the same shape, number and classes, from memory: what a run then gains is the price of
    reading."""

    def sized(self, num_examples: int) -> int:
        """Training examples in an epoch, of a data set that has this many."""
        return max(1, round(self.size * num_examples))


@dataclass(frozen=True)
class DataInfo:
    """What a model needs to know of the data it learns."""

    shape: tuple[int, ...]
    """Shape of one example's features."""
    classes: int | None
    """Number of classes (labels are int32 0..classes-1); None: the label is one float32 number."""
    num_train: int
    num_test: int
    scale: float = 1.0
    """Stored features are cast to float32 and multiplied by this (1/255 for bytes)."""
    dtype: str = "float32"
    """NumPy's name for the type of stored features (uint8 for images)."""


class Average(NamedTuple):
    """A moving average that a training step brings forward: moving -= (1 - momentum) * (moving - value)."""

    variable: str
    """Full name of the variable that holds it."""
    value: Any
    """What this step's batch says."""
    momentum: float


@dataclass
class ForwardPass:
    """One building of a model: are we training, which variables are there, what must each step update.

    An engine that keeps the variables itself (on servers, in parts) gives in `variables` what the model is to compute
    with; names that are not in it are made with `get_variable`. To build the same model again, for evaluation or in a
    second tf.function, make a new pass with the first one's variables: in a v1 graph they would be found by name
    without that; eagerly get_variable would quietly make new ones.
    """

    training: bool
    averages: list[Average] = field(default_factory=list)
    """Moving averages of batch statistics. A strategy decides how: each task's at once, or their mean once per step."""
    variables: dict[str, Any] = field(default_factory=dict)
    """Every variable by its full name, trainable or not."""
    data_format: DataFormat = "NHWC"
    """How images lie in memory: [batch, height, width, channels] or [batch, channels, height, width]."""
    precision: Precision = "float32"
    """What dense layers and convolutions compute in."""
    layers: set[str] = field(default_factory=set)
    """Names used in this building: two layers of one name would share their weights without a word."""


class Model(Protocol):
    """A model file, as a type."""

    Settings: type[Settings]
    TYPICAL: DataInfo
    correct: Callable[[Any, Any], Any] | None

    def check(self, settings: Any, data: DataInfo) -> None: ...
    def build(self, features: Any, settings: Any, data: DataInfo, run: ForwardPass) -> Any: ...
    def loss(self, outputs: Any, labels: Any) -> Any: ...


class Dataset(Protocol):
    """A data-set file, as a type."""

    Settings: type[Settings]
    SUMMARY: str

    def describe(self, settings: Any) -> DataInfo: ...
    def fetch(self, settings: Any, cache: Path, progress: Progress) -> None: ...
    def verify(self, settings: Any, cache: Path) -> list[str]: ...
    def load(self, settings: Any, cache: Path, split: Split) -> Arrays | Records: ...
