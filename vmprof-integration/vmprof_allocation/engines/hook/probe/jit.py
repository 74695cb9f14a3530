"""Where PyPy says what its JIT does: the list of its phases that are on, and the stack
of roots, which has what RPython's functions that run refer to."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pypyjit

from vmprof_allocation.engines.hook.probe.memory import (
    TYPE,
    Memory,
    NotCertain,
    Types,
    gc,
    is_data,
    is_within,
    limits,
)

PROFILER = "GcStruct rpython.jit.metainterp.jitprof.Profiler {"
LIST = "GcStruct list { length, items }"
#: turns of a loop: PyPy compiles what has made some 1000, and traces one of them
TURNS = 5000
#: words that are looked at below the end of the roots
BELOW = 64


class Jit(NamedTuple):
    #: relative to where the library is loaded: a pointer to a list of the phases
    phases: int
    #: likewise: a pointer to the end of the roots
    roots: int


def find(memory: Memory, types: Types) -> Jit:
    base = memory.gc - memory.layout.gc
    return Jit(_phases(memory, types) - base, _roots(memory) - base)


def _phases(memory: Memory, types: Types) -> int:
    """The list is empty unless a loop is compiled."""
    kinds = {number for number, row in types.rows.items()
             if types.names[row].startswith(PROFILER)}
    lists = {number for number, row in types.rows.items()
             if types.names[row] == LIST}
    start, size = memory.data
    data = memory.words(start, size // 8)
    fields = [place + 8 * i for at, word in enumerate(data) if word & TYPE in kinds
              for place in [start + at * 8]
              for i in range(1, types.entry(word & TYPE)[
                  memory.layout.type_fixed_size // 8] // 8)
              if memory.word(memory.word(place + 8 * i)) & TYPE in lists]
    found = [field for field in fields if _lengths(memory, field) == {0, 1}]
    if len(found) != 1:
        raise NotCertain("%d of %d lists have something while a loop is compiled"
                         % (len(found), len(fields)))
    return found[0]


def _lengths(memory: Memory, field: int) -> set[int]:
    place: dict[str, Callable[[set[int]], None]] = {}
    # code of its own each time: what was compiled is not compiled again
    exec("def loop(seen):\n"
         "    for _ in range(turns):\n"
         "        seen.add(word(word(field) + 8))\n",
         {"turns": TURNS, "word": memory.word, "field": field}, place)
    seen: set[int] = set()
    pypyjit.set_param("default")        # the probe runs without the JIT
    place["loop"](seen)
    pypyjit.set_param("off")
    return seen


def _roots(memory: Memory) -> int:
    """What runs refers to its frame, whatever is called meanwhile."""
    found = _with_frame(memory)
    # the same again, with another frame
    found &= (lambda: _with_frame(memory))()
    if len(found) != 1:
        raise NotCertain("%d words lead to the frame that runs" % len(found))
    return found.pop()


def _with_frame(memory: Memory) -> set[int]:
    frame = sys._getframe()
    for _ in range(3):
        gc.collect()
    # old objects stay where they are
    address = id(frame)
    start, size = memory.data
    library, written = range(start, start + size), limits(is_data)
    return {start + at * 8 for at, word in enumerate(memory.words(start, size // 8))
            if word and word % 8 == 0 and word not in library
            and is_within(written, word - 8)
            and address in memory.words(word - BELOW * 8, BELOW)}
