"""Decodes the types in a profile from PROFILE.rst, independently of the reader."""
from __future__ import annotations

import collections
from pathlib import Path

from made_profiles import OBJECTS, TYPES
from record_rows import records

GCS, PYTHON, STORAGE, INTERNAL = 1, 2, 3, 4


class Types:
    """The types of one profile."""

    def __init__(self, path: Path) -> None:
        #: names by the type's number and the kind of name
        self.names: dict[int, dict[int, str]] = {}
        #: number of sampled objects by type; type 0 is unknown
        self.sampled: collections.Counter[int] = collections.Counter()
        for record in records(path.read_bytes()):
            if record.kind == OBJECTS:
                self.sampled.update(row[9] for row in record.rows)
            elif record.kind == TYPES:
                for (number, kind, _, _), text in zip(record.rows, record.texts):
                    names = self.names.setdefault(number, {})
                    assert kind not in names
                    names[kind] = text.decode()

    def counts(self, kind: int = PYTHON) -> collections.Counter[str]:
        """Return the number of sampled objects by type, with names of this kind."""
        found: collections.Counter[str] = collections.Counter()
        for number, count in self.sampled.items():
            if kind in self.names.get(number, {}):
                found[self.names[number][kind]] += count
        return found
