"""Allocation sampling: the reports about sampled objects."""
import sys

from rpython.memory.gc.test.sampling_support import (SMALL, CHARS, DESTROYED,
    FINALIZED, BaseSamplingTest, adr)
from rpython.memory.gc.test.test_direct import S, VAR, WORD
from rpython.memory.gctypelayout import WEAKREF


class TestObjects(BaseSamplingTest):

    def told(self, TYPE, key=1):
        """Check that the next collection, and no later one, reports 'TYPE'."""
        assert self.found == []
        self.gc.collect(0)
        assert self.found == [(key, 0, self.type_index(TYPE), 0)]
        self.gc.collect(0)
        self.gc.collect(2)
        assert len(self.found) == 1

    def test_types(self):
        self.gc.call_destructor = lambda obj: None
        for keep in [False, True]:
            for TYPE, alloc in [
                    (S, lambda: self.alloc(S)),
                    (SMALL, lambda: self.alloc(SMALL)),
                    (VAR, lambda: self.alloc(VAR, 3)),
                    (VAR, lambda: self.alloc(VAR, 30)),
                    (CHARS, lambda: self.alloc(CHARS, 3)),
                    (CHARS, lambda: self.alloc_nonmovable(CHARS, 3)),
                    (DESTROYED, lambda: self.alloc_finalizer(DESTROYED, True)),
                    (FINALIZED, lambda: self.alloc_finalizer(FINALIZED, False))]:
                self.fresh()
                self.gc.call_destructor = lambda obj: None
                self.start(1)
                p = alloc()
                if keep:
                    self.keep(p)
                self.told(TYPE)

    def test_weakref(self):
        target = self.keep(self.alloc())
        self.start(1)
        self.alloc_weakref(target)
        self.told(WEAKREF, key=2)

    def test_pinned(self):
        self.start(1)
        p = self.keep(self.alloc(SMALL))
        assert self.gc.pin(adr(p))
        self.told(SMALL)

    def test_next_to_a_pinned_object(self):
        # the pinned object of pin_behind() stays in the nursery, and is not sampled
        p = self.pin_behind(S)
        self.start(1)
        self.alloc()
        self.keep(self.alloc())
        self.gc.collect(0)
        assert self.found == [(key, 0, self.type_index(S), 0) for key in [3, 4]]
        assert p.x == 42

    def test_shrunk(self):
        self.start(1)
        p = self.keep(self.alloc(CHARS, 4 * WORD))
        assert self.gc.shrink_array(adr(p), 1)
        self.told(CHARS)
        assert len(self.stackroots[0]) == 1
        self.stop()
        assert self.totals.allocated == 6 * WORD

    def test_by_a_collection_that_an_allocation_causes(self):
        self.start(1)
        for i in range(8):
            self.alloc()
        assert self.found == []
        self.alloc()
        type = self.type_index(S)
        assert self.found == [(i + 1, 0, type, 0) for i in range(8)]

    def test_more_objects_than_in_a_chunk(self):
        self.GC_PARAMS = {'nursery_size': 8192 * WORD}
        self.fresh()
        self.start(1)
        for i in range(2500):
            self.alloc(SMALL)
        assert self.collections == 0
        self.gc.collect(0)
        type = self.type_index(SMALL)
        assert self.found == [(i + 1, 0, type, 0) for i in range(2500)]

    def test_the_key_is_what_was_answered(self):
        keys = [1, 2**30, sys.maxint - 1, 0, 7, sys.maxint]
        self.start(1)
        self.answer = lambda n: keys[n]
        for key in keys:
            self.alloc()
        self.gc.collect(0)
        assert [key for key, _, _, _ in self.found] == [
            key for key in keys if key != 0]

    def test_nobody_listens(self):
        self.start(1)
        self.listens = 0
        self.alloc()
        self.gc.collect(0)
        self.listens = 1
        self.alloc()
        self.gc.collect(0)
        assert [key for key, _, _, _ in self.found] == [2]

    def test_stop_drops_what_waits(self):
        self.start(1)
        for i in range(5):
            self.keep(self.alloc())
        self.stop()
        self.gc.collect(0)
        assert self.found == []
        self.start(10 * WORD)
        self.gc.collect(0)
        assert self.found == []

    def test_end_from_inside_drops_what_waits(self):
        self.start(10 * WORD)
        self.answer = lambda n: -1 if n == 4 else n + 1
        for i in range(5):
            self.alloc()
        assert self.numbers() == [2, 4]
        assert self.gc.set_allocation_interval(100) is False
        self.gc.collect(2)
        assert self.found == []
        assert self.totals.allocated == 5 * 4 * WORD
        assert self.real_top_words() == 32

    def test_out_of_memory(self):
        # the program continues if there is no room for a waiting sample
        self.start(1)
        self.gc.sample_point.objects.waiting.limit = 3
        for i in range(5):
            assert self.offset(self.keep(self.alloc())) == 4 * i
        assert self.found == [(4, 0, -1, 0), (5, 0, -1, 0)]
        self.gc.collect(0)
        type = self.type_index(S)
        assert self.found[2:] == [(key, 0, type, 0) for key in [1, 2, 3]]
        # the table has room for another sample again
        self.alloc()
        self.gc.collect(0)
        assert self.found[5:] == [(6, 0, type, 0)]
        self.check(1)

    def test_collections_are_counted(self):
        # collect(2) on an empty heap is several minor collections
        self.start(1)
        assert self.totals.collections == 0
        self.gc.collect(2)
        assert self.totals.collections == self.collections > 1
        assert self.totals.allocated == 0
