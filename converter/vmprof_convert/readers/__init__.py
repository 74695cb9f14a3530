"""From files to the model: vmprof's logs, with or without allocation samples,
of any size."""
from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from vmprof_convert.model import (
    Collection,
    Figure,
    Mark,
    Profile,
    Rows,
    Samples,
)
from vmprof_convert.readers.container import Pieces
from vmprof_convert.readers.vmprof import Log

__all__ = ["Head", "read", "read_bytes", "read_head", "read_into", "read_stacks"]


class Head(NamedTuple):
    """What a profile says before its first sample."""

    settings: dict[str, str]
    #: seconds since 1970; 0.0: not known
    start_time: float


def _read(file: BinaryIO, rows: Rows, salvage: bool,
          progress: Callable[[int], None] | None = None) -> tuple[Log, int]:
    """Returns the log, and how many bytes at the end are not whole."""
    pieces = Pieces(file, salvage, progress)
    log = Log(pieces, rows)
    torn = log.read(salvage)
    log.collector.finish()
    return log, torn + pieces.torn


def _profile(log: Log, torn: int, samples: Samples) -> Profile:
    return Profile(
        interpreter=log.interpreter, period=log.period,
        start_time=log.start_time, end_time=log.end_time, meta=log.meta,
        settings=log.blocks.settings, unknown=log.blocks.unknown,
        functions=log.functions(),
        stacks=log.collector.stacks, samples=samples,
        moments=log.blocks.moments, types=log.blocks.facts.types,
        collections=sorted(log.blocks.facts.collections, key=_time),
        marks=sorted(log.blocks.facts.marks, key=_time),
        figures=sorted(log.blocks.facts.figures, key=_time),
        misfits=log.collector.misfits, lost_stacks=log.collector.lost,
        cut_off=log.collector.stacks.cut(), torn=torn,
        threads=log.blocks.facts.threads, command=log.blocks.facts.command)


def _time(event: Collection | Mark | Figure) -> int:
    return event.time


def _read_table(file: BinaryIO, size: int, salvage: bool,
                progress: Callable[[int, int], None] | None) -> Profile:
    def told(done: int) -> None:
        if progress is not None:
            # of a pipe nobody knows how much it holds
            progress(done, max(done, size))

    samples = Samples()
    log, torn = _read(file, samples, salvage, told)
    samples.finish(own_clock=log.has_own_clock)
    return _profile(log, torn, samples)


def read_into(path: str | os.PathLike[str] | int, rows: Rows, *,
              salvage: bool = False) -> Profile:
    """As read(), but the samples go to `rows`, and the profile's table of them
    is empty: for what needs no table of a million rows."""
    with open(path, "rb") as file:
        return _profile(*_read(file, rows, salvage), Samples())


def read_head(path: str | os.PathLike[str]) -> Head:
    """As much of the profile at `path` as it takes.  Raises ProfileError and
    OSError."""
    with open(path, "rb") as file:
        def first() -> Iterator[bytes]:
            for piece in Pieces(file, True, None):
                yield piece
                if log.blocks.settings or log.collector.count:
                    break

        log = Log(first(), Samples())
        # what follows is no part of it
        log.read(True)
        return Head(log.blocks.settings, log.start_time)


def read_stacks(data: bytes) -> tuple[Profile, Sequence[int]]:
    """What a profile that is still being written says of stacks: the profile,
    and for each stack as it is numbered in there, from 1 on, its index in
    Profile.stacks.  Raises ProfileError."""
    samples = Samples()
    log, torn = _read(io.BytesIO(data), samples, False)
    samples.finish()
    return _profile(log, torn, samples), log.blocks.defined


def read_bytes(data: bytes, *, salvage: bool = False,
               progress: Callable[[int, int], None] | None = None) -> Profile:
    """Decode a profile; see read()."""
    return _read_table(io.BytesIO(data), len(data), salvage, progress)


def read(path: str | os.PathLike[str] | int, *, salvage: bool = False,
         progress: Callable[[int, int], None] | None = None) -> Profile:
    """Read the profile at `path`, or from a descriptor, which is closed.

    `salvage` drops what is incomplete at the end, which otherwise is an
    error.  `progress(done, total)` is called now and then, with bytes of the
    file.  Raises ProfileError for anything that is not a profile, and OSError.
    """
    with open(path, "rb") as file:
        return _read_table(file, os.fstat(file.fileno()).st_size, salvage,
                           progress)
