"""Test that the patches do not touch the fast path.

With the patches and without, generated C and the JIT's machine code are the same,
except for the GC's slow path.
"""
from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import tree
from rpython_tree import PATCHED, PRISTINE, built, python2

pytestmark = [pytest.mark.python2, pytest.mark.translated]

HERE = Path(__file__).parent

#: The generated C files that contain the GC with the sampler, the GC's stacks and data.
#: All other files contain the program and RPython's library, with inlined bump-pointer
#: allocations.
GC_FILES = {"rpython_memory.c", "rpython_memory_gc.c", "data_rpython_memory_gc.c",
            "data_rpython_memory_gc_1.c", "data_rpython_memory_gctransform.c",
            "data_rpython_rlib.c", "data_rpython_rtyper.c", "nonfuncnodes.c"}


def gcbench() -> dict[str, Path]:
    return {name: built("gcbench-" + name) for name in ("patched", "pristine")}


def without_numbers(path: Path) -> str:
    """Return generated C without white space and without running numbers.

    RPython's names of local variables and string constants contain running numbers.
    """
    text = path.read_text()
    text = re.sub(r"\b(l_\w+?)(_?\d+)?\b", r"\1", text)
    text = re.sub(r"\bpypy_g_rpy_string_\d+", "pypy_g_rpy_string", text)
    return re.sub(r"\s+", "", text)


@pytest.mark.hard
def test_generated_c_of_the_program_is_the_same() -> None:
    sources = {name: program.with_name(program.name + ".c")
               for name, program in gcbench().items()}
    names = {path.name for path in sources["pristine"].glob("*.c")}
    assert names == {path.name for path in sources["patched"].glob("*.c")}
    assert names > GC_FILES
    fast_paths = 0
    for name in sorted(names - GC_FILES):
        patched, pristine = (without_numbers(sources[which] / name)
                             for which in ("patched", "pristine"))
        assert patched == pristine, name
        fast_paths += patched.count("nursery_top")
    assert fast_paths > 20


@pytest.mark.hard
def test_slow_path_when_off_begins_with_one_comparison() -> None:
    code = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "--disassemble="
         "pypy_g_IncrementalMiniMarkGC_collect_and_reserve",
         str(gcbench()["patched"])],
        text=True, capture_output=True, check=True).stdout
    # The code before the comparison saves registers.
    before, comparison, after = code.partition("sampling_SamplePoint")
    assert comparison
    assert re.fullmatch(r"\s*[0-9a-f]+:\s+cmpq\s+\$0x0,.*",
                        before.splitlines()[-1])
    assert re.match(r"\S*\s+[0-9a-f]+:\s+jne\s", after)
    assert not re.search(r"\bj[a-z]+\b", before)


def assembled(rpython: Path, folder: Path) -> list[list[str]]:
    """Return the instructions of each piece of machine code.

    Addresses, which differ between processes, are replaced by names.
    """
    done = python2(rpython, HERE / "python2" / "assemble.py")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = {found["nursery_free"]: "[nursery_free]"}

    def name(match: re.Match[str]) -> str:
        number = int(match.group(), 16)
        return match.group() if number < 2**16 else names.get(number, "address")

    pieces = []
    for code, start in found["pieces"]:
        binary = folder / "code"
        binary.write_bytes(bytes.fromhex(code))
        listing = subprocess.run(
            ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64",
             "--no-show-raw-insn", "--adjust-vma=%d" % start, binary],
            text=True, capture_output=True, check=True).stdout
        pieces.append([re.sub(r"\b(0x)?[0-9a-f]+\b", name, instruction)
                       for instruction in re.findall(
                           r"^ *[0-9a-f]+:\t(.*?) *$", listing, re.MULTILINE)])
    return pieces


def test_machine_code_of_the_jit_is_the_same(tmp_path: Path) -> None:
    patched, pristine = (assembled(rpython, tmp_path)
                         for rpython in (PATCHED, PRISTINE))
    assert patched == pristine
    # Each allocation compares with nursery_top, which is the word after nursery_free.
    lines = "\n".join(line for piece in patched for line in piece)
    checks = re.findall(r"cmp +0x8\(%r11\),%rdx\nja ", lines)
    assert len(checks) == 8
    assert "$[nursery_free],%r11" in lines


def test_series_leaves_the_jit_alone() -> None:
    """The series changes only one part of the JIT: its codemap.

    The codemap is the table of the functions in machine code. The changed files fill
    it.
    """
    assert {name for patch in tree.Ours().series()
            for name, _ in tree.git_hashes(patch)
            if name.startswith("rpython/jit/")} == {
        "rpython/jit/" + name for name in (
            "backend/llsupport/assembler.py", "backend/llsupport/codemap.py",
            "backend/llsupport/test/test_codemap.py", "backend/x86/assembler.py",
            "backend/x86/test/test_recursive.py", "metainterp/pyjitpl.py",
            "metainterp/test/test_jitdriver.py")}


def instructions(program: Path) -> int:
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
         str(program)], text=True, capture_output=True,
        env={"PYPY_GC_NURSERY": "4M", "PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    match = re.search(r"Collected : (\d+)", done.stderr)
    assert match, done.stderr
    return int(match.group(1))


@pytest.mark.hard
def test_instructions_when_off() -> None:
    counts = {name: instructions(program) for name, program in gcbench().items()}
    assert counts["pristine"] > 10**8
    assert abs(counts["patched"] / counts["pristine"] - 1) < 0.001
