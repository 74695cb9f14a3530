"""Allocation sampling: the choice of objects in a piece of memory that the
JIT has reserved at once, and the reports about these objects.
"""
import math

from rpython.memory.gc.test.sampling_support import (SMALL, CHARS, SIGMAS,
    BaseSamplingTest, adr, fixed_samples, total_size)
from rpython.memory.gc.test.test_direct import S, VAR, WORD


class TestPieces(BaseSamplingTest):

    def told(self):
        """Run a collection.  Return (type, size) of each reported object."""
        self.gc.collect(0)
        assert [which for _, which, _, _ in self.found] == range(
            len(self.found))
        assert len(set(key for key, _, _, _ in self.found)) <= 1
        result = [(type, size) for _, _, type, size in self.found]
        del self.found[:]
        return result

    def test_one_object(self):
        self.start(1)
        self.piece(S)
        assert self.told() == [(self.type_index(S), 0)]

    def test_holders_and_objects_behind_them(self):
        # each byte of the piece is the first sampled byte for one interval
        kinds = [SMALL, S, (CHARS, 3), (VAR, 2), SMALL, (CHARS, 9), S]
        sizes = [total_size(*kind) if isinstance(kind, tuple)
                 else total_size(kind, 0) for kind in kinds]
        types = [kind[0] if isinstance(kind, tuple) else kind
                 for kind in kinds]
        for interval in range(1, sum(sizes) + 1):
            self.fresh()
            self.start(interval)
            self.piece(*kinds)
            assert self.told() == [
                (self.type_index(types[i]), sizes[i])
                for i in fixed_samples(sizes, interval)]

    def test_fixed_gaps_go_on_through_pieces(self):
        # the same objects are sampled as if each were allocated separately
        kinds = [SMALL, S, SMALL, S, S, SMALL, SMALL]
        sizes = [total_size(kind, 0) for kind in kinds]
        for interval in range(WORD, 200, WORD):
            self.fresh()
            self.start(interval)
            for i in range(20):
                self.piece(*kinds)
            self.gc.collect(0)
            found = [(key - 1, size) for key, _, _, size in self.found]
            expected = [(i // len(kinds), sizes[i % len(kinds)])
                        for i in fixed_samples(sizes * 20, interval)]
            assert found == expected

    def test_the_choice_of_pieces_does_not_depend_on_what_is_in_them(self):
        # pieces of six words; walking a piece does not use the first generator
        found = []
        for kinds in [(SMALL, S), (S, SMALL), (SMALL, SMALL, SMALL),
                      ((CHARS, 32),)]:
            self.fresh()
            self.start(300, seed=7, fixed=False)
            for i in range(300):
                self.piece(*kinds)
            assert 10 < len(self.samples) < 100
            found.append(self.numbers())
        assert found[0] == found[1] == found[2] == found[3]

    def test_each_object_is_sampled_by_its_own_size(self):
        # the probability p(s) is independent of the other objects in the piece
        kinds = [SMALL, S, (CHARS, 30), SMALL, S]
        sizes = [total_size(SMALL, 0), total_size(S, 0), total_size(CHARS, 30),
                 total_size(SMALL, 0), total_size(S, 0)]
        self.start(50, seed=1, fixed=False)
        count = 4000
        for i in range(count):
            self.piece(*kinds)
        self.gc.collect(0)
        found = {}
        for _, _, type, size in self.found:
            found[type, size] = found.get((type, size), 0) + 1
        for TYPE, size, number in [(SMALL, sizes[0], 2), (S, sizes[1], 2),
                                   (CHARS, sizes[2], 1)]:
            p = 1.0 - math.exp(-size / 50.0)
            n = count * number
            sigma = math.sqrt(n * p * (1 - p))
            hits = found.pop((self.type_index(TYPE), size))
            assert abs(hits - n * p) < SIGMAS * sigma
        assert found == {}

    def test_a_branch_in_the_middle_of_a_piece(self):
        # The program leaves the trace before the last objects are made.  The other
        # objects are known.
        rest = total_size(S, 0) + total_size(SMALL, 0)
        sizes = [total_size(SMALL, 0), total_size(S, 0), rest]
        types = [SMALL, S, None]
        for interval in range(1, sum(sizes) + 1):
            self.fresh()
            self.start(interval)
            self.piece(SMALL, S, S, SMALL, made=2)
            assert self.told() == [
                (self.type_index(types[i]), sizes[i]) for i in fixed_samples(sizes, interval)]

    def test_old_headers_are_not_believed(self):
        # leave headers of earlier objects in this memory
        self.piece(S, SMALL, S)
        self.gc.collect(0)
        original = self.gc.sample_point.objects.wait
        cleared = []
        def wait(gc, address, key, size, offset, interval):
            original(gc, address, key, size, offset, interval)
            arena = address.arena
            cleared.append(arena.usagemap[address.offset:address.offset + size]
                           .tostring())
        self.gc.sample_point.objects.wait = wait
        self.start(1)
        self.piece(S, SMALL, S)
        assert cleared == ['0' * (2 * 4 + 2) * WORD]

    def test_a_piece_in_which_nothing_was_made(self):
        self.start(1)
        self.piece(S, SMALL, made=0)
        assert self.told() == [(-1, 0)]

    def test_a_piece_that_does_not_fit(self):
        # the last object seems to be longer than the rest of the piece
        self.start(1)
        self.piece(S, (CHARS, 8))
        objects = self.gc.sample_point.objects
        original = objects.size_at
        def size_at(gc, piece, position):
            return original(gc, piece, position) + (WORD if position else 0)
        objects.size_at = size_at
        assert self.told() == [(-1, 0)]

    def test_each_object_has_its_own_fate(self):
        self.start(1)
        objects = self.piece(SMALL, S, SMALL, S, (VAR, 3), SMALL)
        self.keep(objects[1])
        self.keep(objects[2])
        self.keep(objects[5])
        assert self.gc.pin(adr(objects[5]))
        small, s, var = map(self.type_index, [SMALL, S, VAR])
        assert self.told() == [
            (small, 2 * WORD), (s, 4 * WORD),
            (small, 2 * WORD), (s, 4 * WORD),
            (var, 5 * WORD), (small, 2 * WORD)]

    def test_list_and_its_storage(self):
        self.start(1)
        node, storage = self.piece(S, (VAR, 4))
        storage[2] = node
        self.keep(storage)
        assert self.told() == [
            (self.type_index(S), 4 * WORD),
            (self.type_index(VAR), 6 * WORD)]

    def test_empty_arrays(self):
        self.start(1)
        self.piece((VAR, 0), S, (VAR, 0))
        assert self.told() == [
            (self.type_index(VAR), 2 * WORD),
            (self.type_index(S), 4 * WORD),
            (self.type_index(VAR), 2 * WORD)]

    def test_shadows_in_a_piece(self):
        self.start(1)
        first, second = self.piece(S, S)
        self.gc.id(first)
        self.gc.identityhash(self.keep(second))
        s = self.type_index(S)
        assert self.told() == [(s, 4 * WORD), (s, 4 * WORD)]

    def test_shrunk_in_a_piece(self):
        # the removed words belong to the array, because they were reserved for it
        for length in range(33):
            self.fresh()
            self.start(1)
            objects = self.piece(SMALL, (CHARS, 32), S)
            assert self.gc.shrink_array(adr(objects[1]), length)
            self.keep(objects[1])
            assert self.told() == [
                (self.type_index(SMALL), 2 * WORD),
                (self.type_index(CHARS), 6 * WORD),
                (self.type_index(S), 4 * WORD)]
            assert len(self.stackroots[0]) == length

    def test_shrunk_twice(self):
        self.start(1)
        array = self.keep(self.alloc(CHARS, 40))
        assert self.gc.shrink_array(adr(array), 20)
        assert self.gc.shrink_array(adr(array), 3)
        assert self.told() == [(self.type_index(CHARS), 0)]

    def test_shrunk_before_the_start(self):
        array = self.keep(self.alloc(CHARS, 40))
        assert self.gc.shrink_array(adr(array), 20)
        self.start(1)
        self.piece(S, SMALL)
        assert self.told() == [(self.type_index(S), 4 * WORD),
                               (self.type_index(SMALL), 2 * WORD)]

    def test_a_piece_for_which_objects_were_collected(self):
        self.start(1)
        self.answer = lambda n: n + 1 if n == 5 else 0
        for i in range(5):
            self.piece(S, SMALL)
        self.keep(self.piece(S, SMALL)[1])
        assert self.collections == 1
        assert self.told() == [(self.type_index(S), 4 * WORD),
                               (self.type_index(SMALL), 2 * WORD)]

    def test_a_piece_behind_a_pinned_object(self):
        p = self.pin_behind(S)
        self.start(1)
        self.answer = lambda n: n + 1
        self.piece(S, SMALL)            # fits only after the pinned object
        s, small = self.type_index(S), self.type_index(SMALL)
        assert self.told() == [(s, 4 * WORD), (small, 2 * WORD)]
        assert p.x == 42

    def test_a_large_piece(self):
        # a piece may fill the nursery, although no object of this size is there
        self.start(1)
        self.piece(*[SMALL] * 16)
        assert self.told() == [
            (self.type_index(SMALL), 2 * WORD)] * 16

    def test_the_interval_of_the_piece(self):
        # the piece is walked with its sample's interval, and not the present one
        self.start(2 * WORD)
        self.piece(SMALL, SMALL, SMALL)
        self.gc.set_allocation_interval(10**6)
        assert len(self.told()) == 3
