"""Where the code of a Python function has the number that vmprof knows it by."""
from __future__ import annotations

from types import CodeType

from vmprof_allocation.engines.hook.probe.memory import (
    TYPE,
    Memory,
    NotCertain,
    Types,
    gc,
)

CODE = "GcStruct pypy.interpreter.pycode.PyCode {"
#: vmprof counts in steps of this: so many of them are compared
STEP, MADE = 4, 50


def head(memory: Memory, types: Types) -> str:
    """For native/hook/gc/types.c."""
    kinds = {number for number, row in types.rows.items()
             if types.names[row].startswith(CODE)}
    made = _made()
    for _ in range(3):
        gc.collect()
    # old objects stay where they are
    addresses = [id(code) for code in made]
    if {memory.word(address) & TYPE for address in addresses} != kinds:
        raise NotCertain("the code of functions is of %d types" % len(kinds))
    size = types.entry(min(kinds))[memory.layout.type_fixed_size // 8]
    rows = [memory.words(address, size // 8) for address in addresses]
    found = [i * 8 for i in range(1, size // 8)
             if all(after[i] - before[i] == STEP
                    for before, after in zip(rows, rows[1:]))]
    if len(found) != 1:
        raise NotCertain("%d words count the functions" % len(found))
    return "code %d\nto-function %d\n" % (min(kinds), found[0])


def _made() -> list[CodeType]:
    """Code of functions that differ in nothing else that is a number."""
    return [compile("0", "made", "eval") for _ in range(MADE)]
