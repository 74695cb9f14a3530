"""The categories of frames, which determine the colours of stacks in the Profiler."""
from __future__ import annotations

from typing import NamedTuple

from vmprof_convert.writers.firefox.format.json_types import Json


class Category(NamedTuple):
    """The index of a category in CATEGORIES, and the index of its subcategory."""

    category: int
    subcategory: int


#: subcategories: how the code of a function was executed
_WAYS = ["Other", "Interpreted", "JIT", "Native"]

# Subcategory 0 of each category must be "Other". A grey category must exist: the call
# tree uses it for nodes whose frames have different categories, and crashes without it.
# "Interpreted" and "JIT" are subcategories, because the same function is often executed
# in both ways.
CATEGORIES: list[Json] = [
    {"name": "Other", "color": "grey", "subcategories": ["Other"]},
    {"name": "Program", "color": "yellow", "subcategories": _WAYS},
    {"name": "Installed packages", "color": "green", "subcategories": _WAYS},
    {"name": "Standard library", "color": "blue", "subcategories": _WAYS},
    {"name": "Import machinery", "color": "purple", "subcategories": _WAYS},
    {"name": "Built-in", "color": "orange", "subcategories": _WAYS},
    # leaves of a stack, below the functions that allocated objects of the type
    {"name": "Type of object", "color": "lightblue",
     "subcategories": ["Other", "Class", "Storage", "Interpreter's own"]},
    {"name": "Garbage collector", "color": "brown", "subcategories": ["Other"]},
    # The front end draws nothing for this category. It would add a switch for a
    # category called "Idle".
    {"name": "Nothing sampled", "color": "transparent", "subcategories": ["Other"]},
]

OTHER = Category(0, 0)
#: indices of categories; their subcategories follow
PROGRAM, PACKAGES, LIBRARY, IMPORTING, BUILT_IN = range(1, 6)
INTERPRETED, JIT, NATIVE = range(1, 4)
TYPE = Category(6, 0)
CLASS = Category(6, 1)
STORAGE = Category(6, 2)
INTERNAL = Category(6, 3)
COLLECTOR = Category(7, 0)
IDLE = Category(8, 0)
