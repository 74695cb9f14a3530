"""Sections of the panel "Profile info"."""
from __future__ import annotations

from typing import NamedTuple

from vmprof_convert.writers.firefox.format.json_types import Json


class Entry(NamedTuple):
    """A line in the panel."""

    label: str
    #: format of the value in the Profiler: "bytes", "integer" or "string"
    format: str
    value: int | str


def section(label: str, entries: list[Entry]) -> Json:
    """Return a section with a title and entries as a dict for JSON."""
    return {"label": label,
            "entries": [entry._asdict() for entry in entries]}
