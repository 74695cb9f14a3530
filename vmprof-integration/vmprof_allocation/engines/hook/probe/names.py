"""Find names for the GC's types, as a Python programmer would call them.

The names of Python's types come from the objects of this process, some of which are
made for this purpose.  *Storage* is an RPython object that holds the content of Python
objects, such as the items of a list.  Storage is named after the objects in the whole
heap that refer to the storage.  memory.py explains *row* and *number* of a type.
"""
from __future__ import annotations

import array
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterable
from typing import Any

from vmprof_allocation.engines.hook.probe.classes import HEAP
from vmprof_allocation.engines.hook.probe.memory import NotCertain, Types, gc

#: The kinds of names in PROFILE.rst.
PYTHON, STORAGE, INTERNAL = 2, 3, 4

#: The names of the interpreter's types, by the beginning of RPython's name.
INTERNALS = (
    ("JITFRAME", "JIT frame"),
    ("JitVirtualRef", "JIT frame"),
    ("pypy.interpreter.pyframe.", "frame"),
    ("pypy.objspace.std.frame.", "frame"),
    ("pypy.objspace.std.mapdict.", "map"),
    ("pypy.objspace.std.celldict.", "variable"),
    ("pypy.objspace.std.typeobject.ObjectMutableCell", "variable"),
    ("pypy.objspace.std.typeobject.IntMutableCell", "variable"),
    ("pypy.interpreter.error.", "exception in flight"),
    ("pypy.interpreter.argument.", "arguments of a call"),
    ("pypy.interpreter.astcompiler.", "compiler"),
    ("pypy.interpreter.pyparser.", "compiler"),
    ("pypy.module._ast.", "compiler"),
    ("pypy.objspace.std.formatting.", "text formatting"),
    ("pypy.objspace.std.newformat.", "text formatting"),
    ("rpython.rlib.rutf8.Utf8StringBuilder", "text builder"),
    ("rpython.rlib.rstring.", "text builder"),
    ("stringbuilder ", "text builder"),
    ("unicodebuilder ", "text builder"),
    ("stringpiece ", "text builder"),
    ("rpython.rlib.rsre.", "regular expression matcher"),
    ("rpython.jit.", "JIT compiler"),
    ("rpython.rlib.jit", "JIT compiler"),
    ("rpython.rtyper.", "RPython runtime"),
    ("pypy.interpreter.gateway.", "call of a builtin"),
    ("weakref ", "weak reference"),
    ("dictiter ", "RPython iterator"), ("listiter ", "RPython iterator"),
    ("stringiter ", "RPython iterator"), ("range ", "RPython range"),
)
#: RPython's types of instances of Python classes; only the classes have Python names.
_INSTANCE = re.compile(r"GcStruct pypy\.interpreter\.typedef\.\w+User\w* \{")
#: Parts of RPython's names, for types without a better name.
_CLASS = re.compile(r"GcStruct (?:\w+\.)*(\w+\.\w+) \{")
_WORD = re.compile(r"Gc(?:Struct ([a-z_A-Z]+)[0-9]* \{|(Array) of )")
#: The names of arrays that several kinds of objects use, by RPython's name of the type
#: of their items.
ITEMS = (
    ("* GcStruct object {", "object array"),
    ("* GcStruct pypy.", "object array"),
    ("* GcStruct rpy_string {", "string array"),
    ("* GCREF", "object array"),
    ("odictentry {", "hash table"),
    ("weakdictentry {", "hash table"),
    ("Signed", "int array"), ("Unsigned", "int array"),
    ("UCHAR", "int array"), ("USHORT", "int array"), ("UINT", "int array"),
    ("SHORT", "int array"), ("INT", "int array"), ("Bool", "int array"),
    ("Char", "byte array"), ("UniChar", "character array"),
    ("Float", "float array"),
)
#: The names of structs that several kinds of objects use, by RPython's names.
STRUCTS = (
    ("rpy_string {", "characters"), ("rpy_unicode {", "characters"),
    ("dicttable {", "hash table"),
)
#: The beginnings of RPython's names of containers.
_PLAIN = re.compile(r"GcArray of |GcStruct (list|dicttable|weakvaldict"
                    r"|weakkeydict|rpy_string|rpy_unicode) \{")
#: The module of an RPython class.
_MODULE = re.compile(r"GcStruct (pypy\.[a-z_0-9.]+|rpython\.rlib\.rbigint)\.")
#: Types that refer to storage of other objects, without owning it.
_ITERATOR = re.compile(r"iter(ator)? \{|Iter|GcStruct weakref")
#: Types that have the same storage as a better known type.
FAMILY = {"frozenset": "set"}


class Storage:
    """The storage of Python's objects, and the types of Python that own it."""

    def __init__(self, types: Types, python: dict[int, str]):
        """Store the types.

        Args:
            types: the type table.
            python: the name of Python's type, by row.
        """
        self._types, self._python = types, python
        #: For each row, the rows of the objects that refer to its objects.
        self.parents: dict[int, set[int]] = {}
        #: For each row, the rows of the objects to which its objects refer.
        self.children: dict[int, set[int]] = {}

    def read_heap(self) -> None:
        """Read the references between all objects of this process."""
        found = array.array("q")
        with tempfile.TemporaryFile() as file:
            gc.dump_rpy_heap(file.fileno())
            size = os.fstat(file.fileno()).st_size
            file.seek(0)
            found.fromfile(file, size // found.itemsize)
        # the dump contains for each object: address, row, size, references, -1
        words, at = found.tolist(), 0
        rows, references = {}, []
        while at < len(words):
            end = words.index(-1, at + 3)
            rows[words[at]] = words[at + 1]
            references.append((at, end))
            at = end + 1
        seen = set()
        for start, end in references:
            row = words[start + 1]
            for to in words[start + 3:end]:
                seen.add((row, rows.get(to, 0)))
        for row, to in seen:
            self.parents.setdefault(to, set()).add(row)
            self.children.setdefault(row, set()).add(to)

    def is_plain(self, row: int) -> bool:
        """Return whether a row is a container of RPython."""
        return _PLAIN.match(self._types.names[row]) is not None

    def is_part(self, row: int) -> bool:
        """Return whether a row is an RPython class that holds a part of Python objects.

        Such a class is not itself a type of Python.  A type of Python in the same
        module refers to its instances.
        """
        module = _MODULE.match(self._types.names[row])
        return module is not None and row not in self._python and any(
            parent in self._python and (
                self._types.names[parent].startswith(module.group())
                or "rbigint" in module.group())
            for parent in self.parents[row])

    def owners(self) -> dict[int, set[str]]:
        """Return the names of the Python types that own each row of storage.

        The name "" means that the interpreter owns some of this storage.
        """
        found: dict[int, set[str]] = {
            row: set() for row in self.parents
            if self.is_plain(row) or self.is_part(row)}
        changed = True
        while changed:
            changed = False
            for row, owners in found.items():
                before = len(owners)
                for parent in self.parents[row]:
                    if _ITERATOR.search(self._types.names[parent]):
                        continue
                    if parent in self._python:
                        name = self._python[parent]
                        owners.add(FAMILY.get(name, name))
                    elif parent in found:
                        owners |= found[parent]
                    else:
                        owners.add("")
                changed = changed or len(owners) > before
        return found


def specimens() -> list[Any]:
    """Return objects of types that a program may use, but this process does not."""
    import collections
    import datetime
    import decimal
    import io
    import itertools
    import json
    import random
    import socket
    import struct
    import threading
    import traceback
    import weakref
    import zlib

    def generator() -> Iterable[int]:
        yield 1

    async def coroutine() -> None:
        pass

    async def asynchronous() -> Any:
        yield 1

    try:
        raise ValueError("here")
    except ValueError as e:
        trace = e.__traceback__
    awaitable, stream = coroutine(), asynchronous()
    waiting = awaitable.__await__()
    text, data, numbers = "abc\u20ac", b"abc", [1, 2, 3]
    kept: list[Any] = [
        5, 1 << 70, True, 0.5, 1j, text, text * 50, data, data * 50,
        bytearray(data), (), (1,), (1, 2), (1, "a"), ("a", 1), ("a", "b"),
        (0.5, 0.5), (1, 0.5), (1, 2, 3), ("a", 1, 0.5, 4), [], [1, 2], [0.5],
        ["a"], [b"a"], [None, 1, "a"], [1, 0.5], list(range(9)), {}, {1: 2},
        {"a": 1}, {b"a": 1}, {1: 2, "a": 3}, {None: 1}, {0.5: 1}, set(), {1},
        {"a"}, {b"a"}, {None, 1}, frozenset("ab"), range(5), slice(1, 2, 3),
        memoryview(data), memoryview(bytearray(data))[1:2], type, Ellipsis,
        NotImplemented, None, object(), generator, generator(), awaitable,
        waiting, stream, stream.asend(None), stream.athrow(ValueError),
        stream.aclose(), trace, numbers.append, text.join, len,
        traceback.print_exc.__code__, (lambda: kept).__closure__,
        traceback, property(), classmethod(_qualified), staticmethod(len),
        types.SimpleNamespace(a=1), types.MappingProxyType({}),
        iter(numbers), iter(text), iter(data), iter(bytearray(data)), iter(()),
        iter((1, 2)), iter((1, 2, 3)), iter({}), iter({1: 2}), iter({"a": 1}),
        iter({1}), iter({"a"}), iter(range(5)), iter(memoryview(data)),
        iter(lambda: 1, 2), iter({}.values()), iter({1: 2}.items()), {}.keys(),
        {}.values(), {}.items(), reversed(numbers), reversed((1, 2)),
        reversed({}), reversed(range(4)), enumerate(numbers), zip(numbers),
        map(str, numbers), filter(len, numbers), collections.deque([1]),
        iter(collections.deque([1])), reversed(collections.deque([1])),
        collections.OrderedDict(a=1), collections.Counter("abc"),
        weakref.ref(generator), weakref.proxy(generator),
        weakref.WeakValueDictionary(), io.StringIO(text), io.BytesIO(data),
        io.BytesIO(data).getbuffer(), io.TextIOWrapper(io.BytesIO()),
        io.BufferedReader(io.FileIO(os.devnull)),
        io.BufferedWriter(io.FileIO(os.devnull, "w")),
        struct.Struct("i"), struct.iter_unpack("b", data), re.compile("a"),
        re.match("a", "a"), re.finditer("a", "a"), re.compile(b"a").match(b"a"),
        itertools.count(), itertools.chain([]),
        itertools.repeat(1), itertools.islice([], 1), itertools.tee([]),
        itertools.product([1], [2]), itertools.permutations([1, 2]),
        itertools.combinations([1, 2], 1), itertools.groupby([1]),
        itertools.accumulate([]), itertools.cycle([]), itertools.starmap(
            len, []), itertools.takewhile(len, []), itertools.zip_longest([]),
        itertools.dropwhile(len, []), itertools.compress([], []),
        itertools.filterfalse(len, []), random.Random(), threading.Lock(),
        threading.RLock(), threading.local(), threading.Condition(),
        threading.Thread(), socket.socket(), zlib.compressobj(),
        zlib.decompressobj(), decimal.Decimal(1), datetime.datetime.now(),
        json.JSONDecoder(), os.stat(os.devnull), os.scandir("/"),
        sys._getframe(), gc.get_referrers, BaseException(), StopIteration(),
        OSError(1, "a"), SyntaxError("a"), UnicodeDecodeError(
            "utf-8", b"", 0, 1, ""), UnicodeEncodeError("utf-8", "", 0, 1, ""),
        ImportError("a"), SystemExit(1), NameError("a"), AttributeError("a"),
        super(_Thing, _Thing()), numbers.__iter__,
        int.__add__, int.from_bytes, text.__class__.__dict__]
    kept += [array.array(code, [1]) for code in "bBhHiIlLqQfd"]
    kept += [iter(array.array("b")), array.array("u", "a"), {"a": 1, "b": 2},
             collections.defaultdict(list), collections.deque(range(200)),
             _attributes(7), _attributes(30), [_attributes(i) for i in range(5)]]
    kept += [sorted({i: str(i) for i in range(n)}) for n in (3, 300, 70000)]
    kept += [dict.fromkeys(range(n)) for n in (3, 300, 70000)]
    kept += [dict.fromkeys(map(str, range(n))) for n in (3, 300, 70000)]
    kept += [set(range(n)) for n in (3, 300, 70000)]
    awaitable.close()
    return kept


def _attributes(count: int) -> Any:
    thing = _Thing()
    for i in range(count):
        setattr(thing, "attribute%d" % i, (i, 0.5, "a")[i % 3])
    return thing


class _Thing:
    """A class for instances with attributes."""


def python_names(kept: list[Any], instances: Iterable[int],
                 types: Types) -> dict[int, str]:
    """Return the name of each row whose objects all have one type of Python.

    Args:
        kept: objects that are examined in addition to all objects of the GC.
        instances: the numbers of the types of instances of classes, which are left out.
        types: the type table.
    """
    not_alone = {types.rows[number] for number in instances}
    found: dict[int, set[type]] = {}
    for thing in gc.get_objects() + kept:
        row = int(gc.get_rpy_type_index(thing))
        if row not in not_alone:
            found.setdefault(row, set()).add(type(thing))
    return {row: _qualified(*kinds) for row, kinds in found.items()
            if len(kinds) == 1 and not any(k.__flags__ & HEAP for k in kinds)}


def _qualified(kind: type) -> str:
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", None) else "%s.%s" % (
        module, kind.__qualname__)


def text(types: Types, maps: dict[int, int], head: str,
         named: dict[int, tuple[int, str]]) -> str:
    """Return `head` and a line for each type, for native/hook/gc/types.c.

    Args:
        types: the type table.
        maps: the offset of the map, by the number of the type.
        head: the lines that precede these lines.
        named: the kind and the name of each row that has a name.
    """
    lines = [head]
    for number, row in types.rows.items():
        kind, name = named.get(row, (0, ""))
        lines.append("type %d %d %d %d\t%s\t%s\n" % (
            number, row, kind, maps.get(number, -1), name, types.names[row]))
    return "".join(lines)


def _starts(name: str, table: Iterable[tuple[str, str]]) -> str:
    """Return the name in `table` for the first beginning of `name`, or ""."""
    return next((to for start, to in table if name.startswith(start)), "")


def names(types: Types, bases: dict[int, type]) -> dict[int, tuple[int, str]]:
    """Return (kind, name) for each row that has a name.

    Args:
        types: the type table.
        bases: the interpreter's type from which the class of an instance is derived, by
            the number of the instance's type.

    Raises:
        NotCertain: an important type has no objects.
    """
    kept = specimens()
    python = python_names(kept, bases, types)
    for name in "int", "str", "list", "dict", "function", "tuple":
        if name not in python.values():
            raise NotCertain("there is no object of Python's type %s" % name)
    owned = dict(python)
    owned.update({types.rows[number]: _qualified(base)
                  for number, base in bases.items()})
    storage = Storage(types, owned)
    storage.read_heap()
    owners = storage.owners()
    found = {row: (PYTHON, name) for row, name in python.items()}
    for row, name in enumerate(types.names[:len(types.numbers)]):
        bare = name.partition(" ")[2]
        internal = _starts(bare, INTERNALS)
        if not types.numbers[row]:
            continue
        if internal and (row not in found or internal == "frame"):
            found[row] = INTERNAL, internal
        elif row not in found:
            given = _storage(row, types, owners.get(row, set()), storage)
            found[row] = (STORAGE, given) if given else (
                INTERNAL, _fallback(name))
    return {row: (kind, name) for row, (kind, name) in found.items() if name}


def _fallback(name: str) -> str:
    """Derive a readable name from RPython's name of a type, or return ""."""
    if _INSTANCE.match(name):
        return ""           # an instance is named after its class
    of_class, word = _CLASS.match(name), _WORD.match(name)
    if of_class is not None:
        return of_class.group(1)
    if word is not None:
        return "RPython " + (word.group(1) or "array")
    return ""


def _storage(row: int, types: Types, owners: set[str],
             storage: Storage) -> str:
    """Return the name of storage: of its only owner, or a common name of its owners.

    Returns:
        "" if the row is no storage.
    """
    name = types.names[row]
    if len(owners) == 1 and "" not in owners:
        return next(iter(owners))
    shared = _shared(name)
    if not shared and name.startswith("GcStruct list {"):
        # the struct of a list is named after its items
        items = {_shared(types.names[child])
                 for child in storage.children.get(row, ()) if child}
        shared = items.pop() if len(items) == 1 else ""
    return shared


def _shared(name: str) -> str:
    kind, _, rest = name.partition(" of " if name.startswith("GcArray") else " ")
    return _starts(rest, ITEMS if kind == "GcArray" else STRUCTS)
