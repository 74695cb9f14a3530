"""From files to the model: vmprof's logs, with or without allocation samples,
of any size.

A log is read twice.  The first pass learns everything except the sampled objects:
above all when each of them ended.  The second pass can then hand on each object's row
complete."""
from __future__ import annotations

import bisect
import contextlib
import functools
import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, NamedTuple, Union

from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import (
    Collection,
    Figure,
    Mark,
    Profile,
    Rows,
    Samples,
    Snapshot,
    Swept,
)
from vmprof_convert.readers import records
from vmprof_convert.readers.container import Container
from vmprof_convert.readers.contents import Contents, Part
from vmprof_convert.readers.nameless import of_interpreter
from vmprof_convert.readers.objects import Objects
from vmprof_convert.readers.records import Damaged, Record
from vmprof_convert.readers.still_written import is_written
from vmprof_convert.readers.vmprof_log import Log, functions

__all__ = ["Head", "read", "read_bytes", "read_events", "read_head", "read_into",
           "read_stacks"]


class Head(NamedTuple):
    """What a profile says before its first sample."""

    settings: dict[str, str]
    #: seconds since 1970; 0.0: not known
    start_time: float


#: a path, or a descriptor, which is closed
Source = Union[str, "os.PathLike[str]", int]
_Progress = Callable[[int], None]


class _Reading:
    """Of the files of one profile: one, or the parts of several."""

    def __init__(self, files: Sequence[BinaryIO], rows: Rows, salvage: bool,
                 progress: _Progress | None = None, *, objects: bool = True,
                 raw: bool = False) -> None:
        self._containers = list(map(Container, files))
        self._rows = rows
        self._salvage = salvage
        self._progress = progress
        self.contents = Contents(rows, has_parts=len(files) > 1, raw=raw)
        self._of_objects = records.RAW if raw else records.OBJECTS
        self.names: dict[int, str] = {}
        self.logs: list[Log] = []
        #: bytes at the end that are not whole
        self.torn = 0
        self.misfits = 0
        self._learn(files)
        if self.contents.are_there and objects:
            self._read_objects()

    def _learn(self, files: Sequence[BinaryIO]) -> None:
        done = 0

        def told(of_file: int) -> None:
            if self._progress is not None:
                self._progress(done + of_file)

        for container, file in zip(self._containers, files):
            self.contents.begin_part()
            log = Log(container.pieces(told), self.contents, self._rows, self.names)
            self.logs.append(log)
            self.torn += log.read(self.contents.read, self._salvage)
            if log.gc_samples is not None:
                self.misfits += log.gc_samples.finish()
            try:
                self.contents.end_part(is_whole=log.end_time is not None)
            except Damaged as e:
                raise log.damaged(str(e)) from None
            done += os.fstat(file.fileno()).st_size if len(files) > 1 else 0

    def _read_objects(self) -> None:
        objects = Objects(self.contents, self._rows)
        for container, part in zip(self._containers, self.contents.parts):
            log = Log(container.pieces(), self.contents, None, {})
            log.read(functools.partial(self._hand_on, objects, part), True)
            try:
                objects.read_waiting(part)
            except Damaged as e:
                raise log.damaged(str(e)) from None
        self.misfits = objects.misfits

    def _hand_on(self, objects: Objects, part: Part, record: Record) -> None:
        if record.kind == self._of_objects:
            objects.read(record, part)

    def profile(self, samples: Samples) -> Profile:
        """Raises ProfileError if it was not read for what it does not hold."""
        if self._of_objects == records.RAW and not (
                self.contents.settings.get("interval")):
            raise ProfileError("no raw memory was sampled, which --raw and conditions "
                               "such as 'raw growth > 10M' are about: start the "
                               "program with --raw-memory 512k, for example")
        contents, last = self.contents, self.logs[-1]
        is_raw = self._of_objects == records.RAW
        stacks, found = contents.stacks, functions(contents, self.names)
        nameless = of_interpreter(found, contents.settings)
        if nameless:
            stacks = stacks.without(nameless)
            found = {address: function for address, function in found.items()
                     if address not in nameless}
        return Profile(
            interpreter=last.interpreter, period=last.period,
            start_time=self.logs[0].start_time, end_time=last.end_time, meta=last.meta,
            settings=contents.settings, unknown=contents.unknown,
            functions=found, nameless=len(nameless),
            stacks=stacks, samples=samples,
            labels=contents.labels, stack_labels=stacks.labels,
            moments=contents.moments, types=contents.types,
            collections=[] if is_raw else sorted(contents.collections, key=_time),
            marks=sorted(contents.marks, key=_time),
            swept=[] if is_raw else sorted(contents.swept, key=_time),
            frees=_frees(contents) if is_raw else [],
            snapshots=sorted(contents.snapshots, key=_time),
            figures=sorted(contents.figures, key=_time),
            misfits=self.misfits, lost_stacks=contents.lost_stacks,
            cut_off=contents.stacks.cut(), torn=self.torn,
            threads=contents.threads, command=contents.command,
            held=contents.answers())


def _frees(contents: Contents) -> list[tuple[int, int]]:
    """Return Profile.frees, without a collection that had not swept at the end."""
    marked = sorted(one.time for one in contents.collections)
    swept = sorted(one.time for one in contents.swept) or marked
    after = [bisect.bisect_left(swept, time) for time in marked]
    return [(time, swept[number]) for time, number in zip(marked, after)
            if number < len(swept)]


def _time(event: Collection | Mark | Figure | Snapshot | Swept) -> int:
    return event.time


def _read_table(files: Sequence[BinaryIO], size: int, salvage: bool,
                progress: Callable[[int, int], None] | None,
                samples: Samples, raw: bool = False) -> Profile:
    def told(done: int) -> None:
        if progress is not None:
            # of a pipe nobody knows how much it holds
            progress(done, max(done, size))

    reading = _Reading(files, samples, salvage, told, raw=raw)
    samples.finish(own_clock=reading.logs[0].has_own_clock)
    return reading.profile(samples)


def _open(sources: Source | Sequence[Source], files: contextlib.ExitStack) -> (
        list[BinaryIO]):
    if isinstance(sources, (str, os.PathLike, int)):
        sources = [sources]
    return [files.enter_context(open(source, "rb")) for source in sources]


def read_into(sources: Source | Sequence[Source], rows: Rows, *,
              salvage: bool = False, raw: bool = False) -> Profile:
    """As read(), but the samples go to `rows`, and the profile's table of them
    is empty: for what needs no table of a million rows."""
    with contextlib.ExitStack() as stack:
        files = _open(sources, stack)
        return _looked_after(
            _Reading(files, rows, salvage, raw=raw).profile(Samples()), files[-1])


def read_events(sources: Source | Sequence[Source], *,
                salvage: bool = False) -> Profile:
    """As read(), but without samples: what was written of stacks, types and the run,
    and who held what."""
    with contextlib.ExitStack() as stack:
        files = _open(sources, stack)
        return _looked_after(_Reading(files, Samples(), salvage, objects=False).profile(
            Samples()), files[-1])


def _looked_after(profile: Profile, file: BinaryIO) -> Profile:
    profile.is_written = profile.end_time is None and is_written(
        file.fileno(), profile.pid)
    return profile


def read_head(path: str | os.PathLike[str]) -> Head:
    """As much of the profile at `path` as it takes.  Raises ProfileError and
    OSError."""
    with open(path, "rb") as file:
        contents = Contents(Samples())
        contents.begin_part()
        log = Log(Container(file).pieces(), contents, None, {})

        def on_record(record: Record) -> None:
            contents.read(record)
            log.is_enough = True

        log.read(on_record, True)
        return Head(contents.settings, log.start_time)


def read_stacks(data: bytes, nodes: Iterable[int]) -> tuple[Profile, dict[int, int]]:
    """What a profile that is still being written says of the stacks that end with these
    nodes: the profile, and for each node the stack's index in Profile.stacks.  Nodes of
    which it says nothing are left out.  Raises ProfileError."""
    samples = Samples()
    reading = _Reading([io.BytesIO(data)], samples, False)
    contents = reading.contents
    stacks = {node: contents.stack(node, contents.part)
              for node in nodes if node < len(contents.part.nodes)}
    samples.finish()
    return reading.profile(samples), stacks


def read_bytes(data: bytes, *, salvage: bool = False,
               progress: Callable[[int, int], None] | None = None) -> Profile:
    """Decode a profile; see read()."""
    return _read_table([io.BytesIO(data)], len(data), salvage, progress, Samples())


def read(sources: Source | Sequence[Source], *, salvage: bool = False,
         progress: Callable[[int, int], None] | None = None,
         samples: Samples | None = None, raw: bool = False) -> Profile:
    """Read the profile at a path, or from a descriptor, which is closed; or the parts
    of one (PROFILE.rst), one after the other, as one profile.

    `salvage` drops what is incomplete at the end, which otherwise is an
    error.  `progress(done, total)` is called now and then, with bytes of the
    file.  `samples`: the table that is filled, if not a new one.  `raw`: the samples
    are those of raw memory, if it was sampled, and not those of the GC's heap.  Raises
    ProfileError for anything that is not a profile, and OSError.
    """
    with contextlib.ExitStack() as stack:
        files = _open(sources, stack)
        size = sum(os.fstat(file.fileno()).st_size for file in files)
        return _looked_after(_read_table(
            files, size, salvage, progress,
            Samples() if samples is None else samples, raw), files[-1])
