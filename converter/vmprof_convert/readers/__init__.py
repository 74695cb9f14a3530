"""Readers of profiles: from vmprof's logs of any size to the model.

The logs may have allocation samples or not. The commands (cli/) and tracemalloc
(vmprof-integration) call the functions of this module.

A log is read twice. The first pass reads everything except the sampled objects, in
particular the time at which each object ended. So the second pass can give complete
rows of samples to the receiver (model.Rows).
"""
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
    """The contents of a profile before its first sample."""

    settings: dict[str, str]
    #: seconds since 1970, 0.0 if unknown
    start_time: float


#: path or descriptor of a profile; a descriptor is closed after reading
Source = Union[str, "os.PathLike[str]", int]
_Progress = Callable[[int], None]


class _Reading:
    """Both passes over the files of one profile, which has one file per segment."""

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
        #: number of bytes at the ends of the files that do not form a whole record
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
        """Return the profile with a table of samples.

        Raises:
            ProfileError: Samples of native memory were requested, but the profile has
                none.
        """
        if self._of_objects == records.RAW and not (
                self.contents.settings.get("interval")):
            raise ProfileError("the profile has no samples of native memory, which "
                               "--native-memory and conditions such as 'raw growth > "
                               "10M' need: start the program with --native-memory "
                               "512k, for example")
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
    """Return Profile.frees, without collections that were not finished at the end."""
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
            # the size of a pipe is unknown, and then `size` may be too small
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
    """Read a profile as read() does, but give the samples to a receiver.

    The table of samples in the returned profile is empty. Use this function if a table
    with a million rows is not necessary.

    Args:
        sources: The path or descriptor of a profile, or of each of its segments in
            their order.
        rows: The receiver of the samples.
        salvage: Whether to ignore an incomplete end of a file, which otherwise is an
            error.
        raw: Whether to read the samples of native memory instead of the GC's heap.

    Raises:
        ProfileError: A file is not a valid profile.
        OSError: A file cannot be read.
    """
    with contextlib.ExitStack() as stack:
        files = _open(sources, stack)
        return _looked_after(
            _Reading(files, rows, salvage, raw=raw).profile(Samples()), files[-1])


def read_events(sources: Source | Sequence[Source], *,
                salvage: bool = False) -> Profile:
    """Read a profile as read() does, but without its allocation samples.

    The returned profile has the stacks, the types, the events of the run and the
    retainers.

    Args:
        sources: The path or descriptor of a profile, or of each of its segments in
            their order.
        salvage: Whether to ignore an incomplete end of a file, which otherwise is an
            error.

    Raises:
        ProfileError: A file is not a valid profile.
        OSError: A file cannot be read.
    """
    with contextlib.ExitStack() as stack:
        files = _open(sources, stack)
        return _looked_after(_Reading(files, Samples(), salvage, objects=False).profile(
            Samples()), files[-1])


def _looked_after(profile: Profile, file: BinaryIO) -> Profile:
    """Set Profile.is_written of a profile from a file, and return the profile."""
    profile.is_written = profile.end_time is None and is_written(
        file.fileno(), profile.pid)
    return profile


def read_head(path: str | os.PathLike[str]) -> Head:
    """Read the settings and the start time of a profile, and nothing after these.

    Raises:
        ProfileError: The file is not a valid profile.
        OSError: The file cannot be read.
    """
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
    """Find the stacks that end at some nodes in a profile that is still being written.

    Args:
        data: The bytes of the log so far.
        nodes: Numbers of nodes in the record *nodes* (PROFILE.rst).

    Returns:
        The profile, and the index in Profile.stacks for each node. Nodes that the data
        do not contain are missing.

    Raises:
        ProfileError: The data are not a valid profile.
    """
    samples = Samples()
    reading = _Reading([io.BytesIO(data)], samples, False)
    contents = reading.contents
    stacks = {node: contents.stack(node, contents.part)
              for node in nodes if node < len(contents.part.nodes)}
    samples.finish()
    return reading.profile(samples), stacks


def read_bytes(data: bytes, *, salvage: bool = False,
               progress: Callable[[int, int], None] | None = None) -> Profile:
    """Read a profile from its bytes; see read()."""
    return _read_table([io.BytesIO(data)], len(data), salvage, progress, Samples())


def read(sources: Source | Sequence[Source], *, salvage: bool = False,
         progress: Callable[[int, int], None] | None = None,
         samples: Samples | None = None, raw: bool = False) -> Profile:
    """Read a profile, or all segments of one process as one profile (PROFILE.rst).

    Args:
        sources: The path or descriptor of a profile, or of each of its segments in
            their order. A descriptor is closed.
        salvage: Whether to ignore an incomplete end of a file, which otherwise is an
            error.
        progress: A function that is called now and then with the number of bytes that
            were read and the size of all files in bytes.
        samples: The table to fill, by default a new table.
        raw: Whether to read the samples of native memory instead of the GC's heap.

    Raises:
        ProfileError: A file is not a valid profile.
        OSError: A file cannot be read.
    """
    with contextlib.ExitStack() as stack:
        files = _open(sources, stack)
        size = sum(os.fstat(file.fileno()).st_size for file in files)
        return _looked_after(_read_table(
            files, size, salvage, progress,
            Samples() if samples is None else samples, raw), files[-1])
