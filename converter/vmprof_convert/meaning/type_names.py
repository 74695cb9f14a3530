"""Convert the recorded types of objects into the names that outputs show.

All reports and writers use this module, so that they show the same names.
"""
from __future__ import annotations

import re
from typing import NamedTuple

from vmprof_convert.profile.model import Profile, Type
from vmprof_convert.text.escape import MAX_NAME, shortened

#: the kinds of types: a Python class, storage of a class, an internal type of the
#: interpreter, a type with only the GC's name, or an unknown type
CLASS, STORAGE, INTERNAL, LAYOUT, NOT_KNOWN = (
    "class", "storage", "internal", "layout", "not known")

#: kinds of storage that several types use, so that the owning type is unknown
SHARED = frozenset((
    "object array", "string array", "hash table", "int array", "byte array",
    "character array", "float array", "characters"))

#: the types of the JIT's own objects
_OF_THE_JIT = ("<JIT compiler>", "<JIT frame>", "<RPython Numbering>",
               "<RPython GCREFTRACER>")

# a layout, such as pypy.objspace.std.listobject.W_ListObject { super, ... }
_STRUCT = re.compile(r"(?:varsize )?(?:Gc)?(?:Struct|Array|Opaque)? ?([^\s{]+)")
_ARRAY = re.compile(r"(?:varsize )?(?:Gc)?Array of (.*)", re.DOTALL)


class Shown(NamedTuple):
    """The shown name of a type; types with the same shown name are equal."""

    name: str
    #: the kind of the type: CLASS to NOT_KNOWN
    kind: str


def is_the_jits(type_: Shown) -> bool:
    """Return whether the JIT itself uses objects of this type.

    The memory of such objects grows while a program warms up. Their number depends on
    the time of compilation, which differs between equal runs.
    """
    return type_.name in _OF_THE_JIT


#: the shown name of all unknown types
UNNAMED = Shown("[type not known]", NOT_KNOWN)


class TypeNames:
    """The shown names of the types of a profile."""

    def __init__(self, profile: Profile, *, group_storage: bool = False):
        """Prepare the names.

        Args:
            profile: the profile with the types.
            group_storage: whether storage is shown as its owner, if it has only one
                owner.
        """
        self._types = profile.types
        self._group_storage = group_storage
        self._known: dict[int, Shown] = {-1: UNNAMED}

    def shown(self, number: int) -> Shown:
        """Return the shown name of a type.

        Args:
            number: the index in Profile.types; -1 for an unknown type.
        """
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
    """Return the last part of the GC's name of a layout, such as W_ListObject."""
    layout = re.sub(r"^member\d+\s+", "", layout[:10 * MAX_NAME]).strip()
    prefix = ""
    while match := _ARRAY.match(layout):
        prefix += "array of "
        layout = match[1].lstrip("* ")
    match = _STRUCT.match(layout)
    name = (match[1] if match else "").rpartition(".")[2]
    return prefix + name if name not in ("", "?") else prefix[:-4]
