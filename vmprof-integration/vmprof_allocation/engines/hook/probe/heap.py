"""Where the collector counts what its heap takes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vmprof_allocation.engines.hook.probe.collector import GC_SIZE, SWEEPING
from vmprof_allocation.engines.hook.probe.memory import Memory, NotCertain, gc

#: what is behind one of the GC's pointers is looked at as far as this, in bytes
BEHIND = 0x200
#: what makes its words change: in turns, so many small objects, more by one for each
#: SMALL_SIZE bytes that are free in arenas (a list with one number takes more), so that
#: arenas are added; and so many large ones of this size
TURNS = 3
SMALL, SMALL_SIZE = 60000, 64
LARGE, LARGE_SIZE = 5, 400000
#: of each, so many different values have to be seen
DIFFERENT = 4
#: steps of the collector after each change
STEPS = 12
TRIES = 20

_Words = tuple[int, int, int, int]


class Heap(NamedTuple):
    """Of the words that the GC counts with, those of blocks of arenas that are in use,
    of arenas, of large objects outside of both, and of the nursery, relative to where
    the library is loaded."""

    blocks: int
    arenas: int
    large: int
    nursery: int
    #: blocks are counted on while the GC sweeps: it does not begin anew
    is_counted_on: bool


def find(memory: Memory) -> Heap:
    """Of each, the one word that always is what gc.get_stats() tells."""
    return _Search(memory).found()


class _Search:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._base = memory.gc - memory.layout.gc
        self._places = self._near()
        #: of each question, the addresses that agreed with all answers so far
        self._agree: list[set[int]] = []
        #: and these answers
        self._seen: list[set[int]] = [set(), set(), set(), set()]
        self._has_shrunk = [False] * 3
        self._last: _Words = (0, 0, 0, 0)
        #: each time that sweeping began: there were no fewer blocks than before
        self._counted_on: list[bool] = []

    def _near(self) -> list[tuple[int, int]]:
        """Addresses and sizes in bytes: of the GC's own words, and of what these point
        to in the library's data: its parts are there, too, before the program runs."""
        start, size = self._memory.data
        found = {self._memory.gc: GC_SIZE}
        for pointer in self._memory.words(self._memory.gc, GC_SIZE // 8):
            if pointer % 8 == 0 and start <= pointer <= start + size - BEHIND:
                found.setdefault(pointer, BEHIND)
        return sorted(found.items())

    def found(self) -> Heap:
        kept: list[Any] = []
        make: list[Callable[[], Any]] = [
            lambda: [[i] for i in range(SMALL + _free() // SMALL_SIZE)],
            lambda: [bytes(LARGE_SIZE + i) for i in range(LARGE)]]
        self._watch()
        for more in make * TURNS:
            kept.append(more())
            self._watch()
        while kept:
            kept.pop()
            self._watch()
        # the nursery stays as it is
        if ([len(agree) for agree in self._agree] != [1] * 4
                or any(len(seen) < DIFFERENT for seen in self._seen[:3])
                or not all(self._has_shrunk)):
            raise NotCertain("%s words agree with the GC's figures, of which %s were "
                             "different" % ([len(agree) for agree in self._agree],
                                            [len(seen) for seen in self._seen]))
        blocks, arenas, large, nursery = [agree.pop() - self._base
                                          for agree in self._agree]
        return Heap(blocks, arenas, large, nursery,
                    bool(self._counted_on) and all(self._counted_on))

    def _watch(self) -> None:
        for _ in range(STEPS):
            step, before = gc.collect_step(), self._last
            self._compare(*self._moment())
            if step.newstate == SWEEPING != step.oldstate:
                self._counted_on.append(self._last[0] >= before[0] > 0)
        # arenas are given back where all of one is free
        gc.collect()
        self._compare(*self._moment())

    def _moment(self) -> tuple[_Words, dict[int, int]]:
        """What the GC tells, and what stands there."""
        for _ in range(TRIES):
            told = _told()
            words = {address + 8 * i: word for address, size in self._places
                     for i, word in enumerate(self._memory.words(address, size // 8))}
            if _told() == told:
                return told, words
        raise NotCertain("the GC's figures never stand still")

    def _compare(self, told: _Words, words: dict[int, int]) -> None:
        if not self._agree:
            self._agree = [set(words) for _ in told]
        for i, value in enumerate(told):
            self._agree[i] = {address for address in self._agree[i]
                              if words.get(address) == value}
            self._seen[i].add(value)
            if i < len(self._has_shrunk) and value < self._last[i]:
                self._has_shrunk[i] = True      # who keeps the most does not
        self._last = told


def _told() -> _Words:
    stats = gc._get_stats()
    nursery = int(stats.nursery_size)
    large = int(stats.total_rawmalloced_memory)
    return (int(stats.total_arena_memory),
            int(stats.total_allocated_memory) - large - nursery, large, nursery)


def _free() -> int:
    """Bytes in arenas that no block takes."""
    blocks, arenas, _, _ = _told()
    return arenas - blocks
