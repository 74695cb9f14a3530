"""From files to the model: vmprof's logs, with or without allocation samples,
of any size."""
from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, Union

from vmprof_convert.profile.model import (
    Collection,
    Figure,
    Mark,
    Profile,
    Rows,
    Samples,
    Swept,
)
from vmprof_convert.profile.store import Store
from vmprof_convert.readers.container import Pieces
from vmprof_convert.readers.nameless import of_interpreter
from vmprof_convert.readers.vmprof import Log
from vmprof_convert.readers.writing import is_written

__all__ = ["Head", "read", "read_bytes", "read_head", "read_into", "read_stacks"]


class Head(NamedTuple):
    """What a profile says before its first sample."""

    settings: dict[str, str]
    #: seconds since 1970; 0.0: not known
    start_time: float


#: a path, or a descriptor, which is closed
Source = Union[str, "os.PathLike[str]", int]


class _Whole(NamedTuple):
    """A profile that was read, of one file or of several."""

    first: Log
    last: Log
    #: bytes at the end that are not whole
    torn: int


def _read(files: Sequence[BinaryIO], rows: Rows, salvage: bool,
          progress: Callable[[int], None] | None = None) -> _Whole:
    logs: list[Log] = []
    torn = done = 0

    def told(of_file: int) -> None:
        if progress is not None:
            progress(done + of_file)

    for file in files:
        pieces = Pieces(file, salvage, told)
        log = Log(pieces, rows, logs[-1] if logs else None)
        logs.append(log)
        log.collector.goes_on = len(logs) < len(files)
        torn += log.read(salvage) + pieces.torn
        done += os.fstat(file.fileno()).st_size if len(files) > 1 else 0
    logs[-1].collector.finish()
    return _Whole(logs[0], logs[-1], torn)


def _profile(whole: _Whole, samples: Samples) -> Profile:
    log, torn = whole.last, whole.torn
    stacks, functions = log.collector.stacks, log.functions()
    nameless = of_interpreter(functions, log.blocks.settings)
    if nameless:
        stacks = stacks.without(nameless)
        functions = {address: function for address, function in functions.items()
                     if address not in nameless}
    return Profile(
        interpreter=log.interpreter, period=log.period,
        start_time=whole.first.start_time, end_time=log.end_time, meta=log.meta,
        settings=log.blocks.settings, unknown=log.blocks.unknown,
        functions=functions, nameless=len(nameless),
        stacks=stacks, samples=samples,
        labels=log.blocks.facts.labels, stack_labels=stacks.labels,
        moments=log.blocks.moments, types=log.blocks.facts.types,
        collections=sorted(log.blocks.facts.collections, key=_time),
        marks=sorted(log.blocks.facts.marks, key=_time),
        swept=sorted(log.blocks.facts.swept, key=_time),
        figures=sorted(log.blocks.facts.figures, key=_time),
        misfits=log.collector.misfits, lost_stacks=log.collector.lost,
        cut_off=log.collector.stacks.cut(), torn=torn,
        threads=log.blocks.facts.threads, command=log.blocks.facts.command)


def _time(event: Collection | Mark | Figure | Swept) -> int:
    return event.time


def _read_table(files: Sequence[BinaryIO], size: int, salvage: bool,
                progress: Callable[[int, int], None] | None,
                store: Store | None = None) -> Profile:
    def told(done: int) -> None:
        if progress is not None:
            # of a pipe nobody knows how much it holds
            progress(done, max(done, size))

    samples = Samples(store)
    whole = _read(files, samples, salvage, told)
    samples.finish(own_clock=whole.first.has_own_clock)
    return _profile(whole, samples)


def _open(sources: Source | Sequence[Source], files: contextlib.ExitStack) -> (
        list[BinaryIO]):
    if isinstance(sources, (str, os.PathLike, int)):
        sources = [sources]
    return [files.enter_context(open(source, "rb")) for source in sources]


def read_into(sources: Source | Sequence[Source], rows: Rows, *,
              salvage: bool = False) -> Profile:
    """As read(), but the samples go to `rows`, and the profile's table of them
    is empty: for what needs no table of a million rows."""
    with contextlib.ExitStack() as stack:
        files = _open(sources, stack)
        return _looked_after(
            _profile(_read(files, rows, salvage), Samples()), files[-1])


def _looked_after(profile: Profile, file: BinaryIO) -> Profile:
    profile.is_written = profile.end_time is None and is_written(
        file.fileno(), profile.pid)
    return profile


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
    whole = _read([io.BytesIO(data)], samples, False)
    samples.finish()
    return _profile(whole, samples), whole.last.blocks.defined


def read_bytes(data: bytes, *, salvage: bool = False,
               progress: Callable[[int, int], None] | None = None) -> Profile:
    """Decode a profile; see read()."""
    return _read_table([io.BytesIO(data)], len(data), salvage, progress)


def read(sources: Source | Sequence[Source], *, salvage: bool = False,
         progress: Callable[[int, int], None] | None = None,
         store: Store | None = None) -> Profile:
    """Read the profile at a path, or from a descriptor, which is closed; or the parts
    of one (PROFILE.rst), one after the other and none left out, as one profile.

    `salvage` drops what is incomplete at the end, which otherwise is an
    error.  `progress(done, total)` is called now and then, with bytes of the
    file.  `store`: where the samples are to be, if others are there, too.  Raises
    ProfileError for anything that is not a profile, and OSError.
    """
    with contextlib.ExitStack() as stack:
        files = _open(sources, stack)
        size = sum(os.fstat(file.fileno()).st_size for file in files)
        return _looked_after(_read_table(
            files, size, salvage, progress, store), files[-1])
