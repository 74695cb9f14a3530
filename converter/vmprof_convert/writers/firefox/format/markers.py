"""Markers: events in the tracks of a thread, such as collections and marks."""
from __future__ import annotations

import dataclasses

from vmprof_convert.writers.firefox.format.categories import OTHER, Category
from vmprof_convert.writers.firefox.format.json_types import Json

_PLACES = ["marker-chart", "marker-table", "timeline-overview"]


def _field(key: str, label: str, format_: str) -> Json:
    return {"key": key, "label": label, "format": format_}


#: fields and texts that the Profiler shows for each kind of marker
SCHEMAS: list[Json] = [
    {"name": "MinorCollection", "display": _PLACES,
     "chartLabel": "minor collection", "tooltipLabel": "Minor collection",
     "tableLabel": "{marker.data.allocated} allocated before, "
                   "{marker.data.promoted} became old",
     "fields": [_field("allocated", "Allocated before", "bytes"),
                _field("promoted", "Became old, an estimate", "bytes")]},
    {"name": "MajorCollection", "display": _PLACES,
     "chartLabel": "major collection", "tooltipLabel": "Major collection",
     "tableLabel": "number {marker.data.number}: {marker.data.freed} freed",
     "fields": [_field("number", "Number", "integer"),
                _field("freed", "Found dead, an estimate", "bytes")]},
    {"name": "Mark", "display": _PLACES, "chartLabel": "{marker.data.text}",
     "tooltipLabel": "Mark of the program", "tableLabel": "{marker.data.text}",
     "fields": [_field("text", "Name", "string")]},
    {"name": "Labels", "display": ["marker-chart", "marker-table"],
     "chartLabel": "{marker.data.text}", "tooltipLabel": "Labels of the samples",
     "tableLabel": "{marker.data.text}",
     "fields": [_field("text", "Labels", "string")]},
]

#: phases of markers without and with a duration
_INSTANT, _INTERVAL = 0, 1


@dataclasses.dataclass
class Marker:
    """An event, or a period of time with a name."""

    #: name of one of SCHEMAS
    kind: str
    #: name that the Profiler shows
    name: str
    #: milliseconds since the start
    start: float
    #: milliseconds since the start, None for an event without duration
    end: float | None
    #: values of the fields in the schema
    fields: Json
    category: Category = OTHER


def table(markers: list[Marker], names: list[int]) -> Json:
    """Return the markers of a thread as a table for JSON.

    Args:
        markers: The markers.
        names: The index of each marker's name in the table of strings.
    """
    return {
        "length": len(markers),
        "data": [{"type": marker.kind, **marker.fields} for marker in markers],
        "name": names,
        "startTime": [marker.start for marker in markers],
        "endTime": [marker.end for marker in markers],
        "phase": [_INSTANT if marker.end is None else _INTERVAL
                  for marker in markers],
        "category": [marker.category.category for marker in markers],
    }
