"""Where long columns are: in memory as far as there is room, and beyond that in a
temporary file, which has no name, and so is gone whatever ends the process."""
from __future__ import annotations

import array
import contextlib
from collections.abc import Iterator
from typing import BinaryIO, Union

from vmprof_convert.errors import ProfileError

#: bytes of pieces that stay in memory: those of a million samples
ROOM = 2**26 + 2**25
#: the file gets no larger: what would take more is made to fill a disk
MAX_FILE = 2**36

_SIZES = {typecode: array.array(typecode).itemsize for typecode in "biq"}

#: a piece: an array of all of it, or of one number that it has throughout; or where it
#: is in the file
Kept = Union["array.array[int]", int]


class Store:
    """That of one profile, or of a run's."""

    def __init__(self) -> None:
        self.room = ROOM
        self._file: BinaryIO | None = None
        self.size = 0
        #: places in the file that nothing needs any more, by their length
        self._free: dict[int, list[int]] = {}

    def keep(self, piece: array.array[int]) -> Kept:
        """Raises ProfileError if there is no room."""
        if is_one(piece):
            return piece[:1]
        size = len(piece) * piece.itemsize
        if size <= self.room:
            self.room -= size
            return piece
        free = self._free.get(size)
        place = free.pop() if free else self.size
        if place + size > MAX_FILE:
            raise ProfileError("it takes more than %d bytes beside memory" % MAX_FILE)
        with _telling("no room in %s for"):
            if self._file is None:
                # (most need none)
                import tempfile
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            self._file.seek(place)
            with memoryview(piece).cast("B") as left:
                done = 0
                while done < size:
                    done += self._file.write(left[done:]) or 0
        self.size = max(self.size, place + size)
        return place

    def load(self, kept: Kept, typecode: str, length: int) -> array.array[int]:
        """Nobody may change it."""
        if isinstance(kept, array.array):
            return kept if len(kept) == length else kept * length
        piece = array.array(typecode)
        assert self._file is not None
        with _telling("can't read in %s"):
            self._file.seek(kept)
            piece.frombytes(self._file.read(length * piece.itemsize))
        return piece

    def drop(self, kept: Kept, typecode: str, length: int) -> None:
        """Nobody wants it any more."""
        size = length * _SIZES[typecode]
        if not isinstance(kept, array.array):
            self._free.setdefault(size, []).append(kept)
        elif len(kept) == length:
            self.room += size


def is_one(numbers: array.array[int]) -> bool:
    """Whether they are all the same; there is at least one."""
    return numbers[0] == numbers[-1] == numbers[len(numbers) // 2] and (
        numbers == numbers[:1] * len(numbers))


@contextlib.contextmanager
def _telling(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        import tempfile
        raise ProfileError("%s what is more than memory should hold: %s" % (
            what % (tempfile.tempdir or "a temporary folder"), error.strerror)
                           ) from error
