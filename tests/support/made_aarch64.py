"""The library of made_library.py in machine code for AArch64, as gcc generates it."""
from __future__ import annotations

import dataclasses

from made_library import CALLED, Source

TOOLS = "aarch64-linux-gnu-"

ALLOCATION = """
    adrp x1, gc
    add x1, x1, :lo12:gc
    ldr x0, [x1, #0x198]
    ldr x4, [x1, #0x1b8]
    add x2, x0, #32
    str x2, [x1, #0x198]
    cmp x2, x4
    b.ls 1f
    mov x0, x1
    mov x1, #32
    bl {reserve}
1:
"""
LARGE = """
    adrp x0, gc
    add x0, x0, :lo12:gc
    mov x1, #0x4a8
    mov x2, x19
    mov w3, #0
    bl {external}
"""
#: code that loads the size of the object at x2 into x5
SIZE = """
    adrp x8, table
    add x8, x8, :lo12:table
    ldr w5, [x2]
    add x4, x5, x8
    ldr x6, [x4, #0x10]
    ldr x1, [x4, #0x20]
    ldr x3, [x4, #0x30]
    ldr x3, [x2, x3]
    madd x5, x3, x1, x6
"""
RESERVE = """
    stp x19, x20, [sp, #-64]!
    mov x19, x0
    mov x20, x1
    str x30, [sp, #16]
    ldr x2, [x19, #0x1b8]
    {size}
    str xzr, [x19, #0x198]
    str x5, [x19, #0x1b8]
    mov x0, x19
    bl minor
    mov x0, x19
    bl {collect}
    ldr x30, [sp, #16]
    ldp x19, x20, [sp], #64
    ret
"""
MINOR = """
    paciasp
    stp x30, x20, [sp, #-32]!
    mov x20, x0
    str x1, [x20, #0x198]
    stp x2, x3, [x20, #0x1b0]
    ldp x30, x20, [sp], #32
    autiasp
    ret
"""
EXTERNAL = """
    paciasp
    stp x30, x19, [sp, #-48]!
    str x20, [sp, #16]
    and w3, w3, #0xff
    mov x19, x0
    mov x20, x2
    adrp x4, table
    add x4, x4, :lo12:table
    add x1, x4, w1, uxtw
    ldp x5, x7, [x1, #0x10]
    ldr x6, [x1, #0x20]
    madd x20, x20, x6, x5
    mov x0, x19
    bl {collect}
    ldr x20, [sp, #16]
    ldp x30, x19, [sp], #48
    autiasp
    ret
"""
PROGRESS = """
    stp x30, x19, [sp, #-16]!
    mov x19, x0
    bl minor
    ldp x30, x19, [sp], #16
    ret
"""
IMPORTS = "".join("    bl %s\n" % name for name in CALLED) + """
    adrp x0, :got:free
    ldr x0, [x0, :got_lo12:free]
    ret
"""


def source(**other: str) -> Source:
    """Return the library's source; `other` replaces fields of `Source`."""
    made = Source(
        reserve=RESERVE, size=SIZE, minor=MINOR, external=EXTERNAL, progress=PROGRESS,
        allocation=ALLOCATION, large=LARGE, imports=IMPORTS, syntax="", tools=TOOLS)
    return dataclasses.replace(made, **other)  # type: ignore[arg-type]
