"""The search in code of the collector that other compilers than Debian's make."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import made_library
from conftest import PyPy
from made_library import FIXED, FREE, ITEM, TOP, Source
from vmprof_allocation.engines.hook.discovery import symbols
from vmprof_allocation.engines.hook.discovery.layout import IMPORTS

SEARCH = """
    import json, sys
    from vmprof_allocation.engines.hook.discovery import search
    from vmprof_allocation.errors import UnknownBuild
    evidence, layout, problem = search.Search(), None, ""
    try:
        layout = search.find(sys.argv[1], evidence).__dict__
    except UnknownBuild as e:
        problem = str(e)
    print(json.dumps({"layout": layout, "problem": problem,
                      "findings": evidence.findings}))
"""


class Answer:
    def __init__(self, pypy: PyPy, path: Path):
        run = pypy.command(str(pypy.script(SEARCH, "search.py")), str(path))
        assert run.code == 0, run.err
        answer = json.loads(run.out)
        self.layout, self.problem = answer["layout"], answer["problem"]
        self.findings = {what: value for what, value, _ in answer["findings"]}

    def is_right(self, places: dict[str, int]) -> bool:
        layout = self.layout
        assert layout is not None, self.problem
        return bool(
            layout["entry"] == [places[name] for name in (
                "reserve", "minor", "external")]
            and (layout["gc"], layout["nursery_free"], layout["nursery_top"]) == (
                places["gc"], places["gc"] + FREE, places["gc"] + TOP)
            and (layout["type_info"], layout["type_fixed_size"],
                 layout["type_item_size"]) == (places["table"], FIXED, ITEM))


def problem_of(pypy: PyPy, source: Source) -> str:
    """Build a library, and return the reason why the search refuses it."""
    path = pypy.folder / "made.so"
    made_library.build(source, path)
    problem: str = Answer(pypy, path).problem
    return problem


def test_code_by_gcc_is_found(pypy: PyPy) -> None:
    path = pypy.folder / "made.so"
    places = made_library.build(Source(), path)
    made_library.strip(path)
    assert Answer(pypy, path).is_right(places)


def test_code_by_clang_is_found(pypy: PyPy) -> None:
    path = pypy.folder / "made.so"
    places = made_library.build(made_library.clangs(), path)
    made_library.strip(path)
    answer = Answer(pypy, path)
    assert answer.is_right(places)
    assert answer.findings["symbols"] == "none"


def test_register_that_was_written_again_is_not_the_type_table(pypy: PyPy) -> None:
    size = made_library.SIZE_BY_INDEX.replace(
        "    mov edi, [rcx]", "    mov r12, [rcx + 8]\n    mov edi, [rcx]")
    assert "type table: 0 candidates" in problem_of(pypy, Source(size=size))


def test_a_call_leaves_nothing_in_its_registers(pypy: PyPy) -> None:
    size = made_library.SIZE_BY_ENTRY.replace(
        "    add rax, rdx\n", "    call minor\n    add rax, rdx\n")
    assert "type table: 0 candidates" in problem_of(pypy, Source(size=size))


@pytest.mark.parametrize("what,old,new", [
    # alloc_young is always the same, so the compiler left it out
    ("external_malloc", "    test cl, cl", ""),
    # the typeid becomes the first argument
    ("external_malloc", "mov r14, rdi", "xor edi, edi"),
])
def test_an_argument_that_the_compiler_left_out(
        pypy: PyPy, what: str, old: str, new: str) -> None:
    assert old in made_library.EXTERNAL_BY_ENTRY
    external = made_library.EXTERNAL_BY_ENTRY.replace(old, new)
    assert "arguments of %s: it does not read 4" % what in problem_of(
        pypy, Source(external=external))


def test_copies_that_the_compiler_made_for_some_arguments(pypy: PyPy) -> None:
    """gcc -flto makes three copies of a function, without its first argument."""
    path = pypy.folder / "made.so"
    name = symbols.NAMES["collect_and_reserve"]
    names = made_library.all_names()
    del names[name]
    names |= {name + ".constprop.%d" % i: "reserve" for i in range(3)}
    source = Source(names=names, allocation=made_library.ALLOCATION.replace(
        "    lea rdi, [rip + gc]\n    mov esi, 32\n", "    mov edi, 32\n"))
    made_library.build(source, path)
    assert "collect_and_reserve: the compiler made 3 copies of it" in Answer(
        pypy, path).problem
    made_library.strip(path)
    assert "the GC (first argument): no clear answer" in Answer(pypy, path).problem


def test_symbols_confirm_the_result(pypy: PyPy) -> None:
    path = pypy.folder / "made.so"
    places = made_library.build(Source(names=made_library.all_names()), path)
    answer = Answer(pypy, path)
    assert answer.is_right(places)
    assert answer.findings["symbols"] == "5 of 5, in %s" % path


@pytest.mark.parametrize("what", symbols.NAMES)
def test_symbol_at_another_address_is_a_refusal(pypy: PyPy, what: str) -> None:
    names = made_library.all_names()
    names[symbols.NAMES[what]] += " + 16"
    problem = problem_of(pypy, Source(names=names))
    assert re.search(r"known: %s( \(first argument\))?: 0x.*, but its symbol is at 0x"
                     % re.escape(what), problem), problem


#: a second function that moves both ends of the nursery
SECOND = """
second:
    .cfi_startproc
""" + made_library.MINOR + """
    .cfi_endproc
"""


@pytest.mark.parametrize("has_symbols", [False, True])
def test_symbol_decides_between_two_equal_functions(
        pypy: PyPy, has_symbols: bool) -> None:
    path = pypy.folder / "made.so"
    source = Source(reserve=made_library.RESERVE.replace(
        "    call {collect}", "    call {collect}\n    mov rdi, rbp\n    call second"),
        more=SECOND, names=made_library.all_names())
    places = made_library.build(source, path)
    if not has_symbols:
        made_library.strip(path)
    answer = Answer(pypy, path)
    if has_symbols:
        assert answer.is_right(places)
    else:
        assert "_minor_collection: 2 candidates" in answer.problem


def test_symbols_in_a_debug_file_of_a_stripped_library(pypy: PyPy) -> None:
    path, debug = pypy.folder / "made.so", pypy.folder / "made.so.debug"
    places = made_library.build(Source(names=made_library.all_names()), path)
    made_library.debug_file(path, debug)
    made_library.strip(path)
    answer = Answer(pypy, path)
    assert answer.is_right(places)
    assert answer.findings["symbols"] == "5 of 5, in %s" % debug


@pytest.mark.parametrize("content", ["another build", "no symbols", "no ELF file"])
def test_debug_file_that_does_not_belong_to_the_build(pypy: PyPy, content: str) -> None:
    path, debug = pypy.folder / "made.so", pypy.folder / "made.so.debug"
    places = made_library.build(Source(), path)
    made_library.strip(path)
    if content == "another build":
        names = dict.fromkeys(symbols.NAMES.values(), "imports")
        made_library.build(Source(names=names), debug)
    else:
        debug.write_bytes(path.read_bytes() if content == "no symbols" else b"text")
    answer = Answer(pypy, path)
    assert answer.is_right(places)
    assert answer.findings["symbols"] == "none"


def test_a_refusal_shows_the_code_that_was_seen(pypy: PyPy) -> None:
    path = pypy.folder / "made.so"
    size = made_library.SIZE_BY_ENTRY.replace("imul rdx, [rax + 0x20]", "nop")
    places = made_library.build(Source(size=size), path)
    answer = Answer(pypy, path)
    assert "type table" in answer.problem
    data = path.read_bytes()
    for what, label in ("collect_and_reserve", "reserve"), (
            "_minor_collection", "minor"):
        address, _, code = answer.findings["code of " + what].partition(": ")
        assert int(address, 16) == places[label]
        assert bytes.fromhex(code) in data
    assert bytes.fromhex(answer.findings["code of an allocation"].partition(": ")[2])


@pytest.mark.parametrize("binding,read_only", [
    # the address of free() is taken, so the linker protects its pointer
    ("lazy", {"free"}), ("now", {"write", "mmap", "munmap", "sigaction", "free"})])
def test_pointers_to_c_functions_of_which_some_are_read_only(
        pypy: PyPy, binding: str, read_only: set[str]) -> None:
    path = pypy.folder / "made.so"
    made_library.build(Source(), path, binding)
    layout = Answer(pypy, path).layout
    assert {name for name, slot in zip(IMPORTS, layout["slot"]) if slot} == {
        "write", "mmap", "munmap", "sigaction", "free"}
    assert {name for i, name in enumerate(IMPORTS)
            if layout["slots_read_only"] >> i & 1} == read_only
