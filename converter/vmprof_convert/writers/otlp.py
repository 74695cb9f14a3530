"""The writer of OTLP profiles for the OpenTelemetry collector.

The file is an ExportProfilesServiceRequest of opentelemetry-proto's profiles
v1development, in the layout of proto 1.11, which the collector v0.160 reads. Each
sample type is a separate profile in the request. All profiles share one dictionary. The
first element of each table of the dictionary is empty, because index 0 represents an
absent value. vmprof_push also calls write().
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO, Union

from vmprof_convert.analysis import by_stack
from vmprof_convert.analysis.by_stack import Place, Places, tick_seconds, values, whole
from vmprof_convert.analysis.holder_tree import Tree
from vmprof_convert.profile.identity import identity, program_name
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.stacks import Frame
from vmprof_convert.report import caveats
from vmprof_convert.text.escape import printable
from vmprof_convert.writers.pprof_values import (
    IN_USE,
    HeldBytes,
    Labels,
    SampleType,
    SampleTypes,
)
from vmprof_convert.writers.protobuf import (
    bytes_field,
    fixed_field,
    number_field,
    packed_field,
    text_field,
)

#: attributes of a resource, which is the origin of the samples, or of a profile
Attributes = Mapping[str, Union[str, int]]

#: fields of ProfilesDictionary
_MAPPINGS, _LOCATIONS, _FUNCTIONS, _LINKS, _STRINGS, _ATTRIBUTES, _STACKS = range(1, 8)
#: fields of Profile
(_SAMPLE_TYPE, _SAMPLES, _TIME, _DURATION, _PERIOD_TYPE, _PERIOD,
 _PROFILE_ID) = range(1, 8)
_PROFILE_ATTRIBUTES = 11

#: OpenTelemetry's names for some of our labels
_KEYS = {"thread": "thread.name"}
_COMMENT = "pprof.profile.comment"
_SCOPE = "vmprof-convert"


def write(profile: Profile, out: BinaryIO,
          resource: Attributes | None = None,
          attributes: Attributes | None = None) -> list[str]:
    """Write a profile, uncompressed.

    A profile that is written twice has the same IDs, so that a receiver recognizes it.

    Args:
        profile: The profile.
        out: The file.
        resource: The attributes of the process, by default its name, number and
            runtime.
        attributes: The attributes of the profile.

    Returns:
        A line that lists the omitted data, if there are any.

    Raises:
        ProfileError: The profile has no samples.
    """
    by_stack.check_samples(profile)
    if resource is None:
        resource = _resource(profile)
    request = _Request(profile, SampleTypes(profile), attributes or {})
    request.add_samples()
    out.write(request.message(resource))
    return by_stack.left_out(profile)


def write_held(tree: Tree, out: BinaryIO) -> list[str]:
    """Write the live bytes below their retainers, uncompressed.

    Returns:
        Notes on omitted data.
    """
    request = _Request(tree.profile, HeldBytes(), {})
    for stack in tree.stacks:
        request.add_places(stack.places, stack.bytes)
    out.write(request.message(_resource(tree.profile)))
    return tree.left_out


def _resource(profile: Profile) -> Attributes:
    found: dict[str, str | int] = {
        "service.name": program_name(profile) or "unknown_service",
        "process.runtime.name": profile.interpreter}
    if profile.pid:
        found["process.pid"] = profile.pid
    return found


class _Table:
    """A table of the dictionary with distinct elements."""

    def __init__(self, field: int, zero: bytes = b"") -> None:
        self._field = field
        self._numbers = {zero: 0}

    def number(self, element: bytes) -> int:
        """Return the index of an element; add it if needed."""
        return self._numbers.setdefault(element, len(self._numbers))

    def message(self) -> bytes:
        """Return the elements, encoded as a field of ProfilesDictionary."""
        return b"".join(bytes_field(self._field, element) for element in self._numbers)


class _Dictionary:
    """The dictionary that all profiles of a request share."""

    def __init__(self) -> None:
        self._strings = _Table(_STRINGS)
        self._functions = _Table(_FUNCTIONS)
        self._locations = _Table(_LOCATIONS)
        self._stacks = _Table(_STACKS)
        self._attributes = _Table(_ATTRIBUTES)

    def string(self, text: str) -> int:
        """Return the index of a text."""
        return self._strings.number(text.encode("utf-8"))

    def location(self, place: Place, line: int) -> int:
        """Return the index of a location.  A line of 0 or less is unknown."""
        function = self._functions.number(
            _set(1, self.string(place.text or "?")) + _set(3, self.string(place.file))
            + _set(4, place.line))
        return self._locations.number(bytes_field(
            3, _set(1, function) + _set(2, max(line, 0))))

    def stack(self, locations: Iterable[int]) -> int:
        """Return the index of a stack; `locations` begin with the innermost frame."""
        return self._stacks.number(packed_field(1, locations))

    def attribute(self, key: str, value: bytes) -> int:
        """Return the index of an attribute with an encoded AnyValue."""
        return self._attributes.number(
            _set(1, self.string(key)) + bytes_field(2, value))

    def key_value(self, key: str, value: str | int) -> bytes:
        """Return a KeyValue whose key is one of the dictionary's strings.

        The collector v0.160 overwrites other keys.
        """
        return bytes_field(2, _any(value)) + number_field(3, self.string(key))

    def message(self) -> bytes:
        """Return the dictionary as a message."""
        return b"".join((
            bytes_field(_MAPPINGS, b""), self._locations.message(),
            self._functions.message(),
            # strict readers require the sizes of real trace and span IDs
            bytes_field(_LINKS, bytes_field(1, bytes(16)) + bytes_field(2, bytes(8))),
            self._strings.message(), self._attributes.message(),
            self._stacks.message()))


class _Locations(dict[Frame, int]):
    """A cache of the index of each frame's location."""

    def __init__(self, dictionary: _Dictionary, places: Places) -> None:
        super().__init__()
        self._dictionary = dictionary
        self._places = places

    def __missing__(self, frame: Frame) -> int:
        place = self._places.place(frame)
        found = self[frame] = self._dictionary.location(
            place, self._places.line(frame) or place.line)
        return found


class _Request:
    """A request with one profile for each sample type."""

    def __init__(self, profile: Profile, types: SampleTypes, attributes: Attributes
                 ) -> None:
        """Create a request without samples.

        Args:
            profile: The profile that describes the run.
            types: The sample types.
            attributes: The attributes of the profile.
        """
        self._profile = profile
        self._attributes = attributes
        self._types = types
        self._dictionary = _Dictionary()
        #: The numbers of samples, one for each sample type. The keys are the index of a
        #: stack and the indices of attributes.
        self._samples: dict[tuple[int, tuple[int, ...]], list[float]] = {}

    def add_samples(self) -> None:
        """Add the samples of the profile."""
        profile = self._profile
        places, labels = Places(profile), Labels(profile)
        period = 1e9 * tick_seconds(profile)
        locations = _Locations(self._dictionary, places)
        stacks: dict[int, int] = {}
        for part, value in values(profile, types=profile.has_types,
                                  threads=True).items():
            stack = stacks.get(part.stack)
            if stack is None:
                stack = stacks[part.stack] = self._stack(
                    places, part.stack, locations)
            attributes = tuple(
                self._dictionary.attribute(_KEYS.get(key, key), _any(text))
                for key, text in sorted(labels.of(part).items()))
            # two types with the same displayed name are added up
            self._add(stack, attributes, self._types.numbers(value, period))

    def add_places(self, places: Sequence[Place], *numbers: float) -> None:
        """Add a stack, outermost frame first, with a number for each sample type."""
        self._add(self._dictionary.stack(
            self._dictionary.location(place, place.line)
            for place in reversed(places)), (),
            numbers)

    def _add(self, stack: int, attributes: tuple[int, ...], numbers: Iterable[float]
             ) -> None:
        found = self._samples.get((stack, attributes))
        self._samples[stack, attributes] = list(numbers) if found is None else [
            sum(pair) for pair in zip(found, numbers)]

    def _stack(self, places: Places, stack: int, of_frames: _Locations) -> int:
        locations = [of_frames[frame] for frame in reversed(places.frames(stack))]
        if places.is_cut(stack):
            locations.append(self._dictionary.location(places.of(stack)[0], 0))
        return self._dictionary.stack(locations)

    def message(self, resource: Attributes) -> bytes:
        """Return the request as a message, with the attributes of the resource."""
        profiles = b"".join(
            bytes_field(2, self._one(type_, whole(column)))
            for type_, column in zip(self._types.types, zip(*self._samples.values())))
        scope = bytes_field(1, text_field(1, _SCOPE)) + profiles
        about = b"".join(bytes_field(1, self._dictionary.key_value(*pair))
                         for pair in sorted(resource.items()))
        return bytes_field(1, bytes_field(1, about) + bytes_field(2, scope)) + (
            bytes_field(2, self._dictionary.message()))

    def _one(self, type_: SampleType, column: list[int]) -> bytes:
        profile = self._profile
        period_type, period = self._types.period(profile, type_)
        attributes = [self._dictionary.attribute(key, _any(value))
                      for key, value in sorted(self._attributes.items())]
        comments = [bytes_field(1, _any(printable(line)))
                    for line in (*caveats.of_run(profile),
                                 *(self._types.comments if type_ in IN_USE else ()))
                    if line]
        if comments:
            attributes.append(self._dictionary.attribute(
                _COMMENT, bytes_field(5, b"".join(comments))))
        return b"".join((
            bytes_field(_SAMPLE_TYPE, self._value_type(type_)),
            *(bytes_field(_SAMPLES, _set(1, stack) + packed_field(2, attributes)
                          + packed_field(4, (number,)))
              for (stack, attributes), number in zip(self._samples, column) if number),
            fixed_field(_TIME, 1000 * round(profile.start_time * 1e6)),
            number_field(_DURATION, profile.end),
            bytes_field(_PERIOD_TYPE, self._value_type(period_type)),
            number_field(_PERIOD, period),
            bytes_field(_PROFILE_ID, identity(profile, type_.name)),
            packed_field(_PROFILE_ATTRIBUTES, attributes)))

    def _value_type(self, type_: SampleType) -> bytes:
        return _set(1, self._dictionary.string(type_.name)) + _set(
            2, self._dictionary.string(type_.unit))


def _set(field: int, number: int) -> bytes:
    """Return a field, or nothing if the number is 0, which is the default value."""
    return number_field(field, number) if number else b""


def _any(value: str | int) -> bytes:
    """Return a text or an integer encoded as an AnyValue."""
    return text_field(1, value) if isinstance(value, str) else number_field(3, value)
