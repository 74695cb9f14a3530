"""The search in AArch64's machine code, and its functions for single instructions."""
from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import capstone
import pytest
from capstone import arm64

import made_library
from conftest import PyPy
from made_aarch64 import ALLOCATION, EXTERNAL, MINOR, RESERVE, SIZE, TOOLS, source
from test_search_compilers import Answer, problem_of
from vmprof_allocation.engines.hook.discovery.layout import IMPORTS
from vmprof_allocation.engines.hook.discovery.machines import aarch64_words as words

assembled = pytest.mark.skipif(
    shutil.which(TOOLS + "as") is None,
    reason="needs %sas (binutils-aarch64-linux-gnu)" % TOOLS)


@assembled
def test_code_by_gcc_is_found_without_a_decoder(pypy: PyPy) -> None:
    """The search for AArch64 works without capstone, which x86-64 needs."""
    path = pypy.folder / "made.so"
    places = made_library.build(source(), path)
    made_library.strip(path, TOOLS)
    (pypy.folder / "capstone.py").write_text("1 / 0\n")
    pypy.environment["PYTHONPATH"] = str(pypy.folder)
    answer = Answer(pypy, path)
    assert answer.is_right(places)
    assert answer.layout["machine"] == "aarch64"
    assert answer.layout["moved"] == [4, 4, 4]


@assembled
def test_functions_that_call_another_one_to_collect(pypy: PyPy) -> None:
    path = pypy.folder / "made.so"
    places = made_library.build(source(collect="progress"), path)
    assert Answer(pypy, path).is_right(places)


@assembled
def test_address_of_the_table_in_other_registers(pypy: PyPy) -> None:
    """The address of the table is copied between registers, and computed by `adr`."""
    size = SIZE.replace("adrp x8, table\n    add x8, x8, :lo12:table",
                        "adrp x7, table\n    add x7, x7, :lo12:table\n    mov x8, x7")
    path = pypy.folder / "made.so"
    places = made_library.build(source(size=size), path)
    assert Answer(pypy, path).is_right(places)


@assembled
@pytest.mark.parametrize("before,new", [
    # the table's register has another value by then
    ("add x4, x5, x8", "mov x8, x20"),
    ("add x4, x5, x8", "ldr w8, [x2]"),
    ("add x4, x5, x8", "ldr x2, [x8], #8"),
    ("add x4, x5, x8", "csel x8, x19, x20, eq"),
    ("add x4, x5, x8", "ldadd x7, x8, [x2]"),
    ("add x4, x5, x8", "fmov x8, d0"),
    ("add x4, x5, x8", "mrs x8, tpidr_el0"),
    # a call changes the register, and so does a system call
    ("add x4, x5, x8", "bl minor"),
    ("add x4, x5, x8", "blr x19"),
    ("add x4, x5, x8", "svc #0"),
    # the register with the loaded value was changed
    ("madd x5", "mov x1, x20"),
    ("madd x5", "ldp x3, x1, [x2]"),
])
def test_register_that_was_written_again_is_not_the_type_table(
        pypy: PyPy, before: str, new: str) -> None:
    assert before in SIZE
    size = ".arch armv8.1-a\n" + SIZE.replace(before, "%s\n    %s" % (new, before))
    assert "type table: 0 candidates" in problem_of(pypy, source(size=size))


@assembled
@pytest.mark.parametrize("old,new", [
    # alloc_young is always the same, so the compiler left it out
    ("    and w3, w3, #0xff\n", ""),
    # the typeid becomes the first argument
    ("mov x19, x0", "mov x0, #0"),
    ("mov x20, x2", "mov x2, x20"),
])
def test_an_argument_that_the_compiler_left_out(
        pypy: PyPy, old: str, new: str) -> None:
    assert old in EXTERNAL
    assert "arguments of external_malloc: it does not read 4" in problem_of(
        pypy, source(external=EXTERNAL.replace(old, new)))


@assembled
@pytest.mark.parametrize("first", [
    "adrp x9, gc", "adr x9, minor", "ldr x9, 0f\n0:", "b 0f\n0:", "cbz x0, 0f\n0:",
    "tbz x0, #3, 0f\n0:", "ret", "bl progress", "ldxr x9, [x0]", "svc #0",
    # the address of this word is part of the next word's signature
    "hint #39",
    # a loop begins here
    "mov x9, x0\n    cbnz x9, minor",
])
def test_entry_that_cannot_be_moved_is_refused(pypy: PyPy, first: str) -> None:
    assert "entry of _minor_collection: its first instructions cannot be moved" in (
        problem_of(pypy, source(minor="    %s\n%s" % (first, MINOR))))


@assembled
@pytest.mark.parametrize("more", [
    "    adrp x9, minor\n    add x9, x9, :lo12:minor\n",
    "    adr x9, minor\n",
    # a pointer to the function
    "    .data\n    .quad minor\n    .text\n",
])
def test_entry_that_is_called_by_its_address_is_refused(pypy: PyPy, more: str) -> None:
    """An indirect call may have to lead to a `bti`, which our entry patch lacks."""
    assert "entry of _minor_collection: its address is taken" in problem_of(
        pypy, source(more="    .p2align 4\nother:\n" + more))


@assembled
@pytest.mark.parametrize("old,new,said", [
    # addresses are compared without a sign
    ("b.ls 1f", "b.le 1f", "nursery_top (compared with): no candidate"),
    ("cmp x2, x4", "cmp w2, w4", "nursery_top (compared with): no candidate"),
    ("ldr x4, [x1, #0x1b8]", "ldr x4, [x1, #0x1b8]\n    mov x4, x19",
     "nursery_top (compared with): no candidate"),
    ("str x2, [x1, #0x198]", "str x2, [x9, #0x198]",
     "nursery_free (stored to, below nursery_top): no candidate"),
    ("mov x0, x1", "mov x0, x19", "the GC (first argument): no clear answer"),
])
def test_another_allocation_is_refused(
        pypy: PyPy, old: str, new: str, said: str) -> None:
    assert old in ALLOCATION
    assert said in problem_of(pypy, source(allocation=ALLOCATION.replace(old, new)))


@assembled
@pytest.mark.parametrize("old,new", [
    ("str xzr, [x19, #0x198]", "str x5, [x19, #0x198]"),
    ("str x5, [x19, #0x1b8]", "str x5, [sp, #0x1b8]"),
    ("str x5, [x19, #0x1b8]", "str w5, [x19, #0x1b8]"),
])
def test_a_function_that_does_not_move_the_nursery_is_refused(
        pypy: PyPy, old: str, new: str) -> None:
    assert old in RESERVE
    assert "does not store to nursery_free and nursery_top" in problem_of(
        pypy, source(reserve=RESERVE.replace(old, new)))


@assembled
@pytest.mark.parametrize("binding,read_only", [
    # free(), whose address is taken, has two pointers, and calls use one of them
    ("lazy", set()), ("now", {"write", "mmap", "munmap", "sigaction", "free"})])
def test_pointers_to_c_functions_of_which_some_are_read_only(
        pypy: PyPy, binding: str, read_only: set[str]) -> None:
    path = pypy.folder / "made.so"
    made_library.build(source(), path, binding)
    layout = Answer(pypy, path).layout
    assert {name for name, slot in zip(IMPORTS, layout["slot"]) if slot} == {
        "write", "mmap", "munmap", "sigaction", "free"}
    assert {name for i, name in enumerate(IMPORTS)
            if layout["slots_read_only"] >> i & 1} == read_only


def test_a_machine_that_is_not_known_is_refused(pypy: PyPy) -> None:
    path = pypy.folder / "made.so"
    made_library.build(made_library.Source(), path)
    data = bytearray(path.read_bytes())
    data[18:20] = struct.pack("<H", 243)
    path.write_bytes(data)
    assert ("it is for the processor type EM_RISCV. The sampler supports x86-64 and "
            "AArch64"
            in Answer(pypy, path).problem)


# ____________________________________________________________
# the instructions, compared with an independent decoder

PC = 0x12345678
_NUMBERS = {getattr(arm64, "ARM64_REG_%s%d" % (size, i)): i
            for size in "XW" for i in range(31)}
#: instructions whose first operand capstone reports as written, or as not read
_COMPARED = {"cmp", "cmn", "tst"}
#: instructions whose index register capstone reports as written
_INDEXED = {"st1"}
#: instructions for which capstone reports no reads
_TAGGED = {"addg", "subg"}


def decoded() -> list[tuple[int, Any]]:
    """Return random words that are instructions, each with capstone's result."""
    numbers = random.Random(36)
    decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    decoder.detail = True
    return [(w, instruction) for w in (numbers.getrandbits(32) for _ in range(100000))
            for instruction in decoder.disasm(struct.pack("<I", w), PC)]


def test_registers_of_random_instructions_match_capstone() -> None:
    """Our list of written registers contains at least capstone's registers.

    Our list of read registers contains at most capstone's registers.
    """
    wrong, names = [], set()
    for w, instruction in decoded():
        read, written = ({_NUMBERS[r] for r in registers if r in _NUMBERS}
                         for registers in instruction.regs_access())
        name = instruction.mnemonic
        names.add(name)
        if not (written <= words.written(w) or name in _COMPARED | _INDEXED):
            wrong.append("%08x writes %s: %s" % (w, written, instruction))
        if not (words.read(w) - {words.ZERO} <= read or name in _COMPARED | _TAGGED):
            wrong.append("%08x reads %s: %s" % (w, read, instruction))
    assert wrong == []
    assert {"ldr", "str", "ldp", "stp", "add", "adrp", "mov", "madd", "bl", "b", "cbz",
            "tbz", "csel", "mrs", "fmov"} <= names


NOTHING: dict[str, object] = {}
PATTERNS: dict[str, dict[str, object]] = {
    "adrp x3, far": {"address": 0x19345000},
    "adrp x3, low": {"address": 0x02345000},
    "adr x3, odd": {"address": 0x12345001},
    "add x5, x6, #0x123": {"added": (6, 0x123)},
    "add x5, x6, #0x123, lsl #12": {"added": (6, 0x123000)},
    "mov x1, sp": {"added": (31, 0)},
    "add w5, w6, #1": NOTHING, "adds x5, x6, #1": NOTHING, "sub x5, x6, #1": NOTHING,
    "mov x1, x2": {"moved_from": 2},
    "mov w1, w2": NOTHING, "orr x1, x2, x3": NOTHING, "mov x1, #5": NOTHING,
    "orr x1, xzr, x3, lsl #1": NOTHING, "mvn x1, x3": NOTHING,
    "add x1, x2, x3": {"summed": (2, 3)}, "add x1, x2, w3, uxtw": {"summed": (2, 3)},
    "add x1, x2, x3, lsl #3": NOTHING, "add x1, x2, w3, sxtw": NOTHING,
    "adds x1, x2, x3": NOTHING, "sub x1, x2, x3": NOTHING, "add w1, w2, w3": NOTHING,
    "madd x1, x2, x3, x4": {"multiplied": (2, 3)},
    "mul x1, x2, x3": {"multiplied": (2, 3)},
    "msub x1, x2, x3, x4": NOTHING, "mul w1, w2, w3": NOTHING,
    "smull x1, w2, w3": NOTHING, "umulh x1, x2, x3": NOTHING,
    "cmp x1, x2": {"compared": (1, 2)},
    "cmp w1, w2": NOTHING, "cmn x1, x2": NOTHING, "cmp x1, x2, lsl #1": NOTHING,
    "subs x3, x1, x2": NOTHING, "cmp x1, #5": NOTHING,
    "ldr x1, [x2, #400]": {"access": (False, 2, [(400, 1)])},
    "str xzr, [x2]": {"access": (True, 2, [(0, 31)])},
    "ldur x1, [x2, #-8]": {"access": (False, 2, [(-8, 1)])},
    "stp x1, x3, [sp, #-16]": {"access": (True, 31, [(-16, 1), (-8, 3)])},
    "ldp x1, x3, [x2, #24]": {"access": (False, 2, [(24, 1), (32, 3)])},
    "ldr w1, [x2]": NOTHING, "ldr x1, [x2, x3]": NOTHING, "ldr x1, [x2], #8": NOTHING,
    "ldr x1, [x2, #8]!": NOTHING, "ldp x1, x3, [x2], #16": NOTHING,
    "ldr d1, [x2]": NOTHING, "str q1, [x2]": NOTHING, "ldp w1, w3, [x2]": NOTHING,
    "ldp d1, d3, [x2]": NOTHING, "ldpsw x1, x3, [x2]": NOTHING,
    "ldrsw x1, [x2]": NOTHING, "ldrb w1, [x2]": NOTHING, "ldtr x1, [x2]": NOTHING,
    "prfm pldl1keep, [x2]": NOTHING, "stnp x1, x3, [x2]": NOTHING,
    "ldar x1, [x2]": NOTHING, "swp x1, x3, [x2]": NOTHING,
    "b near": {"target": 0x12345000},
    "bl far": {"target": 0x19345000, "is_call": True},
    "b.ls near": {"target": 0x12345000, "is_unsigned_branch": True},
    "b.hi near": {"target": 0x12345000, "is_unsigned_branch": True},
    "b.hs near": {"target": 0x12345000, "is_unsigned_branch": True},
    "b.lo near": {"target": 0x12345000, "is_unsigned_branch": True},
    "b.le near": {"target": 0x12345000},
    "b.eq near": {"target": 0x12345000},
    "cbz x1, near": {"target": 0x12345000},
    "tbnz x1, #40, near": {"target": 0x12345000},
    "br x1": NOTHING, "blr x1": NOTHING, "ret": NOTHING, "nop": NOTHING,
}


@assembled
def test_patterns_match_the_assembled_instructions(tmp_path: Path) -> None:
    made, linked, code = (str(tmp_path / name) for name in ("a.o", "a.out", "a.bin"))
    subprocess.run([TOOLS + "as", "-march=armv8.1-a", "-o", made, "-"], text=True,
                   input="\n".join([*PATTERNS, ""]), check=True)
    subprocess.run([
        TOOLS + "ld", "-Ttext=0x%x" % PC, "-e", "0", "-o", linked, made,
        *("--defsym=%s=0x%x" % symbol for symbol in (
            ("low", 0x02345000), ("near", 0x12345000), ("odd", 0x12345001),
            ("far", 0x19345000)))], check=True)
    subprocess.run([TOOLS + "objcopy", "-O", "binary", "-j", ".text", linked, code],
                   check=True)
    found = {}
    for at, (w, line) in enumerate(zip(words.words(Path(code).read_bytes()), PATTERNS)):
        pc = PC + 4 * at
        answers: dict[str, object] = {
            "address": words.address_of(w, pc), "target": words.target(w, pc),
            "is_call": words.is_call(w) or None,
            "is_unsigned_branch": words.is_unsigned_branch(w) or None,
            **{name: getattr(words, name)(w) for name in (
                "added", "moved_from", "summed", "multiplied", "compared", "access")}}
        found[line] = {name: answer for name, answer in answers.items()
                       if answer is not None}
    assert found == PATTERNS
