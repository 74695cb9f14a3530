"""Allocation sampling: the size of the heap in the totals."""
from rpython.memory.gc.incminimark import (STATE_FINALIZING, STATE_MARKING,
    STATE_SCANNING, STATE_SWEEPING)
from rpython.memory.gc.sampled_objects import FACT_STARTED
from rpython.memory.gc.test.outcomes_support import BaseOutcomesTest
from rpython.memory.gc.test.test_direct import S, VAR, WORD
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper


class TestHeap(BaseOutcomesTest):

    def start(self, interval=10 ** 6):
        BaseOutcomesTest.start(self, interval)

    def counted(self):
        return self.gc.get_total_memory_used() + self.gc.nursery_size

    def has_newer_count(self):
        return hasattr(self.gc, 'get_total_memory_alloced')

    def step(self):
        """Run a minor collection and a step of a major collection."""
        self.gc.debug_gc_step()
        self.alloc(VAR, 10)              # the program continues
        return self.gc.gc_state

    def test_from_the_start(self):
        self.keep(self.alloc(VAR, 100))
        self.gc.collect(0)
        self.start()
        assert self.totals.heap == self.counted()
        assert self.totals.nursery == self.gc.nursery_size
        assert self.totals.heap > self.totals.nursery + 100 * WORD

    def test_large_objects(self):
        self.start()
        before = self.totals.heap
        for i in range(5):
            self.keep(self.alloc(VAR, 100))
            assert self.totals.heap == self.counted()
        assert self.totals.heap >= before + 500 * WORD

    def test_minor_collections(self):
        # survivors of a minor collection are in arenas, which the heap includes
        self.start()
        before = self.totals.heap
        self.keep(self.alloc(S))
        self.alloc(S)
        assert self.totals.heap == before
        self.gc.collect(0)
        assert self.totals.heap == before + 4 * WORD == self.counted()

    def test_what_a_minor_collection_frees(self):
        self.start()
        before = self.totals.heap
        for i in range(5):
            self.alloc(VAR, 100)
        self.gc.collect(0)
        assert self.totals.heap == before == self.counted()

    def test_seen_before_a_minor_collection(self):
        # at FACT_STARTED, large objects that are about to die are counted
        seen = []
        def fact(what, *rest):
            if what == FACT_STARTED:
                seen.append((self.totals.heap, self.counted()))
            return self.on_fact(what, *rest)
        self.fact = llhelper(rgc.ALLOCATION_FACT, fact)
        self.start()
        self.alloc(VAR, 100)
        self.gc.collect(0)
        told, counted = seen[-1]
        assert told == counted > self.totals.heap + 100 * WORD

    def test_while_it_sweeps(self):
        # during the sweep, dead objects that are not swept yet would be counted
        for i in range(50):
            self.keep(self.alloc(S))
        self.start()
        states = set()
        for i in range(300):
            state = self.step()
            states.add(state)
            known = state != STATE_SWEEPING
            assert self.totals.heap == (self.counted() if known else 0)
        assert states == set([STATE_SCANNING, STATE_MARKING, STATE_SWEEPING,
                              STATE_FINALIZING])

    def test_known_after_a_major_collection(self):
        # the totals are right although no allocation follows the major collection
        self.start()
        for i in range(20):
            self.keep(self.alloc(S))
            self.keep(self.alloc(VAR, 100))
        self.gc.collect()
        full = self.totals.heap
        assert full == self.counted()
        del self.stackroots[:]
        self.gc.collect()
        assert self.totals.heap == self.counted() < full - 2000 * WORD

    def test_from_the_system(self):
        self.start()
        self.keep(self.alloc(VAR, 100))
        self.keep(self.alloc(S))
        self.gc.collect(0)
        if not self.has_newer_count():
            assert self.totals.obtained == 0
        else:
            assert self.totals.obtained == (
                self.gc.get_total_memory_alloced() + self.gc.nursery_size)

    def test_at_the_end(self):
        self.start()
        self.keep(self.alloc(VAR, 100))
        self.gc.collect(0)
        self.stop()
        assert self.totals.heap == self.counted()
        # without sampling, the totals are not updated
        self.keep(self.alloc(VAR, 100))
        self.gc.collect(0)
        assert self.totals.heap < self.counted()
