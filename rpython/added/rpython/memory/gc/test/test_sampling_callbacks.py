"""Allocation sampling: callbacks of the program during a collection, and
invalid arguments.
"""
import sys

from rpython.memory.gc.sampling import MAX_INTERVAL
from rpython.memory.gc.test.sampling_support import (SMALL, FINALIZED,
    memory_pressure, BaseSamplingTest, adr)
from rpython.memory.gc.test.test_direct import VAR, WORD
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper


class TestCallbacks(BaseSamplingTest):
    """Finalizers and memory pressure, in a nursery with a sample point"""

    def fill_in_callback(self, action):
        """Run 'action' at the end of the next collection, as a finalizer."""
        original = self.gc.rrc_invoke_callback
        def invoke():
            original()
            if self.gc.rrc_invoke_callback is invoke:
                self.gc.rrc_invoke_callback = original
                action()
        self.gc.rrc_invoke_callback = invoke

    def test_3_second_minor_collection(self):
        for interval in [1, 7 * WORD, 30 * WORD, 33 * WORD, 63 * WORD,
                         100 * WORD]:
            self.fresh()
            self.start(interval)
            for i in range(8):
                self.alloc()
            def fill():
                for i in range(8):
                    assert self.offset(self.alloc()) == 4 * i
            self.fill_in_callback(fill)
            p = self.alloc()
            assert len(self.sizes) == 17
            assert self.offset(p) == 0
            assert self.collections == self.totals.collections == 2
            for i in range(100):
                assert self.offset(self.alloc()) == 4 * ((i + 1) % 8)
            self.check(interval)

    def test_3_finalizer_allocates_little(self):
        # the object that caused the collection is placed after the finalizer's objects
        for interval in [1, 7 * WORD, 33 * WORD, 42 * WORD, 100 * WORD]:
            self.fresh()
            self.start(interval)
            for i in range(8):
                self.alloc()
            def fill():
                self.alloc(SMALL)
                self.alloc()
            self.fill_in_callback(fill)
            assert self.offset(self.alloc()) == 6
            assert self.collections == 1
            for i in range(50):
                self.alloc()
            self.check(interval)

    def test_3_finalizer_collects(self):
        for interval in [1, 7 * WORD, 33 * WORD, 100 * WORD]:
            self.fresh()
            self.start(interval)
            for i in range(8):
                self.alloc()
            def fill():
                for i in range(30):
                    self.alloc()
                self.gc.collect(0)
                self.alloc()
            self.fill_in_callback(fill)
            assert self.offset(self.alloc()) == 4
            assert self.totals.collections == self.collections == 1 + 3 + 1
            self.check(interval)

    def test_finalizer_stops(self):
        self.start(5 * WORD)
        for i in range(8):
            self.alloc()
        self.fill_in_callback(self.stop)
        samples = len(self.samples)
        offsets = [self.offset(self.alloc()) for i in range(9)]
        assert offsets == [0, 4, 8, 12, 16, 20, 24, 28, 0]
        assert len(self.samples) == samples
        assert self.totals.allocated == 8 * 4 * WORD

    def test_finalizer_starts(self):
        for i in range(8):
            self.alloc()
        self.fill_in_callback(lambda: self.start(5 * WORD))
        offsets = [self.offset(self.alloc()) for i in range(9)]
        assert offsets == [0, 4, 8, 12, 16, 20, 24, 28, 0]
        assert self.collections == 2
        self.check(5 * WORD)

    def test_finalizer_starts_anew(self):
        self.start(5 * WORD)
        for i in range(8):
            self.alloc()
        self.fill_in_callback(lambda: self.start(7 * WORD))
        offsets = [self.offset(self.alloc()) for i in range(9)]
        assert offsets == [0, 4, 8, 12, 16, 20, 24, 28, 0]
        self.check(7 * WORD)

    def test_finalizer_changes_the_interval(self):
        self.start(5 * WORD)
        for i in range(8):
            self.alloc()
        self.fill_in_callback(
            lambda: self.gc.set_allocation_interval(11 * WORD))
        del self.samples[:]
        offsets = [self.offset(self.alloc()) for i in range(9)]
        assert offsets == [0, 4, 8, 12, 16, 20, 24, 28, 0]
        assert self.numbers() == [8 + 2, 8 + 5, 8 + 8]
        self.stop()
        assert self.totals.allocated == 17 * 4 * WORD

    def test_finalizer_in_a_large_allocation(self):
        # external_malloc() may collect, which places the sample point
        self.start(5 * WORD)
        self.alloc()
        def fill():
            self.alloc(SMALL)
        self.fill_in_callback(fill)
        self.gc.next_major_collection_threshold = 1.0
        self.alloc(VAR, 30)
        assert self.collections >= 1
        assert len(self.sizes) == 3
        self.alloc()
        self.alloc()
        self.check(5 * WORD)

    def test_4_memory_pressure_forces_a_collection(self):
        def run():
            log = []
            for i in range(40):
                self.keep(self.alloc())
                if len(self.stackroots) > 5:
                    self.stackroots.pop(0)
                memory_pressure(self.gc, 50)
                log.append((self.offset(self.stackroots[-1]),
                            self.collections, self.gc.num_major_collects))
            return log
        expected = run()
        # there are more collections than without the memory pressure
        assert self.gc.num_major_collects > 0 and self.collections > 8
        for interval in [1, 3 * WORD, 9 * WORD, 35 * WORD, 1000 * WORD]:
            self.fresh()
            self.start(interval)
            assert run() == expected
            self.check(interval)

    def test_11_sampled_objects_can_be_pinned(self):
        for interval in [0, 1, 10**6]:
            self.fresh()
            self.gc.max_number_of_pinned_objects = 3
            if interval:
                self.start(interval)
            for i in range(5):
                self.keep(self.alloc(SMALL)).x = i
            pinned = [self.gc.pin(adr(p)) for p in self.stackroots]
            assert pinned == [True, True, True, False, False]
            assert not self.gc.pin(adr(self.stackroots[0]))
            assert self.gc.pinned_objects_in_nursery == 3
            for i in range(30):
                self.alloc()
            assert self.collections > 3
            assert [self.offset(p) for p in self.stackroots] == [
                0, 2, 4, None, None]
            assert [p.x for p in self.stackroots] == range(5)
            for p in self.stackroots[:3]:
                self.gc.unpin(adr(p))
            self.gc.collect(0)
            assert [self.offset(p) for p in self.stackroots] == [None] * 5
            assert [p.x for p in self.stackroots] == range(5)

    def test_13_bad_intervals_are_refused(self):
        gc = self.gc
        for interval in [0, -1, -sys.maxint - 1, MAX_INTERVAL + 1, sys.maxint]:
            assert not gc.start_allocation_sampling(
                interval, 0, True, self.sampled, self.fact)
            assert gc.sample_point.interval == 0
            assert self.real_top_words() == 32
        for i in range(10):
            self.alloc()
        assert self.samples == []

    def test_13_bad_start_leaves_a_running_sampling_alone(self):
        self.start(10 * WORD)
        self.alloc()
        def never(*args):
            raise AssertionError("of the start that was refused")
        for interval in [0, -1, -sys.maxint - 1, MAX_INTERVAL + 1, sys.maxint]:
            assert not self.gc.start_allocation_sampling(
                interval, 0, False, llhelper(rgc.ALLOCATION_SAMPLED, never),
                llhelper(rgc.ALLOCATION_FACT, never))
            assert self.totals.interval == 10 * WORD
        for i in range(10):
            self.alloc()
        # the samples before the collection were reported
        assert len(self.found) == 3
        self.check(10 * WORD)

    def test_13_bad_changes_are_refused(self):
        gc = self.gc
        # without sampling, every interval is refused
        for interval in [-1, 0, 1, 1000, MAX_INTERVAL, MAX_INTERVAL + 1]:
            assert gc.set_allocation_interval(interval) is False
            assert gc.sample_point.interval == 0
        self.start(10 * WORD)
        self.alloc()
        for interval in [-1, -sys.maxint - 1, MAX_INTERVAL + 1, sys.maxint]:
            top = gc.nursery_top
            assert gc.set_allocation_interval(interval) is False
            assert gc.nursery_top == top
            assert self.totals.interval == 10 * WORD
        for i in range(10):
            self.alloc()
        self.check(10 * WORD)
        assert gc.set_allocation_interval(0) is False
        assert gc.set_allocation_interval(1000) is False

    def test_13_extreme_intervals(self):
        for fixed in [False, True]:
            self.fresh()
            self.start(MAX_INTERVAL, fixed=fixed)
            for i in range(20):
                assert self.offset(self.alloc()) == 4 * (i % 8)
            assert self.samples == []
            assert self.gc.set_allocation_interval(1)
            for i in range(20):
                assert self.offset(self.alloc()) == 4 * ((i + 4) % 8)
            assert self.numbers() == range(20, 40)
            assert self.gc.set_allocation_interval(MAX_INTERVAL)
            for i in range(20):
                self.alloc()
            assert len(self.samples) == 20
            self.stop()
            assert self.totals.allocated == 60 * 4 * WORD

    def test_14_one_record_per_object(self):
        for fixed in [False, True]:
            self.fresh()
            self.start(1, fixed=fixed)
            self.alloc()
            self.alloc(VAR, 1000)
            self.alloc_finalizer(FINALIZED, light=False)
            self.alloc()
            # alloc() checks the size that the GC reports
            assert self.numbers() == [0, 1, 2, 3]
            self.gc.collect(0)
            assert [key for key, _, _, _ in self.found] == [1, 2, 3, 4]
