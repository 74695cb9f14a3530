"""Allocation sampling: the class Sampler without a GC."""
import math

import py
from rpython.memory.gc.sampling import MAX_INTERVAL, Sampler
from rpython.memory.gc.test.sampling_support import SIGMAS, fixed_samples
from rpython.rlib.rarithmetic import r_ulonglong


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

        # published values of splitmix64, in case that both implementations are wrong
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
        # no gap of a seed is equal to a gap of another seed
        several = [gaps(seed) for seed in [0, 1, 2, 3, -1, 2**63 - 1]]
        assert len(set([gap for one in several for gap in one])) == 6 * 20

    def test_start_anew_with_the_same_seed(self):
        sampler = self.exponential(1000, 5)
        first = sampler.gap
        sampler.pass_object(first + 1)
        sampler.start(1000, 5, False)
        assert sampler.gap == first

    def test_extreme_random_numbers(self):
        # u is in (0, 1]: there is neither a logarithm of 0 nor a negative gap
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
            # the integer part of a gap has a geometric distribution
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
        # Each object has the probability of the interval at its allocation,
        # independent of earlier intervals.
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
        # the GC lifts and places the sample point at any time, without an effect
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
        # every sampled object represents size / p(size) bytes
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
        sampler.set_interval(4)       # the new gap begins here
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
                # the next sampled byte has a number k * interval - 1
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
        # a loop over all sampled bytes would take forever
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
        # 36.8 % of the gaps are cut off
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
