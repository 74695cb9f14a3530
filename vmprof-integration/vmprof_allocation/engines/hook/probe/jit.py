"""Find the list of the JIT's present phases, and the top of the shadow stack.

The JIT is in a phase, for example, while it compiles a loop.  The shadow stack has the
references of running RPython functions.
"""
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
#: The number of iterations of a loop that is compiled here.  PyPy compiles a loop after
#: about 1000 iterations, and traces one iteration.
TURNS = 5000
#: The number of words that are examined below the top of the shadow stack.
BELOW = 64


class Jit(NamedTuple):
    """The addresses of two pointers in the library, relative to the load address."""

    #: The address of the pointer to the list of the JIT's phases.
    phases: int
    #: The address of the pointer to the top of the shadow stack.
    roots: int


def find(memory: Memory, types: Types) -> Jit:
    """Return the addresses of the pointers to the list and to the shadow stack's top.

    Raises:
        NotCertain: no word, or more than one, can be one of the pointers.
    """
    base = memory.gc - memory.layout.gc
    return Jit(_phases(memory, types) - base, _roots(memory) - base)


def _phases(memory: Memory, types: Types) -> int:
    """Return the address of the pointer to the list of phases.

    The list is empty unless a loop is compiled.
    """
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
        raise NotCertain("%d of %d lists have an item while a loop is compiled"
                         % (len(found), len(fields)))
    return found[0]


def _lengths(memory: Memory, field: int) -> set[int]:
    """Return the lengths that a list had while a loop was run and compiled.

    Args:
        memory: the memory of this process.
        field: the address of the pointer to the list.
    """
    place: dict[str, Callable[[set[int]], None]] = {}
    # new code each time, because the JIT compiles a loop only once
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
    """Return the address of the pointer to the top of the shadow stack.

    During a call, the calling function's reference to its frame is on the shadow stack.
    """
    found = _with_frame(memory)
    # compare with another frame
    found &= (lambda: _with_frame(memory))()
    if len(found) != 1:
        raise NotCertain("%d words lead to the frame that runs" % len(found))
    return found.pop()


def _with_frame(memory: Memory) -> set[int]:
    """Return the addresses of words that may point to the top of the shadow stack.

    Shortly before the target of such a word is a reference to the frame of this
    function.
    """
    frame = sys._getframe()
    for _ in range(3):
        gc.collect()
    # old objects do not move
    address = id(frame)
    start, size = memory.data
    library, written = range(start, start + size), limits(is_data)
    return {start + at * 8 for at, word in enumerate(memory.words(start, size // 8))
            if word and word % 8 == 0 and word not in library
            and is_within(written, word - 8)
            and address in memory.words(word - BELOW * 8, BELOW)}
