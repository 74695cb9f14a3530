"""The file around a log: it may be packed by gzip, and is unpacked piece by piece, so
that no more than that is ever in memory, and never more than a profile can be."""
from __future__ import annotations

import io
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from vmprof_convert.errors import ProfileError

_GZIP = b"\x1f\x8b"
#: bytes of a log's head, which are read from a pipe before its other bytes
_HEAD = 40
#: a gzipped profile unpacks to no more bytes: what does is made to harm
MAX_UNPACKED = 2**32
#: Bytes to which any gzipped profile may unpack, and additional bytes for each byte of
#: the file.  Deflate reaches a factor of 1032.
_ALWAYS_UNPACKED, _MOST_FOR_A_BYTE = 2**25, 100
#: what is read and unpacked at once: no more than a processor has near.  Smaller for
#: PyPy, which reserves it anew each time
PIECE = 2**16 if sys.implementation.name == "pypy" else 2**17


class Container:
    """A file that holds a log, which can be read more than once.  Each time it is what
    it was at first, though a program may still write to it."""

    def __init__(self, file: BinaryIO) -> None:
        """Read a pipe to its end, if it begins as a profile does."""
        self._file = file if file.seekable() else _copied(file)
        self._start = self._file.tell()
        self._end = self._file.seek(0, io.SEEK_END)

    def pieces(self, progress: Callable[[int], None] | None = None) -> Iterator[bytes]:
        """The log, from its beginning; `progress` is told how many bytes of the file
        were read.  Raises ProfileError if they are damaged, or cut off."""
        self._file.seek(self._start)
        packed = self._read(progress)
        first = next(packed, b"")
        if len(first) < len(_GZIP):
            first += next(packed, b"")
        if first.startswith(_GZIP):
            yield from _unpacked(first, packed)
        else:
            yield first
            yield from packed

    def _read(self, progress: Callable[[int], None] | None) -> Iterator[bytes]:
        done = 0
        while part := self._file.read(min(PIECE, self._end - self._start - done)):
            done += len(part)
            if progress is not None:
                progress(done)
            yield part


def is_log(start: bytes) -> bool:
    """Return whether a file that begins with `start` is a log, not compressed."""
    return len(start) >= _HEAD and start[:4] == bytes(4) and 3 in (start[4], start[8])


def _copied(pipe: BinaryIO) -> BinaryIO:
    """Return the content of the pipe; only its first bytes if they are not the head of
    a profile, because a pipe may have no end."""
    start = pipe.read(_HEAD)
    if start.startswith(_GZIP) or is_log(start):
        start += pipe.read()
    return io.BytesIO(start)


def _unpacked(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """What members of a gzip file unpack to, one after the other."""
    size, packed = 0, len(first)
    unpacker = zlib.decompressobj(wbits=31)

    def unpack(part: bytes) -> bytes:
        nonlocal size
        try:
            piece = unpacker.decompress(part, PIECE)
        except zlib.error as e:
            raise ProfileError("damaged profile: %s" % e) from e
        size += len(piece)
        limit = min(MAX_UNPACKED, _ALWAYS_UNPACKED + _MOST_FOR_A_BYTE * packed)
        if size > limit:
            raise ProfileError("the profile unpacks to more than %d bytes" % limit)
        return piece

    part = first
    while part:
        if unpacker.eof:
            # gzip allows zeros behind a member
            part = part.lstrip(b"\0")
            if part:
                unpacker = zlib.decompressobj(wbits=31)
        if part:
            yield unpack(part)
            part = unpacker.unconsumed_tail or unpacker.unused_data
        if not part:
            part = next(rest, b"")
            packed += len(part)
    while not unpacker.eof:
        # what the last piece had no room for
        piece = unpack(b"")
        if not piece:
            raise ProfileError("the profile is cut off: its packed data end too early")
        yield piece
