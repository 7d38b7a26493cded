"""Headway: run, watch, measure and explain distributed deep-learning training.

>>> import headway
>>> run = headway.load("last")
>>> run.summary()["accuracy"], run.table("steps")["loss"]

In a program of your own that Headway runs, to tell of its progress:
>>> headway.log(step=100, loss=0.25)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.record.run import Run, load, load_all
    from headway.reporting import log

__all__ = ["Run", "load", "load_all", "log"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The reading API, imported on first use: an agent or a task imports this package too, and must stay small."""
    if name == "log":
        from headway.reporting import log

        return log
    if name in __all__:
        from headway.record import run

        return getattr(run, name)
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
