"""gzip_member.c: whatever is said in it unpacks to the same bytes."""
from __future__ import annotations

import ctypes
import gzip
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_build import load

CAPACITY = 65536
#: what stands in the buffer, and behind it
BEHIND = b"\xa5"
FRAME = 32


class Member(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("end", ctypes.c_void_p),
                ("at", ctypes.c_void_p), ("bits", ctypes.c_uint32),
                ("bit_count", ctypes.c_int), ("crc", ctypes.c_uint32),
                ("size", ctypes.c_uint32), ("is_cut", ctypes.c_int)]


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    loaded = load("gzip_member")
    loaded.gzip_room.restype = loaded.gzip_end.restype = ctypes.c_size_t
    return loaded


class Writer:
    def __init__(self, library: ctypes.CDLL, capacity: int = CAPACITY):
        self.library = library
        self.buffer = ctypes.create_string_buffer(BEHIND * (CAPACITY + 1),
                                                  CAPACITY + 1)
        self.member = Member()
        self.expected = b""
        library.gzip_begin(ctypes.byref(self.member), self.buffer,
                           ctypes.c_size_t(capacity), ctypes.c_char(b"x"))

    def room(self) -> int:
        return int(self.library.gzip_room(ctypes.byref(self.member)))

    def stored(self, data: bytes) -> None:
        before = self.room()
        self.library.gzip_bytes(ctypes.byref(self.member), data,
                                ctypes.c_size_t(len(data)))
        self.expected += data
        assert before - self.room() <= len(data) + 8

    def copy(self, distance: int, size: int) -> None:
        before = self.room()
        start = len(self.expected) - distance
        data = (self.expected[start:] * (size // distance + 1))[:size]
        self.library.gzip_copy(ctypes.byref(self.member), data,
                               ctypes.c_size_t(size), ctypes.c_size_t(distance))
        self.expected += data
        assert before - self.room() <= size // 64 + 300

    def repeat(self, size: int, times: int) -> None:
        before = self.room()
        data = self.expected[-size:]
        self.library.gzip_repeat(
            ctypes.byref(self.member), data, ctypes.c_size_t(size),
            ctypes.c_size_t(times))
        self.expected += data * times
        assert before - self.room() <= size * times // 64 + 300

    def check(self) -> bytes:
        size = self.library.gzip_end(ctypes.byref(self.member))
        assert size <= CAPACITY
        member = self.buffer.raw[:size]
        assert gzip.decompress(member) == self.expected
        assert member[12:14] == b"Vx"
        assert struct.unpack_from("<I", member, 16) == (size,)
        return member


OPERATIONS = st.lists(st.one_of(
    st.tuples(st.just("bytes"), st.binary(max_size=300)),
    st.tuples(st.just("copy"), st.integers(5, 40000), st.integers(3, 3000)),
    st.tuples(st.just("repeat"), st.integers(5, 3000), st.integers(1, 2000)),
), max_size=12)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(OPERATIONS)
def test_it_unpacks_to_what_was_said(library: ctypes.CDLL,
                                     operations: list[tuple[Any, ...]],
                                     ) -> None:
    writer = Writer(library)
    for name, *arguments in operations:
        if name == "bytes":
            writer.stored(arguments[0])
        elif len(writer.expected) >= 5:
            arguments[0] = min(arguments[0], len(writer.expected), 32768)
            if name == "copy":
                writer.copy(*arguments)
            elif arguments[0] * arguments[1] < 300000:
                writer.repeat(*arguments)
    writer.check()


@pytest.mark.parametrize("size", [*range(3, 800), 32768])
def test_copies_of_each_size(library: ctypes.CDLL, size: int) -> None:
    writer = Writer(library)
    writer.stored(bytes(i * i % 251 for i in range(1000)))
    writer.copy(900, size)
    writer.check()


@pytest.mark.parametrize("distance", [
    *range(5, 70), *(2**i + j for i in range(6, 15) for j in (-1, 0, 1, 2)),
    32767, 32768])
def test_copies_from_each_distance(library: ctypes.CDLL, distance: int) -> None:
    writer = Writer(library)
    writer.stored(bytes(i * i % 251 for i in range(33000)))
    for size in 5, 258, 258 * 5, 258 * 40:
        writer.copy(distance, size)
    writer.check()


def test_a_million_repetitions_are_a_few_kilobytes(library: ctypes.CDLL) -> None:
    writer = Writer(library)
    writer.stored(b"0123456789" * 20)
    writer.repeat(200, 10000)
    assert len(writer.check()) < 200 * 10000 // 190


def test_more_than_a_stored_block_holds(library: ctypes.CDLL) -> None:
    writer = Writer(library)
    writer.stored(bytes(65000))
    assert writer.room() < 600
    writer.check()


def test_nothing(library: ctypes.CDLL) -> None:
    assert len(Writer(library).check()) <= FRAME


def say_much(writer: Writer) -> None:
    """Stored bytes and matches in fixed codes and in their own."""
    data = bytes(i * i % 251 for i in range(100))
    library = writer.library
    for call, said, *numbers in (
            (library.gzip_bytes, data, 100),
            (library.gzip_copy, data[40:97], 57, 60),
            (library.gzip_bytes, data, 100),
            (library.gzip_repeat, data, 100, 70),
            (library.gzip_bytes, b"end", 3)):
        call(ctypes.byref(writer.member), said,
             *map(ctypes.c_size_t, numbers))
    writer.expected = data + data[40:97] + data * 71 + b"end"


def test_nothing_is_written_behind_the_buffer(library: ctypes.CDLL) -> None:
    """Whatever its size is, down to nothing: the member is whole, or none."""
    enough = Writer(library)
    say_much(enough)
    whole = enough.check()
    for capacity in range(len(whole) + 1):
        writer = Writer(library, capacity)
        say_much(writer)
        if capacity == len(whole):
            assert writer.check() == whole
        else:
            assert library.gzip_end(ctypes.byref(writer.member)) == 0
            assert writer.room() == 0 or capacity < FRAME
        assert set(writer.buffer.raw[capacity:]) == set(BEHIND)
