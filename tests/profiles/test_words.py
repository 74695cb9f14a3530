"""Tests of logs with words of other sizes than eight bytes.

The tests also cover logs of a vmprof that writes the time before each stack.
"""
from __future__ import annotations

import struct

import pytest

from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Profile

WINDOWS_64, WINDOWS_32, LINUX = ("i", "q", 1), ("i", "i", 0), ("q", "q", 0)
MEMORY, LINES = 1, 2


class Log:
    """A log in vmprof's layout, with words of any size."""

    def __init__(self, system: tuple[str, str, int], version: int = 6,
                 flags: int = 0):
        self.word, self.pointer, is_windows_64 = system
        self.flags = flags
        self.bytes = struct.pack("<5" + self.word, 0, 3, 0, 1000, is_windows_64)
        self.bytes += b"\x05" + struct.pack(">hBB", version, flags, 7) + b"cpython"
        self.bytes += b"\x06" + struct.pack("<qq8x", 1700000000, 500000)

    def string(self, text: str) -> bytes:
        return struct.pack("<" + self.word, len(text)) + text.encode()

    def name(self, address: int, text: str) -> None:
        self.bytes += (b"\x02" + struct.pack("<" + self.pointer, address)
                       + self.string(text))

    def sample(self, *frames: int, thread: int = 7, memory: int = 0,
               seconds: float | None = None) -> None:
        self.bytes += b"\x01"
        self.bytes += (struct.pack("<" + self.word, 1) if seconds is None
                       else struct.pack("<d", seconds))
        self.bytes += struct.pack("<" + self.word, len(frames))
        tail = [memory] if self.flags & MEMORY else []
        for number in (*frames, thread, *tail):
            self.bytes += struct.pack("<" + self.pointer, number)

    def data(self) -> bytes:
        return (self.bytes + b"\x07" + self.string("os") + self.string("here")
                + b"\x03" + struct.pack("<qq8x", 1700000002, 0))


def made(system: tuple[str, str, int], flags: int = 0) -> Log:
    log = Log(system, flags=flags)
    log.name(0x100, "py:main:1:app.py")
    log.name(0x200, "py:leaf:5:app.py")
    return log


def names(profile: Profile) -> list[list[str]]:
    return [[profile.function(frame.address).name
             for frame in profile.stacks[stack]]
            for stack in profile.samples.stack]


@pytest.mark.parametrize("system", [WINDOWS_64, WINDOWS_32, LINUX])
def test_words_of_other_systems(system: tuple[str, str, int]) -> None:
    log = made(system, MEMORY)
    log.sample(0x200, 0x100, memory=5000)
    log.sample(0x100, thread=9, memory=6000)
    profile = readers.read_bytes(log.data())
    assert names(profile) == [["main", "leaf"], ["main"]]
    assert list(profile.samples.thread) == [7, 9]
    assert list(profile.samples.memory) == [5000, 6000]
    assert profile.period == 0.001
    assert profile.meta == {"os": "here"}
    assert (profile.start_time, profile.end_time) == (1700000000.5, 1700000002)


@pytest.mark.parametrize("system", [WINDOWS_64, WINDOWS_32])
def test_lines_of_other_systems(system: tuple[str, str, int]) -> None:
    log = made(system, LINES)
    log.sample(-7, 0x200, -3, 0x100)
    profile = readers.read_bytes(log.data())
    assert [frame.line for frame in profile.stacks[0]] == [3, 7]


@pytest.mark.parametrize("system", [WINDOWS_64, WINDOWS_32, LINUX])
def test_a_truncated_log_is_an_error_or_a_killed_run(
        system: tuple[str, str, int]) -> None:
    log = made(system)
    log.sample(0x200, 0x100)
    data = log.data()
    refused = 0
    for size in range(len(data)):
        try:
            # a cut between two records looks like a killed process
            assert readers.read_bytes(data[:size]).end_time is None
        except ProfileError:
            refused += 1
    assert refused > 0.9 * len(data)
    assert len(readers.read_bytes(data).samples) == 1


@pytest.mark.parametrize("system", [WINDOWS_64, WINDOWS_32, LINUX])
def test_time_before_each_stack(system: tuple[str, str, int]) -> None:
    """A vmprof that was never released called this layout version 7."""
    log = Log(system, version=7)
    log.name(0x100, "py:main:1:app.py")
    log.sample(0x100, seconds=451.25)
    log.sample(0x100, seconds=453.5)
    profile = readers.read_bytes(log.data())
    assert list(profile.samples.time) == [0, 2_250_000_000]
    assert list(profile.samples.thread) == [7, 7]


@pytest.mark.parametrize("seconds", [-1.0, 1e300, float("nan")])
def test_invalid_times_are_refused(seconds: float) -> None:
    log = Log(LINUX, version=7)
    log.sample(0x100, seconds=451.25)
    log.sample(0x100, seconds=seconds)
    with pytest.raises(ProfileError, match="a sample at the time"):
        readers.read_bytes(log.data())
