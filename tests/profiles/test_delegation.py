"""Tests of the note about callers that are missing from stacks of compiled code.

Compiled code has no frames of generators that delegate (`yield from`, `await`).
missing_callers.missing() finds such functions by comparison with interpreted stacks and
with the source.
"""
from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import PyPy
from made_profiles import FrameSpec, Log, jit
from report_runs import text
from vmprof_convert import readers
from vmprof_convert.analysis import summary
from vmprof_convert.meaning import missing_callers
from vmprof_convert.meaning.compiled_code import compiled_code
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.user_code import only_own

SOURCE = """
    def make(): pass
    def leaf():
        yield make()
    @decorated
    def middle():
        yield from leaf()
    async def outer():
        await middle()
    def plain():
        for x in leaf(): yield x
        def inside():
            yield from leaf()
    def main():
        for x in outer(): pass
    class Items:
        def __next__(self): pass
"""
LINES = {"make": 2, "leaf": 3, "middle": 5, "outer": 8, "plain": 10,
         "main": 14, "__next__": 17}


class Program:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.py"
        self.path.write_text(textwrap.dedent(SOURCE))
        self.log = Log()
        self.functions = {name: self.log.function(name, line, str(self.path))
                          for name, line in LINES.items()}
        self.log.settings()

    def sample(self, names: str, is_compiled: bool) -> None:
        frames: Sequence[FrameSpec] = [
            jit(self.functions[name]) if is_compiled else self.functions[name]
            for name in names.split()]
        self.log.allocation(frames, size=16)

    def missing(self) -> list[str]:
        self.profile = readers.read_bytes(self.log.data())
        return [f.name for f in missing_callers.missing(self.profile).functions]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_delegating_functions_that_compiled_code_lacks(
        program: Program) -> None:
    program.sample("main outer middle leaf make", False)
    program.sample("main leaf make", True)
    program.sample("main leaf", True)
    program.sample("main make", True)
    assert sorted(program.missing()) == ["middle", "outer"]
    assert [len(program.profile.stacks[number]) for number in
            sorted(missing_callers.missing(program.profile).stacks)] == [3, 2]
    (line,) = [line for line in text(program.profile).splitlines()
               if line.startswith("missing: ")]
    # two samples of 16 bytes, at an interval of 1000 bytes
    assert line.startswith('missing: up to 1.97 KiB are missing from "total" of '
                           'middle, outer, ')


def test_functions_without_a_row_are_not_named(tmp_path: Path) -> None:
    """A report on user code has no rows of library functions."""
    path = tmp_path / "lib" / "python3.9" / "site-packages" / "library.py"
    path.parent.mkdir(parents=True)
    path.write_text(textwrap.dedent(SOURCE))
    log = Log()
    main = log.function("main", 1, "/srv/app.py")
    middle, leaf = (log.function(name, LINES[name], str(path))
                    for name in ("middle", "leaf"))
    log.settings()
    log.allocation([main, middle, leaf], size=16)
    log.allocation([jit(main), jit(leaf)], size=16)
    profile = readers.read_bytes(log.data())
    code = compiled_code(profile)
    assert [f.name for f in summary.summarize(profile).missing] == ["middle"]
    own = only_own(profile, Origins(profile))
    assert [row.function.name for row in summary.summarize(own).rows] == ["main"]
    assert summary.summarize(own, code=code).missing == []


def test_missing_part_of_a_chain(program: Program) -> None:
    """Both stacks of compiled code have `outer`, and one of them lacks `middle`."""
    program.sample("main outer middle leaf", True)
    program.sample("main outer leaf", True)
    assert program.missing() == ["middle"]


def test_an_iterator_that_is_written_in_python(program: Program) -> None:
    program.sample("main middle __next__", False)
    program.sample("main __next__", True)
    assert program.missing() == ["middle"]


@pytest.mark.parametrize("stacks", [
    # an interpreted stack also has main as the caller of leaf
    ["main leaf"],
    # the function between main and leaf does not delegate
    ["main plain leaf"],
    # no interpreted stack has a function between main and leaf
    ["outer middle leaf", "main"],
    # the callee of middle is not a generator
    ["main middle make"],
])
def test_finds_no_missing_callers(program: Program, stacks: list[str]) -> None:
    if stacks == ["main leaf"]:
        program.sample("main outer middle leaf", False)
    for names in stacks:
        program.sample(names, False)
    program.sample("main leaf", True)
    program.sample("main make", True)
    assert program.missing() == []


def test_finds_no_missing_callers_without_the_source(program: Program) -> None:
    program.sample("main outer middle leaf make", False)
    program.sample("main leaf make", True)
    program.path.unlink()
    assert program.missing() == []


@pytest.mark.parametrize("text", [b"yield (", b"yield \xff", b"yield \0",
                                  b"yield " + b"(" * 10000])
def test_source_with_syntax_errors(program: Program, text: bytes) -> None:
    program.sample("main outer middle leaf make", False)
    program.sample("main leaf make", True)
    program.path.write_bytes(text)
    assert program.missing() == []


def test_source_paths_that_are_not_files(program: Program, tmp_path: Path) -> None:
    log = program.log
    for path in "/dev/zero", str(tmp_path), "a\0b", "":
        middle, leaf = (log.function(name, 5, path) for name in ("m", "l"))
        main = program.functions["main"]
        log.allocation([main, middle, leaf], size=16)
        log.allocation([jit(main), jit(leaf)], size=16)
    assert program.missing() == []


APP = """
    def make(i):
        return "x" * (i %% 50 + 500)
    def leaf():
        for i in range(100000):
            yield make(i)
    def middle():
        %s
    def main():
        for x in middle(): pass
    main()
"""


@pytest.mark.parametrize("jit,body,is_said", [
    ("", "yield from leaf()", True), ("off", "yield from leaf()", False),
    ("", "for x in leaf(): yield x", False)])
def test_generator_that_delegates(pypy: PyPy, jit: str, body: str,
                                  is_said: bool) -> None:
    """The report has the note if the JIT makes the total of `middle` too small."""
    profile = pypy.sample(APP % body, "4k", jit=jit).profile()
    rows = {row.function.name: row for row in summary.summarize(profile).rows}
    middle, leaf = rows["middle"].total.bytes(), rows["leaf"].total.bytes()
    assert (middle.value < 0.9 * leaf.value) == is_said
    assert ("missing: " in text(profile)) == is_said
