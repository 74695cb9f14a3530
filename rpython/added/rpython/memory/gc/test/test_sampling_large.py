"""Allocation sampling: objects outside of the nursery."""
import sys

import py
from rpython.memory.gc.test.sampling_support import (SMALL, CHARS, DESTROYED,
    memory_pressure, BaseSamplingTest, adr)
from rpython.memory.gc.test.test_direct import S, VAR, WORD
from rpython.rtyper.lltypesystem import lltype


class TestLargeObjects(BaseSamplingTest):
    """external_malloc(), which does not read nursery_top, but may collect"""

    def test_5_no_stale_top(self):
        # A large object of 12 words uses up a part of the gap, or contains its end.
        def run():
            log = []
            for i in range(40):
                if i % 3 == 1:
                    p = self.alloc(VAR, 10)
                else:
                    p = self.alloc()
                log.append((self.offset(p), self.collections))
            return log
        self.gc.min_heap_size = 1e6
        expected = run()
        assert self.collections == 3
        for interval in range(1, 60 * WORD, WORD + 3):
            self.fresh()
            self.start(interval)
            assert run() == expected
            assert self.totals.collections == self.collections
            self.check(interval)

    def test_5_large_objects_alone(self):
        self.start(30 * WORD)
        self.alloc()
        for i in range(20):
            self.alloc(VAR, 10)
        self.alloc()
        assert self.offset(self.alloc()) is not None
        self.check(30 * WORD)

    def test_large_object_collects(self):
        def run():
            log = []
            for i in range(60):
                self.keep(self.alloc(VAR, i % 30))
                if len(self.stackroots) > 5:
                    self.stackroots.pop(0)
                log.append((self.offset(self.stackroots[-1]),
                            self.collections, self.gc.num_major_collects))
            return log
        expected = run()
        assert self.gc.num_major_collects > 1
        for interval in [1, 5 * WORD, 31 * WORD, 100 * WORD, 3000 * WORD]:
            self.fresh()
            self.start(interval)
            assert run() == expected
            self.check(interval)

    def test_nonmovable(self):
        self.start(6 * WORD)
        self.alloc_nonmovable(S)
        self.alloc_nonmovable(S)
        self.alloc_nonmovable(CHARS, 3)
        self.alloc_nonmovable(VAR, 100)
        assert self.numbers() == [1, 3]
        assert self.free_words() == 0
        self.check(6 * WORD)

    def test_size_is_rounded(self):
        # alloc() checks the size that the GC reports
        self.start(1)
        for n in range(2 * WORD):
            self.alloc(CHARS, n)
            self.alloc(CHARS, 100 + n)
            self.alloc_nonmovable(CHARS, n)
        assert len(self.samples) == 3 * 2 * WORD
        self.check(1)

    def test_too_large_object(self):
        self.start(5 * WORD)
        self.alloc()
        py.test.raises(MemoryError, self.malloc, VAR, -1)
        py.test.raises(MemoryError, self.malloc, VAR, sys.maxint // WORD)
        assert self.samples == []
        self.alloc()
        self.check(5 * WORD)

    def test_large_objects_are_found_dead_or_alive(self):
        self.start(1)
        for i in range(10):
            p = self.alloc(VAR, 20 + i)
            if i % 3 == 0:
                self.keep(p)
        self.gc.collect(0)
        type = self.type_index(VAR)
        assert self.found == [(i + 1, 0, type, 0) for i in range(10)]
        # the large object is reported only once
        self.gc.collect(0)
        self.gc.collect(2)
        assert len(self.found) == 10

    def test_same_addresses_and_collections(self):
        def run(start=None):
            self.fresh()
            self.gc.call_destructor = lambda obj: None
            if start is not None:
                self.start(*start)
            log = []
            for i in range(150):
                kind = i * 7 % 11
                if kind < 4:
                    p = self.alloc()
                elif kind < 6:
                    p = self.alloc(SMALL)
                elif kind == 6:
                    p = self.alloc(VAR, i % 40)
                elif kind == 7:
                    p = self.alloc(CHARS, i % 40)
                    self.gc.shrink_array(adr(p), i % 40 // 2)
                elif kind == 8:
                    p = self.alloc_finalizer(DESTROYED, light=True)
                elif kind == 9:
                    p = self.alloc_nonmovable(CHARS, i)
                else:
                    p = self.alloc_weakref(self.keep(self.alloc()))
                log.append((self.offset(p), self.collections,
                            self.gc.num_major_collects))
                if i % 2:
                    self.keep(p)
                    if i % 5 == 0:
                        self.gc.id(p)
                if len(self.stackroots) > 6:
                    self.stackroots.pop(1 + i % 3)
                if i == 40:
                    self.stackroots.insert(0, self.alloc(SMALL))
                    assert self.gc.pin(adr(self.stackroots[0]))
                if i == 90:
                    self.gc.unpin(adr(self.stackroots[0]))
                if i % 37 == 36:
                    self.gc.collect(i % 3)
                if i % 31 == 30:
                    memory_pressure(self.gc, 3000)
                if i == 75 and start is not None:
                    # setting the same interval again changes nothing either
                    assert self.gc.set_allocation_interval(start[0])
            if start is not None:
                assert self.totals.collections == self.collections
                self.stop()
                assert self.totals.allocated == sum(self.sizes)
            log.append(self.real_top_words())
            return log

        expected = run()
        assert None in [entry[0] for entry in expected[:-1]]
        assert expected[-2][1] > 20 and expected[-2][2] > 1
        for start in [(64, 1, False), (10**6, 2, False), (64, 0, True),
                      (1, 0, True), (24 * WORD, 0, True), (100, 3, False),
                      (31 * WORD, 0, True), (10**6, 0, True)]:
            assert run(start) == expected
            if start[0] == 64:
                assert 30 < len(self.samples) < 150
        # a start and a stop without an allocation between them change nothing
        self.fresh()
        self.start(3)
        self.stop()
        assert self.real_top_words() == 32


class TestLargeObjectsCardMarking(TestLargeObjects):
    # arrays of pointers have card bits before the header, and other flags while
    # they are young
    GC_PARAMS = {'card_page_indices': 4}
