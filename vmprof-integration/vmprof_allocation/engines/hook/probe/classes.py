"""The way from an object to the name of its class.

The way leads from the object to its map, to the end of the map, and to the class.  From
the class, it leads to the class's qualified name and module.  Each step is the offset
of a pointer.  It is found by following pointers from known objects to known targets,
and is accepted if all objects agree on one offset.
"""
from __future__ import annotations

import builtins
import os
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from vmprof_allocation.engines.hook.probe.memory import (
    TYPE,
    Memory,
    NotCertain,
    Types,
    gc,
)

MAP = "GcStruct pypy.objspace.std.mapdict."
STRING = "GcStruct rpy_string {"
CLASSES = ("GcStruct pypy.objspace.std.typeobject.W_TypeObject {",
           "GcStruct pypy.interpreter.typedef.W_TypeObjectUser {")
TEXT = "GcStruct pypy.objspace.std.unicodeobject.W_UnicodeObject {"
CELL = "GcStruct pypy.objspace.std.typeobject.ObjectMutableCell {"
TABLE = "GcStruct dicttable {"
ENTRIES = "GcArray of odictentry { key: * GcStruct rpy_string {"
#: Offsets of the length and the items of an array, and of the length and the characters
#: of a string.
ARRAY_LENGTH, ARRAY = 8, 16
STRING_LENGTH, CHARACTERS = 16, 24
#: The bit of type.__flags__ for classes that a program has defined.
HEAP = 512
#: The maximum length of a name that is examined.
LONG = 1000


class Meta(type):
    """A metaclass."""


class Plain:
    """A class without a base."""

    class Inner:
        """A nested class."""


def makers() -> list[tuple[type, tuple[Any, ...]]]:
    """Return types that can have subclasses, with arguments for an instance."""
    import _io
    import _random
    import _struct
    import array
    import collections
    import itertools
    import mmap
    import operator
    import threading
    import types
    import zlib
    found: list[tuple[type, tuple[Any, ...]]] = [
        (object, ()), (dict, ()), (list, ()), (set, ()), (frozenset, ()),
        (int, (5,)), (int, (5 << 70,)), (float, (1.5,)), (complex, (1j,)),
        (str, ("abc",)), (bytes, (b"abc",)), (bytearray, (b"abc",)),
        (tuple, ((1, 2),)), (property, ()), (classmethod, (len,)),
        (staticmethod, (len,)), (types.ModuleType, ("m",)), (super, (Plain,)),
        (type, ("Made", (), {})), (enumerate, ([],)), (reversed, ([],)),
        (map, (len, [])), (filter, (len, [])), (zip, ()),
        (weakref.ref, (Plain,)), (collections.deque, ()),
        (collections.defaultdict, ()), (array.array, ("b",)),
        (_io.StringIO, ()), (_io.BytesIO, ()), (_io._IOBase, ()),
        (_io.TextIOWrapper, (_io.BytesIO(),)),
        (_io.BufferedReader, (_io.BytesIO(),)),
        (_io.BufferedWriter, (_io.BytesIO(),)),
        (_io.BufferedRandom, (_io.BytesIO(),)),
        (_random.Random, ()), (_struct.Struct, ("i",)),
        (itertools.chain, ()), (itertools.count, ()), (itertools.cycle, ([],)),
        (itertools.repeat, (1,)), (itertools.islice, ([], 1)),
        (itertools.product, ()), (itertools.permutations, ([],)),
        (itertools.combinations, ([], 1)), (itertools.accumulate, ([],)),
        (itertools.groupby, ([],)), (itertools.starmap, (len, [])),
        (itertools.takewhile, (len, [])), (itertools.dropwhile, (len, [])),
        (itertools.filterfalse, (len, [])), (itertools.zip_longest, ()),
        (itertools.compress, ([], [])), (mmap.mmap, (-1, 10)),
        (threading.local, ()), (type(operator), ("n",))]
    found += [(array.array, (code,)) for code in "BhHiIlLqQfd"]
    exceptions: list[tuple[type, tuple[Any, ...]]] = [
        (UnicodeDecodeError, ("utf-8", b"", 0, 1, "")),
        (UnicodeEncodeError, ("utf-8", "", 0, 1, "")),
        (UnicodeTranslateError, ("", 0, 1, ""))]
    group = getattr(builtins, "BaseExceptionGroup", None)
    if group is not None:
        exceptions.append((group, ("", [ValueError()])))
    found += exceptions
    found += [(base, ()) for base in subclasses(BaseException)
              if base not in dict(exceptions)]
    found += [(type(zlib.compressobj()), ()), (type(zlib.decompressobj()), ())]
    # some builds do not have these types
    for module, name, arguments in (
            ("itertools", "combinations_with_replacement", ([], 1)),
            ("itertools", "pairwise", ([],)), ("_io", "_TextIOBase", ()),
            ("_io", "_BufferedIOBase", ()),
            ("_io", "BufferedRWPair", (_io.BytesIO(), _io.BytesIO())),
            ("_io", "FileIO", (os.devnull,)),
            ("_io", "IncrementalNewlineDecoder", (None, False)),
            ("_thread", "RLock", ()), ("_socket", "socket", ()),
            ("_csv", "Dialect", ()), ("_continuation", "continulet", (len,)),
            ("__pypy__", "identity_dict", ()),
            ("_pickle", "Pickler", (_io.BytesIO(),)),
            ("_pickle", "Unpickler", (_io.BytesIO(),))):
        try:
            base = getattr(__import__(module), name)
        except (ImportError, AttributeError):
            continue
        if isinstance(base, type):
            found.append((base, arguments))
    return found


def subclasses(of: type) -> list[type]:
    """Return a type and all its subclasses that the interpreter defines."""
    found = [of]
    for base in found:
        derived: list[type] = type.__subclasses__(base)
        found += [kind for kind in derived
                  if kind not in found and not kind.__flags__ & HEAP]
    return found


def specimens() -> list[tuple[Any, type]]:
    """Return objects of many types, with their classes."""
    made: list[tuple[Any, type]] = []

    def make(kind: type, arguments: tuple[Any, ...], attributes: int) -> None:
        try:
            thing = kind(*arguments)
        except Exception:
            return              # another type may accept these arguments
        try:
            for i in range(attributes):
                setattr(thing, "attribute%d" % i,
                        (i, str(i), 0.5, None, [])[i % 5])
        except Exception:
            pass                # the object has no attributes
        made.append((thing, kind))

    for base, arguments in makers():
        for attributes in 0, 1, 5, 12:
            for extra in {}, {"__slots__": ()}, {"__slots__": ("one", "two")}:
                try:
                    kind = type("Probed", (base,), dict(extra))
                except TypeError:
                    continue
                make(kind, arguments, attributes)
    for attributes in range(13):
        make(Meta("WithMeta", (), {}), (), attributes)
        make(Plain, (), attributes)
        make(Plain.Inner, (), attributes)
    strange = Plain()
    strange.__dict__[5] = 6     # type: ignore[index]
    made.append((strange, Plain))
    referred = Plain()
    # the weak reference to `referred` becomes an attribute in its map
    made.append((referred, Plain))
    made.append((weakref.ref(referred), type(weakref.ref(referred))))
    return made


class Classes:
    """The offsets on the way from an object to the name of its class."""

    #: Offsets of pointers from a map to its end, and from this end to the class.
    terminator: int
    of_class: int
    #: Offsets of pointers from a class to its qualified name, and to its dict.
    qualname: int
    table: int
    #: Offsets of pointers from a dict to its entries, from a str to RPython's string,
    #: and from a cell to its value.  A class keeps a value in a cell after the program
    #: has changed the value.
    entries: int
    text: int
    cell: int

    def __init__(self, memory: Memory, types: Types):
        """Find the offsets of the fields in objects of known classes.

        Raises:
            NotCertain: no offset fits all objects.
        """
        self._memory, self._types = memory, types
        #: The offset from an object to its map, by the number of its type.
        self.maps: dict[int, int] = {}
        #: The interpreter's type from which the class of an instance is derived, by the
        #: number of the instance's type.
        self.bases: dict[int, type] = {}
        made = specimens()
        named = _named_classes()
        for _ in range(3):
            gc.collect()
        self._find_names(named)
        self._find_way(made)

    def _name(self, address: int) -> str:
        """Return RPython's name of the type of the object at an address, or ""."""
        header = self._memory.word(address) if address % 8 == 0 else 0
        row = self._types.rows.get(header & TYPE)
        return "" if row is None else self._types.names[row]

    def _pointers(self, address: int, *names: str) -> set[tuple[int, int]]:
        """Return (offset, address) of the objects to which an object refers.

        Args:
            address: the object.
            *names: the beginnings of the names of the referenced types.
        """
        number = self._memory.word(address) & TYPE
        if number not in self._types.rows:
            return set()        # the object has been freed
        size = self._types.entry(number)[
            self._memory.layout.type_fixed_size // 8]
        words = self._memory.words(address, size // 8)
        return {(i * 8, word) for i, word in enumerate(words) if i > 0
                and self._name(word).startswith(names)}

    def _text(self, string: int) -> bytes:
        length = self._memory.word(string + STRING_LENGTH)
        return self._memory.bytes_at(string + CHARACTERS, min(length, LONG))

    # the way to the class

    def _find_way(self, made: Sequence[tuple[Any, type]]) -> None:
        ways: dict[int, list[set[tuple[int, int, int]]]] = {}
        bases: dict[int, type] = {}
        for thing, kind in made:
            address, number = id(thing), self._types.number_of(thing)
            bases[number] = next(base for base in kind.__mro__
                                 if not base.__flags__ & HEAP)
            if self._memory.word(address) & TYPE == number:
                ways.setdefault(number, []).append(set(self._ways(
                    address, id(kind))))
        steps = _common(
            ({(t, c) for _, t, c in found} for all_found in ways.values()
             for found in all_found if found), "ways to a class")
        for number, all_found in ways.items():
            offsets = set.intersection(*(
                {a for a, t, c in found if (t, c) == steps}
                for found in all_found))
            if len(offsets) == 1:
                self.maps[number] = offsets.pop()
                self.bases[number] = bases[number]
        self.terminator, self.of_class = steps

    def _ways(self, address: int, kind: int) -> Iterable[tuple[int, int, int]]:
        """Yield the offsets of each way from an object to its class.

        Args:
            address: the object.
            kind: the address of its class.

        Yields:
            The offsets of the pointers to the map, to the map's end, and to the class.
        """
        for a, its_map in self._pointers(address, MAP):
            for t, end in self._pointers(its_map, MAP):
                for c, found in self._pointers(end, *CLASSES):
                    if found == kind:
                        yield a, t, c

    # the way to the names

    def _find_names(self, named: Sequence[type]) -> None:
        self.qualname = _common((
            {offset for offset, string in self._pointers(id(kind), STRING)
             if self._text(string) == kind.__qualname__.encode()}
            for kind in named), "qualified names")
        text = _common((
            {(d, e, t, len(cell)) for d, table in self._pointers(id(kind), TABLE)
             for e, entries in self._pointers(table, ENTRIES)
             for value in self._values(entries, b"__module__")
             for t, cell in self._modules(value, kind.__module__)}
            for kind in named[:-1]), "ways to a module")
        self.table, self.entries, self.text, _ = text
        # the module of the last class was changed, so it is in a cell
        self.cell = _common([
            {cell[0] for _, table in self._pointers(id(named[-1]), TABLE)
             for _, entries in self._pointers(table, ENTRIES)
             for value in self._values(entries, b"__module__")
             for t, cell in self._modules(value, named[-1].__module__)
             if cell and t == self.text}], "cells")

    def _values(self, entries: int, wanted: bytes) -> Iterable[int]:
        """Yield the addresses of the values of the key `wanted` in a class's dict.

        Args:
            entries: the address of the entries of the dict.
            wanted: the key, in UTF-8.
        """
        number = self._memory.word(entries) & TYPE
        if number not in self._types.rows or self._types.entry(number)[
                self._memory.layout.type_item_size // 8] != 16:
            return
        count = self._memory.word(entries + ARRAY_LENGTH)
        words = self._memory.words(entries + ARRAY, min(count, 1000) * 2)
        for key, value in zip(words[::2], words[1::2]):
            if self._name(key).startswith(STRING) and self._text(key) == wanted:
                yield value

    def _modules(self, value: int, wanted: str) -> Iterable[
            tuple[int, tuple[int, ...]]]:
        """Yield the offsets on the way from a value to its text, if it has this text.

        Args:
            value: the address of a str, or of a cell with a str.
            wanted: the text.

        Yields:
            (offset in the str, offsets in the cells).
        """
        name = self._name(value)
        if name.startswith(TEXT):
            for t, string in self._pointers(value, STRING):
                if self._text(string) == wanted.encode():
                    yield t, ()
        elif name.startswith(CELL):
            for c, text in self._pointers(value, TEXT):
                for t, _ in self._modules(text, wanted):
                    yield t, (c,)

    def head(self) -> str:
        """Return the lines with these offsets, for native/hook/gc/types.c."""
        roles = {"class": CLASSES, "string": (STRING,), "text": (TEXT,),
                 "cell": (CELL,)}
        lines = ["%s %d\n" % (role, number)
                 for number, row in self._types.rows.items()
                 for role, names in roles.items()
                 if self._types.names[row].startswith(names)]
        return "".join(lines) + "".join("%s %d\n" % pair for pair in (
            ("to-end", self.terminator), ("to-class", self.of_class),
            ("to-qualname", self.qualname), ("to-table", self.table),
            ("to-entries", self.entries), ("to-string", self.text),
            ("to-value", self.cell)))


def _named_classes() -> list[type]:
    """Return classes with different kinds of names.

    The module of the last class was changed more than once.
    """
    other = type("Other", (), {"first": 1, "second": 2})
    other.__qualname__ = "quite.different"
    renamed = type("Renamed", (), {})
    renamed.__name__ = "something"
    foreign = type("Foreign", (), {"__module__": "of.another"})
    changed = type("Changed", (), {})
    for name in "one", "two", "three":
        changed.__module__ = name
    return [Plain, Plain.Inner, other, renamed, foreign, changed]


def _common(found: Iterable[set[Any]], what: str) -> Any:
    """Return the only element that is in all sets.

    Raises:
        NotCertain: no element, or more than one, is in all sets.
    """
    common: set[Any] | None = None
    for one in found:
        common = set(one) if common is None else common & one
    if common is None or len(common) != 1:
        raise NotCertain("%d %s" % (len(common or ()), what))
    return common.pop()
