"""headway.log(): how a user's own program tells of its progress. Small, so that importing it costs nothing."""

from __future__ import annotations

import json
import math
import os
from typing import Any

PLACE = "HEADWAY_REPORTS"


def log(step: int, **values: Any) -> None:
    """Say how far the training is: headway.log(step=100, loss=0.25).

    `step` as the program counts it. `loss` is the training loss, `accuracy` that on test data, `examples` those used
    since the last call; any other number is kept under its name. Tensors of one number will do. Without a run of
    Headway around it, this does nothing, so the same program runs by hand.
    """
    if not (place := os.environ.get(PLACE)):
        return
    from headway import clock

    numbers = {name: float(value) for name, value in {"step": step, **values}.items()}
    # JSON has no NaN, and a loss that is none is news: a text that Python reads back.
    finite = {name: value if math.isfinite(value) else str(value) for name, value in numbers.items()}
    line = json.dumps({"t": clock.now(), **finite}) + "\n"
    file = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())  # at once, so that threads and processes do not mix their lines
    finally:
        os.close(file)
