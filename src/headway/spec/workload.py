"""The workload of an engine of ours: model, data, batch size, optimizer, and when to stop. (command.py has the other
kind: the user's own program.)"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, SerializeAsAny, ValidationInfo, model_validator

from headway import workloads
from headway.plural import counted
from headway.spec.cluster import MOST_EXAMPLES, Strict, shorthand
from headway.units import Seconds
from headway.workloads import own
from headway.workloads.base import DataFormat, Precision, RealData, Settings
from headway.workloads.streamed import WholePath

MOST_STEPS = 10**12
Steps = Annotated[int, Field(ge=1, le=MOST_STEPS)]
LONGEST = 365 * 86400.0  # seconds of anything
PositiveSeconds = Annotated[Seconds, Field(gt=0, le=LONGEST)]
DEFAULT_BATCH_SIZE = 100  # of each training task, where nothing is asked


def _by_name(family: str) -> Any:
    """`mnist` or `{name: mnist, ...}` -> the Settings of that model or data set."""
    find = workloads.model if family == "model" else workloads.dataset

    def parse(value: Any, info: ValidationInfo) -> Settings:
        if isinstance(value, Settings):
            return value
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ValueError(f"write the {family}'s name, or {{name: ..., its settings}}")
        if family == "model" and own.is_own(value["name"]):
            own.look_in(Path(info.data.get("code") or Path.cwd()))
        return find(value["name"]).Settings.model_validate(value)

    return PlainValidator(parse, json_schema_input_type=Any)


ModelField = Annotated[SerializeAsAny[Settings], _by_name("model")]
DatasetField = Annotated[SerializeAsAny[Settings], _by_name("dataset")]


class Schedule(Strict):
    """How the learning rate changes with the global step."""

    kind: Literal["constant", "piecewise", "exponential", "cosine", "linear"] = "constant"
    """piecewise: times `factor` at each step in `at`; exponential: times `factor` every `steps`, smoothly; cosine and
    linear: down to `end` times the learning rate at step `steps`, and constant from there."""
    at: Annotated[tuple[Steps, ...], Field(max_length=1000)] = ()
    """Piecewise: the global steps at which the rate changes."""
    factor: Annotated[float, Field(gt=0, le=1000)] = 0.1
    """Piecewise and exponential: what the rate is multiplied by."""
    steps: Steps | None = None
    """Exponential, cosine, linear: over how many global steps."""
    end: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Cosine and linear: the share of the learning rate that is left at the end."""
    warmup: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Global steps in which the rate first grows from near 0 to what the schedule says."""

    @model_validator(mode="after")
    def _complete(self) -> Schedule:
        if self.kind == "piecewise" and (not self.at or list(self.at) != sorted(set(self.at))):
            raise ValueError(f"piecewise needs `at`, global steps in rising order; got {list(self.at)}")
        if self.kind in ("exponential", "cosine", "linear") and self.steps is None:
            raise ValueError(f"{self.kind} needs `steps`: over how many global steps the rate changes")
        return self


class Clip(Strict):
    """A bound on the gradient that is applied (synchronous strategies: on the mean over tasks)."""

    norm: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """All gradients together are scaled down to this norm."""
    value: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """Every number of a gradient is cut to [-value, value]."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Clip:
        if (self.norm is None) == (self.value is None):
            raise ValueError("give either norm or value")
        return self


class Optimizer(Strict):
    name: Literal["sgd", "momentum", "adagrad", "adam", "rmsprop"] = "sgd"
    """The rule that turns a gradient into an update."""
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 0.01
    """Size of an update."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Only for momentum and rmsprop."""
    schedule: Annotated[Schedule, shorthand("kind", str | Schedule)] = Schedule()
    """How the learning rate changes with the global step."""
    weight_decay: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Adds weight_decay / 2 * sum of squares of the weights (not of biases or batch normalisation) to what is
    minimised. The record keeps it apart from the data's loss."""
    clip: Clip | None = None
    """A bound on the gradient."""


class Stop(Strict):
    """When to stop: whichever comes first. The default is one epoch."""

    steps: Steps | None = None
    """Global steps (updates by all training tasks together)."""
    epochs: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Passes over the training data, by all training tasks together."""
    seconds: PositiveSeconds | None = None
    """Seconds of training, from the first step."""
    steps_per_task: Steps | None = None
    """Each training task makes this many steps of its own (E5)."""
    accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Accuracy on the test set, at an evaluation."""


class Evaluate(Strict):
    every: Steps | None = None
    """Global steps between evaluations on the whole test set. There is always one at the end."""


class Workload(Strict):
    code: WholePath | None = None
    """The folder in which a model of your own is looked for, before the installed packages. Default: the one that
    headway is called in."""
    model: ModelField
    """A model's name (`headway models`), or its name and settings; or your own, package.module:function
    (docs/own-models.md)."""
    dataset: DatasetField
    """A data set's name (`headway data list`), or its name and settings."""
    batch_size: Annotated[int, Field(ge=1, le=MOST_EXAMPLES)] | None = None
    """Examples per step of one training task: with more tasks a step sees more (weak scaling). Default: 100."""
    global_batch_size: Annotated[int, Field(ge=1, le=MOST_EXAMPLES)] | None = None
    """Instead of batch_size: examples per step of all training tasks together (strong scaling). They are shared out
    evenly; what is left over is one more each for the first tasks."""
    optimizer: Annotated[Optimizer, shorthand("name", str | Optimizer)] = Optimizer()
    """The optimizer's name, or its name and settings."""
    stop: Stop = Stop()
    """When training ends."""
    evaluate: Evaluate = Evaluate()
    """When the test set is evaluated."""
    precision: Precision = "float32"
    """What dense layers and convolutions compute in; variables, updates and evaluation are float32 always. bfloat16 and
    float16 (mixed precision) pay where the hardware has them: docs/training.md."""
    loss_scale: Annotated[float, Field(gt=0, le=1e12)] = 1024.0
    """Precision float16: what the loss is multiplied by, and gradients divided by, so that small ones are not lost."""
    data_format: DataFormat = "NHWC"
    """How a training step keeps images: [batch, height, width, channels], or, on GPUs only, NCHW."""
    steps_per_call: Annotated[int, Field(ge=1, le=1000)] = 1
    """Steps that one call into the engine makes; the record then has one row for that many steps."""

    @model_validator(mode="after")
    def _fits(self) -> Workload:
        data = workloads.dataset(self.dataset.name).describe(self.dataset)
        model = workloads.model(self.model.name, data)
        model.check(self.model, data)
        colours = self.dataset.colours if isinstance(self.dataset, RealData) else None
        if colours is not None:
            for name, values in (("mean", colours.mean), ("deviation", colours.deviation)):
                if len(values) != data.shape[-1]:
                    raise ValueError(
                        f"dataset.colours.{name}: {len(values)} numbers, but {self.dataset.name} has {data.shape[-1]} "
                        "channels"
                    )
        if self.stop.accuracy is not None:
            if model.correct is None:
                raise ValueError(f"stop.accuracy: model {self.model.name} has a loss, but no accuracy")
            if self.evaluate.every is None:
                raise ValueError("stop.accuracy needs evaluate.every: accuracy is known only at evaluations")
        if self.batch_size is not None and self.global_batch_size is not None:
            raise ValueError(
                f"batch_size: {self.batch_size} and global_batch_size: {self.global_batch_size}, but only one can be "
                "given; batch_size is of each training task, global_batch_size of all of them together"
            )
        name = "batch_size" if self.global_batch_size is None else "global_batch_size"
        size = self.global_batch_size or self.batch_size or DEFAULT_BATCH_SIZE
        if size > data.num_train:
            raise ValueError(f"{name}: {size}, but {self.dataset.name} has {counted(data.num_train, 'example')}")
        return self

    @property
    def title(self) -> str:
        return f"{self.model.name} on {self.dataset.name}"
