"""A workload that is the user's own program: a command that every task runs, and how its progress is heard of."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from headway.spec.cluster import MOST_EXAMPLES, Strict

# What a command may ask to be told, in braces: --task_index={task_index}
PLACEHOLDERS = (
    "job_name",
    "task_index",
    "ps_hosts",
    "worker_hosts",
    "chief_hosts",
    "rank",
    "world_size",
    "run",
    "model_dir",
)
ENDED = "the command ended"  # why a task is done
CHIEF_ENDED = "the chief's command ended"  # why all are
REPORTED = ("step", "loss", "accuracy", "examples", "examples_per_s")  # what a pattern may find
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


def filled_in(text: str, values: dict[str, str]) -> str:
    """With every placeholder replaced; other braces stay as they are."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def begins_with_placeholder(text: str) -> bool:
    """Such a text is meant as it is, although YAML takes braces for a mapping."""
    return _PLACEHOLDER.match(text) is not None


def _as_written(value: Any) -> Any:
    """YAML reads {model_dir} as a mapping with one key and no value."""
    if isinstance(value, dict) and len(value) == 1 and list(value.values()) == [None]:
        return f"{{{next(iter(value))}}}"
    return value


Text = Annotated[str, BeforeValidator(_as_written, json_schema_input_type=str)]


def _words(command: Any) -> Any:
    """A command in one string is split as a shell would; nothing of it is run by a shell."""
    if not isinstance(command, str):
        return [str(_as_written(word)) for word in command] if isinstance(command, (list, tuple)) else command
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValueError(f"not a command: {error}") from None


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class TfConfig(Strict):
    """What TF_CONFIG says besides the cluster and the task."""

    chief: Literal["chief", "master"] = "chief"
    """What the chief is called: scripts written before TensorFlow 1.4 know it as master."""
    environment: str | None = None
    """Some scripts ask for it: `cloud`."""
    model_dir: Text | None = None
    """Where the script keeps its checkpoints; "{model_dir}" is a folder of the run."""


class Report(Strict):
    """How step and loss are heard of. Without settings: by headway.log(), else by TensorBoard files, else by lines such
    as `step 100 loss 0.25`."""

    patterns: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Regular expressions for lines of the output, with groups such as (?P<step>\\d+) and (?P<loss>\\S+); also
    accuracy, examples (of this step) and examples_per_s (as the script itself computes it)."""
    tensorboard: Text | None = None
    """The folder, or folders below one, in which the script writes TensorBoard files. Default: {model_dir}."""
    loss_tag: str | None = None
    """The name of the loss in TensorBoard files. Default: the first that is called loss."""
    steps: Literal["global", "own"] = "global"
    """What the script counts: the steps of all tasks together, or each task its own."""

    @field_validator("patterns")
    @classmethod
    def _readable(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                groups = re.compile(pattern).groupindex
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
            if not groups:
                raise ValueError(f"{pattern!r} finds nothing: name a group, such as (?P<step>\\d+)")
            if unknown := set(groups) - set(REPORTED):
                raise ValueError(f"{pattern!r}: unknown group {min(unknown)!r}. Allowed: {', '.join(REPORTED)}")
        return patterns


class Command(Strict):
    """The user's own program, unchanged: every task runs it, and learns from its environment who it is."""

    command: Annotated[tuple[str, ...], BeforeValidator(_words, json_schema_input_type=str | list[str])]
    """What each task runs. Each finds in its environment TF_CONFIG; MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE,
    LOCAL_RANK; and in braces in the command: {job_name} {task_index} {ps_hosts} {worker_hosts} {chief_hosts} {rank}
    {world_size} {run} {model_dir}."""
    directory: str | None = None
    """Where it is started. Default: the folder in which the run was asked for."""
    python: str | None = None
    """Whose `python` it means: a Python's path, or a requirements file, for which an environment is made, once.
    Default: the Python that Headway runs with."""
    env: dict[str, Text] = Field(default_factory=dict)
    """Further environment variables. They are stored in the run folder: write no secrets here."""
    tf_config: TfConfig = TfConfig()
    """What TF_CONFIG says besides the cluster and the task."""
    report: Report = Report()
    """How step and loss are heard of."""
    batch_size: Annotated[int, Field(ge=1, le=MOST_EXAMPLES)] | None = None
    """Examples in one step of a training task, if rates in examples/s are wanted."""
    ends_with: Literal["chief", "everybody"] | None = None
    """When training is over: when the chief's command has ended, or that of every training task. Default: with the
    chief, if there are a chief and servers (others may then be servers that never end); else with everybody."""

    @field_validator("command")
    @classmethod
    def _not_empty(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command:
            raise ValueError("write a command, for example python train.py")
        return command

    @property
    def title(self) -> str:
        return shlex.join(self.command)
