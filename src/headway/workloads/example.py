"""tf.train.Example, the message that TFRecord files hold, written and read without TensorFlow.

Example { features: Features { feature: map name -> Feature { bytes_list | float_list | int64_list } } }
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence

from headway.workloads.protobuf import fields, read_varint

Value = bytes | int | float
_BYTES, _FLOATS, _INTEGERS = 1, 2, 3  # fields of Feature


def encode(features: Mapping[str, Value | Sequence[Value]]) -> bytes:
    """The message with these features; a lone value is a list of one."""
    entries = []
    for name, value in features.items():
        values = [value] if isinstance(value, (bytes, int, float)) else list(value)
        entries.append(_field(1, _field(1, name.encode()) + _field(2, _feature(values))))
    return _field(1, b"".join(entries))


def _feature(values: list[Value]) -> bytes:
    if all(isinstance(value, bytes) for value in values):
        return _field(_BYTES, b"".join(_field(1, value) for value in values if isinstance(value, bytes)))
    numbers = [value for value in values if not isinstance(value, bytes)]
    if len(numbers) < len(values):
        raise ValueError("a feature holds bytes or numbers, not both")
    if all(isinstance(number, int) for number in numbers):
        packed = b"".join(_varint(int(number) & 0xFFFFFFFFFFFFFFFF) for number in numbers)
        return _field(_INTEGERS, _field(1, packed))
    return _field(_FLOATS, _field(1, struct.pack(f"<{len(numbers)}f", *numbers)))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode(message: bytes | memoryview[int], wanted: Collection[str]) -> dict[str, list[Value]]:
    """The values of those features that are wanted and there; ValueError when it is no Example."""
    found: dict[str, list[Value]] = {}
    names = {name.encode(): name for name in wanted}
    view = memoryview(message)
    try:
        for number, features in fields(view):
            for inner, entry in fields(_message(features)) if number == 1 else ():
                parts = dict(fields(_message(entry))) if inner == 1 else {}
                name = names.get(bytes(_message(parts.get(1, memoryview(b"")))))
                if name is not None:
                    found[name] = _values(_message(parts.get(2, memoryview(b""))))
    except (IndexError, struct.error):
        raise ValueError("it ends inside a field") from None
    return found


def _message(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number stands where a message should")
    return value


def _values(feature: memoryview) -> list[Value]:
    values: list[Value] = []
    for kind, content in fields(feature):
        for _, value in fields(_message(content)):
            if kind == _BYTES:
                values.append(bytes(_message(value)))
            elif kind == _FLOATS:
                packed = _message(value)
                values.extend(struct.unpack(f"<{len(packed) // 4}f", packed))
            elif kind == _INTEGERS and isinstance(value, int):
                values.append(_signed(value))
            elif kind == _INTEGERS:
                values.extend(_signed(number) for number in _varints(_message(value)))
    return values


def _varints(view: memoryview) -> Iterator[int]:
    position = 0
    while position < len(view):
        number, position = read_varint(view, position)
        yield number


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
