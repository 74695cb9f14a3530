"""The file that contains a log; it may be compressed by gzip.

The file is decompressed piece by piece, so that only one piece is in memory. A limit
protects against files that decompress to more bytes than a profile can have.
readers/__init__.py reads the pieces.
"""
from __future__ import annotations

import io
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from vmprof_convert.errors import ProfileError

_GZIP = b"\x1f\x8b"
#: size of a log's head in bytes, which are read first from a pipe
_HEAD = 40
#: Largest size of a decompressed profile in bytes. A larger one is probably an attack.
MAX_UNPACKED = 2**32
#: Bytes to which any compressed profile may decompress, and additional bytes for each
#: byte of the file. Deflate can reach a factor of 1032.
_ALWAYS_UNPACKED, _MOST_FOR_A_BYTE = 2**25, 100
#: Number of bytes that are read and decompressed at once, so that a piece fits into the
#: processor's cache. PyPy reserves the memory of each piece anew, so it gets smaller
#: pieces.
PIECE = 2**16 if sys.implementation.name == "pypy" else 2**17


class Container:
    """A file that contains a log and can be read more than once.

    Each pass reads the bytes that the file had at first, even if a program still writes
    to the file.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Determine the size of the file. Read a pipe to its end if it is a profile."""
        self._file = file if file.seekable() else _copied(file)
        self._start = self._file.tell()
        self._end = self._file.seek(0, io.SEEK_END)

    def pieces(self, progress: Callable[[int], None] | None = None) -> Iterator[bytes]:
        """Yield the decompressed log from its beginning.

        Args:
            progress: A function that is called with the number of bytes read so far.

        Raises:
            ProfileError: The compressed data are damaged or cut off.
        """
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
    """Return whether a file that begins with `start` is an uncompressed log."""
    return len(start) >= _HEAD and start[:4] == bytes(4) and 3 in (start[4], start[8])


def _copied(pipe: BinaryIO) -> BinaryIO:
    """Return the content of a pipe as a file.

    If the first bytes are not the head of a profile, the file contains only these,
    because a pipe may have no end.
    """
    start = pipe.read(_HEAD)
    if start.startswith(_GZIP) or is_log(start):
        start += pipe.read()
    return io.BytesIO(start)


def _unpacked(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the decompressed content of all members of a gzip file.

    Raises:
        ProfileError: The data are damaged, cut off, or decompress to too many bytes.
    """
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
            # gzip allows zeros after a member
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
        # the decompressed bytes that exceeded the size of the last piece
        piece = unpack(b"")
        if not piece:
            raise ProfileError("the profile is cut off: its packed data end too early")
        yield piece
