"""Messages in Protocol Buffers' format, read without its library.

Every message is a row of fields: a key (field number * 8 + wire type), then a number (type 0), 8 bytes (1), a length
and that many bytes (2), or 4 bytes (5).
"""

from __future__ import annotations

from collections.abc import Iterator

_FIXED = {1: 8, 5: 4}  # bytes of a value of these wire types


def fields(view: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    position = 0
    while position < len(view):
        key, position = read_varint(view, position)
        kind = key & 7
        if kind == 0:
            number, position = read_varint(view, position)
            yield key >> 3, number
            continue
        if kind == 2:
            length, position = read_varint(view, position)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind} does not exist")
        if position + length > len(view):
            raise ValueError("it ends inside a field")
        yield key >> 3, view[position : position + length]
        position += length


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = view[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
