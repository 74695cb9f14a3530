"""Make a profile small, for this folder: leaves out the names of functions that
no stack has, which are nearly all of it, and packs the rest again.

    PYTHONPATH=tests/support python trim.py PROFILE OUT
"""
from __future__ import annotations

import gzip
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from made_profiles import BLOCK_ADDRESS, MEMORY, member
from vmprof_convert import readers

HEAD = 40


def members(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and records of each."""
    while data:
        kind, size = data[13:14], struct.unpack_from("<I", data, 16)[0]
        yield kind, gzip.decompress(data[:size])
        data = data[size:]


def records(data: bytes, at: int, tail: int) -> Iterator[bytes]:
    while at < len(data):
        marker, end = data[at], at + 1
        if marker == 0x05:
            end = at + 5 + data[at + 4]
        elif marker in (0x06, 0x03):
            end += 24
        elif marker == 0x01:
            end += 16 + 8 * struct.unpack_from("<q", data, at + 9)[0] + tail
        else:
            if marker != 0x07:
                end += 8
            for _ in range(1 + (marker == 0x07)):
                end += 8 + struct.unpack_from("<q", data, end)[0]
        yield data[at:end]
        at = end


def main(source: str, target: str) -> None:
    functions = readers.read(source).functions
    parts = []
    tail = 0
    for number, (kind, data) in enumerate(
            members(Path(source).read_bytes())):
        at = 0 if number else HEAD
        if not number:
            # of the header, behind the head and the version
            tail = 8 + 8 * (data[HEAD + 3] & MEMORY)
        kept = [record for record in records(data, at, tail)
                if record[0] not in (0x02, 0x08) or struct.unpack_from(
                    "<q", record, 1)[0] in (BLOCK_ADDRESS, *functions)]
        parts.append(member(data[:at] + b"".join(kept), kind))
    Path(target).write_bytes(b"".join(parts))


if __name__ == "__main__":
    main(*sys.argv[1:])
