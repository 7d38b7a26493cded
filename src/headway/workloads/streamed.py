"""Settings that all data sets share whose examples are read from files batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from headway.workloads.augment import PhotoAugment
from headway.workloads.base import RealData


def _absolute(path: str) -> str:
    """Tasks have other working folders, and other machines too: a job that was read holds whole paths."""
    if not path:
        raise ValueError("write a path")
    return str(Path(path).expanduser().absolute())


WholePath = Annotated[str, AfterValidator(_absolute)]
_Pixels = Annotated[int, Field(ge=1, le=16_384)]
ImageSize = tuple[_Pixels, _Pixels]


class StreamedData(RealData):
    augment: PhotoAugment = PhotoAugment()
    """How training images are varied."""
    on_bad_record: Literal["fail", "skip"] = "fail"
    """A record that cannot be read or decoded ends the run; or another one of its batch takes its place (in evaluation:
    none), and the result says how many there were."""
    in_memory: bool = False
    """Each task decodes all examples once, before its first step, and keeps them: for data that fits in memory and
    takes longer to decode than to learn."""
    decode_threads: Annotated[int, Field(ge=1, le=256)] | None = None
    """Threads that decode, in each task. Default: as many as its operations have (threads.intra_op)."""

    @model_validator(mode="after")
    def _possible(self) -> StreamedData:
        if self.in_memory and self.augment.crop is not None:
            raise ValueError("in_memory: images are kept in their final size, so augment.crop has nothing to cut from")
        return self
