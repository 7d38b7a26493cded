"""Headway: deploy, watch, measure, explain and predict distributed deep-learning training.

>>> import headway
>>> run = headway.load("last")
>>> run.summary()["accuracy"], run.table("steps")["loss"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.record.run import Run, load, load_all

__all__ = ["Run", "load", "load_all"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The reading API, imported on first use: an agent or a task imports this package too, and must stay small."""
    if name in __all__:
        from headway.record import run

        return getattr(run, name)
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
