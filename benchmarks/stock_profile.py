"""Write a profile in the format of stock vmprof, for the experiment `formats`.

The samples have 3000 stacks of 30 functions. The stacks share outer frames, like the
stacks of a real program.
"""
from __future__ import annotations

import random
import struct
from pathlib import Path

DEPTH = 30
_FUNCTIONS, _FILES, _STACKS = 600, 40, 3000
#: Microseconds between two samples, and the time of the first sample, in seconds since
#: 1970.
_PERIOD, _START = 1000, 1_700_000_000
_INTERPRETED, _PYPY_6 = 1, b"\x05\0\x06\x08\x04pypy"
_SEED = 3


def write(path: Path, samples: int) -> None:
    """Write a profile with the given number of samples."""
    draw = random.Random(_SEED)
    functions = range(0x1000, 0x1000 + 8 * _FUNCTIONS, 8)
    stacks = [[draw.choice(functions) for _ in range(DEPTH)]]
    while len(stacks) < _STACKS:
        kept = draw.randrange(3, DEPTH - 1)
        stacks.append([*draw.choice(stacks)[:kept],
                       *(draw.choice(functions) for _ in range(DEPTH - kept))])
    records = [_record(stack) for stack in stacks]
    with open(path, "wb") as file:
        file.write(struct.pack("<5q", 0, 3, 0, _PERIOD, 0) + _PYPY_6)
        file.write(b"\x06" + _time(_START))
        # vmprof-firefox-converter requires these entries.
        for key, value in (b"os", b"linux"), (b"bits", b"64"):
            file.write(b"\x07" + _text(key) + _text(value))
        for number, address in enumerate(functions):
            name = "py:f%d:%d:/srv/app/mod%d.py" % (number, number + 1, number % _FILES)
            file.write(b"\x02" + struct.pack("<q", address) + _text(name.encode()))
        for _ in range(samples):
            file.write(draw.choice(records))
        file.write(b"\x03" + _time(_START + samples * _PERIOD // 10**6))


def _record(stack: list[int]) -> bytes:
    """Return a sample record.

    The words of the record are the frames, innermost first, followed by the thread.
    """
    words = [word for address in reversed(stack) for word in (_INTERPRETED, address)]
    return b"\x01" + struct.pack("<%dq" % (len(words) + 3), 1, len(words), *words, 1)


def _text(data: bytes) -> bytes:
    return struct.pack("<q", len(data)) + data


def _time(seconds: int) -> bytes:
    return struct.pack("<qq", seconds, 0) + bytes(8)
