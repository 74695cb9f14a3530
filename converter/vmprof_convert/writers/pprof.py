"""The writer of files for `go tool pprof`, with the sample types of Go's heap profiles.

The layout is proto/profile.proto of google/pprof.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from vmprof_convert.analysis import by_stack
from vmprof_convert.analysis.by_stack import Place, Places, tick_seconds, values, whole
from vmprof_convert.analysis.holder_tree import Tree
from vmprof_convert.meaning.visible_stacks import CUT
from vmprof_convert.profile.identity import program
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.stacks import Frame
from vmprof_convert.report import caveats
from vmprof_convert.text.escape import printable, shortened
from vmprof_convert.writers.pprof_values import (
    HeldBytes,
    Labels,
    SampleType,
    SampleTypes,
)
from vmprof_convert.writers.protobuf import (
    bytes_field,
    number_field,
    text_field,
    varint,
)

#: fields of the message Profile
_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = range(1, 7)
_TIME, _DURATION, _PERIOD_TYPE, _PERIOD, _COMMENT, _DEFAULT = 9, 10, 11, 12, 13, 14


def write(profile: Profile, out: BinaryIO, *, labels: bool = True) -> list[str]:
    """Write a profile, uncompressed.

    Args:
        profile: The profile.
        out: The file.
        labels: Whether to distinguish threads, types and labels of the samples.

    Returns:
        A line that lists the omitted data, if there are any.

    Raises:
        ProfileError: The profile has no samples.
    """
    by_stack.check_samples(profile)
    file = _File(profile, SampleTypes(profile))
    file.add(profile, labels=labels)
    file.write(out)
    return by_stack.left_out(profile)


def write_diff(before: Profile, after: Profile, out: BinaryIO) -> list[str]:
    """Write the difference of two profiles, as `pprof -diff_base` computes it.

    The samples of the first profile are negative and have a label, so that pprof shows
    shares of the first profile.

    Returns:
        A line that lists the omitted data, if there are any.
    """
    file = _File(after, SampleTypes(before, after))
    file.add(after)
    file.add(before, -1, {"pprof::base": "true"})
    file.write(out)
    return by_stack.left_out(after)


def write_held(tree: Tree, out: BinaryIO) -> list[str]:
    """Write the live bytes below their retainers, uncompressed.

    Returns:
        Notes on omitted data.
    """
    file = _File(tree.profile, HeldBytes())
    for stack in tree.stacks:
        file.add_places(stack.places, stack.bytes)
    file.write(out)
    return tree.left_out


class _File:
    """The content of a file: a message Profile of profile.proto."""

    def __init__(self, profile: Profile, sample_types: SampleTypes) -> None:
        """Create a file without samples; `profile` describes the run."""
        self._sample_types = sample_types
        self._profile = profile
        self._strings = {"": 0}
        self._functions: dict[Place, int] = {}
        self._locations: dict[tuple[Place, int], bytes] = {}
        #: encoded locations and functions in the order of their creation
        self._tables = bytearray()
        #: encoded locations and labels of each sample; and for each sample type, the
        #: numbers of all samples before rounding
        self._samples: list[tuple[bytes, bytes]] = []
        self._columns: list[list[float]] = [[] for _ in self._sample_types.types]

    def add(self, profile: Profile, sign: int = 1,
            more: dict[str, str] | None = None, *, labels: bool = True) -> None:
        """Add the samples of a profile.

        Args:
            profile: The profile.
            sign: 1, or -1 to subtract the samples.
            more: Labels that are added to each of the samples.
            labels: Whether to distinguish threads, types and labels of the samples.
        """
        places, of_samples = Places(profile), Labels(profile)
        of_frames = _Locations(self, places)
        period = 1e9 * tick_seconds(profile)
        stacks: dict[int, bytes] = {}
        known: dict[tuple[int, int, int], bytes] = {}
        for part, value in values(profile, types=labels and profile.has_types,
                                  threads=labels).items():
            locations = stacks.get(part.stack)
            if locations is None:
                # innermost frame first
                locations = b"".join(
                    of_frames[frame] for frame in reversed(places.frames(part.stack)))
                if places.is_cut(part.stack):
                    locations += self.location(Place(CUT), 0)
                stacks[part.stack] = locations = bytes_field(1, locations)
            key = part.type, part.thread, of_samples.set_of(part.stack) if labels else 0
            label = known.get(key)
            if label is None:
                label = known[key] = b"".join(
                    bytes_field(3, number_field(1, self._string(key))
                                + number_field(2, self._string(text)))
                    for key, text in sorted(
                        {**(more or {}), **(of_samples.of(part) if labels else {})
                         }.items()))
            self._samples.append((locations, label))
            for column, number in zip(self._columns, self._sample_types.numbers(
                    value, period)):
                column.append(sign * number)

    def add_places(self, places: Sequence[Place], *numbers: float) -> None:
        """Add a stack, outermost frame first, with a number for each sample type."""
        self._samples.append((bytes_field(1, b"".join(
            self.location(place, place.line) for place in reversed(places))), b""))
        for column, number in zip(self._columns, numbers):
            column.append(number)

    def location(self, place: Place, line: int) -> bytes:
        """Return the encoded number of a location; `line` is 0 or less if unknown."""
        key = place, line
        found = self._locations.get(key)
        if found is None:
            number = len(self._locations) + 1
            found = self._locations[key] = varint(number)
            self._tables += bytes_field(
                _LOCATION, number_field(1, number) + number_field(2, 1) + bytes_field(
                    4, number_field(1, self._function(place))
                    + number_field(2, max(line, 0))))
        return found

    def _function(self, place: Place) -> int:
        found = self._functions.get(place)
        if found is None:
            found = self._functions[place] = len(self._functions) + 1
            # The field system_name stays empty. If it was equal to the name, pprof
            # would demangle the name as C++ and drop a part.
            name = self._string(_name(place) or "?")
            self._tables += bytes_field(
                _FUNCTION, number_field(1, found) + number_field(2, name)
                + number_field(4, self._string(place.file))
                + number_field(5, place.line))
        return found

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def write(self, out: BinaryIO) -> None:
        """Write the message."""
        profile = self._profile
        types = self._sample_types.types
        head = b"".join(bytes_field(_SAMPLE_TYPE, self._value_type(type_))
                        for type_ in types)
        # the file contains names, files and lines, so pprof need not search them
        head += bytes_field(_MAPPING, number_field(1, 1) + number_field(5, self._string(
            program(profile) or profile.interpreter))
            + b"".join(number_field(field, 1) for field in (7, 8, 9, 10)))
        if profile.start_time:
            head += number_field(_TIME, round(profile.start_time * 1e9))
        head += number_field(_DURATION, profile.end)
        period_type, period = self._sample_types.period(profile)
        head += bytes_field(_PERIOD_TYPE, self._value_type(period_type))
        head += number_field(_PERIOD, period)
        head += number_field(_DEFAULT, self._string(
            types[1 if self._sample_types.has_allocations else -1].name))
        for line in [shortened(profile.command, 1000), *caveats.of_run(profile),
                     *self._sample_types.comments]:
            if line:
                head += number_field(_COMMENT, self._string(printable(line)))
        out.write(head)
        numbers = zip(*map(whole, self._columns))
        for (locations, label), row in zip(self._samples, numbers):
            if any(row):
                out.write(bytes_field(_SAMPLE, locations + bytes_field(
                    2, b"".join(map(varint, row))) + label))
        out.write(self._tables)
        for text in self._strings:
            out.write(text_field(_STRING, text))

    def _value_type(self, type_: SampleType) -> bytes:
        return number_field(1, self._string(type_.name)) + number_field(
            2, self._string(type_.unit))


def _name(place: Place) -> str:
    """Return the displayed name of a function, such as "main (app:12)".

    pprof merges functions with equal names. pprof shows only the part of a name after
    the last dot, so slashes replace the dots of the path.
    """
    path = place.path.removesuffix(".py").replace(".", "/")
    return place._replace(path=path).text


class _Locations(dict[Frame, bytes]):
    """A cache of the encoded number of each frame's location."""

    def __init__(self, file: _File, places: Places) -> None:
        super().__init__()
        self._file = file
        self._places = places

    def __missing__(self, frame: Frame) -> bytes:
        place = self._places.place(frame)
        found = self[frame] = self._file.location(
            place, self._places.line(frame) or place.line)
        return found
