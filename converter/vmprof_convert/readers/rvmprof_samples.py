"""Allocation samples as rvmprof alone writes them, into vmprof's own buffers.

Such a profile says of each sample when and where memory was reserved, and later, of
which type the objects are that hold the sampled bytes; not what becomes of them.
PROFILE.rst has the layout.
"""
from __future__ import annotations

import array
import re
from typing import NamedTuple

from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import UNTOLD, Columns, Moment, Rows, Type
from vmprof_convert.readers.contents import Contents

#: keys of the meta data that says so
SETTINGS, TYPES = "allocations", "allocation types"
#: words of a stack that filled a record: see contents.FULL_RECORD
FULL_STACK = 1016
#: samples that may still be told of.  Their objects come in the order of their keys,
#: but two buffers of vmprof's may be written in the other order
_KEPT = 1 << 15
#: rows that are handed on together; and the columns of Samples
_BATCH, _TYPECODES = 4096, "qqiqqqibqqq"


class Sample(NamedTuple):
    size: int
    time: int
    thread: int
    stack: int


class GcSamples:
    """Hands the rows of one log to who wants them."""

    def __init__(self, contents: Contents, rows: Rows) -> None:
        self._contents = contents
        self._rows = rows
        self._interval = 0
        #: of the GC's types, by their numbers; and indices in Contents.types
        self._layouts: list[str] = []
        self._types: dict[int, int] = {}
        #: by key, of which no object was told, and of which some were
        self._waiting: dict[int, Sample] = {}
        self._told: dict[int, Sample] = {}
        #: objects that came before their samples: key, type and bytes
        self._early: list[tuple[int, int, int]] = []
        #: columns of model.Row, of rows that were not handed on yet
        self._batch: list[tuple[int, ...]] = []
        #: nanoseconds from the beginning to the last sample; -1: there is none
        self.time = -1

    def read_meta(self, key: str, value: str) -> None:
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
            # "member12   GcStruct ...": the number is that of the line
            self._layouts = [line.partition(" ")[2].strip()
                             for line in value.splitlines()]

    def add_sample(self, key: int, sample: Sample) -> None:
        self.time = max(self.time, sample.time)
        if sample.stack < 0:
            self._contents.lost_stacks += 1
        self._waiting[key] = sample
        if len(self._told) > _KEPT:
            for old in list(self._told)[:_KEPT // 2]:
                del self._told[old]

    def add_object(self, key: int, type_: int, size: int) -> None:
        sample = self._waiting.pop(key, None) or self._told.get(key)
        if sample is None:
            self._early.append((key, type_, size))
            return
        self._told[key] = sample
        self._row(sample, size or sample.size, self._type(type_))

    def add_total(self, time: int, allocated: int, lost: int) -> None:
        self._contents.moments.append(Moment(time, allocated, 0, 0, 0, 0, 0))
        if lost > 0:
            self._contents.settings["missing"] = "%d" % lost

    def finish(self) -> int:
        """Nothing follows.  Returns how many objects fit no sample."""
        early, self._early = self._early, []
        for key, type_, size in early:
            self.add_object(key, type_, size)
        for sample in self._waiting.values():
            self._row(sample, sample.size, -1)
        self._waiting.clear()
        self._hand_on()
        return len(self._early)

    def _type(self, number: int) -> int:
        """Its index in Contents.types."""
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
