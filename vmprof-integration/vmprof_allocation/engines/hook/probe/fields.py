"""Find the offsets of fields in RPython's classes.

The GC's list of types has the names of fields in order.  Its type table has the sizes
of objects and the offsets of references.

These sources do not show at which offset the fields of the superclass end, which fields
take no space, and which fields are smaller than a word.  Small fields follow the
others, and are in alphabetical order again.  Fields of quasi-immutables follow the
small fields.  Therefore, each possible end of the superclass's fields is tried.  An end
fits if the size of the object is right, and if each reference after the end is a field.
The fields are accepted if only one end fits.

A *row* is the index of a type in the GC's list.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterable

from vmprof_allocation.engines.hook.probe.memory import Memory, NotCertain, Types

_PYPY = "GcStruct pypy."
#: Fields that the translation makes constant, and that take no space.
_NO_ROOM = ("inst_space", "inst_cpu")
#: The size of a word and of a header in bytes.
_WORD = 8

#: The fields that native/held needs: the name in native/held, RPython's type, and the
#: name in RPython.
WANTED = (
    ("module_dict", _PYPY + "interpreter.module.Module", "inst_w_dict"),
    ("dict_storage", _PYPY + "objspace.std.dictmultiobject.W_DictMultiObject",
     "inst_dstorage"),
    ("code_name", _PYPY + "interpreter.eval.Code", "inst_co_name"),
    ("code_varnames", _PYPY + "interpreter.pycode.PyCode", "inst_co_varnames"),
    ("code_firstlineno", _PYPY + "interpreter.pycode.PyCode", "inst_co_firstlineno"),
    ("code_filename", _PYPY + "interpreter.pycode.PyCode", "inst_co_filename"),
    ("cell_family", _PYPY + "interpreter.nestedscope.Cell", "inst_family"),
    ("cell_value", _PYPY + "interpreter.nestedscope.Cell", "inst_w_value"),
    ("family_name", _PYPY + "interpreter.nestedscope.CellFamily", "inst_name"),
    ("frame_code", _PYPY + "interpreter.pyframe.PyFrame", "inst_pycode"),
    ("frame_back", _PYPY + "interpreter.pyframe.PyFrame", "inst_f_backref"),
    ("frame_finished", _PYPY + "interpreter.pyframe.PyFrame",
     "inst_frame_finished_execution"),
    ("plain_name", _PYPY + "objspace.std.mapdict.PlainAttribute", "inst_name"),
    ("plain_back", _PYPY + "objspace.std.mapdict.PlainAttribute", "inst_back"),
    ("plain_kind", _PYPY + "objspace.std.mapdict.PlainAttribute", "inst_attrkind"),
    ("plain_index", _PYPY + "objspace.std.mapdict.PlainAttribute",
     "inst_storageindex"),
    ("ref_forced", "GcStruct JitVirtualRef", "forced"),
    ("context_top", _PYPY + "interpreter.executioncontext.ExecutionContext",
     "inst_topframeref"),
    ("gcref", _PYPY + "module.gc.referents.W_GcRef", "inst_gcref"),
    ("member_index", _PYPY + "interpreter.typedef.Member", "inst_index"),
    ("list_storage", _PYPY + "objspace.std.listobject.W_ListObject", "inst_lstorage"),
    ("int_value", _PYPY + "objspace.std.intobject.W_IntObject", "inst_intval"),
    ("bytes_value", _PYPY + "objspace.std.bytesobject.W_BytesObject", "inst__value"),
    ("jit_gcmap", "GcStruct JITFRAME", "jf_gcmap"),
    ("shadow_base", "GcStruct ShadowStackRef", "base"),
    ("shadow_top", "GcStruct ShadowStackRef", "top"),
    ("stacklet_copy", "GcStruct Stacklet", "s_sscopy"),
    ("tracer_base", "GcStruct GCREFTRACER", "array_base_addr"),
    ("tracer_length", "GcStruct GCREFTRACER", "array_length"),
)
#: Fields like in WANTED, without which some names in reference paths are less specific.
WISHED = (
    ("deque_first", _PYPY + "module._collections.interp_deque.W_Deque",
     "inst_leftblock"),
    ("deque_first_index", _PYPY + "module._collections.interp_deque.W_Deque",
     "inst_leftindex"),
    ("block_next", _PYPY + "module._collections.interp_deque.Block", "inst_rightlink"),
    ("class_mro", _PYPY + "objspace.std.typeobject.W_TypeObject", "inst_mro_w"),
    ("attributes_map", _PYPY + "objspace.std.mapdict.Object", "inst_map"),
    ("frame_token", _PYPY + "interpreter.pyframe.PyFrame", "vable_token"),
    ("jit_forward", "GcStruct JITFRAME", "jf_forward"),
    ("tuple_items", _PYPY + "objspace.std.tupleobject.W_TupleObject",
     "inst_wrappeditems"),
    *(("%s_%s" % (name, where), _PYPY + "objspace.std.specialisedtupleobject."
       "W_SpecialisedTupleObject_" + of, field)
      for name, of in (("pair", "oo"), ("numbers", "ii"))
      for where, field in (("first", "inst_value0"), ("second", "inst_value1"))),
)
#: Offsets that types.c also reads: the name in the lines of classes.py, and the name in
#: native/held.
_KNOWN = {"to-end": "to_end", "to-class": "to_class", "to-qualname": "to_qualname",
          "to-table": "to_table", "to-entries": "to_entries", "to-string": "to_string",
          "to-value": "to_value"}

#: The text of these fields in a reference path, mostly a Python attribute.  The text of
#: other fields is an arrow and the name.
_WRITTEN = {
    "w_dict": ".__dict__", "w_func_dict": ".__dict__", "w_traceback": ".__traceback__",
    "w_cause": ".__cause__", "w_context": ".__context__", "defs_w": ".__defaults__",
    "w_kw_defs": ".__kwdefaults__", "w_function": ".__func__",
    "w_instance": ".__self__", "args_w": ".args", "frame": ".tb_frame",
    "next": ".tb_next", "w_callable": ".__callback__",
    "w_fget": ".fget", "w_fset": ".fset", "w_fdel": ".fdel",
    "last_dict": " -> of a thread"}
#: The type with the data of one thread.
_THREAD = _PYPY + "interpreter.executioncontext.ExecutionContext"
_EXCEPTIONS = _PYPY + "module.exceptions.interp_exceptions."
#: Superclasses, with the beginnings of the names of their subclasses.  The subclasses
#: have the fields of the superclass, too, but the GC's list does not repeat them.
_INHERITED = {
    _PYPY + "interpreter.generator.GeneratorOrCoroutine": tuple(
        _PYPY + "interpreter.generator.%s {" % name for name in (
            "GeneratorIterator", "Coroutine", "AsyncGenerator")),
    _PYPY + "module._weakref.interp__weakref.W_WeakrefBase": (
        _PYPY + "module._weakref.interp__weakref.W_Weakref {",
        _PYPY + "interpreter.typedef.W_WeakrefUser"),
    _PYPY + "interpreter.function._Method": (_PYPY + "interpreter.function.Method {",),
    _EXCEPTIONS + "W_BaseException": (_EXCEPTIONS,)}


def _names(text: str) -> list[str]:
    """Return the fields in "GcStruct NAME { a, b: * GcStruct C { d, e } }"."""
    found, depth, name = [], 0, ""
    for character in text[text.index("{") + 1:text.rindex("}")] + ",":
        depth += (character in "{(<") - (character in "})>")
        if character == "," and not depth:
            found.append(name.partition(":")[0].strip())
            name = ""
        else:
            name += character
    return [name for name in found if name]


class Fields:
    """The offsets of fields in the objects of RPython's types."""

    def __init__(self, memory: Memory, types: Types) -> None:
        """Store the type table."""
        self._memory, self._types = memory, types

    def row(self, type_: str) -> int:
        """Return the row of the type with this name.

        Raises:
            NotCertain: no type, or more than one, has this name.
        """
        found = [row for row, name in enumerate(
            self._types.names[:len(self._types.numbers)])
            if self._types.numbers[row] and name.startswith(type_ + " {")]
        if len(found) != 1:
            raise NotCertain("%d types have the name %s" % (len(found), type_))
        return found[0]

    def references(self, row: int) -> set[int]:
        """Return the offsets of references in a type's objects, without its items."""
        entry = self._types.entry(self._types.numbers[row])
        # in an entry of the type table, the field after the fixed size points to the
        # offsets
        at = entry[self._memory.layout.type_fixed_size // _WORD + 1]
        count = self._memory.word(at)
        if count > 1000:
            raise NotCertain("a type has %d references" % count)
        return set(self._memory.words(at + _WORD, count))

    def of(self, row: int) -> dict[str, int]:
        """Return the offset of each field that a type adds to its superclass's fields.

        Returns:
            An empty dict if the offsets are not certain.
        """
        entry = self._types.entry(self._types.numbers[row])
        names = _names(self._types.names[row])
        has_super = names[:1] == ["super"]
        words: list[str] = []
        small: list[str] = []
        last: list[str] = []
        for name in names[has_super:]:
            if name in _NO_ROOM:
                continue
            if name.startswith("mutate_"):
                last.append(name)
            elif small or (has_super and words and words[-1].startswith("inst_")
                           and name < words[-1]):
                small.append(name)
            else:
                words.append(name)
        if entry[self._types.bits // _WORD] & self._types.is_varsize:
            return self._before_items(row, words)
        size = entry[self._memory.layout.type_fixed_size // _WORD]
        references = self.references(row)
        answers = []
        for start in range(_WORD, size + 1 if has_super else _WORD + 1, _WORD):
            found = {name: start + _WORD * i for i, name in enumerate(words)}
            end = start + _WORD * len(words)
            found.update({name: end + i for i, name in enumerate(small)})
            end = -(-(end + len(small)) // _WORD) * _WORD
            found.update({name: end + _WORD * i for i, name in enumerate(last)})
            if end + _WORD * len(last) == size and {
                    at for at in references if at >= start} <= set(found.values()):
                answers.append(found)
        return answers[0] if len(answers) == 1 else {}

    def _before_items(self, row: int, names: list[str]) -> dict[str, int]:
        """Return the offsets of the fields of JIT frames.

        These fields precede the items of a JIT frame.  All except for two of them are
        references.  The result is empty if the type table disagrees.
        """
        found = {name: _WORD * (i + 1) for i, name in enumerate(names[:-1])}
        others = set(found.values()) - self.references(row)
        return found if {found.get("jf_frame_info"), found.get("jf_gcmap")} == others \
            else {}

    def field(self, type_: str, name: str) -> int:
        """Return the offset of a field in the objects of the type named `type_`.

        Raises:
            NotCertain: the offset is not certain.
        """
        found = self.of(self.row(type_))
        if name not in found:
            raise NotCertain("the field %s of %s was not found" % (name, type_))
        return found[name]


def lines(memory: Memory, types: Types, head: str, maps: dict[int, int],
          named: Iterable[int], exceptions: Iterable[int]) -> str:
    """Return the lines about fields and references for native/held/gc_types.c.

    Args:
        memory: the memory of this process.
        types: the type table.
        head: the lines for native/hook/gc/types.c, from Classes.head().
        maps: the offset from an instance to its map, by the number of its type.
        named: the rows of types that have a name in Python.
        exceptions: the rows of types of instances of exception classes.

    Raises:
        NotCertain: the offset of a needed field is not certain.
    """
    fields = Fields(memory, types)
    text = "".join("field %s %d\n" % (name, fields.field(type_, field))
                   for name, type_, field in WANTED)
    for name, type_, field in WISHED:
        with contextlib.suppress(NotCertain):
            text += "field %s %d\n" % (name, fields.field(type_, field))
    known = dict(line.split(" ", 1) for line in head.splitlines())
    text += "".join("field %s %d\n" % (to, int(known[word]))
                    for word, to in _KNOWN.items())
    # RPython's names of these types do not show that they are exceptions
    families = dict.fromkeys(exceptions, _EXCEPTIONS)
    inherited = []
    for superclass, subclasses in _INHERITED.items():
        with contextlib.suppress(NotCertain):
            inherited.append((fields.of(fields.row(superclass)), subclasses))
    for row in sorted({*named, *(types.rows[number] for number in maps),
                       fields.row(_THREAD)}):
        name = types.names[row]
        if not name.startswith(_PYPY):
            continue
        found = fields.of(row)
        for of_superclass, subclasses in inherited:
            if families.get(row, name).startswith(subclasses):
                found = {**of_superclass, **found}
        text += "".join(
            "edge %d %d %s\n" % (types.numbers[row], at, _edge(field, name))
            for field, at in sorted(found.items(), key=lambda pair: pair[1])
            if at in fields.references(row))
    return text


def _edge(field: str, of: str) -> str:
    """Return the text of a field in reference paths.

    "=N" means the attribute with storage index N of an instance.

    Args:
        field: the field's name in RPython.
        of: RPython's name of the type that has the field.
    """
    name = field.removeprefix("inst_")
    if name.startswith("_value") and name[6:].isdigit():
        return "=" + name[6:]
    if name == "storage" and "User" in of:
        return "=0"
    if name.startswith("value") and "specialisedtuple" in of:
        return "[%s]" % name[5:]
    if name == "frame" and ".generator." in of:
        return (".cr_frame" if "Coroutine {" in of else
                ".ag_frame" if "AsyncGenerator {" in of else ".gi_frame")
    if name == "w_function" and "StaticMethod" in of:
        # the attribute of the class is already the function
        return " -> function"
    if name in ("frame", "next") and ".pytraceback." not in of:
        return " -> " + name
    return _WRITTEN.get(name) or " -> " + name.removeprefix("w_").strip("_")

