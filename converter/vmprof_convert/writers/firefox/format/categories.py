"""The categories of frames: what the Profiler colours stacks by."""
from __future__ import annotations

from typing import NamedTuple

from vmprof_convert.writers.firefox.format.json_types import Json


class Category(NamedTuple):
    """A row of the list below, and one of its subcategories."""

    category: int
    subcategory: int


#: how code ran
_WAYS = ["Other", "Interpreted", "JIT", "Native"]

# A category's subcategory 0 must be "Other", and a grey category must exist:
# the call tree takes it for nodes whose frames don't agree, and crashes when
# there is none.  Interpreted and JIT are subcategories, because one function is
# often seen as both.
CATEGORIES: list[Json] = [
    {"name": "Other", "color": "grey", "subcategories": ["Other"]},
    {"name": "Program", "color": "yellow", "subcategories": _WAYS},
    {"name": "Installed packages", "color": "green", "subcategories": _WAYS},
    {"name": "Standard library", "color": "blue", "subcategories": _WAYS},
    {"name": "Import machinery", "color": "purple", "subcategories": _WAYS},
    {"name": "Built-in", "color": "orange", "subcategories": _WAYS},
    # leaves, below the functions that allocated them
    {"name": "Type of object", "color": "lightblue",
     "subcategories": ["Other", "Class", "Storage", "Interpreter's own"]},
    {"name": "Garbage collector", "color": "brown", "subcategories": ["Other"]},
    # Draws nothing.  Called "Idle", it would bring a switch with it.
    {"name": "Nothing sampled", "color": "transparent", "subcategories": ["Other"]},
]

OTHER = Category(0, 0)
#: with the subcategories below
PROGRAM, PACKAGES, LIBRARY, IMPORTING, BUILT_IN = range(1, 6)
INTERPRETED, JIT, NATIVE = range(1, 4)
TYPE = Category(6, 0)
CLASS = Category(6, 1)
STORAGE = Category(6, 2)
INTERNAL = Category(6, 3)
COLLECTOR = Category(7, 0)
IDLE = Category(8, 0)
