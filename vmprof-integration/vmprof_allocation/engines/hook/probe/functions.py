"""Find the field of code objects in which PyPy stores vmprof's number of a function."""
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
#: The difference between vmprof's numbers of consecutive functions, and the number of
#: functions that are compared.
STEP, MADE = 4, 50


def head(memory: Memory, types: Types) -> str:
    """Return the lines about code objects for native/hook/gc/types.c.

    Raises:
        NotCertain: no field, or more than one, can contain vmprof's numbers.
    """
    kinds = {number for number, row in types.rows.items()
             if types.names[row].startswith(CODE)}
    made = _made()
    for _ in range(3):
        gc.collect()
    # old objects do not move
    addresses = [id(code) for code in made]
    if {memory.word(address) & TYPE for address in addresses} != kinds:
        raise NotCertain("the code objects of functions have %d types" % len(kinds))
    size = types.entry(min(kinds))[memory.layout.type_fixed_size // 8]
    rows = [memory.words(address, size // 8) for address in addresses]
    found = [i * 8 for i in range(1, size // 8)
             if all(after[i] - before[i] == STEP
                    for before, after in zip(rows, rows[1:]))]
    if len(found) != 1:
        raise NotCertain("%d words count the functions" % len(found))
    return "code %d\nto-function %d\n" % (min(kinds), found[0])


def _made() -> list[CodeType]:
    """Return new code objects that differ only in vmprof's number."""
    return [compile("0", "made", "eval") for _ in range(MADE)]
