"""How training images are varied. Settings alone: what they do to a batch is the engine's (augment.py there).

Each example takes a row of random numbers between 0 and 1 that follow from the run's seed, the epoch and the example:
a restarted task sees the same images again.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MOVES = 4  # numbers for flip, shift down, shift right, angle
PIECE = 5  # ... for one piece of clutter: of which image, from where (2), to where (2)
CROP = 4  # ... for a crop: its area, its form, where (2)
PIECE_PIXELS = 6  # height and width of a piece of clutter


class Augment(BaseModel):
    """What is done at random to every training image, each time it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    flip: bool = False
    """Turn left and right round, every second time."""
    shift: Annotated[int, Field(ge=0, le=16_384)] = 0
    """Move by up to this many pixels up or down, left or right; what comes in is black. To pad by 4 pixels and crop
    back, as is done for CIFAR-10, is shift: 4."""
    rotate: Annotated[float, Field(ge=0, le=180)] = 0.0
    """Turn by up to this many degrees to either side."""

    @property
    def num_moves(self) -> int:
        return MOVES if self.flip or self.shift or self.rotate else 0

    @property
    def num_random(self) -> int:
        """Random numbers that one example takes; 0 where nothing is to be done."""
        return self.num_moves


class ClutterAugment(Augment):
    """For small images in memory."""

    clutter: Annotated[int, Field(ge=0, le=64)] = 0
    """Paste this many pieces of 6x6 pixels, cut out of other training images, anywhere into the image."""

    @property
    def num_random(self) -> int:
        return MOVES + PIECE * self.clutter if self.clutter else self.num_moves


class PhotoAugment(Augment):
    """For images of any size that are read from files."""

    crop: Annotated[float, Field(gt=0, le=1)] | None = None
    """Cut out a random part of at least this share of the area, up to a third wider or narrower than the asked shape
    (0.08 is usual for ImageNet). Without it: the largest part of the right form, from the middle."""

    @property
    def num_random(self) -> int:
        return MOVES + CROP if self.crop is not None else self.num_moves
