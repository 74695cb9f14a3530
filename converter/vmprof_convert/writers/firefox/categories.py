"""The categories of frames: what the Profiler colours stacks by."""
from __future__ import annotations

from typing import NamedTuple

from vmprof_convert.writers.firefox.json_types import Json


class Category(NamedTuple):
    """A row of the list below, and one of its subcategories."""

    category: int
    subcategory: int


# A category's subcategory 0 must be "Other", and a grey category must exist:
# the call tree takes it for nodes whose frames don't agree, and crashes when
# there is none.  Interpreted and JIT are subcategories of one category,
# because one function is often seen as both.
CATEGORIES: list[Json] = [
    {"name": "Other", "color": "grey", "subcategories": ["Other"]},
    {"name": "Python", "color": "yellow",
     "subcategories": ["Other", "Interpreted", "JIT"]},
    {"name": "Native", "color": "lightblue", "subcategories": ["Other"]},
    # leaves, below the functions that allocated them
    {"name": "Type of object", "color": "green",
     "subcategories": ["Other", "Class", "Storage", "Interpreter's own"]},
    {"name": "Garbage collector", "color": "orange", "subcategories": ["Other"]},
]

OTHER = Category(0, 0)
PYTHON = Category(1, 0)
INTERPRETED = Category(1, 1)
JIT = Category(1, 2)
NATIVE = Category(2, 0)
TYPE = Category(3, 0)
CLASS = Category(3, 1)
STORAGE = Category(3, 2)
INTERNAL = Category(3, 3)
COLLECTOR = Category(4, 0)
