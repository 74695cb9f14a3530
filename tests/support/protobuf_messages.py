"""Decodes messages of Protocol Buffers by their published schemas.

This module is independent of the writers' code. A field without a schema is an error.
"""
from __future__ import annotations

from typing import Any

Message = dict[str, Any]

#: name and kind of each field of a message. A kind is int, fixed (64 bits), text,
#: bytes, or another message. A * marks a repeated field
SCHEMAS: dict[str, dict[int, tuple[str, str]]] = {
    # opentelemetry-proto 1.11: collector/profiles/v1development
    "ExportProfilesServiceRequest": {
        1: ("resource_profiles", "ResourceProfiles*"), 2: ("dictionary", "Dictionary")},
    "ExportProfilesServiceResponse": {1: ("partial_success", "PartialSuccess")},
    "PartialSuccess": {1: ("rejected_profiles", "int"), 2: ("error_message", "text")},
    "ResourceProfiles": {
        1: ("resource", "Resource"), 2: ("scope_profiles", "ScopeProfiles*"),
        3: ("schema_url", "text")},
    "Resource": {1: ("attributes", "KeyValue*")},
    "ScopeProfiles": {
        1: ("scope", "Scope"), 2: ("profiles", "Profile*"), 3: ("schema_url", "text")},
    "Scope": {1: ("name", "text"), 2: ("version", "text")},
    "Profile": {
        1: ("sample_type", "ValueType"), 2: ("samples", "Sample*"),
        3: ("time_unix_nano", "fixed"), 4: ("duration_nano", "int"),
        5: ("period_type", "ValueType"), 6: ("period", "int"),
        7: ("profile_id", "bytes"), 11: ("attribute_indices", "int*")},
    "Dictionary": {
        1: ("mapping_table", "Mapping*"), 2: ("location_table", "Location*"),
        3: ("function_table", "Function*"), 4: ("link_table", "Link*"),
        5: ("string_table", "text*"), 6: ("attribute_table", "KeyValueAndUnit*"),
        7: ("stack_table", "Stack*")},
    "Mapping": {},
    "Link": {1: ("trace_id", "bytes"), 2: ("span_id", "bytes")},
    "ValueType": {1: ("type_strindex", "int"), 2: ("unit_strindex", "int")},
    "Sample": {
        1: ("stack_index", "int"), 2: ("attribute_indices", "int*"),
        3: ("link_index", "int"), 4: ("values", "int*"),
        5: ("timestamps_unix_nano", "fixed*")},
    "Stack": {1: ("location_indices", "int*")},
    "Location": {
        1: ("mapping_index", "int"), 2: ("address", "int"), 3: ("lines", "Line*"),
        4: ("attribute_indices", "int*")},
    "Line": {1: ("function_index", "int"), 2: ("line", "int"), 3: ("column", "int")},
    "Function": {
        1: ("name_strindex", "int"), 2: ("system_name_strindex", "int"),
        3: ("filename_strindex", "int"), 4: ("start_line", "int")},
    "KeyValueAndUnit": {
        1: ("key_strindex", "int"), 2: ("value", "AnyValue"),
        3: ("unit_strindex", "int")},
    "KeyValue": {
        1: ("key", "text"), 2: ("value", "AnyValue"), 3: ("key_strindex", "int")},
    "AnyValue": {1: ("string", "text"), 3: ("int", "int"), 5: ("array", "ArrayValue")},
    "ArrayValue": {1: ("values", "AnyValue*")},
    # grafana/pyroscope's api: push/v1
    "PushRequest": {1: ("series", "RawProfileSeries*")},
    "RawProfileSeries": {1: ("labels", "LabelPair*"), 2: ("samples", "RawSample*")},
    "LabelPair": {1: ("name", "text"), 2: ("value", "text")},
    "RawSample": {1: ("raw_profile", "bytes"), 2: ("id", "text")},
    # google/pprof's proto/profile.proto
    "Pprof": {
        1: ("sample_type", "PprofType*"), 2: ("sample", "PprofSample*"),
        3: ("mapping", "PprofMapping*"), 4: ("location", "PprofLocation*"),
        5: ("function", "PprofFunction*"), 6: ("string_table", "text*"),
        9: ("time_nanos", "int"), 10: ("duration_nanos", "int"),
        11: ("period_type", "PprofType"), 12: ("period", "int"),
        13: ("comment", "int*"), 14: ("default_sample_type", "int")},
    "PprofType": {1: ("type", "int"), 2: ("unit", "int")},
    "PprofSample": {
        1: ("location_id", "int*"), 2: ("value", "int*"), 3: ("label", "PprofLabel*")},
    "PprofLabel": {1: ("key", "int"), 2: ("str", "int")},
    "PprofMapping": {
        1: ("id", "int"), 5: ("filename", "int"), 7: ("has_functions", "int"),
        8: ("has_filenames", "int"), 9: ("has_line_numbers", "int"),
        10: ("has_inline_frames", "int")},
    "PprofLocation": {
        1: ("id", "int"), 2: ("mapping_id", "int"), 4: ("line", "PprofLine*")},
    "PprofLine": {1: ("function_id", "int"), 2: ("line", "int")},
    "PprofFunction": {
        1: ("id", "int"), 2: ("name", "int"), 4: ("filename", "int"),
        5: ("start_line", "int")},
}

_ZERO = {"int": 0, "fixed": 0, "text": "", "bytes": b""}


def read(kind: str, data: bytes) -> Message:
    """Return all fields of a message; a missing field is 0, empty, or None."""
    schema = SCHEMAS[kind]
    found: Message = {name: [] if type_.endswith("*") else _ZERO.get(type_)
                      for name, type_ in schema.values()}
    position = 0
    while position < len(data):
        head, position = _varint(data, position)
        assert head >> 3 in schema, "%s has no field %d" % (kind, head >> 3)
        name, type_ = schema[head >> 3]
        values, position = _values(type_.rstrip("*"), head & 7, data, position)
        if type_.endswith("*"):
            found[name] += values
        else:
            found[name], = values
    return found


def _values(type_: str, wire: int, data: bytes,
            position: int) -> tuple[list[Any], int]:
    if wire == 0:
        assert type_ == "int"
        number, position = _varint(data, position)
        return [_signed(number)], position
    if wire == 1:
        assert type_ == "fixed"
        return [int.from_bytes(data[position:position + 8], "little")], position + 8
    assert wire == 2
    length, position = _varint(data, position)
    end = position + length
    assert end <= len(data)
    part = data[position:end]
    if type_ == "text":
        return [part.decode("utf-8")], end
    if type_ == "bytes":
        return [part], end
    if type_ != "int":
        return [read(type_, part)], end
    numbers, at = [], 0
    while at < len(part):
        number, at = _varint(part, at)
        numbers.append(_signed(number))
    return numbers, end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for count in range(10):
        byte = data[position + count]
        result |= (byte & 127) << 7 * count
        if byte < 128:
            return result, position + count + 1
    raise AssertionError("a number of more than ten bytes")


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
