"""Markers: what happened, and when."""
from __future__ import annotations

import dataclasses

from vmprof_convert.writers.firefox.format.categories import OTHER, Category
from vmprof_convert.writers.firefox.format.json_types import Json

_PLACES = ["marker-chart", "marker-table", "timeline-overview"]


def _field(key: str, label: str, format_: str) -> Json:
    return {"key": key, "label": label, "format": format_}


#: of each kind, what the Profiler shows of it, and how
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

#: phases: a moment, and a stretch of time
_INSTANT, _INTERVAL = 0, 1


@dataclasses.dataclass
class Marker:
    #: of SCHEMAS
    kind: str
    #: as it is shown
    name: str
    #: milliseconds
    start: float
    #: None: it is a moment
    end: float | None
    #: what the schema has fields for
    fields: Json
    category: Category = OTHER


def table(markers: list[Marker], names: list[int]) -> Json:
    """`names`: where those of the markers are among the strings."""
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
