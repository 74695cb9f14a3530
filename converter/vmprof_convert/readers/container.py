"""The file around a log: gzip members of our kind, gzip of any kind, or none.

What it unpacks to comes piece by piece, so that no more than that is ever in
memory, and never more than a profile can be.
"""
from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from vmprof_convert.errors import ProfileError

#: how a member of our kind of gzip file begins: then come its kind, 04 00,
#: and its size in 32 bits
_MEMBER = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x08\0V"
_MEMBER_HEAD = struct.Struct("<13scHI")
#: the kind that repeats the samples for vmprof's readers
_FOR_VMPROF = b"s"

#: a gzipped profile unpacks to no more bytes: what does is made to harm
MAX_UNPACKED = 2**32
#: no member of our kind is longer: our buffers have 32 KiB
MAX_MEMBER = 2**26
#: what is read and unpacked at once: no more than a processor has near.  Smaller for
#: PyPy, which reserves it anew each time
PIECE = 2**16 if sys.implementation.name == "pypy" else 2**17


class Pieces:
    """What a profile unpacks to, piece by piece, as an iterator."""

    def __init__(self, file: BinaryIO, salvage: bool,
                 progress: Callable[[int], None] | None):
        self._file = file
        self._salvage = salvage
        self._progress = progress
        self._unpacked = 0
        #: bytes of the file that were read
        self.done = 0
        #: bytes at the end that make no whole member
        self.torn = 0
        self._first = self._read(len(_MEMBER))

    def _read(self, size: int) -> bytes:
        """Fewer bytes than `size` only at the end of the file."""
        parts = []
        while size > 0:
            part = self._file.read(min(size, PIECE))
            if not part:
                break
            parts.append(part)
            size -= len(part)
            self.done += len(part)
        if self._progress is not None:
            self._progress(self.done)
        return b"".join(parts)

    def __iter__(self) -> Iterator[bytes]:
        try:
            if self._first == _MEMBER:
                yield from self._members()
            elif len(self._first) > 1 and _MEMBER.startswith(self._first):
                raise _nothing_whole()
            elif self._first[:2] == b"\x1f\x8b":
                # not written by us
                yield from self._unpack(self._packed(), "the profile is cut off: ")
            else:
                yield from self._packed()
        except zlib.error as e:
            raise ProfileError("damaged profile: %s" % e) from e

    def _packed(self) -> Iterator[bytes]:
        yield self._first
        while part := self._read(PIECE):
            yield part

    def _members(self) -> Iterator[bytes]:
        head = self._first
        while True:
            at = self.done - len(head)
            head += self._read(_MEMBER_HEAD.size - len(head))
            if not head:
                return
            if len(head) < _MEMBER_HEAD.size or not head.startswith(_MEMBER):
                break
            _, kind, _, length = _MEMBER_HEAD.unpack(head)
            if not _MEMBER_HEAD.size <= length:
                break
            if kind == _FOR_VMPROF:
                rest = self._pass_over(length - len(head))
            elif length > MAX_MEMBER:
                rest = self._pass_over(length - len(head))
                if not rest:
                    raise ProfileError(
                        "damaged profile: a part of %d bytes at byte %d"
                        % (length, at))
            else:
                body = self._read(length - len(head))
                rest = length - len(head) - len(body)
                if not rest:
                    # as parts only: a member is there or not
                    yield from self._unpack(iter((head, body)), "damaged profile: ")
            if rest:
                break
            head = b""
        self._pass_over(2**63)
        self.torn = self.done - at
        if not at:
            raise _nothing_whole()
        if not self._salvage:
            raise ProfileError(
                "the profile is cut off: its last part, at byte %d of %d, is "
                "not whole. Read what is before it with --salvage"
                % (at, self.done))

    def _pass_over(self, size: int) -> int:
        """Returns how many of `size` bytes there are not."""
        while size > 0:
            part = self._read(min(size, PIECE))
            if not part:
                break
            size -= len(part)
        return size

    def _unpack(self, packed: Iterator[bytes], short: str) -> Iterator[bytes]:
        """`packed` is one gzip member or some; `short` is what is said if there is
        less of it."""
        def checked(piece: bytes) -> bytes:
            self._unpacked += len(piece)
            if self._unpacked > MAX_UNPACKED:
                raise ProfileError("the profile unpacks to more than %d bytes"
                                   % MAX_UNPACKED)
            return piece

        unpacker = zlib.decompressobj(wbits=31)
        for part in packed:
            while part:
                if unpacker.eof:
                    # gzip allows zeros behind a member
                    part = part.lstrip(b"\0")
                    if not part:
                        break
                    unpacker = zlib.decompressobj(wbits=31)
                yield checked(unpacker.decompress(part, PIECE))
                part = unpacker.unconsumed_tail or unpacker.unused_data
        while not unpacker.eof:
            # what the last piece had no room for
            piece = unpacker.decompress(b"", PIECE)
            if not piece:
                raise ProfileError(short + "its packed data end too early")
            yield checked(piece)


def _nothing_whole() -> ProfileError:
    return ProfileError("the profile is cut off in its first part: there is nothing in "
                        "it to be read")
