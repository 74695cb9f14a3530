"""Allocation sampling: the outcomes of young sampled objects."""
import sys

from rpython.memory.gc.incminimark import (STATE_SCANNING, STATE_MARKING,
    STATE_SWEEPING)
from rpython.memory.gc.test.outcomes_support import (OUTCOMES, DIED, PROMOTED,
    PINNED, NOT_KNOWN, BaseOutcomesTest)
from rpython.memory.gc.test.sampling_support import (SMALL, CHARS, DESTROYED,
    FINALIZED, adr)
from rpython.memory.gc.test.test_direct import S, VAR, WORD
from rpython.memory.gctypelayout import WEAKREF
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llmemory, lltype


class TestReports(BaseOutcomesTest):
    """The results of sampled(), and the facts about young objects"""

    def one_fate(self):
        self.gc.collect(0)
        [(key, type, outcome)] = self.fates
        assert self.objects == [(key, 0, 0)]
        assert key == len(self.sizes)
        del self.fates[:], self.objects[:]
        # the outcome is not reported again
        self.gc.collect(0)
        self.gc.collect(2)
        assert self.fates == []
        return type, outcome

    def only(self, alloc, *args):
        """Allocate an object.  sampled() returns a key for this object only."""
        self.start(1)
        number = len(self.sizes)
        self.answer = lambda n: n + 1 if n == number else 0
        p = alloc(*args)
        assert len(self.sizes) == number + 1
        return p

    def test_dead(self):
        self.only(self.alloc, S)
        assert self.one_fate() == (self.type_index(S), DIED)

    def test_moved(self):
        p = self.keep(self.only(self.alloc, S))
        assert self.offset(p) is not None
        assert self.one_fate() == (self.type_index(S), PROMOTED)
        assert self.offset(self.stackroots[0]) is None

    def test_moved_because_an_old_object_points_to_it(self):
        old = lltype.malloc(S, immortal=True, zero=True)
        self.consider_constant(old)
        self.write(old, 'next', self.only(self.alloc, S))
        assert self.one_fate() == (self.type_index(S), PROMOTED)

    def test_pinned(self):
        p = self.keep(self.only(self.alloc, SMALL))
        assert self.gc.pin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), PINNED)
        assert self.offset(self.stackroots[0]) is not None

    def test_pinned_and_dead(self):
        p = self.only(self.alloc, SMALL)
        assert self.gc.pin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), DIED)

    def test_unpinned(self):
        p = self.keep(self.only(self.alloc, SMALL))
        assert self.gc.pin(adr(p))
        self.gc.unpin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), PROMOTED)
        assert self.offset(self.stackroots[0]) is None

    def test_unpinned_after_a_collection(self):
        p = self.keep(self.only(self.alloc, SMALL))
        assert self.gc.pin(adr(p))
        self.gc.collect(0)
        self.gc.unpin(adr(p))
        # no facts follow FACT_PINNED
        assert self.one_fate() == (self.type_index(SMALL), PINNED)

    def test_pinned_is_asked_again(self):
        self.asks_again = 1
        p = self.keep(self.only(self.alloc, SMALL))
        q = self.keep(self.alloc(SMALL))
        for pinned in [p, q]:
            assert self.gc.pin(adr(pinned))
        for i in range(3):
            self.gc.collect(0)
            self.alloc()
        assert self.fates == []
        self.gc.unpin(adr(p))
        self.gc.collect(0)
        assert self.fates == [(1, self.type_index(SMALL), PROMOTED)]
        # sampled() returned no key for the other object, so no fact is reported
        self.stackroots.pop(0)
        self.gc.collect(2)
        assert self.freed == [(1, 0)]
        assert self.offset(q) is not None

    def test_pinned_is_asked_again_and_dead(self):
        self.asks_again = 1
        p = self.keep(self.only(self.alloc, SMALL))
        assert self.gc.pin(adr(p))
        self.gc.collect(0)
        self.gc.unpin(adr(p))
        self.stackroots.pop()
        assert self.one_fate() == (self.type_index(SMALL), DIED)

    def test_sampling_ends_while_something_is_pinned(self):
        self.asks_again = 1
        p = self.keep(self.only(self.alloc, SMALL))
        assert self.gc.pin(adr(p))
        self.gc.collect(0)
        self.stop()
        self.start(1)
        self.gc.unpin(adr(p))
        self.gc.collect(2)
        assert self.fates == []

    def test_unpinned_and_dead(self):
        p = self.only(self.alloc, SMALL)
        assert self.gc.pin(adr(p))
        self.gc.unpin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), DIED)

    def test_next_to_a_pinned_object(self):
        # the pinned object of pin_behind() stays in the nursery, and is not sampled
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
            assert self.one_fate() == (self.type_index(S), PROMOTED)

    def test_shadow_dead(self):
        p = self.only(self.alloc, S)
        self.gc.identityhash(p)
        assert self.one_fate() == (self.type_index(S), DIED)

    def test_shadow_pinned(self):
        p = self.keep(self.only(self.alloc, SMALL))
        self.gc.id(p)
        assert self.gc.pin(adr(p))
        assert self.one_fate() == (self.type_index(SMALL), PINNED)

    def test_old_style_finalizer(self):
        # the object is allocated as an old object, even if nothing refers to it
        self.gc.call_destructor = lambda obj: None
        self.only(self.alloc_finalizer, FINALIZED, False)
        assert self.one_fate() == (self.type_index(FINALIZED), PROMOTED)

    def test_light_finalizer(self):
        called = []
        self.gc.call_destructor = called.append
        self.keep(self.only(self.alloc_finalizer, DESTROYED, True))
        assert self.one_fate() == (self.type_index(DESTROYED), PROMOTED)
        assert not called

    def test_light_finalizer_dead(self):
        called = []
        self.gc.call_destructor = called.append
        self.only(self.alloc_finalizer, DESTROYED, True)
        assert self.one_fate() == (self.type_index(DESTROYED), DIED)
        assert len(called) == 1

    def test_weakref(self):
        for target_lives in [False, True]:
            self.fresh()
            target = self.alloc()
            if target_lives:
                self.keep(target)
            p = self.only(self.alloc_weakref, target)
            self.keep(p)
            assert self.one_fate() == (self.type_index(WEAKREF), PROMOTED)
            assert bool(self.stackroots[-1].weakptr) == target_lives

    def test_weakref_dead(self):
        target = self.keep(self.alloc())
        self.only(self.alloc_weakref, target)
        assert self.one_fate() == (self.type_index(WEAKREF), DIED)

    def test_shrunk(self):
        p = self.keep(self.only(self.alloc, CHARS, 4 * WORD))
        assert self.gc.shrink_array(adr(p), 1)
        assert self.one_fate() == (self.type_index(CHARS), PROMOTED)
        assert len(self.stackroots[0]) == 1
        # FACT_SHRUNK has the present size; the reserved size counts as allocated
        assert self.shrunk == [(1, 0, 3 * WORD)]
        self.stop()
        assert self.totals.allocated == 6 * WORD

    def test_shrunk_in_a_piece(self):
        self.start(1)
        objects = self.piece(SMALL, (CHARS, 4 * WORD), (CHARS, 4 * WORD), SMALL)
        for p in objects:
            self.keep(p)
        assert self.gc.shrink_array(adr(objects[1]), 1)
        self.gc.collect(0)
        assert self.objects == [(1, 0, 2 * WORD), (1, 1, 6 * WORD),
                                (1, 2, 6 * WORD), (1, 3, 2 * WORD)]
        assert self.shrunk == [(1, 1, 3 * WORD)]

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
        # the outcome is reported only once
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

    def test_reported_by_a_collection_that_an_allocation_causes(self):
        self.start(1)
        for i in range(8):
            self.alloc()
        assert self.fates == []
        self.alloc()
        type = self.type_index(S)
        assert sorted(self.fates) == [(i + 1, type, 0) for i in range(8)]

    def test_during_a_major_collection(self):
        # outcomes of a minor collection do not depend on the state of a major one
        held = []                # the numbers of the roots
        states = set()
        def on_fact(what, key, which, note, size, address):
            if what in OUTCOMES:
                states.add(self.gc.gc_state)
                assert note == self.type_index(VAR)
                assert OUTCOMES[what] == int(key - 1 in held)
            return self.on_fact(what, key, which, note, size, address)
        self.fact = llhelper(rgc.ALLOCATION_FACT, on_fact)
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

    # ---------- classes

    def class_of_everything(self):
        asked = []
        def class_of(address):
            # the object has not moved yet, and can be read
            p = llmemory.cast_adr_to_ptr(address, lltype.Ptr(S))
            asked.append(p.x)
            return p.x
        self.class_of = class_of
        return asked

    def test_class(self):
        asked = self.class_of_everything()
        self.start(1)
        for i in range(4):
            p = self.alloc()
            p.x = 40 + i
            if i % 2:
                self.keep(p)
        assert asked == []
        self.gc.collect(0)
        # class_of() is called for dead and for live objects
        assert asked == self.classes == [40, 41, 42, 43]
        # class_of() is called once per object
        self.gc.collect(2)
        self.gc.collect(2)
        assert asked == [40, 41, 42, 43]

    def test_class_of_those_that_are_sampled(self):
        asked = self.class_of_everything()
        self.start(12 * WORD)
        for i in range(6):
            self.alloc().x = 40 + i
        self.gc.collect(0)
        assert asked == self.classes == [42, 45]

    def test_class_of_large_objects(self):
        # class_of() is called for objects of any type
        asked = []
        def class_of(address):
            asked.append(self.gc.get_type_id(address))
            return 7
        self.class_of = class_of
        self.start(1)
        self.alloc(VAR, 100)
        self.gc.collect(0)
        assert len(asked) == 1 and self.classes == [7]

    def test_class_of_may_store(self):
        # class_of() may store the objects in a list or in another object
        states = set()
        def class_of(address):
            states.add(self.gc.gc_state)
            p = llmemory.cast_adr_to_ptr(address, lltype.Ptr(S))
            self.write(self.stackroots[0], 'next', p)
            self.writearray(self.stackroots[1], p.x % 25, p)
            return p.x + 1
        self.class_of = class_of
        self.keep(self.alloc())
        self.keep(self.alloc(VAR, 25))
        self.gc.collect(2)
        self.start(1)
        for i in range(100):
            self.alloc().x = i
            if i % 7 == 6:
                self.gc.collect(0)
                assert self.stackroots[0].next.x == i
                assert self.stackroots[1][i % 25].x == i
            if i % 3 == 0:
                self.gc.debug_gc_step(1)
        self.gc.collect(0)
        self.gc.collect(2)
        assert self.classes == range(1, 101)
        assert set(fate[2] for fate in self.fates) == set([PROMOTED])
        assert [p.x for p in self.stackroots[1]] == range(75, 100)
        assert states >= set([STATE_SCANNING, STATE_MARKING, STATE_SWEEPING])

    def test_nobody_knows_classes(self):
        self.start(1)
        self.alloc()
        self.gc.collect(0)
        assert self.classes == [0]

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
        # some samples have no key, and the keys are not in the order of the objects
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

    def test_out_of_memory_for_what_waits(self):
        # the program continues, and objects for which the table has no room have an
        # unknown outcome
        self.start(1)
        self.gc.sample_point.objects.waiting.limit = 3
        for i in range(5):
            assert self.offset(self.keep(self.alloc())) == 4 * i
        type = self.type_index(S)
        assert self.fates == [(4, -1, NOT_KNOWN), (5, -1, NOT_KNOWN)]
        self.stackroots.pop(1)
        self.gc.collect(0)
        assert self.fates[2:] == [(1, type, PROMOTED), (2, type, DIED),
                                  (3, type, PROMOTED)]
        # the table has room for another sample again
        self.alloc()
        self.gc.collect(0)
        assert self.fates[5:] == [(6, type, DIED)]
        self.check(1)

    def test_out_of_memory_for_what_is_young(self):
        self.start(1)
        self.gc.sample_point.objects.young.limit = 3
        for i in range(5):
            self.alloc()
        self.gc.collect(0)
        type = self.type_index(S)
        assert sorted(self.fates) == [
            (1, type, DIED), (2, type, DIED), (3, type, DIED),
            (4, -1, NOT_KNOWN), (5, -1, NOT_KNOWN)]
        self.check(1)

    def test_malloc_fails(self):
        def grow():
            return False
        for name in ['waiting', 'young']:
            self.fresh()
            self.start(1)
            getattr(self.gc.sample_point.objects, name).grow = grow
            for i in range(10):
                self.alloc()
            self.gc.collect(0)
            assert sorted(self.fates) == [
                (i + 1, -1, NOT_KNOWN) for i in range(10)]
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
        assert self.gc.sample_point.objects.waiting.length == 0

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
        # a second sampling reports no objects of the first
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
        # no samples of the first two of three samplings were reported
        assert len(self.fates) == 4 + 3
        self.check(6 * WORD)

    def test_start_while_running_with_other_functions(self):
        self.start(4 * WORD)
        self.alloc()
        others = []
        def sampled(size, address):
            others.append(size)
            return 5
        def fact(what, key, which, note, size, address):
            if what in OUTCOMES:
                others.append((key, OUTCOMES[what]))
            return 1
        assert self.gc.start_allocation_sampling(
            4 * WORD, 0, True, llhelper(rgc.ALLOCATION_SAMPLED, sampled),
            llhelper(rgc.ALLOCATION_FACT, fact))
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
