"""Find PyPy's table of the JIT's machine code (hook/jit/codemap.h).

The table is a skip list.  Its head is a word in the library's data that refers to nodes
outside of the library.  Each node contains the address and size of a block of machine
code.  The probe first has some functions compiled, so that the table has nodes.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pypyjit

from vmprof_allocation.engines.hook.probe.memory import (
    Memory,
    NotCertain,
    is_data,
    is_within,
    limits,
)

#: The distance in words from the head to its first pointer to a node, and the number of
#: these pointers.
FIRST, LEVELS = 2, 8
#: The number of functions that are compiled here, each with a loop, and the number of
#: iterations of each loop.  PyPy compiles a loop after about 1000 iterations.
FUNCTIONS, TURNS = 12, 5000
#: The maximum size of a block of code in bytes.
LARGEST = 2**26


def find(memory: Memory) -> int:
    """Return the address of the table's head, relative to the load address.

    Raises:
        NotCertain: no word, or more than one, can be the head.
    """
    pypyjit.set_param("default")        # the probe runs without the JIT
    for function in _functions():
        function(TURNS)
    pypyjit.set_param("off")
    start, size = memory.data
    data = memory.words(start, size // 8)
    nodes = _Nodes(memory, start, start + size)
    # the head has the form of a node for no code: without address and entries
    places = [at for at, word in enumerate(data)
              if at >= FIRST and nodes.may_be(word) and not any(data[at - FIRST:at])]
    found = [start + (at - FIRST) * 8 for at in places
             if nodes.lead_from(start + at * 8)]
    if len(found) != 1:
        raise NotCertain("%d words lead to the code of %d "
                         "functions" % (len(found), FUNCTIONS))
    return found[0] - memory.gc + memory.layout.gc


def _functions() -> Iterable[Callable[[int], Any]]:
    for i in range(FUNCTIONS):
        place: dict[str, Any] = {}
        exec("def function(turns):\n"
             "    total = %d\n"
             "    for i in range(turns):\n"
             "        total += i\n"
             "    return total\n" % i, place)
        yield place["function"]


class _Nodes:
    """A check of the nodes to which a possible head leads."""

    def __init__(self, memory: Memory, start: int, end: int):
        self._memory = memory
        self._library = range(start, end)
        #: The limits of the mappings in which nodes and code may be.
        self._data = limits(is_data)
        self._code = limits(lambda m: m.permissions[2] == "x" and not m.path)

    def may_be(self, word: int) -> bool:
        """Return whether a word may be the address of a node."""
        return (word != 0 and word % 16 == 0 and word not in self._library
                and is_within(self._data, word))

    def lead_from(self, place: int) -> bool:
        """Return whether the pointers at `place` may be the head's pointers to nodes.

        The first pointer leads to all nodes, and the others to some nodes or none.
        """
        pointers = self._memory.words(place, LEVELS)
        return bool(pointers) and self.count(pointers[0]) >= FUNCTIONS and all(
            pointer == 0 or self.count(pointer) > 0 for pointer in pointers)

    def count(self, node: int) -> int:
        """Return the number of nodes from `node` to the end, or 0 if one is invalid."""
        count = last = 0
        while node:
            if not self.may_be(node):
                return 0
            address, piece, after = self._memory.words(node, 3) or (0, 0, 0)
            levels = (piece - node) // 8 - FIRST
            sizes, entries = self._memory.words(piece, 2) or (0, 0)
            size, numbers = sizes & 0xffffffff, sizes >> 32
            if not (last < address and is_within(self._code, address)
                    and 1 <= levels <= LEVELS and 0 < size < LARGEST
                    and numbers % 4 == 0 and self._fit(entries, numbers, size)):
                return 0
            node, last, count = after, address, count + 1
        return count

    def _fit(self, entries: int, numbers: int, size: int) -> bool:
        """Return whether the entries of a node contain offsets in its block of code.

        Args:
            entries: the address of the entries.
            numbers: the number of words in the entries, four for each one.
            size: the size of the block in bytes.
        """
        words = self._memory.words(entries, numbers)
        return numbers > 0 and len(words) == numbers and all(
            words[i + 1] <= words[i + 2] <= size and i < words[i + 3] <= numbers
            for i in range(0, numbers, 4))
