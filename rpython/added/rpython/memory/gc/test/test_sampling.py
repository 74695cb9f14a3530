"""Allocation sampling (see sampling.py), in a GC that is not translated.

Three kinds of tests: the arithmetic of Sampler alone; what lowering
nursery_top would break in incminimark if the GC forgot about it somewhere;
and what is reported about the sampled objects.  Most of them use fixed gaps,
because then it is known beforehand which objects are sampled, from the sizes
alone: see fixed_samples().

What a profiler does with the samples (signals, errno, greenlets, forks, where
its messages go, which binaries link it) is not the GC's, and is not tested
here.
"""
import math
import sys

import py
from rpython.memory.gc.incminimark import (IncrementalMiniMarkGC,
    STATE_SCANNING, STATE_MARKING, STATE_SWEEPING)
from rpython.memory.gc.sampling import MAX_INTERVAL, Sampler
from rpython.memory.gc.test.test_direct import BaseDirectGCTest, S, VAR, WORD
from rpython.memory.gctypelayout import WEAKREF
from rpython.rlib import rgc
from rpython.rlib.rarithmetic import r_ulonglong
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llarena, llmemory, lltype

# A correct implementation fails a random check with a probability of 1e-8, if
# the seed is changed: this is the two-sided quantile of a normal distribution.
SIGMAS = 5.73


def fixed_samples(sizes, interval):
    """Which of the objects hold a byte number k * interval - 1?"""
    result = []
    end = 0
    for number, size in enumerate(sizes):
        begin = end
        end += size
        if end // interval > begin // interval:
            result.append(number)
    return result


# ____________________________________________________________
# Sampler

class TestSampler(object):

    def exponential(self, interval, seed=20260801):
        sampler = Sampler()
        sampler.start(interval, seed, False)
        return sampler

    def fixed(self, interval):
        sampler = Sampler()
        sampler.start(interval, 0, True)
        return sampler

    def test_no_sampling_before_start(self):
        assert Sampler().interval == 0

    def test_splitmix64(self):
        def reference(seed, count):
            result = []
            state = seed % 2**64
            for i in range(count):
                state = (state + 0x9e3779b97f4a7c15) % 2**64
                z = state
                z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 % 2**64
                z = (z ^ (z >> 27)) * 0x94d049bb133111eb % 2**64
                result.append(z ^ (z >> 31))
            return result

        # well-known: they keep both implementations from having one mistake
        assert reference(0, 3) == [0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4,
                                   0x06c45d188009454f]
        assert reference(1234567, 2) == [6457827717110365317,
                                         3203168211198807973]
        for seed in [0, 1, 1234567, 2**62, 2**63 - 1, -1, -2**63]:
            sampler = Sampler()
            sampler.random = r_ulonglong(seed)
            numbers = [long(sampler.next_random()) for i in range(20)]
            assert numbers == reference(seed, 20)

    def test_seed(self):
        def gaps(seed):
            sampler = self.exponential(1000000, seed)
            result = []
            for i in range(20):
                result.append(sampler.gap)
                sampler.draw()
            return result

        assert gaps(1) == gaps(1)
        # no two of these agree anywhere, not even in their first gap
        several = [gaps(seed) for seed in [0, 1, 2, 3, -1, 2**63 - 1]]
        assert len(set([gap for one in several for gap in one])) == 6 * 20

    def test_start_anew_with_the_same_seed(self):
        sampler = self.exponential(1000, 5)
        first = sampler.gap
        sampler.pass_object(first + 1)
        sampler.start(1000, 5, False)
        assert sampler.gap == first

    def test_extreme_random_numbers(self):
        # u is in (0, 1]: neither a logarithm of 0 nor a negative gap
        sampler = self.exponential(1000)
        sampler.next_random = lambda: r_ulonglong(0)
        sampler.draw()
        assert sampler.gap == int(53 * math.log(2) * 1000)
        sampler.next_random = lambda: r_ulonglong(2**64 - 1)
        sampler.draw()
        assert sampler.gap == 0

    def test_exponential_gaps_mean(self):
        for interval in [1, 2, 50, 512 * 1024, 2**40]:
            sampler = self.exponential(interval)
            count = 5000
            total = 0
            for i in range(count):
                total += sampler.gap
                sampler.draw()
            # the integer part has a geometric distribution
            mean = 1 / math.expm1(1.0 / interval)
            deviation = math.sqrt(mean * (mean + 1) / count)
            assert abs(float(total) / count - mean) < SIGMAS * deviation

    def test_exponential_gaps_distribution(self):
        # Kolmogorov and Smirnov's statistic, with the bound of Dvoretzky,
        # Kiefer, Wolfowitz and Massart; it holds for all sample sizes, and
        # for integers too
        count = 20000
        limit = math.sqrt(math.log(2 / 1e-8) / (2 * count))
        for interval in [1, 30, 2**40]:
            sampler = self.exponential(interval)
            gaps = []
            for i in range(count):
                gaps.append(sampler.gap)
                sampler.draw()
            gaps.sort()
            distance = 0.0
            for i in range(count):
                if i == 0 or gaps[i - 1] != gaps[i]:
                    below = -math.expm1(-gaps[i] / float(interval))
                    distance = max(distance, abs(below - i / float(count)))
                if i == count - 1 or gaps[i + 1] != gaps[i]:
                    upto = -math.expm1(-(gaps[i] + 1) / float(interval))
                    distance = max(distance,
                                   abs(upto - (i + 1) / float(count)))
            assert distance < limit

    def check_probability(self, hits, count, size, interval):
        p = -math.expm1(-float(size) / interval)
        deviation = math.sqrt(count * p * (1 - p))
        assert abs(hits - count * p) < SIGMAS * deviation, (
            size, interval, hits, count * p)

    def test_probability(self):
        interval = 1000
        count = 20000
        for size in [1, 10, 250, 500, 999, 1000, 1001, 2000, 4000]:
            sampler = self.exponential(interval, seed=size)
            hits = 0
            for i in range(count):
                hits += sampler.pass_object(size)
            self.check_probability(hits, count, size, interval)

    def test_probability_of_sizes_that_alternate(self):
        interval = 1000
        sizes = [16, 3000, 24, 1000, 500]
        hits = [0] * len(sizes)
        sampler = self.exponential(interval)
        for i in range(10000):
            for j, size in enumerate(sizes):
                hits[j] += sampler.pass_object(size)
        for j, size in enumerate(sizes):
            self.check_probability(hits[j], 10000, size, interval)

    def test_probability_with_rate_changes(self):
        # Each object has the probability of the interval it was allocated
        # under, no matter what the interval was before.
        sampler = self.exponential(100)
        intervals = [100, 10000, 1000, 100000]
        hits = [0] * len(intervals)
        for i in range(10000):
            for j, interval in enumerate(intervals):
                sampler.set_interval(interval)
                hits[j] += sampler.pass_object(600)
        for j, interval in enumerate(intervals):
            self.check_probability(hits[j], 10000, 600, interval)

    def test_probability_in_pieces(self):
        # the GC lifts and places the sample point at any time
        sampler = self.exponential(1000)
        hits = 0
        for i in range(20000):
            piece = min(sampler.gap, 170)
            sampler.pass_bytes(piece)
            if piece < 170:
                assert sampler.pass_object(400 - piece)
                hits += 1
            else:
                hits += sampler.pass_object(400 - piece)
        self.check_probability(hits, 20000, 400, 1000)

    def test_estimate_of_the_total(self):
        # every sampled object stands for size / p(size) bytes
        interval = 4096
        sizes = [16, 56, 4096, 120, 30000, 512]
        sampler = self.exponential(interval)
        estimate = variance = 0.0
        for i in range(5000):
            for size in sizes:
                p = -math.expm1(-float(size) / interval)
                variance += size * size * (1 - p) / p
                if sampler.pass_object(size):
                    estimate += size / p
        truth = 5000 * sum(sizes)
        assert abs(estimate - truth) < SIGMAS * math.sqrt(variance)

    def test_a_loop_aliases_with_fixed_gaps_only(self):
        def share(sampler):
            hits = [0, 0]
            for i in range(200000):
                hits[0] += sampler.pass_object(24)
                hits[1] += sampler.pass_object(40)
            return hits[0] / float(hits[0] + hits[1]), sum(hits)

        part, count = share(self.fixed(16384))
        assert part in (0.0, 1.0)
        part, count = share(self.exponential(16384))
        deviation = math.sqrt(0.375 * 0.625 / count)
        assert abs(part - 0.375) < SIGMAS * deviation

    def test_fixed_gaps(self):
        for interval in [1, 2, 5, 64]:
            sampler = self.fixed(interval)
            sampled = [i for i in range(1000) if sampler.pass_object(1)]
            assert sampled == range(interval - 1, 1000, interval)

    def test_fixed_gaps_change(self):
        sampler = self.fixed(10)
        assert not sampler.pass_object(9)
        sampler.set_interval(4)       # counts from here
        assert [sampler.pass_object(1) for i in range(8)] == [
            False, False, False, True] * 2

    def test_object_across_many_points_fixed(self):
        for interval in [1, 3, 64, 1000]:
            sampler = self.fixed(interval)
            sizes = [(i * i * 37) % 2500 for i in range(500)]
            sizes += [interval, interval, 2 * interval - 1, 1,
                      3 * interval + 1, interval - 1]
            sampled = []
            total = 0
            for number, size in enumerate(sizes):
                if sampler.pass_object(size):
                    sampled.append(number)
                total += size
                # the next one to come is a byte number k * interval - 1
                assert 0 <= sampler.gap < interval
                assert (total + sampler.gap + 1) % interval == 0
            assert sampled == fixed_samples(sizes, interval)

    def test_object_across_many_points_exponential(self):
        draws = []
        class Counting(Sampler):
            def draw(self):
                draws.append(1)
                assert len(draws) == 1
                Sampler.draw(self)

        for interval in [1, 1000]:
            sampler = Counting()
            del draws[:]
            sampler.start(interval, 42, False)
            del draws[:]
            assert sampler.pass_object(2**40)
            assert len(draws) == 1
            del draws[:]
            while not sampler.pass_object(1):
                assert draws == []
            assert len(draws) == 1

    def test_no_loop_over_the_points_in_an_object(self):
        # hangs if there is one
        sampler = self.fixed(1)
        assert sampler.pass_object(2**40)
        assert sampler.gap == 0
        sampler = self.fixed(1000)
        assert sampler.pass_object(2**40)
        assert sampler.gap == (999 - 2**40) % 1000
        sampler = self.exponential(1)
        assert sampler.pass_object(2**40)

    def test_empty_object_is_never_sampled(self):
        for sampler in [self.fixed(1), self.exponential(1)]:
            for i in range(100):
                assert not sampler.pass_object(0)

    def test_maximal_interval(self):
        assert MAX_INTERVAL in (2**62, 2**30)
        sampler = self.fixed(MAX_INTERVAL)
        assert sampler.gap == MAX_INTERVAL - 1
        assert not sampler.pass_object(MAX_INTERVAL - 1)
        assert sampler.pass_object(1)
        assert sampler.gap == MAX_INTERVAL - 1
        #
        sampler = self.exponential(MAX_INTERVAL)
        gaps = []
        for i in range(1000):
            assert isinstance(sampler.gap, int)
            assert 0 <= sampler.gap <= MAX_INTERVAL
            gaps.append(sampler.gap)
            sampler.draw()
        # 36.8 % are cut off
        clipped = gaps.count(MAX_INTERVAL)
        deviation = math.sqrt(1000 * 0.3679 * 0.6321)
        assert abs(clipped - 367.9) < SIGMAS * deviation
        sampler.pass_object(2**40)
        assert isinstance(sampler.gap, int)

    def test_sampled_byte_cannot_be_passed_over(self):
        sampler = self.fixed(10)
        sampler.pass_bytes(0)
        py.test.raises(AssertionError, sampler.pass_bytes, 10)
        py.test.raises(AssertionError, sampler.pass_bytes, -1)
        sampler.pass_bytes(9)
        assert sampler.gap == 0


# ____________________________________________________________
# the GC

# Two words with the header, the smallest object there is.  Anything larger
# that is pinned confuses the simulated memory: when nursery_free stands right
# before it, adding to nursery_free gives addresses inside of it.
SMALL = lltype.GcStruct('SMALL', ('x', lltype.Signed))
CHARS = lltype.GcArray(lltype.Char)
DESTROYED = lltype.GcStruct('DESTROYED', ('x', lltype.Signed),
                            ('y', lltype.Signed))
FINALIZED = lltype.GcStruct('FINALIZED', ('x', lltype.Signed))

WORDS = {S: 4, SMALL: 2, DESTROYED: 3, FINALIZED: 2, WEAKREF: 2}


def total_size(TYPE, n):
    """In bytes, with the header"""
    if TYPE is VAR:
        return (2 + n) * WORD
    if TYPE is CHARS:
        return 2 * WORD + (n + WORD - 1) // WORD * WORD
    return WORDS[TYPE] * WORD


def memory_pressure(gc, size):
    method = gc.raw_malloc_memory_pressure
    # newer versions of the GC want an address, too
    rest = method.im_func.func_code.co_argcount - 2
    method(size, *[llmemory.NULL] * rest)


class BaseSamplingTest(BaseDirectGCTest):
    """The nursery has room for 32 words, that is 8 S; objects of more than
    7 words are large."""
    GCClass = IncrementalMiniMarkGC

    def setup_method(self, meth):
        BaseDirectGCTest.setup_method(self, meth)
        self.gc.DEBUG = 2
        self.gc.max_number_of_pinned_objects = 20
        self.sampled = llhelper(rgc.ALLOCATION_SAMPLED, self.on_sampled)
        self.collected = llhelper(rgc.ALLOCATION_COLLECTED, self.on_collected)
        self.sizes = []          # of all the objects that were allocated
        self.samples = []        # (number, size, address, interval)
        self.fates = []          # (key, type, survived)
        self.first = 0           # number of the first one since the start
        self.totals = None
        self.count_collections()

    def fresh(self):
        """Begin again, with another GC."""
        self.setup_method(None)

    def count_collections(self):
        self.collections = 0
        original = self.gc._minor_collection
        def minor_collection():
            self.collections += 1
            original()
        self.gc._minor_collection = minor_collection

    # ---------- what the GC calls

    def on_sampled(self, size, address):
        number = len(self.sizes)
        # objects are complete in the order in which they were reserved
        self.samples.append((number, size, address, self.totals.interval))
        return self.answer(number)

    def answer(self, number):
        return number + 1

    def on_collected(self, key, type, survived):
        self.fates.append((key, type, survived))

    # ---------- what the program does

    def start(self, interval, seed=0, fixed=True):
        self.totals = self.gc.start_allocation_sampling(
            interval, seed, fixed, self.sampled, self.collected)
        assert self.totals
        self.first = len(self.sizes)
        del self.samples[:]

    def stop(self):
        assert self.gc.set_allocation_interval(0)

    def alloc(self, TYPE=S, n=0):
        return self.allocated(self.malloc(TYPE, n), total_size(TYPE, n))

    def alloc_nonmovable(self, TYPE, n=0):
        ref = self.gc.malloc_fixed_or_varsize_nonmovable(
            self.get_type_id(TYPE), n)
        return self.allocated(lltype.cast_opaque_ptr(lltype.Ptr(TYPE), ref),
                              total_size(TYPE, n))

    def alloc_finalizer(self, TYPE, light):
        type_id = self.get_type_id(TYPE)
        ref = self.gc.malloc_fixedsize(type_id, self.gc.fixed_size(type_id),
                                       True, light, False)
        return self.allocated(lltype.cast_opaque_ptr(lltype.Ptr(TYPE), ref),
                              total_size(TYPE, 0))

    def alloc_weakref(self, target):
        p = self.alloc(WEAKREF)
        p.weakptr = llmemory.cast_ptr_to_adr(target)
        return p

    def allocated(self, p, size):
        number = len(self.sizes)
        self.sizes.append(size)
        mine = [sample for sample in self.samples if sample[0] == number]
        assert len(mine) <= 1
        for _, reported, address, _ in mine:
            assert reported == size
            assert address + self.gc.gcheaderbuilder.size_gc_header == adr(p)
        return p

    def keep(self, p):
        self.stackroots.append(p)
        return p

    def offset(self, p):
        """In words, from the beginning of the nursery; None if 'p' isn't
        there."""
        address = llarena.getfakearenaaddress(adr(p))
        if address.arena is not self.gc.nursery.arena:
            return None
        bytes = address - self.gc.nursery - WORD
        assert bytes % WORD == 0
        return bytes // WORD

    def free_words(self):
        return (self.gc.nursery_free - self.gc.nursery) // WORD

    def real_top_words(self):
        """nursery_top; there must be no sampling"""
        assert self.gc.sample_point.interval == 0
        bytes = (llarena.getfakearenaaddress(self.gc.nursery_top) -
                 self.gc.nursery)
        assert bytes % WORD == 0
        return bytes // WORD

    def pin_behind(self, *TYPES):
        """Leave nothing in the nursery but a pinned object, behind an area in
        which objects of these types just fit."""
        for TYPE in TYPES:
            self.alloc(TYPE)
        p = self.keep(self.alloc(SMALL))
        p.x = 42
        assert self.gc.pin(adr(p))
        self.gc.collect(0)
        assert self.offset(p) == sum(WORDS[TYPE] for TYPE in TYPES)
        self.collections = 0
        return p

    # ---------- checks

    def numbers(self):
        return [sample[0] - self.first for sample in self.samples]

    def type_index(self, TYPE):
        return self.gc.get_member_index(self.get_type_id(TYPE))

    def check(self, interval):
        """Were the right objects sampled, and every byte counted?  Ends the
        sampling."""
        sizes = self.sizes[self.first:]
        assert self.numbers() == fixed_samples(sizes, interval)
        self.stop()
        assert self.totals.allocated == sum(sizes)


def adr(p):
    return llmemory.cast_ptr_to_adr(p)


class TestNurseryTop(BaseSamplingTest):
    """Everything that nursery_top means to the GC"""

    # ---------- the plain case

    def test_sample_point_inside_the_nursery(self):
        self.start(10 * WORD)
        for i in range(8):
            p = self.alloc()
            assert self.offset(p) == 4 * i
        assert self.numbers() == [2, 4, 7]
        assert self.collections == 0
        self.check(10 * WORD)

    def test_sampled_byte_first_and_last_in_an_object(self):
        # the byte before an object, its first one, its last one, the next
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
        # the JIT's and RPython's fast path is left only for a sampled byte
        # or a full nursery, not for an object that ends right before one
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
        # all the distances between a sampled byte and the nursery's end
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
        # longer than what is left of the gap, and than the nursery
        assert self.gc.set_allocation_interval(1000 * WORD)
        for i in range(249):
            self.alloc()
        assert self.numbers() == [2, 3]
        self.alloc()
        assert self.numbers() == [2, 3, 253]
        # this is the interval that gave the sample, not the next one
        assert [sample[3] for sample in self.samples] == [
            6 * WORD, 6 * WORD, 1000 * WORD]
        self.stop()
        assert self.totals.allocated == 254 * 4 * WORD

    def test_change_interval_often(self):
        # each time before the sampled byte comes
        self.start(5 * WORD)
        for i in range(50):
            self.alloc()
            assert self.gc.set_allocation_interval(5 * WORD + i)
        assert self.numbers() == []
        assert self.collections == 6
        self.stop()
        assert self.totals.allocated == 50 * 4 * WORD

    def test_sampled_changes_the_interval(self):
        # as from the end of the sampled object on
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

    # ---------- the places that read or move nursery_top

    def test_barrier_branch_reads_the_pinned_object_at_nursery_top(self):
        # 10 words, the pinned object, 20 words.  The third object doesn't fit
        # into the two words before the pinned object, but this is where the
        # sample point is.
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
        # three pinned objects; the areas between them are too small
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
        # there is no room at all before the first sample
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
        # PYPY_GC_NURSERY=1 and so on: moves nursery_free
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
        # the real end of the nursery: nothing fits there any more
        assert self.gc.nursery_free == self.gc.nursery + self.gc.nursery_size
        assert self.gc.nursery_free == self.gc.nursery_top
        p = self.alloc()
        assert self.offset(p) == 0
        assert self.numbers() == [1]
        # the 28 words in between were not allocated
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
        # nursery_top is the pinned object's, and there is an area behind it
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
        # As setup() does it; nothing does in a program that runs already.
        # But the gap must not depend on where the nursery is.
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

    # ---------- what others got wrong; those of the 16 that a GC can

    def test_1_unpin_enable_allocate_disable(self):
        # The nursery's end is nursery_top only behind the last barrier.
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
            # one that overlaps would be refused by the simulated memory
            offsets += [self.offset(self.alloc()) for i in range(7 - before)]
            assert offsets == [0, 4, 10, 14, 18, 22, 26]
            assert self.collections == 0
            assert p.x == 42

    def test_2_no_burst_behind_a_barrier(self):
        # A large pinned object is jumped over: those bytes were not allocated
        # now.  For the two words before it, see SMALL.
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

    def fill_in_callback(self, action):
        """At the end of the next collection, as a finalizer would, 'action'
        runs."""
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
        # the object that asked for the collection comes after the finalizer's
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
        # external_malloc() collects too, and then the sample point is placed
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
        # more than the allocations alone would bring about
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
                interval, 0, True, self.sampled, self.collected)
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
                llhelper(rgc.ALLOCATION_COLLECTED, never))
            assert self.totals.interval == 10 * WORD
        for i in range(10):
            self.alloc()
        # from before the collection
        assert len(self.fates) == 3
        self.check(10 * WORD)

    def test_13_bad_changes_are_refused(self):
        gc = self.gc
        # there is nothing to change, nor to stop
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
            # alloc() checks the size too
            assert self.numbers() == [0, 1, 2, 3]
            self.gc.collect(0)
            assert sorted(fate[0] for fate in self.fates) == [1, 2, 3, 4]


class TestLargeObjects(BaseSamplingTest):
    """external_malloc() never looks at nursery_top, but may collect"""

    def test_5_no_stale_top(self):
        # The large object takes the gap's place in the nursery, or part of
        # it, or nothing.  It is 12 words.
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
        # alloc() compares with what the GC reports
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

    def test_large_objects_young_dead_and_alive(self):
        self.start(1)
        for i in range(10):
            p = self.alloc(VAR, 20 + i)
            if i % 3 == 0:
                self.keep(p)
        self.gc.collect(0)
        type = self.type_index(VAR)
        assert sorted(self.fates) == [
            (i + 1, type, int(i % 3 == 0)) for i in range(10)]
        # only once
        self.gc.collect(0)
        self.gc.collect(2)
        assert len(self.fates) == 10

    def test_large_object_alive_from_another(self):
        self.start(1)
        array = self.keep(self.alloc(VAR, 50))
        p = self.alloc()
        self.writearray(array, 7, p)
        self.gc.collect(0)
        p = self.alloc()
        self.writearray(array, 43, p)
        self.writearray(array, 7, lltype.nullptr(S))
        self.alloc()
        self.gc.collect(0)
        assert sorted(self.fates) == [(1, self.type_index(VAR), 1),
                                      (2, self.type_index(S), 1),
                                      (3, self.type_index(S), 1),
                                      (4, self.type_index(S), 0)]

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
                    # changes nothing either
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
        # a start and a stop, and all is as before
        self.fresh()
        self.start(3)
        self.stop()
        assert self.real_top_words() == 32


class TestLargeObjectsCardMarking(TestLargeObjects):
    # arrays of pointers have card bits before the header, and are flagged
    # otherwise while they are young
    GC_PARAMS = {'card_page_indices': 4}


class TestReports(BaseSamplingTest):
    """What sampled() answers, and what collected() is told"""

    def one_fate(self):
        self.gc.collect(0)
        [(key, type, survived)] = self.fates
        assert key == len(self.sizes)
        del self.fates[:]
        # it is not reported again
        self.gc.collect(0)
        self.gc.collect(2)
        assert self.fates == []
        return type, survived

    def only(self, alloc, *args):
        """Of this object alone, sampled() wants to hear again."""
        self.start(1)
        number = len(self.sizes)
        self.answer = lambda n: n + 1 if n == number else 0
        p = alloc(*args)
        assert len(self.sizes) == number + 1
        return p

    def test_dead(self):
        self.only(self.alloc, S)
        assert self.one_fate() == (self.type_index(S), 0)

    def test_moved(self):
        p = self.keep(self.only(self.alloc, S))
        assert self.offset(p) is not None
        assert self.one_fate() == (self.type_index(S), 1)
        assert self.offset(self.stackroots[0]) is None

    def test_moved_because_an_old_object_points_to_it(self):
        old = lltype.malloc(S, immortal=True, zero=True)
        self.consider_constant(old)
        self.write(old, 'next', self.only(self.alloc, S))
        assert self.one_fate() == (self.type_index(S), 1)

    def test_pinned(self):
        p = self.keep(self.only(self.alloc, SMALL))
        assert self.gc.pin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), 1)
        assert self.offset(self.stackroots[0]) is not None

    def test_pinned_and_dead(self):
        p = self.only(self.alloc, SMALL)
        assert self.gc.pin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), 0)

    def test_unpinned(self):
        p = self.keep(self.only(self.alloc, SMALL))
        assert self.gc.pin(adr(p))
        self.gc.unpin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), 1)
        assert self.offset(self.stackroots[0]) is None

    def test_unpinned_after_a_collection(self):
        p = self.keep(self.only(self.alloc, SMALL))
        assert self.gc.pin(adr(p))
        self.gc.collect(0)
        self.gc.unpin(adr(p))
        # it was said already that it survived one, when it was young
        assert self.one_fate() == (self.type_index(SMALL), 1)

    def test_unpinned_and_dead(self):
        p = self.only(self.alloc, SMALL)
        assert self.gc.pin(adr(p))
        self.gc.unpin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), 0)

    def test_next_to_a_pinned_object(self):
        # that one is in the nursery for longer than its neighbours
        p = self.pin_behind(S)
        self.start(1)
        self.alloc()
        self.keep(self.alloc())
        self.gc.collect(0)
        type = self.type_index(S)
        assert sorted(self.fates) == [(3, type, 0), (4, type, 1)]
        assert p.x == 42

    def test_shadow(self):
        for ask in [self.gc.id, self.gc.identityhash]:
            self.fresh()
            p = self.keep(self.only(self.alloc, S))
            getattr(self.gc, ask.im_func.func_name)(p)
            assert self.one_fate() == (self.type_index(S), 1)

    def test_shadow_dead(self):
        p = self.only(self.alloc, S)
        self.gc.identityhash(p)
        assert self.one_fate() == (self.type_index(S), 0)

    def test_shadow_pinned(self):
        p = self.keep(self.only(self.alloc, SMALL))
        self.gc.id(p)
        assert self.gc.pin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), 1)

    def test_old_style_finalizer(self):
        # old from the beginning, even if nothing refers to it
        self.gc.call_destructor = lambda obj: None
        self.only(self.alloc_finalizer, FINALIZED, False)
        assert self.one_fate() == (self.type_index(FINALIZED), 1)

    def test_light_finalizer(self):
        called = []
        self.gc.call_destructor = called.append
        self.keep(self.only(self.alloc_finalizer, DESTROYED, True))
        assert self.one_fate() == (self.type_index(DESTROYED), 1)
        assert not called

    def test_light_finalizer_dead(self):
        called = []
        self.gc.call_destructor = called.append
        self.only(self.alloc_finalizer, DESTROYED, True)
        assert self.one_fate() == (self.type_index(DESTROYED), 0)
        assert len(called) == 1

    def test_weakref(self):
        for target_lives in [False, True]:
            self.fresh()
            target = self.alloc()
            if target_lives:
                self.keep(target)
            p = self.only(self.alloc_weakref, target)
            self.keep(p)
            assert self.one_fate() == (self.type_index(WEAKREF), 1)
            assert bool(self.stackroots[-1].weakptr) == target_lives

    def test_weakref_dead(self):
        target = self.keep(self.alloc())
        self.only(self.alloc_weakref, target)
        assert self.one_fate() == (self.type_index(WEAKREF), 0)

    def test_shrunk(self):
        p = self.keep(self.only(self.alloc, CHARS, 4 * WORD))
        assert self.gc.shrink_array(adr(p), 1)
        assert self.one_fate() == (self.type_index(CHARS), 1)
        assert len(self.stackroots[0]) == 1
        # it is what was reserved that counts
        self.stop()
        assert self.totals.allocated == 6 * WORD

    def test_shrunk_dead(self):
        p = self.only(self.alloc, CHARS, 4 * WORD)
        assert self.gc.shrink_array(adr(p), 1)
        self.alloc()
        self.gc.collect(0)
        assert self.fates == [(1, self.type_index(CHARS), 0)]

    def test_survived_is_of_the_first_collection(self):
        p = self.keep(self.only(self.alloc, S))
        self.gc.collect(0)
        self.stackroots.pop()
        assert self.fates == [(1, self.type_index(S), 1)]
        self.gc.collect(2)
        assert len(self.fates) == 1

    def test_reported_by_a_collection_that_an_allocation_causes(self):
        self.start(1)
        for i in range(8):
            self.alloc()
        assert self.fates == []
        self.alloc()
        type = self.type_index(S)
        assert sorted(self.fates) == [(i + 1, type, 0) for i in range(8)]

    def test_during_a_major_collection(self):
        # marking and sweeping know other kinds of dead objects than these
        held = []                # of the roots, their numbers
        states = set()
        def on_collected(key, type, survived):
            self.on_collected(key, type, survived)
            states.add(self.gc.gc_state)
            assert type == self.type_index(VAR)
            assert survived == int(key - 1 in held)
        self.collected = llhelper(rgc.ALLOCATION_COLLECTED, on_collected)
        self.start(1)
        for i in range(100):
            self.keep(self.alloc(VAR, i % 25))
            held.append(i)
            if len(held) > 8:
                self.stackroots.pop(i % 8)
                held.pop(i % 8)
            if i % 4 == 0:
                self.gc.debug_gc_step(1)
        self.gc.collect(0)
        assert sorted(fate[0] for fate in self.fates) == range(1, 101)
        assert states >= set([STATE_SCANNING, STATE_MARKING, STATE_SWEEPING])
        assert 30 < sum(fate[2] for fate in self.fates) < 100

    # ---------- keys

    def test_10_more_objects_than_in_a_chunk(self):
        self.GC_PARAMS = {'nursery_size': 8192 * WORD}
        self.fresh()
        self.start(1)
        for i in range(2500):
            p = self.alloc(SMALL)
            if i % 7 == 0:
                self.keep(p)
        assert self.collections == 0
        self.gc.collect(0)
        type = self.type_index(SMALL)
        assert sorted(self.fates) == [
            (i + 1, type, int(i % 7 == 0)) for i in range(2500)]
        assert self.numbers() == range(2500)

    def test_12_facts_come_with_the_key(self):
        # Sampled objects that are not wanted, and keys that say nothing of
        # the order.
        self.start(1)
        self.answer = lambda n: n % 3 * (1000000 - n)
        expected = []
        for i in range(60):
            TYPE, n = [(S, 0), (SMALL, 0), (VAR, 3), (VAR, 30),
                       (CHARS, 9)][i * 3 % 5]
            p = self.alloc(TYPE, n)
            if i % 2:
                self.keep(p)
            if i % 3:
                expected.append((i % 3 * (1000000 - i),
                                 self.type_index(TYPE), i % 2))
        self.gc.collect(0)
        assert sorted(self.fates) == sorted(expected)

    def test_out_of_memory_for_a_report(self):
        # The program does not notice.  One object is forgotten, and no key
        # takes the place of an address.
        class Failing(object):
            def __init__(self, stack, bad):
                self.stack = stack
                self.bad = bad
                self.count = 0
                self.pop = stack.pop
                self.non_empty = stack.non_empty
            def append(self, address):
                self.count += 1
                if self.count == self.bad:
                    raise MemoryError
                self.stack.append(address)

        for bad, forgotten in [(1, 1), (2, 1), (5, 3), (6, 3), (9, 5),
                               (10, 5)]:
            self.fresh()
            self.start(1)
            point = self.gc.sample_point
            point.objects = Failing(point.objects, bad)
            for i in range(5):
                assert self.offset(self.keep(self.alloc())) == 4 * i
            self.stackroots.pop(1)
            self.gc.collect(0)
            expected = {1: 1, 2: 0, 3: 1, 4: 1, 5: 1}
            del expected[forgotten]
            type = self.type_index(S)
            assert sorted(self.fates) == [
                (key, type, expected[key]) for key in sorted(expected)]
            self.check(1)

    def test_large_keys(self):
        self.start(1)
        keys = [1, 2**30, sys.maxint - 1, sys.maxint]
        self.answer = lambda n: keys[n]
        for key in keys:
            self.alloc()
        self.gc.collect(0)
        assert sorted(fate[0] for fate in self.fates) == keys

    def test_zero_is_never_reported(self):
        self.start(1)
        self.answer = lambda n: 0
        self.alloc()
        self.keep(self.alloc())
        self.alloc(VAR, 30)
        for i in range(20):
            self.alloc()
        self.gc.collect(2)
        assert len(self.samples) == 23
        assert self.fates == []
        assert not self.gc.sample_point.objects.non_empty()

    # ---------- the end

    def check_ended(self, samples):
        gc = self.gc
        assert gc.sample_point.interval == 0
        assert self.real_top_words() == 32
        assert len(self.samples) == samples
        assert gc.set_allocation_interval(100) is False
        collections = self.totals.collections
        for i in range(20):
            self.alloc()
        gc.collect(2)
        assert len(self.samples) == samples
        assert self.totals.collections == collections
        # another sampling does not find anything of the first
        fates = len(self.fates)
        self.answer = lambda n: 0
        self.start(10 * WORD)
        gc.collect(0)
        assert len(self.fates) == fates
        for i in range(20):
            self.alloc()
        self.check(10 * WORD)

    def end_at(self, number):
        self.answer = lambda n: -1 if n == number else n + 1

    def test_negative_number_ends(self):
        self.start(10 * WORD)
        self.end_at(4)
        for i in range(5):
            self.alloc()
        assert self.numbers() == [2, 4]
        assert self.offset(self.alloc()) == 20
        assert self.totals.allocated == 5 * 4 * WORD
        self.check_ended(2)

    def test_negative_number_ends_at_once(self):
        self.start(1)
        self.answer = lambda n: -sys.maxint - 1
        self.alloc()
        self.check_ended(1)

    def test_negative_number_after_a_collection(self):
        self.start(10 * WORD)
        self.end_at(8)
        for i in range(8):
            self.alloc()
        self.gc.set_allocation_interval(WORD)
        assert self.offset(self.alloc()) == 0
        assert self.numbers() == [2, 4, 7, 8]
        self.check_ended(4)

    def test_negative_number_behind_a_barrier(self):
        p = self.pin_behind(S, S)
        self.start(12 * WORD)
        self.end_at(self.first + 2)
        for i in range(7):
            self.alloc()
        assert self.free_words() == 30
        assert p.x == 42
        self.gc.unpin(adr(p))
        self.alloc()
        self.check_ended(1)

    def test_negative_number_for_a_large_object(self):
        self.start(10 * WORD)
        self.end_at(1)
        self.alloc()
        self.alloc(VAR, 20)
        assert self.free_words() == 4
        self.check_ended(1)

    def test_stop_drops_what_is_pending(self):
        self.start(1)
        for i in range(5):
            self.keep(self.alloc())
        self.stop()
        self.gc.collect(0)
        assert self.fates == []
        self.check_ended(5)

    def test_start_while_running(self):
        self.start(10 * WORD)
        for i in range(10):
            self.alloc()
        self.gc.collect(0)
        self.alloc()
        assert len(self.fates) == 4
        self.keep(self.alloc())
        assert self.numbers() == [2, 4, 7, 9]
        first = self.totals
        assert self.totals.collections == 2
        assert self.totals.allocated > 0
        #
        self.start(1)
        self.alloc()
        self.start(6 * WORD)
        assert self.totals == first
        assert self.totals.interval == 6 * WORD
        assert self.totals.allocated == 0
        assert self.totals.collections == 0
        for i in range(10):
            self.alloc()
        assert self.totals.collections == 1
        # nothing that the other two had sampled
        assert len(self.fates) == 4 + 3
        self.check(6 * WORD)

    def test_start_while_running_with_other_functions(self):
        self.start(4 * WORD)
        self.alloc()
        others = []
        def sampled(size, address):
            others.append(size)
            return 5
        def collected(key, type, survived):
            others.append((key, survived))
        assert self.gc.start_allocation_sampling(
            4 * WORD, 0, True, llhelper(rgc.ALLOCATION_SAMPLED, sampled),
            llhelper(rgc.ALLOCATION_COLLECTED, collected))
        self.alloc()
        self.gc.collect(0)
        assert self.numbers() == [0]
        assert self.fates == []
        assert others == [4 * WORD, (5, 0)]

    def test_start_while_running_with_the_same_seed(self):
        lists = []
        for i in range(2):
            self.start(20 * WORD, seed=9, fixed=False)
            for j in range(100):
                self.alloc()
            lists.append(self.numbers())
        self.start(20 * WORD, seed=10, fixed=False)
        for j in range(100):
            self.alloc()
        assert lists[0] == lists[1] != self.numbers()

    def test_totals_without_collection(self):
        # collect(2) on an empty heap is several minor collections
        self.start(1)
        assert self.totals.collections == 0
        self.gc.collect(2)
        assert self.totals.collections == self.collections > 1
        assert self.totals.allocated == 0
