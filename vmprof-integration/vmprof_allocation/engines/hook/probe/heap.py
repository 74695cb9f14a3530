"""Find the words in which the GC counts the size of its heap."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vmprof_allocation.engines.hook.probe.collector import GC_SIZE, SWEEPING
from vmprof_allocation.engines.hook.probe.memory import Memory, NotCertain, gc

#: The number of bytes that are examined at the target of a pointer of the GC.
BEHIND = 0x200
#: The allocations that change the GC's counts; two kinds alternate, TURNS times.  One
#: makes SMALL lists with one number, and one more list for each SMALL_SIZE bytes that
#: are free in arenas.  Such a list is larger than SMALL_SIZE, so the GC adds arenas.
#: The other kind makes LARGE objects of LARGE_SIZE bytes.
TURNS = 3
SMALL, SMALL_SIZE = 60000, 64
LARGE, LARGE_SIZE = 5, 400000
#: The minimum number of different values that each count must have had.
DIFFERENT = 4
#: The number of collector steps after each change.
STEPS = 12
#: The number of attempts to read the counts and the memory at the same moment.
TRIES = 20

_Words = tuple[int, int, int, int]


class Heap(NamedTuple):
    """The addresses of the GC's counters, relative to the load address.

    The counters contain the bytes in used blocks of arenas, in arenas, in large objects
    outside of arenas, and in the nursery.
    """

    blocks: int
    arenas: int
    large: int
    nursery: int
    #: Whether the counter `blocks` is also valid while the GC sweeps.  If not, the GC
    #: counts again from 0 during the sweep.
    is_counted_on: bool


def find(memory: Memory) -> Heap:
    """Return the addresses of the only words that always agree with gc.get_stats().

    Raises:
        NotCertain: no word, or more than one, agrees with a value.
    """
    return _Search(memory).found()


class _Search:
    """The search for the counters, by comparisons at different moments."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._base = memory.gc - memory.layout.gc
        self._places = self._near()
        #: For each counter, the addresses whose words always had the counter's value.
        self._agree: list[set[int]] = []
        #: For each counter, the values that it has had.
        self._seen: list[set[int]] = [set(), set(), set(), set()]
        self._has_shrunk = [False] * 3
        self._last: _Words = (0, 0, 0, 0)
        #: For each start of sweeping, whether the GC counted at least as many bytes in
        #: blocks as before.
        self._counted_on: list[bool] = []

    def _near(self) -> list[tuple[int, int]]:
        """Return the addresses and sizes in bytes of the memory that is searched.

        This memory is the GC struct and the targets of its pointers into the library's
        data.  These targets are the parts of the GC that exist before the program runs.
        """
        start, size = self._memory.data
        found = {self._memory.gc: GC_SIZE}
        for pointer in self._memory.words(self._memory.gc, GC_SIZE // 8):
            if pointer % 8 == 0 and start <= pointer <= start + size - BEHIND:
                found.setdefault(pointer, BEHIND)
        return sorted(found.items())

    def found(self) -> Heap:
        """Run the allocations, and return the counters."""
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
        # the nursery's size does not change
        if ([len(agree) for agree in self._agree] != [1] * 4
                or any(len(seen) < DIFFERENT for seen in self._seen[:3])
                or not all(self._has_shrunk)):
            raise NotCertain("%s words agree with the GC's counts, which had %s "
                             "different "
                             "values" % ([len(agree) for agree in self._agree],
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
        # the GC frees arenas that are empty
        gc.collect()
        self._compare(*self._moment())

    def _moment(self) -> tuple[_Words, dict[int, int]]:
        """Return the counters' values, and the searched words at the same moment."""
        for _ in range(TRIES):
            told = _told()
            words = {address + 8 * i: word for address, size in self._places
                     for i, word in enumerate(self._memory.words(address, size // 8))}
            if _told() == told:
                return told, words
        raise NotCertain("the GC's counts changed during each reading")

    def _compare(self, told: _Words, words: dict[int, int]) -> None:
        """Remove the addresses whose words do not agree with the counters.

        Args:
            told: the values of the counters.
            words: the words, by their addresses.
        """
        if not self._agree:
            self._agree = [set(words) for _ in told]
        for i, value in enumerate(told):
            self._agree[i] = {address for address in self._agree[i]
                              if words.get(address) == value}
            self._seen[i].add(value)
            if i < len(self._has_shrunk) and value < self._last[i]:
                self._has_shrunk[i] = True      # a maximum never shrinks
        self._last = told


def _told() -> _Words:
    """Return the values of the counters, in the order of Heap."""
    stats = gc._get_stats()
    nursery = int(stats.nursery_size)
    large = int(stats.total_rawmalloced_memory)
    return (int(stats.total_arena_memory),
            int(stats.total_allocated_memory) - large - nursery, large, nursery)


def _free() -> int:
    """Return the number of bytes in arenas that belong to no used block."""
    blocks, arenas, _, _ = _told()
    return arenas - blocks
