"""What the user sees of an object's type.

All outputs ask here, so that they agree.
"""
from __future__ import annotations

import re
from typing import NamedTuple

from vmprof_convert.profile.model import Profile, Type
from vmprof_convert.text.escape import MAX_NAME, shortened

#: what a type is: a class of Python's; storage that belongs to one; what only
#: the interpreter knows; what has no name but the GC's; or nobody knows
CLASS, STORAGE, INTERNAL, LAYOUT, NOT_KNOWN = (
    "class", "storage", "internal", "layout", "not known")

#: storage that more than one type has: whose each piece is, nobody knows
SHARED = frozenset((
    "object array", "string array", "hash table", "int array", "byte array",
    "character array", "float array", "characters"))

#: the JIT's own
_OF_THE_JIT = ("<JIT compiler>", "<JIT frame>", "<RPython Numbering>",
               "<RPython GCREFTRACER>")

# pypy.objspace.std.listobject.W_ListObject { super, ... }
_STRUCT = re.compile(r"(?:varsize )?(?:Gc)?(?:Struct|Array|Opaque)? ?([^\s{]+)")
_ARRAY = re.compile(r"(?:varsize )?(?:Gc)?Array of (.*)", re.DOTALL)


class Shown(NamedTuple):
    """A type as it is shown; what looks the same is the same."""

    name: str
    #: CLASS to NOT_KNOWN
    kind: str


def is_the_jits(type_: Shown) -> bool:
    """What it keeps grows as long as a program warms up; and how much that is depends
    on when it compiles, which differs between equal runs."""
    return type_.name in _OF_THE_JIT


#: stands for objects of which the type is not known
UNNAMED = Shown("[type not known]", NOT_KNOWN)


class TypeNames:
    """The types of a profile as the user sees them."""

    def __init__(self, profile: Profile, *, group_storage: bool = False):
        """`group_storage`: storage is shown as what it belongs to, where that is one
        type."""
        self._types = profile.types
        self._group_storage = group_storage
        self._known: dict[int, Shown] = {-1: UNNAMED}

    def shown(self, number: int) -> Shown:
        """The type of this index; -1: not known."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._shown(self._types[number])
        return found

    def _shown(self, type_: Type) -> Shown:
        if type_.python:
            return Shown(shortened(type_.python), CLASS)
        if type_.owner:
            if self._group_storage and type_.owner not in SHARED:
                return Shown(shortened(type_.owner), CLASS)
            return Shown("%s (storage)" % shortened(type_.owner), STORAGE)
        if type_.internal:
            return Shown("<%s>" % shortened(type_.internal), INTERNAL)
        short = shortened(_short(type_.layout))
        if short:
            return Shown("<%s>" % short, LAYOUT)
        if type_.number >= 0:
            return Shown("<type %d>" % type_.number, LAYOUT)
        return UNNAMED


def _short(layout: str) -> str:
    """What a programmer needs of the GC's name."""
    layout = re.sub(r"^member\d+\s+", "", layout[:10 * MAX_NAME]).strip()
    prefix = ""
    while match := _ARRAY.match(layout):
        prefix += "array of "
        layout = match[1].lstrip("* ")
    match = _STRUCT.match(layout)
    name = (match[1] if match else "").rpartition(".")[2]
    return prefix + name if name not in ("", "?") else prefix[:-4]
