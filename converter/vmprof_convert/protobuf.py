"""Protocol Buffers' encoding: a message is a sequence of fields, each with its number
and kind, which is a number (a varint), eight bytes, or bytes (text, or a message)."""
from __future__ import annotations

from collections.abc import Iterable


def varint(number: int) -> bytes:
    """Seven bits each, the lowest first; a negative one has 64 bits."""
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
    return varint(field << 3) + varint(value)


def fixed_field(field: int, value: int) -> bytes:
    """Eight bytes, as readers expect them of some fields."""
    return varint(field << 3 | 1) + (value % 2**64).to_bytes(8, "little")


def packed_field(field: int, values: Iterable[int]) -> bytes:
    """Numbers of a repeated field, together."""
    return bytes_field(field, b"".join(map(varint, values)))


def text_field(field: int, value: str) -> bytes:
    return bytes_field(field, value.encode("utf-8"))


def bytes_field(field: int, value: bytes) -> bytes:
    """A message, or any bytes."""
    return varint(field << 3 | 2) + varint(len(value)) + value
