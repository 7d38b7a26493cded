"""For commands that read run folders, which are not to be trusted."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

from headway.errors import HeadwayError

P = ParamSpec("P")


def careful(command: Callable[P, None]) -> Callable[P, None]:
    """The command; what does not fit in a record ends it with a message instead of a traceback."""

    @functools.wraps(command)
    def read(*args: P.args, **kwargs: P.kwargs) -> None:
        from headway.record.reader import reading

        with reading(command.__name__):
            command(*args, **kwargs)

    return read


def say_damaged(error: HeadwayError) -> None:
    """Of one run among others: the others are shown."""
    print(f"headway: {error}", file=sys.stderr)
