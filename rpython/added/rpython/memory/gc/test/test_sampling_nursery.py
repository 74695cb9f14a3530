"""Allocation sampling: the sample point in the nursery."""
from rpython.memory.gc.sampling import Sampler
from rpython.memory.gc.test.sampling_support import (SMALL, CHARS, total_size,
    memory_pressure, BaseSamplingTest, adr)
from rpython.memory.gc.test.test_direct import S, VAR, WORD
from rpython.rtyper.lltypesystem import llarena, llmemory


class TestNurseryTop(BaseSamplingTest):
    """All code of the GC that reads or moves nursery_top"""

    # ---------- the basic case

    def test_sample_point_inside_the_nursery(self):
        self.start(10 * WORD)
        for i in range(8):
            p = self.alloc()
            assert self.offset(p) == 4 * i
        assert self.numbers() == [2, 4, 7]
        assert self.collections == 0
        self.check(10 * WORD)

    def test_sampled_byte_first_and_last_in_an_object(self):
        # the sampled byte is before an object, its first, its last, or the next byte
        for interval, expected in [(4 * WORD, [0, 1, 2]),
                                   (4 * WORD + 1, [1, 2]),
                                   (8 * WORD, [1]),
                                   (8 * WORD + 1, [2])]:
            self.fresh()
            self.start(interval)
            for i in range(3):
                self.alloc()
            assert self.numbers() == expected

    def test_no_more_slow_paths_than_samples(self):
        # The fast path fails only if the object has a sampled byte or the nursery is
        # full, and not if the object ends right before the sampled byte.
        original = self.gc.collect_and_reserve
        slow = []
        def collect_and_reserve(totalsize):
            slow.append(len(self.sizes) - self.first)
            return original(totalsize)
        self.gc.collect_and_reserve = collect_and_reserve
        for interval, expected in [(4 * WORD + 1, [1, 2, 3, 4, 5, 6, 7]),
                                   (8 * WORD + 1, [2, 4, 6]),
                                   (12 * WORD, [2, 5]),
                                   (12 * WORD + 1, [3, 6]),
                                   (31 * WORD, [7]),
                                   (32 * WORD + 1, []),
                                   (1000 * WORD, [])]:
            self.start(interval)
            for i in range(8):
                self.alloc()
            assert slow == self.numbers() == expected
            self.gc.collect(0)
            del slow[:]

    def test_gap_longer_than_the_nursery(self):
        self.start(100 * WORD)
        for i in range(100):
            self.alloc()
        assert self.numbers() == [24, 49, 74, 99]
        self.check(100 * WORD)

    def test_every_gap(self):
        # all distances between a sampled byte and the end of the nursery
        for interval in range(1, 50 * WORD, 3):
            self.fresh()
            self.start(interval)
            for i in range(20):
                assert self.offset(self.alloc()) == 4 * (i % 8)
            self.check(interval)
            assert self.collections == 2

    def test_exponential_gaps(self):
        self.start(9 * WORD, seed=77, fixed=False)
        sampler = Sampler()
        sampler.start(9 * WORD, 77, False)
        expected = []
        for i in range(300):
            n = i * i % 20
            if sampler.pass_object(total_size(VAR, n)):
                expected.append(i)
            self.alloc(VAR, n)
        assert 100 < len(expected) < 200
        assert self.numbers() == expected

    def test_change_interval(self):
        self.start(20 * WORD)
        self.alloc()
        assert self.gc.set_allocation_interval(6 * WORD)
        assert self.totals.interval == 6 * WORD
        for i in range(3):
            self.alloc()
        assert self.numbers() == [2, 3]
        assert self.totals.interval == 6 * WORD
        # this gap is longer than the last one, and longer than the nursery
        assert self.gc.set_allocation_interval(1000 * WORD)
        for i in range(249):
            self.alloc()
        assert self.numbers() == [2, 3]
        self.alloc()
        assert self.numbers() == [2, 3, 253]
        # a sample has the interval at its time, and not the next interval
        assert [sample[3] for sample in self.samples] == [
            6 * WORD, 6 * WORD, 1000 * WORD]
        self.stop()
        assert self.totals.allocated == 254 * 4 * WORD

    def test_change_interval_often(self):
        # the interval changes each time before the sampled byte
        self.start(5 * WORD)
        for i in range(50):
            self.alloc()
            assert self.gc.set_allocation_interval(5 * WORD + i)
        assert self.numbers() == []
        assert self.collections == 6
        self.stop()
        assert self.totals.allocated == 50 * 4 * WORD

    def test_sampled_changes_the_interval(self):
        # the new interval is valid from the end of the sampled object on
        def answer(number):
            self.totals.interval = 12 * WORD if number == 1 else WORD
            return number + 1
        self.answer = answer
        self.start(5 * WORD)
        for i in range(7):
            self.alloc()
        assert self.numbers() == [1, 4, 5, 6]
        assert [sample[3] for sample in self.samples] == [
            5 * WORD, 12 * WORD, WORD, WORD]
        assert self.totals.interval == WORD
        self.stop()
        assert self.totals.allocated == 7 * 4 * WORD

    def test_sampled_changes_the_interval_and_ends(self):
        def answer(number):
            self.totals.interval = 12 * WORD
            return -1
        self.answer = answer
        self.start(5 * WORD)
        for i in range(20):
            self.alloc()
        assert self.numbers() == [1]
        assert not self.gc.set_allocation_interval(0)

    # ---------- code that reads or moves nursery_top

    def test_barrier_branch_reads_the_pinned_object_at_nursery_top(self):
        # 10 free words, the pinned object, 20 free words.  The third object doesn't
        # fit into the last two words before the pinned object, in which the sample
        # point is.
        p = self.pin_behind(S, S, SMALL)
        self.start(9 * WORD)
        offsets = [self.offset(self.alloc()) for i in range(8)]
        assert offsets == [0, 4, 12, 16, 20, 24, 28, 0]
        assert self.numbers() == [2, 4, 6]
        assert p.x == 42 and self.offset(p) == 10
        assert self.collections == 1
        self.check(9 * WORD)

    def test_barrier_branch_with_every_gap(self):
        for interval in range(WORD, 40 * WORD, 5):
            self.fresh()
            p = self.pin_behind(S, S, SMALL)
            self.start(interval)
            offsets = [self.offset(self.alloc()) for i in range(8)]
            assert offsets == [0, 4, 12, 16, 20, 24, 28, 0]
            assert p.x == 42
            self.check(interval)

    def test_barrier_branch_several_times(self):
        # there are three pinned objects, and the areas between them are too small
        pinned = []
        for i in range(3):
            self.alloc(SMALL)
            p = self.keep(self.alloc(SMALL))
            p.x = i
            assert self.gc.pin(adr(p))
            pinned.append(p)
        self.gc.collect(0)
        assert [self.offset(p) for p in pinned] == [2, 6, 10]
        self.start(WORD + 1)
        q = self.alloc()
        assert self.offset(q) == 12
        assert [p.x for p in pinned] == [0, 1, 2]
        assert self.numbers() == [0]
        for i in range(4):
            self.alloc()
        assert self.collections == 1
        self.check(WORD + 1)

    def test_pinned_object_at_the_beginning(self):
        # there are no free words before the pinned object
        p = self.pin_behind()
        assert self.offset(p) == 0
        for interval in [1, WORD, 5 * WORD, 100 * WORD]:
            self.gc.collect(0)
            self.start(interval)
            assert self.offset(self.alloc()) == 2
            assert self.offset(self.alloc()) == 6
            self.check(interval)

    def test_retry_after_a_collection(self):
        # The collection has placed the sample point again, and at this
        # interval nothing fits before it.
        self.start(WORD)
        for i in range(8):
            self.alloc()
        assert self.collections == 0
        p = self.alloc()
        assert self.offset(p) == 0
        assert self.collections == 1
        for i in range(91):
            self.alloc()
        assert self.collections == 12
        self.check(WORD)

    def test_tiny_nursery(self):
        # PYPY_GC_NURSERY=1 and similar values move nursery_free
        for tiny in [0, 1, 4, 5, 8, 40]:
            def run():
                self.gc.debug_tiny_nursery = tiny * WORD
                offsets = [self.offset(self.alloc()) for i in range(30)]
                return offsets, self.collections
            self.fresh()
            expected = run()
            if tiny < 4:
                assert expected[1] == 22
            for interval in [1, 3 * WORD, 9 * WORD, 35 * WORD, 1000 * WORD]:
                self.fresh()
                self.start(interval)
                assert run() == expected
                self.check(interval)

    def test_memory_pressure(self):
        self.start(6 * WORD)
        self.alloc()
        self.gc.next_major_collection_threshold = 10.0
        memory_pressure(self.gc, 100)
        # nursery_free is at the real end of the nursery
        assert self.gc.nursery_free == self.gc.nursery + self.gc.nursery_size
        assert self.gc.nursery_free == self.gc.nursery_top
        p = self.alloc()
        assert self.offset(p) == 0
        assert self.numbers() == [1]
        # the 28 words between the objects were not allocated
        self.check(6 * WORD)

    def test_memory_pressure_without_effect(self):
        self.start(6 * WORD)
        self.alloc()
        self.gc.next_major_collection_threshold = 1000.0
        memory_pressure(self.gc, 100)
        assert [self.offset(self.alloc()) for i in range(7)] == [
            4, 8, 12, 16, 20, 24, 28]
        assert self.collections == 0
        self.check(6 * WORD)

    def test_memory_pressure_before_a_pinned_object(self):
        # nursery_top is at the pinned object, and an area follows it
        p = self.pin_behind(S, S, S)
        self.start(6 * WORD)
        self.alloc()
        self.gc.next_major_collection_threshold = 10.0
        memory_pressure(self.gc, 100)
        assert self.free_words() == 12
        assert self.offset(self.alloc()) == 14
        assert p.x == 42
        self.check(6 * WORD)

    def test_debug_rotate_nursery(self, monkeypatch):
        monkeypatch.setenv('PYPY_GC_DEBUG', '2')
        for interval in [1, 10 * WORD, 33 * WORD, 100 * WORD]:
            self.fresh()
            self.gc.gc_nursery_debug = True
            self.gc.post_setup()
            assert self.gc.debug_rotating_nurseries
            point = self.gc.sample_point
            original = self.gc.debug_rotate_nursery
            def debug_rotate_nursery():
                assert point.real_top == llmemory.NULL
                original()
            self.gc.debug_rotate_nursery = debug_rotate_nursery
            self.start(interval)
            nurseries = set()
            for i in range(80):
                p = self.alloc()
                assert self.offset(p) == 4 * (i % 8)
                nurseries.add(self.gc.nursery.arena)
            assert len(nurseries) == 7
            assert self.collections == 9
            self.check(interval)
            assert self.gc.nursery_top == (self.gc.nursery +
                                           self.gc.nursery_size)

    def test_allocate_nursery(self):
        # In a program, only setup() calls allocate_nursery().  This test calls it to
        # move the nursery, because the gap must not depend on its address.
        gc = self.gc
        self.start(15 * WORD)
        for i in range(9):
            self.alloc()
        gc._minor_collection()
        gc.sample_point.lift(gc, gc.nursery_free)
        llarena.arena_free(gc.nursery)
        gc.nursery_size *= 2
        gc.allocate_nursery()
        gc.sample_point.place(gc)
        for i in range(16):
            assert self.offset(self.alloc()) == 4 * i
        assert self.collections == 2
        self.check(15 * WORD)
        assert self.real_top_words() == 64

    def test_minor_collection_places_the_point_again(self):
        for generation in [-1, 0, 1, 2]:
            self.fresh()
            self.start(10 * WORD)
            self.alloc()
            self.alloc()
            self.gc.collect(generation)
            assert self.numbers() == []
            assert self.offset(self.alloc()) == 0
            assert self.numbers() == [2]
            self.gc.collect(generation)
            self.gc.collect(generation)
            for i in range(8):
                assert self.offset(self.alloc()) == 4 * i
            assert self.totals.collections == self.collections >= 3
            self.check(10 * WORD)

    def test_minor_collection_counts_what_was_used(self):
        self.start(1000 * WORD)
        self.alloc()
        self.alloc()
        assert self.totals.allocated == 0
        self.gc.collect(0)
        assert self.totals.allocated == 8 * WORD
        self.gc.collect(0)
        assert self.totals.allocated == 8 * WORD

    def test_unpin_leaves_the_barriers(self):
        p = self.pin_behind(S, S)
        self.gc.unpin(adr(p))
        assert self.gc.pinned_objects_in_nursery == 0
        assert self.gc.nursery_barriers.non_empty()
        self.start(5 * WORD)
        offsets = [self.offset(self.alloc()) for i in range(7)]
        assert offsets == [0, 4, 10, 14, 18, 22, 26]
        assert self.collections == 0
        assert p.x == 42
        self.alloc()
        assert self.collections == 1
        p = self.stackroots[0]
        assert self.offset(p) is None and p.x == 42
        offsets = [self.offset(self.alloc()) for i in range(7)]
        assert offsets == [4, 8, 12, 16, 20, 24, 28]
        self.check(5 * WORD)
        assert self.real_top_words() == 32

    def test_unpin_while_sampling(self):
        p = self.pin_behind(S, S)
        self.start(5 * WORD)
        self.alloc()
        self.gc.unpin(adr(p))
        offsets = [self.offset(self.alloc()) for i in range(6)]
        assert offsets == [4, 10, 14, 18, 22, 26]
        assert p.x == 42
        self.check(5 * WORD)
        assert self.real_top_words() == 32

    # ---------- known mistakes of other implementations, by their numbers

    def test_1_unpin_enable_allocate_disable(self):
        # nursery_top is the nursery's end only after the last barrier.
        for before in range(8):
            self.fresh()
            p = self.pin_behind(S, S)
            self.gc.unpin(adr(p))
            self.start(3 * WORD)
            offsets = [self.offset(self.alloc()) for i in range(before)]
            self.stop()
            if before <= 2:
                assert self.real_top_words() == 8
            else:
                assert self.real_top_words() == 32
            # the simulated memory would reject an overlapping object
            offsets += [self.offset(self.alloc()) for i in range(7 - before)]
            assert offsets == [0, 4, 10, 14, 18, 22, 26]
            assert self.collections == 0
            assert p.x == 42

    def test_2_no_burst_behind_a_barrier(self):
        # The GC skips a large pinned object, whose bytes must not be counted again.
        # For the two words before it, see SMALL.
        self.GC_PARAMS = {'nursery_size': 128 * WORD,
                          'large_object': 64 * WORD}
        self.fresh()
        self.alloc()
        self.alloc(SMALL)
        p = self.keep(self.alloc(CHARS, 50 * WORD))
        assert self.gc.pin(adr(p))
        self.gc.collect(0)
        self.start(9 * WORD)
        for i in range(16):
            self.alloc()
        assert self.offset(p) == 6
        assert self.free_words() == 6 + 52 + 15 * 4
        assert self.numbers() == [2, 4, 6, 8, 11, 13, 15]
        self.check(9 * WORD)
