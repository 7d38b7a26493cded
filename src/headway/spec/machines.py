"""Machine types by name: how big, how fast and how dear the evaluations' machines were. The figures and their sources
are in machines.yaml."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import yaml
from pydantic import Field

from headway.errors import SpecError
from headway.spec.cluster import Strict
from headway.spec.site import Credits
from headway.units import Bytes, BytesPerSecond

ExamplesPerSecond = Annotated[float, Field(gt=0)]


class Machine(Strict):
    """A machine type. What is None is not known, and then not limited."""

    used_by: Annotated[tuple[Literal["E1", "E2", "E3", "E4", "E5"], ...], Field(min_length=1)]
    """The evaluations that ran on it, or compared themselves with it."""
    cpus: Annotated[float, Field(gt=0)] | None = None
    """Hardware threads; a cloud's vCPU is one."""
    memory: Annotated[Bytes, Field(gt=0)] | None = None
    """Of the machine, without that of its GPUs."""
    network: Annotated[BytesPerSecond, Field(gt=0)] | None = None
    """Of its interface, in each direction, for ever."""
    gpus: Annotated[int, Field(ge=0)] = 0
    """How many GPUs TensorFlow sees: a K80 card is two."""
    gpu: str | None = None
    """Which GPUs."""
    speed: dict[str, ExamplesPerSecond] = Field(default_factory=dict)
    """Examples per second of a model on this machine alone, with all its GPUs."""
    credits: Credits | None = None
    """For a burstable CPU."""
    price: Annotated[float, Field(gt=0)] | None = None
    """Dollars per hour, on demand. None: not for rent."""
    source: Annotated[str, Field(min_length=1)]
    """Where the figures are from, and which of them are estimates."""
    date: Annotated[str, Field(pattern=r"^20\d\d(-(0[1-9]|1[0-2]))?$")]
    """Year, perhaps with month, for which the price and the speed hold."""


class Catalogue(Strict):
    """What machines.yaml holds."""

    format: Literal[1]
    machines: dict[str, Machine]


@cache
def catalogue() -> dict[str, Machine]:
    """Every machine type, by name."""
    text = files("headway.spec").joinpath("machines.yaml").read_text(encoding="utf-8")
    return Catalogue.model_validate(yaml.safe_load(text)).machines


def machine(name: str) -> Machine:
    """The machine type of this name; SpecError when there is none."""
    known = catalogue()
    if name not in known:
        near = get_close_matches(name.lower(), known, n=2, cutoff=0.7)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise SpecError(f"no machine type {name!r} in the catalogue{hint} Known: {', '.join(known)}")
    return known[name]
