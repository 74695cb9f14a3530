"""The native frames of a sample, and the names of their functions.

native/native_harness.c calls native_stack.c, native_names.c and elf_symbols.c.
"""
from __future__ import annotations

import errno
import os
import pathlib
import random
import re
import subprocess

import pytest

from native_build import build

SOURCES = ("hook/stacks/native_stack.c", "hook/stacks/native_names.c",
           "hook/stacks/elf_symbols.c",
           "machines/found_object.c")


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build("native_harness", *SOURCES)


def lines(harness: pathlib.Path, *arguments: object) -> list[str]:
    done = subprocess.run(
        [harness, *map(str, arguments)], text=True, capture_output=True,
        # a corrupt file may contain a size that is too large for malloc
        env={**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1"}, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [line.rstrip() for line in done.stdout.splitlines()]


def test_frames_begin_with_the_innermost(harness: pathlib.Path) -> None:
    shallow, deep = lines(harness, "depths")
    assert re.match("inner recursive main ", shallow)
    assert re.match("inner recursive recursive recursive main ", deep)


def test_outer_frames_are_missing_if_there_is_no_room(harness: pathlib.Path) -> None:
    # The innermost of the five frames are the harness's own, if the compiler has not
    # inlined them.  The outer frames are missing.
    found, = lines(harness, "most")
    assert re.fullmatch("inner( recursive){1,4}", found)


def test_frames_end_where_the_machine_code_begins(harness: pathlib.Path) -> None:
    assert lines(harness, "limit") == ["inner recursive recursive main", ""]


def test_frames_of_libraries(harness: pathlib.Path) -> None:
    found, = lines(harness, "library")
    assert re.match(r"inner compare( \?| qsort(_r)?)+ sorts main ", found)


def test_code_without_tables_ends_the_walk(harness: pathlib.Path) -> None:
    """The last function appears once, although the unwinder reports it twice."""
    assert lines(harness, "generated") == ["inner called_by_generated"]


def test_own_frames_are_left_out(harness: pathlib.Path) -> None:
    assert lines(harness, "own") == ["none of its own"]


def test_functions_that_run_python_frames_are_learnt(harness: pathlib.Path) -> None:
    """The sampler learns which functions run all Python frames.

    Each later walk ends at one of these functions.  Before, a walk continues to the
    outermost frame.
    """
    before, learnt, after = lines(harness, "learn")
    assert re.match(r"%d inner builtin_function at_the_bottom dispatch evaluate "
                    r"called_another_way dispatch" % errno.ENOTSUP, before)
    assert learnt == "0 inner builtin_function at_the_bottom"
    assert after == learnt


def test_names_are_written_once_and_replaced_at_the_end(harness: pathlib.Path) -> None:
    file = re.escape(str(harness))
    expected = [r"written %s n:native_harness\S*\+0x[0-9a-f]+:0:" + file,
                r"written %s n:native_harness\S*\+0x[0-9a-f]+:0:" + file]
    found = lines(harness, "names")
    for line, pattern, name in zip(found, expected, ("inner", "recursive")):
        assert re.fullmatch(pattern % name, line)
    # these names are in the order of the file's symbol table
    assert sorted(found[2:]) == sorted(
        "%s %s n:%s:0:%s" % (how, name, name, harness)
        for how in ("kept", "written") for name in ("inner", "recursive"))


def test_threads_that_load_libraries_and_forks(
        harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The loader holds its locks most of the time.

    If the unwinder took such a lock, the child would wait forever.
    """
    library = tmp_path / "loaded.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-xc", "/dev/null", "-o", library],
                   check=True)
    assert lines(harness, "loader", library) == ["as ever"]


def symbols(harness: pathlib.Path, file: pathlib.Path,
            build_id: str = "") -> list[tuple[int, int]]:
    found = []
    for line in lines(harness, "symbols", file, build_id):
        value, size = line.split()
        found.append((int(value, 16), int(size)))
    return found


#: build ID of the library
ID = "0123456789abcdef"


@pytest.fixture
def small_library(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "small.so"
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id=0x" + ID,
         "-xc", "-", "-o", path],
        input="static int __attribute__((noinline, noclone)) hidden(int x) {\n"
              "    return x * x; }\n"
              "int shown_function(int x) { return hidden(x) + hidden(x + 1); }\n",
        text=True, check=True)
    return path


def test_symbols_of_static_functions_and_of_stripped_files(
        harness: pathlib.Path, small_library: pathlib.Path) -> None:
    table = subprocess.run(["nm", small_library], check=True, text=True,
                           capture_output=True).stdout
    expected = sorted((int(line.split()[0], 16), len(line.split()[2]))
                      for line in table.splitlines() if line.split()[-2] in "tT")
    assert len(expected) == 2
    assert sorted(symbols(harness, small_library)) == expected
    subprocess.run(["strip", small_library], check=True)
    found = symbols(harness, small_library)
    assert [size for _, size in found] == [len("shown_function")]
    assert found[0] in expected


def test_stripped_symbols_are_read_from_the_debug_file(
        harness: pathlib.Path, small_library: pathlib.Path) -> None:
    """The archives of pypy.org have such files, which must be of the same build."""
    subprocess.run(["objcopy", "--only-keep-debug", small_library,
                    "%s.debug" % small_library], check=True)
    everything = sorted(symbols(harness, small_library, ID))
    assert len(everything) == 2
    subprocess.run(["strip", small_library], check=True)
    assert sorted(set(symbols(harness, small_library, ID))) == everything
    other = small_library.rename(small_library.with_name("other.so"))
    assert len(symbols(harness, other, ID)) == 1
    another_build = small_library.with_name("other.so.debug")
    small_library.with_name("small.so.debug").rename(another_build)
    assert len(symbols(harness, other, ID)) == 3
    another_build.write_bytes(another_build.read_bytes().replace(
        bytes.fromhex(ID), bytes(len(ID) // 2)))
    assert len(symbols(harness, other, ID)) == 1


def test_missing_and_damaged_files(
        harness: pathlib.Path, small_library: pathlib.Path,
        tmp_path: pathlib.Path) -> None:
    """In a damaged file, the functions find no or wrong symbols, but do no harm."""
    assert symbols(harness, tmp_path) == []
    assert symbols(harness, tmp_path / "absent") == []
    whole = small_library.read_bytes()
    chance = random.Random(1)
    for i in range(120):
        data = bytearray(whole)
        if i % 3 == 0:
            del data[chance.randrange(len(data)):]
        else:
            # the file header, or the section headers at the end
            start, end = ((0, 64) if i % 3 == 1
                          else (len(data) - 64 * 16, len(data)))
            for _ in range(1 + i % 5):
                data[chance.randrange(start, end)] = chance.choice((0, 1, 127, 255))
        damaged = tmp_path / "damaged.so"
        damaged.write_bytes(data)
        symbols(harness, damaged)
