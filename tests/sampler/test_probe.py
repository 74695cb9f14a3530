"""Facts about objects that the probe finds in the PyPy under test, and their effects on
profiles."""
from __future__ import annotations

import functools
import json
import os
import re
import signal
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from conftest import CACHE, PyPy
from profile_types import INTERNAL, PYTHON, STORAGE, Types
from report_runs import report
from test_search import fields, remembered
from vmprof_allocation.engines import searching
from vmprof_allocation.engines.hook.discovery import cache
from vmprof_allocation.engines.hook.discovery.layout import Layout
from vmprof_allocation.engines.searching import SEARCHING

JIT = pytest.mark.parametrize("jit", ["off", ""])


def test_facts_are_found(stock_pypy: PyPy) -> None:
    """Compare the facts with incminimark's source, and check an offset that varies."""
    layout = fields(remembered(stock_pypy).read_text())
    known = {name: int(layout[name][0]) for name in (
        "type_info_bits", "type_is_varsize", "type_length", "flag_visited",
        "flag_pinned", "forwarded")}
    assert known == {
        "type_info_bits": 0, "type_is_varsize": 0x10000, "type_length": 48,
        "flag_visited": 1 << 34, "flag_pinned": 1 << 41, "forwarded": -42}
    state = int(layout["gc_state"][0])
    assert 0 < state < int(layout["nursery_free"][0]) - int(layout["gc"][0])
    assert state % 8 == 0


def test_probe_that_never_ends_is_stopped_by_its_processor_time(
        stock_pypy: PyPy) -> None:
    """A busy machine may need much more elapsed time for the same computation."""
    done = stock_pypy.run(textwrap.dedent("""
        from vmprof_allocation.engines.hook.probe import __main__ as probe
        def loop(text):
            while True:
                pass
        probe.PROCESSOR_SECONDS = 0.1
        probe.Layout.parse = loop
        probe.main()
        """))
    assert done.code == -signal.SIGVTALRM


# ____________________________________________________________
# names of Python's types and the interpreter's types

def texts(pypy: PyPy) -> list[str]:
    """Return the lines of the file in which the probe has written all types."""
    doctor = pypy.command("-m", "vmprof_allocation", "doctor").out
    (build_id,) = set(re.findall("build-id: ([0-9a-f]+)", doctor))
    path = Path(CACHE, "vmprof-allocation", "%s-%d.types" % (
        build_id, cache.VERSION))
    return path.read_text().splitlines()


def by_row(pypy: PyPy) -> dict[int, tuple[int, str, str]]:
    """Return the kind, the name and the GC's name for each row of the GC's list."""
    found = {}
    for line in texts(pypy):
        if line.startswith("type "):
            numbers, name, of_gc = line.split("\t")
            _, _, row, kind, _ = numbers.split(" ")
            found[int(row)] = int(kind), name, of_gc
    return found


BUILTINS = {
    "5": "int", "1 << 70": "int", "True": "bool", "0.5": "float",
    "2j": "complex", "'abc'": "str", "b'abc'": "bytes",
    "bytearray(b'abc')": "bytearray", "(1, 2)": "tuple", "(1, 'a')": "tuple",
    "(0.5, 0.5)": "tuple", "(1, 2, 3, 4, 5)": "tuple", "[1]": "list",
    "{}": "dict", "{1: 2}": "dict", "{1}": "set",
    "frozenset({1})": "frozenset", "range(3)": "range", "slice(1)": "slice",
    "memoryview(b'')": "memoryview", "object()": "object", "int": "type",
    "lambda: 1": "function", "len": "builtin_function", "[].append": "method",
    "(i for i in [])": "generator", "coroutine": "coroutine",
    "asynchronous()": "async_generator", "iter(range(3))": "range_iterator",
    "iter({})": "dict_keyiterator", "{}.keys()": "dict_keys",
    "{}.items()": "dict_items", "iter({1})": "setiterator",
    "(lambda: 1).__code__": "code", "trace": "traceback",
    "(lambda: sys).__closure__[0]": "cell", "property()": "property",
    "staticmethod(len)": "staticmethod", "enumerate([])": "enumerate",
    "zip()": "zip", "map(len, [])": "map", "super(int, 5)": "super",
    "weakref.ref(len)": "weakref", "collections.deque()": "collections.deque",
    "array.array('d')": "array.array", "io.StringIO()": "_io.StringIO",
    "io.BytesIO()": "_io.BytesIO", "re.compile('a')": "_sre.SRE_Pattern",
    "re.match('a', 'a')": "_sre.SRE_Match", "struct.Struct('i')": "_struct.Struct",
    "itertools.count()": "itertools.count", "gc": "module",
    "threading.Lock()": "_thread.lock", "NotImplemented": "NotImplementedType",
}


def test_names_of_pythons_own_types(stock_pypy: PyPy) -> None:
    """Compare the names with `type` in another process, and with BUILTINS.

    The probe examined a different heap.  BUILTINS has the names that all builds share.
    """
    script = stock_pypy.script("""
        import array, collections, gc, io, itertools, json, re, struct, sys
        import threading, weakref
        async def make(): pass
        async def asynchronous(): yield 1
        coroutine = make()
        try:
            1 / 0
        except ZeroDivisionError as e:
            trace = e.__traceback__
        def look():
            answers = {}
            for source in json.loads(sys.argv[1]):
                thing = (lambda: eval(source, globals(), {"sys": sys}))()
                kind = type(thing)
                answers[source] = (
                    gc.get_rpy_type_index(thing), kind.__module__,
                    kind.__qualname__)
            print(json.dumps(answers))
        look()
        coroutine.close()
    """)
    sources = [s for s in BUILTINS if "__closure__" not in s]
    run = stock_pypy.command(str(script), json.dumps(sources))
    assert run.code == 0, run.err
    rows = by_row(stock_pypy)
    same = 0
    for source, (row, module, name) in json.loads(run.out).items():
        expected = name if module == "builtins" else module + "." + name
        assert rows[row][:2] == (PYTHON, expected), source
        same += expected == BUILTINS[source]
    # newer versions have some types in other modules
    assert same > len(sources) - 8


@pytest.mark.parametrize("of_gc,kind,name", [
    ("GcStruct JITFRAME {", INTERNAL, "JIT frame"),
    ("GcStruct pypy.objspace.std.frame.StdObjSpaceFrame {", INTERNAL, "frame"),
    ("GcStruct pypy.objspace.std.mapdict.PlainAttribute {", INTERNAL, "map"),
    ("GcStruct rpython.jit.metainterp.history.ConstInt {", INTERNAL,
     "JIT compiler"),
    ("GcStruct rpy_string {", STORAGE, "characters"),
    # these types belong to lists, tuples, frames and other objects
    ("GcArray of * GcStruct object {", STORAGE, "object array"),
    ("GcArray of Signed", STORAGE, "int array"),
    # and these types to one of Python's types
    ("GcArray of Float", STORAGE, "list"),
    ("GcArray of odictentry { key: Signed, value: * GcStruct object {", STORAGE,
     "dict"),
    ("GcStruct rpython.rlib.rbigint.rbigint {", STORAGE, "int"),
    ("GcStruct pypy.module._collections.interp_deque.Block {", STORAGE,
     "collections.deque"),
])
def test_names_of_types_that_python_does_not_show(
        stock_pypy: PyPy, of_gc: str, kind: int, name: str) -> None:
    # in newer versions, all pointers to objects have the same type
    spellings = of_gc, of_gc.replace("GcStruct object {", "GCREF (gcopaque)")
    found = {(kind, name) for kind, name, full in by_row(stock_pypy).values()
             if full.startswith(spellings)}
    assert (kind, name) in found
    # some dicts of the interpreter have the same layout
    assert len(found) == 1 or "odictentry" in of_gc


def test_every_type_has_a_name_or_a_class(stock_pypy: PyPy) -> None:
    """No type has both a name and a class."""
    for _, name, full in by_row(stock_pypy).values():
        of_instances = re.match(
            r"GcStruct pypy\.interpreter\.typedef\.\w+User", full)
        assert (name == "") == (of_instances is not None), (name, full)


# ____________________________________________________________
# instances

#: Makes instances in a loop.  Other allocations between them keep other parts of the
#: interpreter busy.
MAKE = """
import gc, sys, types
kept = []
def make(kind, *arguments, count=3000):
    for i in range(count):
        kept.append(kind(*arguments))
    kept.clear()
"""


#: the types of objects are only known after they have left the nursery
SETTLE = "gc.collect()\n"


def sampled(pypy: PyPy, source: str, jit: str = "") -> Types:
    """Return the types of a program that is sampled at an interval of 512 bytes."""
    return Types(pypy.sample(
        MAKE + textwrap.dedent(source) + "\n" + SETTLE, "512", jit=jit).path)


@JIT
def test_classes_of_all_kinds(stock_pypy: PyPy, jit: str) -> None:
    types = sampled(stock_pypy, """
    class Meta(type): pass
    class Plain: pass
    class Attributes:
        def __init__(self):
            for i in range(12):
                setattr(self, "attribute%d" % i, i)
    class Slots:
        __slots__ = "one", "two"
        def __init__(self):
            self.one = self.two = 1
    class WithMeta(metaclass=Meta): pass
    class Outer:
        class Inner: pass
    class OfDict(dict): pass
    class OfList(list): pass
    class OfInt(int): pass
    class OfStr(str): pass
    class OfTuple(tuple): pass
    class OfException(ValueError): pass
    class OfOSError(OSError): pass
    class Devolved:
        def __init__(self):
            self.__dict__[5] = 6
    def function():
        class Local: pass
        return Local
    class Foreign: pass
    Foreign.__module__ = "else.where"
    Foreign.__module__ = "quite.else.where"
    class Nowhere: pass
    Nowhere.__module__ = 5
    for kind in (Plain, Attributes, Slots, WithMeta, Outer, Outer.Inner, OfDict,
                 OfList, OfInt, OfTuple, OfException, OfOSError, Devolved,
                 Foreign, Nowhere, function(), ValueError, KeyError,
                 StopIteration):
        make(kind)
    make(OfStr, "abc")
    make(Meta, "Made", (), {}, count=300)
    """, jit).counts()
    of_main = ["Plain", "Attributes", "Slots", "WithMeta", "Outer",
               "Outer.Inner", "OfDict", "OfList", "OfInt", "OfStr", "OfTuple",
               "OfException", "OfOSError", "Devolved", "function.<locals>.Local",
               "Meta"]
    others = ["quite.else.where.Foreign", "Nowhere", "ValueError", "KeyError",
              "StopIteration"]
    for name in ["__main__." + name for name in of_main] + others:
        # 3000 objects of 40 bytes or more give fewer samples once in ten million years
        assert types[name] > 100, (name, types)
    assert not any("Made" in name or name.endswith(("else.where.Nowhere",))
                   for name in types)


@JIT
@pytest.mark.parametrize("name", [
    "\U0001f600", "\u20ac", "\"'\\", "\n\t\x1b[1m", "a\0b", "x" * 3000,
    "a:b;c=d", "\u202e"])
def test_names_with_any_character(
        stock_pypy: PyPy, jit: str, name: str) -> None:
    types = sampled(stock_pypy, """
    class Named: pass
    Named.__qualname__ = %r
    make(Named)
    """ % name, jit).counts()
    expected = "__main__." + name
    if len(expected) > 1024:
        expected = expected[:1021] + "..."
    assert types[expected] > 100


@JIT
def test_half_a_character_is_a_question_mark(
        stock_pypy: PyPy, jit: str) -> None:
    types = sampled(stock_pypy, """
    class Named: pass
    Named.__qualname__ = "a\\ud800b"
    make(Named)
    """, jit).counts()
    assert types["__main__.a???b"] > 100


@JIT
def test_class_that_is_renamed(stock_pypy: PyPy, jit: str) -> None:
    """An object counts under the name that its class has at the next collection."""
    types = sampled(stock_pypy, """
    class Before: pass
    for i in range(5):
        make(Before)
        gc.collect()
        Before.__qualname__ = "After%d" % i
    """, jit).counts()
    for name in "Before", "After0", "After1", "After2", "After3":
        assert types["__main__." + name] > 100
    assert types["__main__.After4"] == 0


@JIT
def test_module_that_is_changed(stock_pypy: PyPy, jit: str) -> None:
    """The change is noticed after the next major collection."""
    types = sampled(stock_pypy, """
    class Moved: pass
    for i in range(5):
        make(Moved)
        gc.collect(); gc.collect()
        Moved.__module__ = "module%d" % i
        gc.collect(); gc.collect()
    """, jit).counts()
    for name in "__main__", "module0", "module1", "module2", "module3":
        assert types[name + ".Moved"] > 100
    assert types["module4.Moved"] == 0


@JIT
def test_classes_that_are_deleted(stock_pypy: PyPy, jit: str) -> None:
    """Later classes get the memory of deleted classes."""
    types = sampled(stock_pypy, """
    for i in range(60):
        make(type("Made%d" % i, (), {}), count=1000)
        if i % 2:
            gc.collect(); gc.collect()
    """, jit).counts()
    made = {name: count for name, count in types.items() if ".Made" in name}
    assert set(made) == {"__main__.Made%d" % i for i in range(60)}
    # 1000 objects of 56 bytes at 512 bytes give 104 samples of each class, plus or
    # minus 10
    assert all(40 < count < 170 for count in made.values()), made


@JIT
def test_ten_thousand_classes_with_the_same_name(stock_pypy: PyPy, jit: str) -> None:
    """The classes have one number, because their instances have the same layout."""
    found = sampled(stock_pypy, """
    for i in range(10000):
        make(type("Same", (), {"__module__": "made"}), count=10)
    """, jit)
    assert found.counts()["made.Same"] > 5000
    assert sum(names.get(PYTHON) == "made.Same"
               for names in found.names.values()) == 1


# ____________________________________________________________
# uncertain facts

def test_library_of_another_build_is_not_probed(
        stock_pypy: PyPy, tmp_path: Path) -> None:
    """The layout seems to come from another PyPy's search.py."""
    path = remembered(stock_pypy)
    layout = path.read_text()
    layout = layout[:layout.rindex("check=")].replace("build_id=", "build_id=0")
    script = stock_pypy.script("""
        import sys
        from vmprof_allocation.engines.hook.discovery.layout import Layout
        from vmprof_allocation.engines.hook.probe.__main__ import probe
        from vmprof_allocation.errors import Evidence
        layout = Layout.parse(sys.stdin.read())
        layout.gc_state, evidence = -1, Evidence()
        print(repr(probe(layout, evidence)), layout.gc_state)
        print(evidence.findings[-1])
    """)
    (tmp_path / "layout").write_text(layout)
    run = stock_pypy.command("-c", "import subprocess, sys; subprocess.run("
                             "[sys.executable, %r], stdin=open(%r))" % (
                                 str(script), str(tmp_path / "layout")))
    assert run.out.startswith("'' -1\n('objects', 'not known: this process runs "
                              "another build"), run


#: Programs in place of the probe.  The second program is killed as for lack of memory,
#: a problem that the stored result must not contain.
BROKEN = ("import os; os.kill(os.getpid(), 11)", "import os; os.kill(os.getpid(), 9)",
          "print('{}')", "print('')", "raise SystemExit(1)",
          "print('{\"layout\": \"\"}')")


@functools.cache
def answers_of_broken_probes() -> list[dict[str, Any]]:
    """Return the answers of the search with each broken probe, from one process."""
    with tempfile.TemporaryDirectory() as folder:
        pypy = PyPy(Path(folder))
        layout = Layout.parse(cache.load(str(remembered(pypy))) or "")
        for name in vars(layout).keys() & vars(Layout).keys():
            delattr(layout, name)       # facts that a probe has found
        (pypy.folder / "layout").write_text(layout.text())
        programs = [str(pypy.script(program, "broken%d.py" % number))
                    for number, program in enumerate(BROKEN)]
        script = pypy.script("""
            import subprocess, sys
            from vmprof_allocation.engines.hook.discovery import search
            from vmprof_allocation.engines.hook.discovery.layout import Layout
            run = subprocess.run
            with open("layout") as file:
                text = file.read()
            search.find = lambda library, search: Layout.parse(text)
            for program in sys.argv[1:]:
                def broken(command, **options):
                    return run([sys.executable, program], **options)
                search.subprocess.run = broken
                search.main(["library"])
                print()
        """, "search.py")
        done = pypy.command(str(script), *programs)
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("program", BROKEN)
def test_probe_that_fails_does_not_prevent_sampling(
        stock_pypy: PyPy, program: str) -> None:
    """A wrong pointer kills the probe's process, but not the search's process."""
    answer = answers_of_broken_probes()[BROKEN.index(program)]
    layout = fields(answer["layout"])
    assert layout["gc_state"] == ["-1"] and layout["types_size"] == ["0"]
    assert [value.partition(":")[0] for what, value, _ in answer["findings"]
            if what == "objects"] == [
        "not known this time" if ", 9)" in program else "not known"]


def test_temporary_problems_are_distinguished(stock_pypy: PyPy, tmp_path: Path) -> None:
    """The GC's dump needs space for a file, whose lack is not a fact of the build."""
    text = remembered(stock_pypy).read_text()
    (tmp_path / "layout").write_text(text[:text.rindex("check=")])
    script = stock_pypy.script("""
        import resource, sys
        from vmprof_allocation.engines.hook.discovery.layout import Layout
        from vmprof_allocation.engines.hook.probe.__main__ import probe
        from vmprof_allocation.errors import Evidence
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, -1))
        evidence = Evidence()
        with open(sys.argv[1]) as file:
            probe(Layout.parse(file.read()), evidence)
        for what, value, _ in evidence.findings:
            if value.startswith("not known"):
                print(what, value.partition(":")[0], sep=": ")
    """)
    run = stock_pypy.command("--jit", "off", str(script), str(tmp_path / "layout"))
    assert run.out == "names: not known this time\nreferences: not known this time\n"


def test_result_with_a_temporary_problem_is_not_kept(stock_pypy: PyPy) -> None:
    """The next run searches again."""
    run = stock_pypy.command(str(stock_pypy.script("""
        import os, sys
        from vmprof_allocation.engines.hook.discovery import cache, search
        from vmprof_allocation.engines.hook.discovery.layout import Layout
        found = Layout.parse(cache.load(sys.argv[1]))
        search.find = lambda library, search: found
        kept = []
        for value in "of 100 types", "not known: 2", "not known this time: OSError()":
            def probed(layout, search):
                search.found("names", value)
                return layout, b"types"
            search._probed = probed
            path = os.path.abspath("cache%d/vmprof-allocation/build" % len(kept))
            search.main(["library", path])
            kept.append(os.path.exists(path))
            print()
        print()
        print(kept)
    """)), str(remembered(stock_pypy)))
    *answers, kept = run.out.splitlines()
    assert kept == "[True, True, False]"
    assert [json.loads(answer)["not_kept"] for answer in answers if answer] == [
        "", "", "names: not known this time: OSError()"]


def test_message_states_why_the_search_is_repeated() -> None:
    incomplete = searching._not_kept("/x/build", "names: not known this time: 2")
    assert "this search was incomplete (names: not known this time: 2)" in incomplete
    assert "XDG_CACHE_HOME" not in incomplete
    full = searching._not_kept("/x/build", "No space left on device")
    assert "cannot store the result in '/x/build' (No space left on device)" in full


@pytest.fixture
def unprobed(stock_pypy: PyPy) -> PyPy:
    """Return a PyPy whose build has no known facts about objects."""
    path = remembered(
        stock_pypy, gc_state="-1", type_info_bits="-1", type_is_varsize="0",
        type_length="-1", flag_visited="0", flag_pinned="0", forwarded="0",
        types_size="0", types_check="0")
    Path(cache.types_path(str(path))).write_bytes(b"")
    return stock_pypy


def test_unknown_table_of_compiled_code_is_noted_in_the_report(
        stock_pypy: PyPy) -> None:
    loop = "kept = []\nfor i in range(100000):\n    kept.append([i])\n"
    known = stock_pypy.sample(loop, "512")
    assert "callers" in known.profile().settings["capabilities"].split(",")
    assert "callers: in compiled code, some callers are wrong, " in (
        all_remarks(known.path))
    remembered(stock_pypy, codemap="0")
    lacking = stock_pypy.sample(loop, "512")
    assert "callers" not in lacking.profile().settings["capabilities"].split(",")
    assert "callers: where compiled code calls compiled code, the stacks are " in (
        all_remarks(lacking.path))


def all_remarks(path: Path) -> str:
    return " ".join(report(path, "--notes").stdout.split())


def test_sampling_works_without_types(unprobed: PyPy) -> None:
    run = unprobed.sample(MAKE + "make(object)\n" + SETTLE, "512")
    profile = run.profile()
    assert len(profile.samples) > 50
    assert "types" not in profile.settings["capabilities"].split(",")
    assert profile.settings["facts"] == ""
    assert Types(run.path).names == {}


@pytest.mark.parametrize("damage", ["", "x", "missing", "writable"])
def test_damaged_names_are_refused(stock_pypy: PyPy, damage: str) -> None:
    path = remembered(stock_pypy)
    layout = Layout.parse(cache.load(str(path)) or "")
    room = bytearray(layout.types_size)
    types = cache.types_path(str(path))
    assert cache.fill(types, room, layout.types_check)
    damage_names(Path(types), damage)
    assert not cache.fill(types, room, layout.types_check)


def damage_names(types: Path, damage: str) -> None:
    if damage == "missing":
        types.unlink()
    elif damage == "writable":
        types.chmod(0o622)
    else:
        types.write_bytes(damage.encode() * types.stat().st_size)


def test_damaged_names_are_searched_again(stock_pypy: PyPy) -> None:
    """With --quiet, the new search is not reported."""
    types = Path(cache.types_path(str(remembered(stock_pypy))))
    good = types.read_bytes()
    damage_names(types, "writable")
    run = stock_pypy.sample(MAKE + "make(object)\n" + SETTLE, "512", "--quiet")
    assert run.err == ""
    assert types.read_bytes() == good
    assert types.stat().st_mode & 0o777 == 0o600
    assert Types(run.path).counts()["object"] > 50


def test_names_are_known_without_a_cache(stock_pypy: PyPy) -> None:
    (stock_pypy.folder / "file").write_text("")
    run = stock_pypy.sample(
        MAKE + "class Named: pass\nmake(Named)\n" + SETTLE, "512",
        XDG_CACHE_HOME=str(stock_pypy.folder / "file" / "x"))
    assert Types(run.path).counts()["__main__.Named"] > 100
    looking, kept = run.err.splitlines()
    assert looking == "vmprof: " + SEARCHING
    assert "cannot store the result in '%s/file/x/" % stock_pypy.folder in kept
    assert " (Not a directory), so the next run searches again" in kept


def test_names_do_not_stay_on_the_heap(stock_pypy: PyPy) -> None:
    """The names are a text of some hundred kilobytes."""
    script = stock_pypy.script("""
        import gc, sys
        import vmprof_allocation
        with vmprof_allocation.sample("out.vmprof", "1M"):
            for i in range(3):
                gc.collect()
            print([type(thing) for thing in gc.get_objects()
                   if isinstance(thing, (str, bytes)) and len(thing) > 50000])
        print(sorted(m for m in sys.modules if ".hook." in m))
    """)
    lines = stock_pypy.command(str(script)).out.splitlines()
    assert lines[0] == "[]"
    assert not {"cache", "lookup", "process", "hand_over", "probe", "search"} & {
        name.rpartition(".")[2] for name in eval(lines[1])}
    assert os.path.exists(stock_pypy.folder / "out.vmprof")
