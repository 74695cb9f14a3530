"""Frames and tracebacks of allocations, with the interface of CPython's module."""
from __future__ import annotations

import functools
import linecache
from collections.abc import Iterator, Sequence
from typing import Any, overload

#: a frame, (filename, lineno)
RawFrame = tuple[str, int]
#: frames, the innermost one first
RawTraceback = tuple[RawFrame, ...]


@functools.total_ordering
class Frame:
    """A function's frame.

    `lineno` is the executed line, or the line of the function's definition if the
    executed line is unknown.
    """

    __slots__ = ("_frame",)

    def __init__(self, frame: RawFrame) -> None:
        """Wrap a raw frame, (filename, lineno)."""
        self._frame = frame

    @property
    def filename(self) -> str:
        """Return the name of the file."""
        return self._frame[0]

    @property
    def lineno(self) -> int:
        """Return the number of the line."""
        return self._frame[1]

    def __eq__(self, other: object) -> bool:
        """Compare the contents."""
        if not isinstance(other, Frame):
            return NotImplemented
        return self._frame == other._frame

    def __lt__(self, other: object) -> bool:
        """Order by the contents."""
        if not isinstance(other, Frame):
            return NotImplemented
        return self._frame < other._frame

    def __hash__(self) -> int:
        """Hash the contents."""
        return hash(self._frame)

    def __str__(self) -> str:
        """Return the short text that CPython prints."""
        return "%s:%s" % self._frame

    def __repr__(self) -> str:
        """Return the text for debugging."""
        return "<Frame filename=%r lineno=%r>" % self._frame


@functools.total_ordering
class Traceback(Sequence[Frame]):
    """A sequence of frames, the outermost one first, limited to start()'s `nframe`."""

    __slots__ = ("_frames", "_total_nframe")

    def __init__(self, frames: RawTraceback,
                 total_nframe: int | None = None) -> None:
        """Wrap raw frames.

        Args:
            frames: The raw frames, the innermost one first.
            total_nframe: The number of frames of the whole stack, or None if it is
                unknown.
        """
        self._frames = tuple(reversed(frames))
        self._total_nframe = total_nframe

    @property
    def total_nframe(self) -> int | None:
        """Return the number of frames of the whole stack, or None if it is unknown."""
        return self._total_nframe

    def __len__(self) -> int:
        """Return the number of elements."""
        return len(self._frames)

    @overload
    def __getitem__(self, index: int) -> Frame: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Frame, ...]: ...

    def __getitem__(self, index: int | slice) -> Frame | tuple[Frame, ...]:
        """Return an element, or a tuple of elements for a slice."""
        if isinstance(index, slice):
            return tuple(map(Frame, self._frames[index]))
        return Frame(self._frames[index])

    def __iter__(self) -> Iterator[Frame]:
        """Iterate over the elements."""
        return map(Frame, self._frames)

    def __contains__(self, frame: object) -> bool:
        """Return whether an equal element exists."""
        return isinstance(frame, Frame) and frame._frame in self._frames

    def __hash__(self) -> int:
        """Hash the contents."""
        return hash(self._frames)

    def __eq__(self, other: object) -> bool:
        """Compare the contents."""
        if not isinstance(other, Traceback):
            return NotImplemented
        return self._frames == other._frames

    def __lt__(self, other: object) -> bool:
        """Order by the contents."""
        if not isinstance(other, Traceback):
            return NotImplemented
        return self._frames < other._frames

    def __str__(self) -> str:
        """Return the short text that CPython prints."""
        return str(self[0]) if self._frames else "<no frames>"

    def __repr__(self) -> str:
        """Return the text for debugging."""
        text = "<Traceback %r" % (tuple(self),)
        if self._total_nframe is not None:
            text += " total_nframe=%d" % self._total_nframe
        return text + ">"

    def format(self, limit: int | None = None,
               most_recent_first: bool = False) -> list[str]:
        """Return lines in the form of the module `traceback`.

        Args:
            limit: If positive, the number of innermost frames to include.  If negative,
                the last `-limit` (innermost) frames are omitted.  CPython behaves in
                the same way, although its documentation differs.
            most_recent_first: Whether the innermost frame comes first.
        """
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
