"""The types of objects on an artificial heap (types.c)."""
from __future__ import annotations

import pathlib
import subprocess

import pytest

from native_build import build

#: types, as offsets into a table with entries of 64 bytes
OBJECT, LIST, ARRAY, STRING, TEXT, CELL, CLASS, META, MAP, END, DICT, ENTRIES = (
    range(64, 64 * 13, 64))
VARSIZE = 0x10000
OLD, VISITED = 1 << 32, 1 << 34
NAMES = 65536
LONGEST = 1024
GCS, PYTHON, STORAGE, INTERNAL = 1, 2, 3, 4

Name = tuple[int, int, int, bytes]


@pytest.fixture(scope="module")
def harness() -> pathlib.Path:
    return build("types_harness", "hook/gc/types.c", "hook/gc/name.c",
                 "machines/guarded_read.c")


TEXTS = """\
old %d
class %d
class %d
string %d
text %d
cell %d
to-end 8
to-class 16
to-qualname 24
to-table 32
to-entries 16
to-string 8
to-value 16
type %d 143 0 40\t\tGcStruct W_Object { super, inst_map }
type %d 217 2 -1\tlist\tGcStruct W_List { super }
type %d 8 3 -1\tobject array\tGcArray of * object
""" % (OLD, CLASS, META, STRING, TEXT, CELL, OBJECT, LIST, ARRAY)
TEXTS += "".join("type %d %d 0 -1\t\tGcStruct other%d { }\n" % (n, n, n) for n in (
    STRING, TEXT, CELL, CLASS, META, MAP, END, DICT, ENTRIES))


class Heap:
    """An artificial heap, as lines for types_harness.c."""

    def __init__(self, harness: pathlib.Path, texts: str = TEXTS) -> None:
        self.harness = harness
        self.lines = ["table %d %d 0 %d 0 %d 0 %d" % entry for entry in (
            (OBJECT, 0, 48, 0, 0), (LIST, 0, 24, 0, 0), (MAP, 0, 4, 0, 0),
            (ARRAY, VARSIZE, 16, 8, 8), (STRING, VARSIZE, 25, 1, 16))]
        self.lines.append("text " + texts.encode().hex())
        self.lines.append("begin")
        self.end = 8

    def put(self, *words: int | str) -> int:
        at, self.end = self.end, self.end + 8 * len(words)
        self.lines += ["word %d %s" % (at + 8 * i, word)
                       for i, word in enumerate(words)]
        return at

    def string(self, text: bytes, flags: int = OLD) -> int:
        at = self.put(STRING | flags, 0, len(text))
        self.lines.append("bytes %d %s" % (at + 24, text.hex()))
        self.end = at + (24 + len(text) + 8) // 8 * 8
        return at

    def text(self, text: bytes) -> int:
        return self.put(TEXT | OLD, "@%d" % self.string(text))

    def cell(self, value: int) -> int:
        return self.put(CELL | OLD, 0, "@%d" % value)

    def its_class(self, name: bytes, module: bytes | int | None = b"app",
                  attributes: int = 0, flags: int = OLD,
                  kind: int = CLASS) -> int:
        """Add a class.  `module` is a text, None, or the address of a value."""
        entries: list[int | str] = []
        for i in range(attributes):
            entries += ["@%d" % self.string(b"attribute%d" % i), 0]
        if module is not None:
            value = module if isinstance(module, int) else self.text(module)
            entries += ["@%d" % self.string(b"__module__"), "@%d" % value]
        table = self.put(ENTRIES | OLD, len(entries) // 2, *entries)
        dict_ = self.put(DICT | OLD, 0, "@%d" % table)
        return self.put(kind | flags, 0, 0, "@%d" % self.string(name, flags),
                        "@%d" % dict_)

    def map(self, its_class: int, flags: int = OLD) -> int:
        end = self.put(END | flags, 0, "@%d" % its_class)
        return self.put(MAP | flags, "@%d" % end)

    def instance(self, its_map: int) -> int:
        return self.put(OBJECT, 0, 0, 0, 0, "@%d" % its_map)

    def of_class(self, name: bytes, module: bytes | int | None = b"app",
                 attributes: int = 0) -> int:
        return self.instance(self.map(self.its_class(name, module, attributes)))

    def ask(self, *lines: str) -> None:
        self.lines += lines

    def number(self, *objects: int) -> None:
        self.lines += ["number %d" % at for at in objects]

    def run(self) -> tuple[list[int], list[Name]]:
        """Return the harness's answers, and the names of types in the profile."""
        done = subprocess.run(
            [str(self.harness)], input="\n".join(self.lines) + "\n", text=True,
            capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr
        answers, names = [], []
        for line in done.stdout.splitlines():
            if line.startswith("name "):
                _, number, kind, gcs, *text = line.split(" ")
                names.append((int(number), int(kind), int(gcs),
                              bytes.fromhex(text[0] if text else "")))
            else:
                answers.append(int(line))
        return answers, names


def class_names(names: list[Name]) -> list[bytes]:
    return [name for _, kind, _, name in names if kind == PYTHON]


@pytest.fixture
def heap(harness: pathlib.Path) -> Heap:
    return Heap(harness)


def test_type_is_named_once_in_a_profile(heap: Heap) -> None:
    one, other = heap.put(LIST, 0, 0), heap.put(LIST | OLD, 0, 0)
    array = heap.put(ARRAY, 0)
    heap.number(one, other, array, one)
    heap.ask("begin")
    heap.number(array, one)
    answers, names = heap.run()
    assert answers == [1, 1, 2, 1, 1, 2]
    of_list = GCS, 217, b"GcStruct W_List { super }"
    of_array = GCS, 8, b"GcArray of * object"
    assert names == [
        (1, *of_list), (1, PYTHON, 217, b"list"),
        (2, *of_array), (2, STORAGE, 8, b"object array"),
        (1, *of_array), (1, STORAGE, 8, b"object array"),
        (2, *of_list), (2, PYTHON, 217, b"list")]


def test_type_without_another_name_has_the_name_of_the_gc(heap: Heap) -> None:
    heap.number(heap.put(MAP, 0))
    assert heap.run() == ([1], [
        (1, GCS, MAP, b"GcStruct other%d { }" % MAP)])


@pytest.mark.parametrize("header", [0, 8, 5000, 2**32 - 42, 2**64 - 42])
def test_invalid_header_has_no_type(heap: Heap, header: int) -> None:
    at = heap.put(header, 0)
    heap.ask("number %d" % at, "size %d" % at)
    assert heap.run() == ([0, 0], [])


def test_no_type_is_known_without_a_text(harness: pathlib.Path) -> None:
    heap = Heap(harness, "")
    at = heap.put(LIST, 0, 0)
    heap.ask("known", "number %d" % at, "size %d" % at)
    assert heap.run() == ([0, 0, 0], [])


def test_incomplete_text_is_refused(harness: pathlib.Path) -> None:
    heap = Heap(harness, TEXTS[:-1])
    heap.ask("known")
    assert heap.run() == ([0], [])


@pytest.mark.parametrize("words,size", [
    ((LIST,), 24), ((OBJECT,), 48), ((ARRAY, 0), 16), ((ARRAY, 5), 56),
    ((STRING, 0, 0), 32), ((STRING, 0, 7), 32), ((STRING, 0, 8), 40),
    # at least the size of an object that can hold a forwarding address
    ((MAP,), 16),
    # flags of young objects, and of large ones
    ((LIST | 1 << 35,), 24), ((LIST | 1 << 41,), 24), ((ARRAY | OLD, 1), 24),
    # an old object
    ((LIST | VISITED,), 0),
    # invalid lengths
    ((ARRAY, -1 & 2**64 - 1), 0), ((ARRAY, 2**60), 0)])
def test_size(heap: Heap, words: tuple[int, ...], size: int) -> None:
    heap.ask("size %d" % heap.put(*words))
    assert heap.run() == ([size], [])


@pytest.mark.parametrize("words,size", [
    ((LIST,), 24), ((MAP,), 8), ((ARRAY, 0), 16), ((LIST | VISITED,), 0)])
def test_size_of_old_objects(heap: Heap, words: tuple[int, ...], size: int) -> None:
    heap.ask("old %d" % heap.put(*words))
    assert heap.run() == ([size], [])


# ____________________________________________________________
# classes

def test_instances_have_the_type_of_their_class(heap: Heap) -> None:
    node = heap.map(heap.its_class(b"Outer.Node", b"app.models"))
    other = heap.of_class(b"Other")
    heap.number(heap.instance(node), other, heap.instance(node))
    answers, names = heap.run()
    assert answers == [1, 2, 1]
    assert class_names(names) == [b"app.models.Outer.Node", b"app.Other"]
    assert {(number, gcs, name) for number, kind, gcs, name in names
            if kind == GCS} == {
        (n, 143, b"GcStruct W_Object { super, inst_map }") for n in (1, 2)}


def test_objects_of_one_class_with_other_attributes(heap: Heap) -> None:
    """The objects have different maps with the same end."""
    its_class = heap.its_class(b"Node")
    heap.number(*(heap.instance(heap.map(its_class)) for _ in range(3)))
    answers, names = heap.run()
    assert answers == [1, 1, 1] and class_names(names) == [b"app.Node"]


def test_class_of_a_metaclass(heap: Heap) -> None:
    heap.number(heap.instance(heap.map(heap.its_class(b"Node", kind=META))))
    assert class_names(heap.run()[1]) == [b"app.Node"]


@pytest.mark.parametrize("module,name", [
    (b"builtins", b"Node"), (b"", b"Node"), (None, b"Node"), (b"b", b"b.Node"),
    (b"builtins2", b"builtins2.Node"), (b"builtin", b"builtin.Node")])
def test_module(heap: Heap, module: bytes | None, name: bytes) -> None:
    heap.number(heap.of_class(b"Node", module))
    assert class_names(heap.run()[1]) == [name]


def test_module_that_was_changed_is_in_a_cell(heap: Heap) -> None:
    heap.number(heap.of_class(b"Node", heap.cell(heap.text(b"new"))))
    assert class_names(heap.run()[1]) == [b"new.Node"]


def test_module_with_another_type_is_left_out(heap: Heap) -> None:
    for value in (heap.put(LIST | OLD, 0, 0), heap.cell(heap.put(LIST, 0, 0)),
                  heap.cell(0), heap.string(b"bare")):
        heap.number(heap.of_class(b"Node", value))
    answers, names = heap.run()
    assert answers == [1] * 4 and class_names(names) == [b"Node"]


@pytest.mark.parametrize("attributes,name", [
    (1, b"app.Node"), (255, b"app.Node"), (256, b"Node")])
def test_module_after_other_attributes(
        heap: Heap, attributes: int, name: bytes) -> None:
    heap.number(heap.of_class(b"Node", attributes=attributes))
    assert class_names(heap.run()[1]) == [name]


@pytest.mark.parametrize("name", [
    "\U0001f600", "\u20ac", "a\0b", "\"'\\", "\n\t\x1b[1m", ""])
def test_names_with_any_character(heap: Heap, name: str) -> None:
    heap.number(heap.of_class(name.encode()))
    assert class_names(heap.run()[1]) == [b"app." + name.encode()]


@pytest.mark.parametrize("name", [
    b"\xed\xa0\x80", b"\xff", b"\xc3", b"\xe2\x82", b"\xc0\x80", b"\xf5abc",
    b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\x80"])
def test_invalid_utf8_is_replaced(heap: Heap, name: bytes) -> None:
    """Python's strings may contain half a surrogate pair, and other invalid bytes."""
    heap.number(heap.of_class(b"x" + name + b"\xe2\x82\xac"))
    (found,) = class_names(heap.run()[1])
    assert found.startswith(b"app.x?")
    assert "\ufffd" not in found.decode()       # raises if it is not valid UTF-8
    assert found.endswith(b"\xe2\x82\xac") and len(found) == 8 + len(name)


@pytest.mark.parametrize("letter", ["a", "\u20ac", "\U0001f600"])
@pytest.mark.parametrize("more", [0, 1, 2, 3])
def test_long_names_are_cut(heap: Heap, letter: str, more: int) -> None:
    name = (letter * LONGEST).encode()
    heap.number(heap.of_class(b"x" * more + name),
                heap.of_class(b"x" * more + name + b"other"))
    answers, names = heap.run()
    assert answers == [1, 2]                # the classes differ, but not the names
    one, other = class_names(names)
    assert one == other and one.decode().endswith(letter + "...")
    assert LONGEST - 4 < len(one) <= LONGEST


def test_longest_name_that_fits_is_whole(heap: Heap) -> None:
    name = b"n" * (LONGEST - 4)
    heap.number(heap.of_class(name), heap.of_class(name + b"n"))
    assert class_names(heap.run()[1]) == [
        b"app." + name, b"app." + name[:-3] + b"..."]


def test_ten_thousand_classes_with_the_same_name_share_a_number(heap: Heap) -> None:
    for _ in range(10000):
        heap.number(heap.of_class(b"N", None))
        heap.end = 8                        # each class is at the same address
        heap.ask("major")
    answers, names = heap.run()
    assert set(answers) == {1} and class_names(names) == [b"N"]


@pytest.mark.slow
def test_excess_classes_have_the_type_of_the_gc(heap: Heap) -> None:
    """After NAMES names, instances of further classes have the GC's type."""
    for i in range(NAMES + 3):
        heap.number(heap.of_class(b"N%d" % i, None))
        heap.end = 8
        heap.ask("major")
    heap.number(heap.of_class(b"N0", None))
    answers, names = heap.run()
    assert answers == [*range(1, NAMES + 1), *[NAMES + 1] * 3, 1]
    assert len(class_names(names)) == NAMES
    assert names[-1] == (NAMES + 1, GCS, 143,
                         b"GcStruct W_Object { super, inst_map }")


# ____________________________________________________________
# remembered types

def test_class_that_is_renamed_has_its_new_name_at_once(heap: Heap) -> None:
    its_class = heap.its_class(b"Before")
    thing = heap.instance(heap.map(its_class))
    heap.number(thing)
    heap.ask("word %d @%d" % (its_class + 24, heap.string(b"After")))
    heap.number(thing)
    answers, names = heap.run()
    assert answers == [1, 2]
    assert class_names(names) == [b"app.Before", b"app.After"]


def replaced(heap: Heap, flags: int, *between: str) -> list[bytes]:
    """Put two classes at one address in turn, and return their recorded names."""
    at = heap.end
    for name in b"One", b"Two":
        heap.end = at
        string = heap.string(name, flags)
        # the name keeps its address, but has another text
        its_class = heap.put(CLASS | flags, 0, 0, "@%d" % string, 0)
        heap.number(heap.instance(heap.map(its_class, flags)))
        heap.ask(*between)
    return class_names(heap.run()[1])


def test_memory_of_a_class_is_used_again_after_a_major_collection(
        heap: Heap) -> None:
    assert replaced(heap, OLD, "major") == [b"One", b"Two"]


def test_memory_of_a_class_is_used_again_in_another_profile(
        heap: Heap) -> None:
    assert replaced(heap, OLD, "begin") == [b"One", b"Two"]


def test_young_class_moves(heap: Heap) -> None:
    """After a collection, another class gets the young class's place in the nursery."""
    assert replaced(heap, 0, "minor") == [b"One", b"Two"]


@pytest.mark.parametrize("young", ["map", "class", "name"])
def test_young_parts_of_a_class_move(heap: Heap, young: str) -> None:
    at = heap.end
    for name in b"One", b"Two":
        heap.end = at
        string = heap.string(name, 0 if young == "name" else OLD)
        its_class = heap.put(CLASS | (0 if young == "class" else OLD), 0, 0,
                             "@%d" % string, 0)
        heap.number(heap.instance(heap.map(
            its_class, 0 if young == "map" else OLD)))
        heap.ask("minor")
    assert class_names(heap.run()[1]) == [b"One", b"Two"]


@pytest.mark.parametrize("length", [0, 1, 39, 40, 41, 300])
def test_name_that_may_be_young_is_compared(heap: Heap, length: int) -> None:
    """Before the first major collection, an old string has no flag.

    So the sampler compares the text of the name.
    """
    string = heap.string(b"x" * length + b"1", 0)
    its_class = heap.put(CLASS | OLD, 0, 0, "@%d" % string, 0)
    thing = heap.instance(heap.map(its_class))
    for text in b"1", b"1", b"2", b"":
        heap.ask("bytes %d %s" % (string + 24 + length, text.hex()),
                 "word %d %d" % (string + 16, length + len(text)), "minor")
        heap.number(thing)
    answers, names = heap.run()
    assert answers == [1, 1, 2, 3]
    assert class_names(names) == [b"x" * length + text for text in (
        b"1", b"2", b"")]


def test_nothing_moves_until_the_next_collection(heap: Heap) -> None:
    """A class is examined once per collection, for all its new objects."""
    assert replaced(heap, 0) == [b"One"]


def test_old_class_is_remembered(heap: Heap) -> None:
    """Until the next major collection, no other class can get an old one's address."""
    assert replaced(heap, OLD, "minor") == [b"One"]


# ____________________________________________________________
# invalid objects

#: unmapped, not aligned, or small addresses
@pytest.mark.parametrize("pointer", [2**46, 2**63, 12345, 4095, 0, 1])
@pytest.mark.parametrize("step", range(9))
def test_pointers_that_lead_nowhere(
        heap: Heap, pointer: int, step: int) -> None:
    string, module = heap.string(b"Node"), heap.text(b"app")
    key = heap.string(b"__module__")
    table = heap.put(ENTRIES | OLD, 1, "@%d" % key, "@%d" % module)
    dict_ = heap.put(DICT | OLD, 0, "@%d" % table)
    its_class = heap.put(CLASS | OLD, 0, 0, "@%d" % string, "@%d" % dict_)
    end = heap.put(END | OLD, 0, "@%d" % its_class)
    its_map = heap.put(MAP | OLD, "@%d" % end)
    thing = heap.instance(its_map)
    broken = [thing + 40, its_map + 8, end + 16, its_class + 24, its_class + 32,
              dict_ + 16, table + 16, table + 24, module + 8][step]
    heap.ask("word %d %d" % (broken, pointer))
    heap.number(thing)
    answers, names = heap.run()
    assert answers == [1]
    assert class_names(names) == ([] if step < 4 else [b"Node"])


@pytest.mark.parametrize("header", [0, LIST, STRING, MAP])
def test_map_that_leads_to_no_class(heap: Heap, header: int) -> None:
    its_class = heap.its_class(b"Node")
    heap.ask("word %d %d" % (its_class, header))
    heap.number(heap.instance(heap.map(its_class)))
    answers, names = heap.run()
    assert answers == [1] and class_names(names) == []


@pytest.mark.parametrize("length", [-1 & 2**64 - 1, 2**62, 2**45])
def test_name_with_an_invalid_length(heap: Heap, length: int) -> None:
    its_class = heap.its_class(b"")
    string = heap.put(STRING | OLD, 0, length)
    heap.ask("word %d @%d" % (its_class + 24, string))
    heap.number(heap.instance(heap.map(its_class)))
    answers, names = heap.run()
    assert answers == [1]
    assert all(len(name) <= LONGEST for name in class_names(names))
