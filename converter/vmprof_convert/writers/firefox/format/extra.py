"""What the panel "Profile info" shows about the profile."""
from __future__ import annotations

from typing import NamedTuple

from vmprof_convert.writers.firefox.format.json_types import Json


class Entry(NamedTuple):
    label: str
    #: how the Profiler writes the value: "bytes", "integer" or "string"
    format: str
    value: int | str


def section(label: str, entries: list[Entry]) -> Json:
    return {"label": label,
            "entries": [entry._asdict() for entry in entries]}
