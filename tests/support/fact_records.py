"""Reads the sampled objects of a profile for tests of the sampler.

The module follows PROFILE.rst, and shares no code with the converter.
"""
from __future__ import annotations

import collections
import pathlib
from collections.abc import Iterator

from made_profiles import (
    COLLECTIONS,
    DIED,
    ENDED,
    MARKED,
    MARKS,
    NOT_KNOWN,
    OBJECTS,
    PROMOTED,
    TOTALS,
    TYPES,
    YOUNG,
)
from record_rows import records, tables

__all__ = ["DIED", "GCS", "NOT_KNOWN", "PROMOTED", "PYTHON", "YOUNG", "FactRecords"]

#: kinds of names of a type: the GC's name, and Python's
GCS, PYTHON = 1, 2


class FactRecords:
    """The types, outcomes and collections in a profile."""

    def __init__(self, path: pathlib.Path, *, was_killed: bool = False) -> None:
        data = path.read_bytes()
        found = tables(data, was_killed=was_killed)
        #: the last row of totals (kind of record TOTALS)
        self.head = found[TOTALS][-1]
        #: (outcome, type, size) of each object, in a list per sample, by the sample's
        #: key
        self.young: dict[int, list[tuple[int, int, int]]] \
            = collections.defaultdict(list)
        #: size of the shrunk objects after shrinking, by the sample's key and the
        #: object's number in the sample
        self.shrunk: dict[tuple[int, int], int] = {}
        #: numbers of the collections in the rows of objects, in the rows' order
        self.collections: list[int] = []
        for row in found[OBJECTS]:
            key, which, size, type_, outcome, number, live_size = (
                row[0], row[1], row[7], *row[9:])
            assert which == len(self.young[key])
            self.young[key].append((outcome, type_, size))
            if live_size:
                assert outcome in (PROMOTED, YOUNG) and 0 < live_size < size
                self.shrunk[key, which] = live_size
            if number:
                self.collections.append(number)
        ended = found[ENDED]
        self.freed = {row[:2] for row in ended if not row[2]}
        self.lost = {row[:2] for row in ended if row[2]}
        assert len(self.freed) + len(self.lost) == len({row[:2] for row in ended}) == (
            len(ended))
        #: (the GC's number of the type, name) by type and kind of name
        self.types: dict[int, dict[int, tuple[int, str]]] \
            = collections.defaultdict(dict)
        #: (time, name) of each mark that the program set
        self.marks: list[tuple[int, str]] = []
        for record in records(data, was_killed=was_killed):
            for row, text in zip(record.rows, record.texts):
                if record.kind == TYPES:
                    number, kind, gcs, _ = row
                    assert kind not in self.types[number]
                    self.types[number][kind] = gcs, text.decode()
                elif record.kind == MARKS:
                    self.marks.append((row[0], text.decode()))
        #: bytes that were allocated before each minor collection
        self.minors = [row[3] for row in found[COLLECTIONS]]
        self.majors = [row[1] for row in found[MARKED]]
        self._check(found[OBJECTS])

    def _check(self, objects: list[tuple[int, ...]]) -> None:
        """Check that only promoted objects are freed or lost, and types have names."""
        for key, which in self.freed | self.lost:
            assert self.young[key][which][0] == PROMOTED
        for row in objects:
            assert row[9] == 0 or row[9] in self.types

    def objects(self) -> Iterator[tuple[int, int, tuple[int, int, int]]]:
        """Yield each object: key of its sample, number there, (outcome, type, size)."""
        for key, objects in self.young.items():
            for which, object_ in enumerate(objects):
                yield key, which, object_

    def alive(self) -> set[tuple[int, int]]:
        """Return the promoted objects that were neither freed nor lost."""
        return {(key, which) for key, which, (outcome, _, _) in self.objects()
                if outcome == PROMOTED} - self.freed - self.lost

    def type_name(self, number: int) -> str:
        """Return the GC's name of a type without its fields, or "" for type 0."""
        return self.types[number][GCS][1].partition(" {")[0] if number else ""

    def class_name(self, number: int) -> str:
        """Return Python's name of a type, or "" if the type has none."""
        return self.types[number][PYTHON][1] \
            if number and PYTHON in self.types[number] else ""
