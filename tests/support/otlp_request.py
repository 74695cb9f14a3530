"""Decodes an ExportProfilesServiceRequest, and checks rules of its schema."""
from __future__ import annotations

import collections
import dataclasses
from typing import Any

import protobuf_messages
from protobuf_messages import Message


@dataclasses.dataclass
class Sample:
    """A sample with one value."""

    #: function, file and executed line of each frame, outermost first
    stack: tuple[tuple[str, str, int], ...]
    attributes: dict[str, str]
    value: int


@dataclasses.dataclass
class OneType:
    """A profile in a request, which has samples of one type."""

    unit: str
    samples: list[Sample]
    start: int
    duration: int
    period_type: tuple[str, str]
    period: int
    id: bytes
    attributes: dict[str, Any]

    @property
    def sum(self) -> int:
        return sum(sample.value for sample in self.samples)


@dataclasses.dataclass
class Request:
    """The content of a request."""

    resource: dict[str, str | int]
    types: dict[str, OneType]


def read(data: bytes, is_passed_on: bool = False) -> Request:
    """Decode a request.

    If the collector has forwarded the request (`is_passed_on`), empty values have
    another encoding.
    """
    request = protobuf_messages.read("ExportProfilesServiceRequest", data)
    dictionary = _Dictionary(request["dictionary"], is_passed_on)
    resource, = request["resource_profiles"]
    scope, = resource["scope_profiles"]
    assert scope["scope"]["name"]
    types = {}
    for profile in scope["profiles"]:
        name, unit = dictionary.value_type(profile["sample_type"])
        assert name not in types
        assert len(profile["profile_id"]) == 16 and any(profile["profile_id"])
        types[name] = OneType(
            unit, dictionary.samples(profile["samples"]), profile["time_unix_nano"],
            profile["duration_nano"], dictionary.value_type(profile["period_type"]),
            profile["period"], profile["profile_id"],
            dictionary.attributes(profile["attribute_indices"]))
    assert len({one.id for one in types.values()}) == len(types)
    about = {}
    for pair in resource["resource"]["attributes"]:
        # the schema allows a key, or the index of a key, but not both
        assert not (pair["key"] and pair["key_strindex"])
        about[pair["key"] or dictionary.string(pair["key_strindex"])] = _any(
            pair["value"])
    dictionary.check_use()
    return Request(about, types)


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return not value or value in (bytes(8), bytes(16))


class _Dictionary:
    def __init__(self, tables: Message, is_passed_on: bool) -> None:
        self._tables = tables
        self._used: dict[str, set[int]] = collections.defaultdict(set)
        for name, table in tables.items():
            zero = protobuf_messages.read(
                protobuf_messages.SCHEMAS["Dictionary"][
                    list(tables).index(name) + 1][1].rstrip("*"), b"") if (
                        name != "string_table") else ""
            if name == "link_table":
                zero = {"trace_id": bytes(16), "span_id": bytes(8)}
            assert (_is_empty(table[0]) if is_passed_on else table[0] == zero), name
            assert len({repr(one) for one in table}) == len(table), name

    def _get(self, table: str, number: int) -> Any:
        assert 0 <= number < len(self._tables[table]), (table, number)
        self._used[table].add(number)
        return self._tables[table][number]

    def string(self, number: int) -> str:
        found: str = self._get("string_table", number)
        return found

    def value_type(self, type_: Message) -> tuple[str, str]:
        name, unit = (self.string(type_[key])
                      for key in ("type_strindex", "unit_strindex"))
        assert name and unit
        return name, unit

    def attributes(self, numbers: list[int]) -> dict[str, Any]:
        found = {}
        for number in numbers:
            assert number
            pair = self._get("attribute_table", number)
            found[self.string(pair["key_strindex"])] = _any(pair["value"])
        assert len(found) == len(numbers) and "" not in found
        return found

    def samples(self, samples: list[Message]) -> list[Sample]:
        found, known = [], set()
        for sample in samples:
            assert not (sample["link_index"] or sample["timestamps_unix_nano"])
            identity = sample["stack_index"], frozenset(sample["attribute_indices"])
            assert identity not in known
            known.add(identity)
            value, = sample["values"]
            found.append(Sample(self._stack(sample["stack_index"]),
                                self.attributes(sample["attribute_indices"]), value))
        return found

    def _stack(self, number: int) -> tuple[tuple[str, str, int], ...]:
        assert number
        frames = []
        for index in reversed(self._get("stack_table", number)["location_indices"]):
            assert index
            line, = self._get("location_table", index)["lines"]
            assert line["function_index"]
            function = self._get("function_table", line["function_index"])
            name = self.string(function["name_strindex"])
            assert name
            frames.append((name, self.string(function["filename_strindex"]),
                           line["line"]))
        assert frames
        return tuple(frames)

    def check_use(self) -> None:
        """Check that each entry of the dictionary's tables is used.

        The empty first entry of each table is exempt.
        """
        for name, table in self._tables.items():
            assert {*range(1, len(table))} <= self._used[name], name


def _any(value: Message) -> Any:
    if value["array"] is not None:
        return [_any(one) for one in value["array"]["values"]]
    return value["string"] or value["int"]
