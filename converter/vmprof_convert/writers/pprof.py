"""A file for pprof, with the sample types of Go's heap profiles: `go tool pprof`.

Its layout is proto/profile.proto of google/pprof: a message is a sequence of fields,
each with its number and kind, which is a number (a varint) or bytes.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from vmprof_convert import remarks, stack_values
from vmprof_convert.model import Frame, Profile
from vmprof_convert.printable import printable, shortened
from vmprof_convert.program import CUT
from vmprof_convert.stack_values import (
    Place,
    Places,
    Value,
    tick_seconds,
    values,
    whole,
)
from vmprof_convert.type_names import TypeNames

#: fields of Profile
_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = range(1, 7)
_TIME, _DURATION, _PERIOD_TYPE, _PERIOD, _COMMENT, _DEFAULT = 9, 10, 11, 12, 13, 14

ALLOCATIONS = (("alloc_objects", "count"), ("alloc_space", "bytes"))
IN_USE = (("inuse_objects", "count"), ("inuse_space", "bytes"))
TICKS = (("samples", "count"),)
CPU = (("cpu", "nanoseconds"),)


def write(profile: Profile, out: BinaryIO) -> list[str]:
    """Not compressed.  Returns what is left out.  Raises ProfileError."""
    stack_values.check_samples(profile)
    file = _File(profile)
    file.add(profile)
    file.write(out)
    return stack_values.left_out(profile)


def write_diff(before: Profile, after: Profile, out: BinaryIO) -> list[str]:
    """As `pprof -diff_base` makes it: less what there was before, which is labelled
    so that shares are of that.  Returns what is left out."""
    file = _File(before, after)
    file.add(after)
    file.add(before, -1, {"pprof::base": "true"})
    file.write(out)
    return stack_values.left_out(after)


class _File:
    def __init__(self, *profiles: Profile) -> None:
        """Only of what all of them have; the last one tells of the run."""
        sizes = {size for profile in profiles for size in set(profile.samples.size)}
        self._has_allocations = any(sizes)
        self._has_lifetimes = self._has_allocations and all(
            profile.has_lifetimes for profile in profiles)
        self._has_time = 0 in sizes
        # of a time that isn't known there is no sum
        self._has_seconds = self._has_time and all(
            tick_seconds(profile) > 0 for profile in profiles)
        self._profile = profiles[-1]
        self._strings = {"": 0}
        self._functions: dict[Place, int] = {}
        self._locations: dict[tuple[Place, int], bytes] = {}
        #: all fields of these kinds, in order
        self._tables = bytearray()
        #: locations and labels of each sample, and what is to be rounded
        self._samples: list[tuple[bytes, bytes]] = []
        self._columns: list[list[float]] = [[] for _ in self._types()]

    def _types(self) -> list[tuple[str, str]]:
        return [*ALLOCATIONS * self._has_allocations, *IN_USE * self._has_lifetimes,
                *TICKS * self._has_time, *CPU * self._has_seconds]

    def add(self, profile: Profile, sign: int = 1,
            more: dict[str, str] | None = None) -> None:
        """`more`: labels of all samples."""
        places, type_names = Places(profile), TypeNames(profile)
        of_frames = _Locations(self, places)
        of_thread = stack_values.processes(profile)
        period = 1e9 * tick_seconds(profile)
        stacks: dict[int, bytes] = {}
        known: dict[tuple[int, int, int], bytes] = {}
        of_stack = profile.stack_labels if len(profile.labels) > 1 else None
        for part, value in values(profile, types=profile.has_types,
                                  threads=True).items():
            locations = stacks.get(part.stack)
            if locations is None:
                # the innermost first
                locations = b"".join(
                    of_frames[frame] for frame in reversed(places.frames(part.stack)))
                if places.is_cut(part.stack):
                    locations += self.location(Place(CUT), 0)
                stacks[part.stack] = locations = _bytes(1, locations)
            set_ = of_stack[part.stack] if of_stack and part.stack >= 0 else 0
            label = known.get((part.type, part.thread, set_))
            if label is None:
                thread = stack_values.thread_name(profile, part.thread)
                labels = {**{shortened(key): shortened(text) for key, text
                             in profile.labels[set_].items()}, **(more or {}),
                          **({"thread": thread} if thread else {})}
                if part.thread in of_thread:
                    labels["process"] = of_thread[part.thread]
                if profile.has_types and part.type != stack_values.NONE:
                    labels["type"] = type_names.shown(part.type).name
                label = known[part.type, part.thread, set_] = b"".join(
                    _bytes(3, _number(1, self._string(key))
                           + _number(2, self._string(text)))
                    for key, text in sorted(labels.items()))
            self._samples.append((locations, label))
            for column, number in zip(self._columns, self._numbers(value, period)):
                column.append(sign * number)

    def _numbers(self, value: Value, period: float) -> Iterable[float]:
        if self._has_allocations:
            yield from (value.objects, value.bytes)
        if self._has_lifetimes:
            yield from (value.alive_objects, value.alive_bytes)
        if self._has_time:
            yield value.ticks
        if self._has_seconds:
            yield value.ticks * period

    def location(self, place: Place, line: int) -> bytes:
        """Its number; `line`: the executed one, 0: not known."""
        key = place, line
        found = self._locations.get(key)
        if found is None:
            number = len(self._locations) + 1
            found = self._locations[key] = _varint(number)
            self._tables += _bytes(
                _LOCATION, _number(1, number) + _number(2, 1) + _bytes(
                    4, _number(1, self._function(place))
                    + _number(2, line or place.line)))
        return found

    def _function(self, place: Place) -> int:
        found = self._functions.get(place)
        if found is None:
            found = self._functions[place] = len(self._functions) + 1
            # A name that is the system's, too, it takes for mangled C++, of which it
            # drops a part
            name = self._string(_name(place) or "?")
            self._tables += _bytes(
                _FUNCTION, _number(1, found) + _number(2, name)
                + _number(4, self._string(place.file)) + _number(5, place.line))
        return found

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def write(self, out: BinaryIO) -> None:
        profile = self._profile
        types = self._types()
        head = b"".join(_bytes(_SAMPLE_TYPE, self._value_type(*type_))
                        for type_ in types)
        # there are names, files and lines: pprof need not look for them
        head += _bytes(_MAPPING, _number(1, 1) + _number(5, self._string(
            shortened(profile.command.partition(" ")[0]) or profile.interpreter))
            + b"".join(_number(field, 1) for field in (7, 8, 9, 10)))
        if profile.start_time:
            head += _number(_TIME, round(profile.start_time * 1e9))
        head += _number(_DURATION, profile.end)
        head += _bytes(_PERIOD_TYPE, self._value_type(
            *("space", "bytes") if self._has_allocations else CPU[0]))
        head += _number(_PERIOD, profile.interval if self._has_allocations
                        else round(1e9 * tick_seconds(profile)))
        head += _number(_DEFAULT, self._string(
            types[1 if self._has_allocations else -1][0]))
        for line in [shortened(profile.command, 1000), *remarks.of_run(profile)]:
            if line:
                head += _number(_COMMENT, self._string(printable(line)))
        out.write(head)
        numbers = zip(*map(whole, self._columns))
        for (locations, label), row in zip(self._samples, numbers):
            if any(row):
                out.write(_bytes(_SAMPLE, locations + _bytes(
                    2, b"".join(map(_varint, row))) + label))
        out.write(self._tables)
        for text in self._strings:
            out.write(_bytes(_STRING, text.encode("utf-8")))

    def _value_type(self, type_: str, unit: str) -> bytes:
        return _number(1, self._string(type_)) + _number(2, self._string(unit))


def _name(place: Place) -> str:
    """main (app:12): pprof takes functions of one name for one function, and shows of
    a name what is behind its last dot."""
    path = place.path.removesuffix(".py").replace(".", "/")
    return place._replace(path=path).text


class _Locations(dict[Frame, bytes]):
    """The number of the location of each frame."""

    def __init__(self, file: _File, places: Places) -> None:
        super().__init__()
        self._file = file
        self._places = places

    def __missing__(self, frame: Frame) -> bytes:
        found = self[frame] = self._file.location(
            self._places.place(frame), frame.line)
        return found


def _varint(number: int) -> bytes:
    """Seven bits each, the lowest first; a negative one has 64 bits."""
    if 0 <= number < 128:
        return bytes((number,))
    number %= 2**64
    result = bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    result.append(number)
    return bytes(result)


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data
