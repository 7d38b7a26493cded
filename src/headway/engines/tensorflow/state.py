"""Everything a run has learnt: the model's variables, the optimizer's slots and the global step, wherever they live.

Checkpoints, evaluation and export know whole variables by name. Here, and only here, a variable may be in parts on
several servers: `join` puts values together, `assign` takes them apart. So a checkpoint of three servers restores on
two, and one of `ps-sync` under `allreduce`.

Besides, there is `generation`. It is written last, when all others have been initialised or restored (see graph.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from headway.engines.tensorflow.initial import Values
from headway.engines.tensorflow.optimizers import Optimizer
from headway.engines.tensorflow.placement import Declared, Part
from headway.engines.tensorflow.problem import Problem
from headway.workloads.base import ForwardPass

v1 = tf.compat.v1


@dataclass(frozen=True)
class Piece:
    """One part of one of the model's variables, with the optimizer's slots beside it."""

    name: str
    """Of the whole variable."""
    part: Part
    variable: Any
    slots: dict[str, Any] = field(default_factory=dict)


def declared(problem: Problem) -> list[Declared]:
    """The variables that the model asks for, in the order in which it does."""
    with tf.Graph().as_default():
        features = v1.placeholder(tf.float32, [None, *problem.data.shape])
        run = ForwardPass(training=True)
        problem.build(features, run)
        momentum = {average.variable: average.momentum for average in run.averages}
        return [
            Declared(name, tuple(variable.shape.as_list()), variable.trainable, momentum.get(name))
            for name, variable in run.variables.items()
        ]


class State:
    """The variables, made in the present graph (or eagerly). Sessions of other processes that make them alike share
    them: on a server a variable is known by its name."""

    def __init__(
        self,
        variables: Sequence[Declared],
        parts: dict[str, tuple[Part, ...]],
        optimizer: Optimizer,
        devices: Sequence[str],
    ) -> None:
        self.declared = {each.name: each for each in variables}
        self.pieces: dict[str, list[Piece]] = {}
        """The model's variables by name, each as its parts in order of their rows."""
        self._stored: list[tuple[str, Part, Any]] = []
        with tf.device(devices[0]):
            self.global_step = new_variable("global_step", [], tf.int64, 0)
            self.generation = new_variable("generation", [], tf.int64, 0)
        self._keep("global_step", self.global_step)
        for each in variables:
            self.pieces[each.name] = [
                self._make_piece(each, part, number, optimizer, devices) for number, part in enumerate(parts[each.name])
            ]
        # An optimizer's numbers of its own are on the last server: then every server counts its updates in some way.
        with tf.device(devices[-1]):
            self.counters = {
                name: new_variable(name, [], tf.float32, value) for name, value in optimizer.counters.items()
            }
        for name, variable in self.counters.items():
            self._keep(name, variable)

    def _make_piece(
        self, each: Declared, part: Part, number: int, optimizer: Optimizer, devices: Sequence[str]
    ) -> Piece:
        is_split = each.shape and part.end - part.begin < each.shape[0]
        shape = [part.end - part.begin, *each.shape[1:]] if each.shape else []
        name = f"{each.name}/part_{number}" if is_split else each.name
        slots = {}
        with tf.device(devices[part.server]):
            variable = new_variable(name, shape, tf.float32, 0, trainable=each.trainable)
            self._keep(each.name, variable, part)
            if each.trainable:
                for slot, value in optimizer.slots.items():
                    slots[slot] = new_variable(f"{name}/{slot}", shape, tf.float32, value)
                    self._keep(f"{each.name}/{slot}", slots[slot], part)
        return Piece(each.name, part, variable, slots)

    def _keep(self, name: str, variable: Any, part: Part | None = None) -> None:
        self._stored.append((name, part or Part(0, 0, 1), variable))

    @property
    def trained(self) -> list[Piece]:
        """Every part of every variable that has a gradient."""
        return [piece for name, pieces in self.pieces.items() if self.declared[name].trainable for piece in pieces]

    @property
    def names(self) -> set[str]:
        return {name for name, _, _ in self._stored}

    @property
    def variables(self) -> list[Any]:
        """Everything that a checkpoint holds, as it is stored."""
        return [variable for _, _, variable in self._stored]

    def ready(self) -> Any:
        """A tensor: whether everything, the generation included, is initialised. Each server answers for its own: one
        message from each."""
        every = [*self.variables, self.generation]
        answers = []
        for device in sorted({variable.device for variable in every}):
            with tf.device(device):
                here = [v1.is_variable_initialized(variable) for variable in every if variable.device == device]
                answers.append(tf.reduce_all(tf.stack(here)))
        return tf.reduce_all(tf.stack(answers))

    def join(self, values: Sequence[Any]) -> Values:
        """Values of `variables`, in their order -> whole variables by name."""
        rows: dict[str, list[tuple[int, Any]]] = {}
        for (name, part, _), value in zip(self._stored, values, strict=True):
            rows.setdefault(name, []).append((part.begin, value))
        return {
            name: np.asarray(parts[0][1])
            if len(parts) == 1
            else np.concatenate([value for _, value in sorted(parts, key=lambda one: one[0])])
            for name, parts in rows.items()
        }

    def assign(self, set_value: Callable[[Any, Any], None], values: Values) -> None:
        """Give every variable that `values` knows its part of the value, by `set_value(variable, value)`."""
        for name, part, variable in self._stored:
            if name in values:
                whole = values[name]
                is_split = variable.shape.rank and variable.shape[0] != whole.shape[0]
                set_value(variable, whole[part.begin : part.end] if is_split else whole)

    def placement(self, place_of: Callable[[Any], str]) -> list[dict[str, Any]]:
        """Where everything lives, for the record."""
        counts: dict[str, int] = {}
        for name, _, _ in self._stored:
            counts[name] = counts.get(name, 0) + 1
        seen: dict[str, int] = {}
        listed = []
        for name, _, variable in self._stored:
            seen[name] = seen.get(name, 0) + 1
            shape = variable.shape.as_list()
            row = {
                "name": name,
                "device": place_of(variable),
                "bytes": math.prod(shape) * variable.dtype.size,
                "shape": shape,
                "trainable": variable.trainable,
            }
            if counts[name] > 1:
                row["part"] = f"{seen[name] - 1}/{counts[name]}"
            listed.append(row)
        return listed


def new_variable(name: str, shape: Sequence[int], dtype: Any, value: float, trainable: bool = False) -> Any:
    return v1.get_variable(
        name, list(shape), dtype, v1.constant_initializer(value), trainable=trainable, use_resource=True
    )
