"""Allocation samples that rvmprof writes into vmprof's own buffers, without a recorder.

Such a profile contains the time, the size and the stack of each sample. Later records
contain the types of the objects with sampled bytes. The outcomes of the objects are
unknown. PROFILE.rst defines the layout. readers/vmprof_log.py finds the records.
"""
from __future__ import annotations

import array
import re
from typing import NamedTuple

from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import UNTOLD, Columns, Moment, Rows, Type
from vmprof_convert.readers.contents import Contents

#: keys of vmprof's meta data: settings of the sampling, and the GC's types
SETTINGS, TYPES = "allocations", "allocation types"
#: number of words of a stack that filled vmprof's record (see contents.FULL_RECORD)
FULL_STACK = 1016
#: Number of samples with objects that are kept, because more objects may follow. The
#: objects come in the order of their keys, except that vmprof may write two of its
#: buffers in the other order.
_KEPT = 1 << 15
#: number of rows that are given to the receiver at once, and typecodes of the columns
_BATCH, _TYPECODES = 4096, "qqiqqqibqqq"


class Sample(NamedTuple):
    """A sample whose objects may not be known yet."""

    #: size in bytes of the sampled allocation
    size: int
    #: nanoseconds since the start
    time: int
    #: kernel's number of the thread
    thread: int
    #: index in Contents.stacks, -1 if the stack got lost
    stack: int


class GcSamples:
    """The reader of the allocation samples of one log."""

    def __init__(self, contents: Contents, rows: Rows) -> None:
        """Create a reader.

        Args:
            contents: The contents of the profile, to which the types are added.
            rows: The receiver of the rows.
        """
        self._contents = contents
        self._rows = rows
        self._interval = 0
        #: layouts of the GC's types, by their numbers; and indices in Contents.types
        self._layouts: list[str] = []
        self._types: dict[int, int] = {}
        #: samples by key: the samples whose objects have not come yet, and the samples
        #: with objects
        self._waiting: dict[int, Sample] = {}
        self._told: dict[int, Sample] = {}
        #: key, type and bytes of each object that came before its sample
        self._early: list[tuple[int, int, int]] = []
        #: rows in the order of model.Row that were not given to the receiver yet
        self._batch: list[tuple[int, ...]] = []
        #: time of the latest sample in nanoseconds since the start, -1 if the log has
        #: no allocation samples
        self.time = -1

    def read_meta(self, key: str, value: str) -> None:
        """Read a pair of vmprof's meta data; ignore unknown keys.

        Raises:
            ProfileError: The settings of the sampling have no valid interval.
        """
        if key == SETTINGS:
            settings = self._contents.settings
            settings.update(pair.partition("=")[::2] for pair in value.split(";"))
            settings.update(engine="builtin", facts="types")
            interval = settings.get("interval", "")
            if not re.fullmatch("[1-9][0-9]{0,18}", interval, re.ASCII):
                raise ProfileError("damaged profile: allocations were sampled with "
                                   "%r, which has no interval" % value)
            self._interval = int(interval)
            self._rows.begin(settings)
            self.time = 0
        elif key == TYPES:
            # A line is "member12   GcStruct ...". Its position is the type's number.
            self._layouts = [line.partition(" ")[2].strip()
                             for line in value.splitlines()]

    def add_sample(self, key: int, sample: Sample) -> None:
        """Add a sample, whose objects follow or, in rare cases, precede the sample."""
        self.time = max(self.time, sample.time)
        if sample.stack < 0:
            self._contents.lost_stacks += 1
        self._waiting[key] = sample
        if len(self._told) > _KEPT:
            for old in list(self._told)[:_KEPT // 2]:
                del self._told[old]

    def add_object(self, key: int, type_: int, size: int) -> None:
        """Add an object of a sample.

        Args:
            key: The key of the sample.
            type_: The GC's number of the type.
            size: The size in bytes, 0 for the size of the sample.
        """
        sample = self._waiting.pop(key, None) or self._told.get(key)
        if sample is None:
            self._early.append((key, type_, size))
            return
        self._told[key] = sample
        self._row(sample, size or sample.size, self._type(type_))

    def add_total(self, time: int, allocated: int, lost: int) -> None:
        """Read the totals at the end of the sampling.

        Args:
            time: Nanoseconds since the start.
            allocated: Bytes that the program had allocated.
            lost: The number of samples that could not be written.
        """
        self._contents.moments.append(Moment(time, allocated, 0, 0, 0, 0, 0))
        if lost > 0:
            self._contents.settings["missing"] = "%d" % lost

    def finish(self) -> int:
        """Give all remaining rows to the receiver at the end of the log.

        Returns:
            The number of objects whose sample is missing.
        """
        early, self._early = self._early, []
        for key, type_, size in early:
            self.add_object(key, type_, size)
        for sample in self._waiting.values():
            self._row(sample, sample.size, -1)
        self._waiting.clear()
        self._hand_on()
        return len(self._early)

    def _type(self, number: int) -> int:
        """Return the index in Contents.types of a GC type."""
        if number not in self._types:
            known = 0 <= number < len(self._layouts)
            self._types[number] = len(self._contents.types)
            self._contents.types.append(
                Type(layout=self._layouts[number] if known else "", number=number))
        return self._types[number]

    def _row(self, sample: Sample, size: int, type_: int) -> None:
        self._batch.append((sample.time, sample.thread, sample.stack, size,
                            self._interval, 0, type_, UNTOLD, -1, -1, 0))
        if len(self._batch) >= _BATCH:
            self._hand_on()

    def _hand_on(self) -> None:
        if self._batch:
            self._rows.extend(Columns(*map(array.array, _TYPECODES, zip(*self._batch))))
            self._batch.clear()
