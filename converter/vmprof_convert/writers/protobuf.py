"""The encoding of Protocol Buffers.

A message is a sequence of fields. A field has a number, a kind and a value. Values are
integers (varint), eight bytes, or sequences of bytes, such as a text or a message.
writers/pprof.py, writers/otlp.py and vmprof_push use this module.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator


def varint(number: int) -> bytes:
    """Encode a number in groups of seven bits, with the lowest group first.

    A negative number is encoded as 64 bits.
    """
    if 0 <= number < 128:
        return bytes((number,))
    number %= 2**64
    result = bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    result.append(number)
    return bytes(result)


def number_field(field: int, value: int) -> bytes:
    """Return a field with an integer."""
    return varint(field << 3) + varint(value)


def fixed_field(field: int, value: int) -> bytes:
    """Return a field of the kind fixed64, an integer of eight bytes."""
    return varint(field << 3 | 1) + (value % 2**64).to_bytes(8, "little")


def packed_field(field: int, values: Iterable[int]) -> bytes:
    """Return a repeated field with integers, or nothing without integers."""
    numbers = b"".join(map(varint, values))
    return bytes_field(field, numbers) if numbers else b""


def text_field(field: int, value: str) -> bytes:
    """Return a field with a text."""
    return bytes_field(field, value.encode("utf-8"))


def bytes_field(field: int, value: bytes) -> bytes:
    """Return a field with a message or any other bytes."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field in a message.

    Raises:
        ValueError: The data are not a valid message.
    """
    position = 0
    while position < len(data):
        head, position = _read_varint(data, position)
        kind = head & 7
        if kind == 0:
            value, position = _read_varint(data, position)
            yield head >> 3, value
            continue
        if kind == 2:
            length, position = _read_varint(data, position)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError("no field has kind %d" % kind)
        end = position + length
        if end > len(data):
            raise ValueError("it is cut off")
        yield head >> 3, data[position:end]
        position = end


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position == len(data):
            raise ValueError("it is cut off")
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, position
    raise ValueError("a number has more than ten bytes")
