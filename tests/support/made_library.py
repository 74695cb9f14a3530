"""A made shared library with the code that search.py looks for.

The code is written in assembler, as a compiler would generate it. So tests cover builds
of PyPy that are not installed.
"""
from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

from vmprof_allocation.engines.hook.discovery import symbols

#: offsets of fields in the GC's structure, and of fields in an entry of the type table
FREE, TOP = 0x198, 0x1b8
FIXED, ITEM, LENGTH = 0x10, 0x20, 0x30

ALLOCATION = """
    mov rdx, [rip + gc + 0x198]
    lea rax, [rdx + 32]
    mov [rip + gc + 0x198], rax
    cmp rax, [rip + gc + 0x1b8]
    jbe 1f
    lea rdi, [rip + gc]
    mov esi, 32
    call {reserve}
1:
"""
LARGE = """
    lea rdi, [rip + gc]
    mov esi, 0x4a8
    mov rdx, rbx
    xor ecx, ecx
    call {external}
"""
LONGER = LARGE.replace("xor ecx, ecx", "mov ecx, 1")

#: code that loads the size of the object at rcx into rsi, as gcc and clang generate it
SIZE_BY_ENTRY = """
    mov eax, [rcx]
    lea rdx, [rip + table]
    add rax, rdx
    mov rsi, [rax + 0x10]
    mov rdx, [rax + 0x30]
    mov rdx, [rcx + rdx]
    imul rdx, [rax + 0x20]
    add rsi, rdx
"""
SIZE_BY_INDEX = """
    lea r12, [rip + table]
    mov edi, [rcx]
    mov rdx, [rdi + r12 + 0x10]
    mov rsi, [rdi + r12 + 0x20]
    mov rdi, [rdi + r12 + 0x30]
    imul rsi, [rcx + rdi]
    add rsi, rdx
"""

#: the code of collect_and_reserve(), without its label
RESERVE = """
    push r14
    mov r14, rsi
    push rbp
    mov rbp, rdi
    mov rcx, [rbp + 0x1b8]
    {size}
    mov qword ptr [rbp + 0x198], 0
    mov [rbp + 0x1b8], rsi
    mov rdi, rbp
    call minor
    mov rdi, rbp
    call {collect}
    pop rbp
    pop r14
    ret
"""
MINOR = """
    push r14
    push rbp
    mov rbp, rdi
    push rbx
    mov [rbp + 0x198], rbx
    mov [rbp + 0x1b8], rbx
    pop rbx
    pop rbp
    pop r14
    ret
"""
EXTERNAL_BY_ENTRY = """
    push r14
    push rbp
    mov r14, rdi
    mov rbp, rdx
    mov eax, esi
    test cl, cl
    lea rdx, [rip + table]
    add rax, rdx
    mov rbx, [rax + 0x10]
    imul rbp, [rax + 0x20]
    mov rdi, r14
    call {collect}
    pop rbp
    pop r14
    ret
"""
EXTERNAL_BY_INDEX = """
    push rbp
    push r15
    push r14
    mov ebp, ecx
    mov r15, rdx
    mov r14, rdi
    mov r13d, esi
    lea rbx, [rip + table]
    mov r12, [r13 + rbx + 0x10]
    mov rbx, [r13 + rbx + 0x20]
    imul rbx, r15
    mov rdi, r14
    call {collect}
    pop r14
    pop r15
    pop rbp
    ret
"""
#: C functions that the library calls; it also loads the address of free()
CALLED = "write", "mmap", "munmap", "sigaction", "free"
IMPORTS = "".join("    call %s@plt\n" % name for name in CALLED) + """
    mov rax, [rip + free@GOTPCREL]
    ret
"""
#: the code of a function that calls _minor_collection() for its callers
PROGRESS = """
    push rbx
    mov rbx, rdi
    call minor
    pop rbx
    ret
"""


@dataclasses.dataclass
class Source:
    """The code of the library, in parts that a test may replace."""

    reserve: str = RESERVE
    size: str = SIZE_BY_ENTRY
    minor: str = MINOR
    external: str = EXTERNAL_BY_ENTRY
    #: the code of a function that calls `minor`, and the label of the function that
    #: collect_and_reserve() and external_malloc() call
    progress: str = PROGRESS
    collect: str = "minor"
    allocation: str = ALLOCATION
    large: str = LARGE
    imports: str = IMPORTS
    #: first line of the assembler file
    syntax: str = ".intel_syntax noprefix"
    #: prefix of the names of the assembler and linker
    tools: str = ""
    #: further code at the end
    more: str = ""
    #: labels of the code by the symbols' names, which are keys of symbols.NAMES
    names: dict[str, str] = dataclasses.field(default_factory=dict)


LABELS = {"the GC": "gc", "collect_and_reserve": "reserve",
          "_minor_collection": "minor", "external_malloc": "external",
          "type table": "table"}


def clangs() -> Source:
    """Return the code of the library as clang generates it."""
    return Source(size=SIZE_BY_INDEX, external=EXTERNAL_BY_INDEX, collect="progress",
                  large=LONGER)


def all_names() -> dict[str, str]:
    """Return `Source.names` for a library with all of PyPy's symbols."""
    return {symbols.NAMES[what]: label for what, label in LABELS.items()}


def _function(label: str, code: str) -> str:
    return "    .p2align 4\n%s:\n    .cfi_startproc\n%s\n    .cfi_endproc\n" % (
        label, code)


def text(source: Source) -> str:
    """Return the assembler code of the library."""
    parts = {"size": source.size, "collect": source.collect, "reserve": "reserve",
             "external": "external"}
    functions = {
        "imports": source.imports,
        "reserve": source.reserve.format(**parts),
        "minor": source.minor, "progress": source.progress,
        "external": source.external.format(**parts),
        "program": ".rept 1200\n%s\n.endr\n.rept 50\n%s\n.endr\n    ret" % (
            source.allocation.format(**parts), source.large.format(**parts)),
    }
    names = "".join("    .set %s, %s\n" % name for name in source.names.items())
    return "    %s\n    .text\n%s%s\n%s" % (
        source.syntax,
        "".join(_function(*function) for function in functions.items()), source.more,
        """
    .data
    .p2align 4
table: .skip 0x1000
gc: .skip 0x400
    .section .note.GNU-stack,"",%progbits
""") + names


def build(source: Source, path: Path, binding: str = "lazy") -> dict[str, int]:
    """Assemble and link the library, and return the addresses of its labels.

    Args:
        source: The code.
        path: The library to write.
        binding: When imported functions are bound: `lazy` or `now`.
    """
    made = path.with_suffix(".o")
    subprocess.run([source.tools + "as", "-o", str(made), "-"],
                   input=text(source), text=True, check=True)
    subprocess.run(
        [source.tools + "ld", "-shared", "--build-id=sha1", "--eh-frame-hdr",
         "-z", "relro", "-z", binding, "-o", str(path), str(made)], check=True)
    printed = subprocess.run(["nm", str(path)], text=True, check=True,
                             stdout=subprocess.PIPE).stdout
    return {name: int(address, 16) for address, _, name in (
        line.split() for line in printed.splitlines() if len(line.split()) == 3)}


def strip(path: Path, tools: str = "") -> None:
    """Remove the symbols of the library."""
    subprocess.run([tools + "strip", str(path)], check=True)


def debug_file(path: Path, target: Path) -> None:
    """Write the library's symbols to a separate file, as Debian's .debug files have
    them.
    """
    subprocess.run(["objcopy", "--only-keep-debug", str(path), str(target)],
                   check=True)
