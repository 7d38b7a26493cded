"""What comes from a file must not steer a terminal: control characters are shown, not sent (`\\x1b`).

All that a command prints passes here (`guarded`); only our own pictures and colours go to the stream beneath.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with `\\x1b` and the like for what a terminal would obey: control characters except newline and tab,
    characters that turn the direction of writing, and halves of characters."""
    return _UNSAFE.sub(lambda found: _named(ord(found[0])), text)


def _named(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible_in(value: Any) -> Any:
    """The same for all texts in lists and dicts."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_in(key): visible_in(inner) for key, inner in value.items()}
    return [visible_in(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def in_json(text: str) -> str:
    """JSON text with these characters in JSON's own escapes: it means the same."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Guard:
    """A stream that shows control characters. A lone carriage return is our own: a line that is drawn again."""

    def __init__(self, stream: TextIO) -> None:
        self.beneath = stream

    def write(self, text: str) -> int:
        self.beneath.write(text if text == "\r" else visible(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """What is printed to standard output and error meanwhile."""
    out, err = cast(TextIO, Guard(sys.stdout)), cast(TextIO, Guard(sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def beneath() -> TextIO:
    """Standard output itself, for pictures of ours: their texts are made visible before."""
    stream: Any = sys.stdout
    return cast(TextIO, stream.beneath if isinstance(stream, Guard) else stream)
