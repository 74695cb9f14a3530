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
from typing import BinaryIO, cast

from vmprof_convert.errors import ProfileError

_GZIP = b"\x1f\x8b"
#: size of a log's head in bytes, which are read first from a pipe
_HEAD = 40
#: Largest size of a decompressed profile in bytes. A larger file is probably an attack.
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
        self._progress: Callable[[int], None] | None = None

    def pieces(self, progress: Callable[[int], None] | None = None) -> Iterator[bytes]:
        """Yield the decompressed log from its beginning.

        Args:
            progress: A function that is called with the number of bytes read so far.

        Raises:
            ProfileError: The compressed data are damaged or cut off.
        """
        self._progress = progress
        self._file.seek(self._start)
        is_packed = self._file.read(len(_GZIP)) == _GZIP
        self._file.seek(self._start)
        if is_packed:
            yield from self._decompressed()
        else:
            while piece := self.read(PIECE):
                yield piece

    def read(self, size: int) -> bytes:
        """Return the next bytes of the file, at most `size`.

        Both pieces() and gzip use this method.
        """
        part = self._file.read(min(size, self._end - self._file.tell()))
        if part and self._progress is not None:
            self._progress(self._file.tell() - self._start)
        return part

    def _decompressed(self) -> Iterator[bytes]:
        """Yield the decompressed content of all members of a gzip file."""
        import gzip
        size = 0
        try:
            # gzip calls only the method read() of this object
            with gzip.GzipFile(fileobj=cast(BinaryIO, self), mode="rb") as file:
                while piece := file.read(PIECE):
                    size += len(piece)
                    limit = min(MAX_UNPACKED, _ALWAYS_UNPACKED + _MOST_FOR_A_BYTE * (
                        self._file.tell() - self._start))
                    if size > limit:
                        raise ProfileError(
                            "the profile unpacks to more than %d bytes" % limit)
                    yield piece
        except EOFError:
            raise ProfileError(
                "the profile is cut off: its packed data end too early") from None
        except (gzip.BadGzipFile, zlib.error) as e:
            raise ProfileError("damaged profile: %s" % e) from e


def is_log(start: bytes) -> bool:
    """Return whether a file that begins with `start` is an uncompressed log."""
    return len(start) >= _HEAD and start[:4] == bytes(4) and 3 in (start[4], start[8])


def _copied(pipe: BinaryIO) -> BinaryIO:
    """Return the content of a pipe as a file.

    If the first bytes are not the head of a profile, the file contains only these
    bytes, because a pipe may have no end.
    """
    start = pipe.read(_HEAD)
    if start.startswith(_GZIP) or is_log(start):
        start += pipe.read()
    return io.BytesIO(start)
