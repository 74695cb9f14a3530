"""Where something was allocated: frames and tracebacks."""
from __future__ import annotations

import functools
import linecache
from collections.abc import Iterator, Sequence
from typing import Any, overload

#: a frame, (filename, lineno)
RawFrame = tuple[str, int]
#: the innermost frame first
RawTraceback = tuple[RawFrame, ...]


@functools.total_ordering
class Frame:
    """A function's frame.

    `lineno` is the executed line, or the line of the function's definition if the
    executed line is unknown.
    """

    __slots__ = ("_frame",)

    def __init__(self, frame: RawFrame) -> None:
        self._frame = frame

    @property
    def filename(self) -> str:
        return self._frame[0]

    @property
    def lineno(self) -> int:
        return self._frame[1]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frame):
            return NotImplemented
        return self._frame == other._frame

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Frame):
            return NotImplemented
        return self._frame < other._frame

    def __hash__(self) -> int:
        return hash(self._frame)

    def __str__(self) -> str:
        return "%s:%s" % self._frame

    def __repr__(self) -> str:
        return "<Frame filename=%r lineno=%r>" % self._frame


@functools.total_ordering
class Traceback(Sequence[Frame]):
    """Frames, the outermost one first; at most as many as start() was told."""

    __slots__ = ("_frames", "_total_nframe")

    def __init__(self, frames: RawTraceback,
                 total_nframe: int | None = None) -> None:
        """`frames`: the innermost one first."""
        self._frames = tuple(reversed(frames))
        self._total_nframe = total_nframe

    @property
    def total_nframe(self) -> int | None:
        """How many there were; None: not known."""
        return self._total_nframe

    def __len__(self) -> int:
        return len(self._frames)

    @overload
    def __getitem__(self, index: int) -> Frame: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Frame, ...]: ...

    def __getitem__(self, index: int | slice) -> Frame | tuple[Frame, ...]:
        if isinstance(index, slice):
            return tuple(map(Frame, self._frames[index]))
        return Frame(self._frames[index])

    def __iter__(self) -> Iterator[Frame]:
        return map(Frame, self._frames)

    def __contains__(self, frame: object) -> bool:
        return isinstance(frame, Frame) and frame._frame in self._frames

    def __hash__(self) -> int:
        return hash(self._frames)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Traceback):
            return NotImplemented
        return self._frames == other._frames

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Traceback):
            return NotImplemented
        return self._frames < other._frames

    def __str__(self) -> str:
        return str(self[0]) if self._frames else "<no frames>"

    def __repr__(self) -> str:
        text = "<Traceback %r" % (tuple(self),)
        if self._total_nframe is not None:
            text += " total_nframe=%d" % self._total_nframe
        return text + ">"

    def format(self, limit: int | None = None,
               most_recent_first: bool = False) -> list[str]:
        """Lines as the module `traceback` writes them.  `limit`: that many of
        the innermost frames; negative: all but that many (as CPython does it,
        which documents something else)."""
        frames: Sequence[Any] = self[:]
        if limit is not None:
            frames = (frames[max(len(frames) - limit, 0):] if limit > 0
                      else frames[:limit])
        lines = []
        for frame in reversed(frames) if most_recent_first else frames:
            lines.append('  File "%s", line %s' % (frame.filename, frame.lineno))
            source = linecache.getline(frame.filename, frame.lineno).strip()
            if source:
                lines.append("    " + source)
        return lines
