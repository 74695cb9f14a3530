"""Allocation sampling: the death of promoted sampled objects."""
from rpython.memory.gc.incminimark import (STATE_SCANNING, STATE_MARKING,
    STATE_SWEEPING)
from rpython.memory.gc.sampled_outcomes import MAX_TRACKED
from rpython.memory.gc.test.outcomes_support import (DIED, PROMOTED, PINNED,
    BaseOutcomesTest)
from rpython.memory.gc.test.sampling_support import (SMALL, CHARS, DESTROYED,
    FINALIZED, adr)
from rpython.memory.gc.test.test_direct import S, VAR, WORD
from rpython.rlib.rawrefcount import REFCNT_FROM_PYPY
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import lltype, llmemory


class TestLifetimes(BaseOutcomesTest):

    def outcomes(self):
        return [outcome for _, _, outcome in self.fates]

    def tracked(self):
        return self.gc.sample_point.objects.tracked.length

    def step_to(self, state):
        """Run steps of a major collection until 'state' is reached."""
        self.gc.debug_gc_step()
        while self.gc.gc_state != state:
            self.gc.debug_gc_step()

    def test_promoted_and_freed(self):
        self.start(1)
        self.keep(self.alloc())
        self.keep(self.alloc())
        self.alloc()
        self.gc.collect(0)
        assert self.outcomes() == [PROMOTED, PROMOTED, DIED]
        assert self.tracked() == 2
        self.gc.collect(2)
        assert self.freed == []
        self.stackroots.pop(0)
        self.gc.collect(0)
        assert self.freed == []
        self.gc.collect(2)
        assert self.freed == [(1, 0)]
        self.stackroots.pop()
        self.gc.collect(2)
        assert self.freed == [(1, 0), (2, 0)]
        assert self.tracked() == 0
        self.gc.collect(2)
        assert len(self.freed) == 2

    def test_addresses_of_what_was_promoted(self):
        self.start(1)
        self.keep(self.alloc())
        self.alloc()
        self.keep(self.alloc(VAR, 30))
        self.gc.collect(0)
        assert self.addresses == [
            (key, 0, adr(self.stackroots[i]))
            for i, key in enumerate([1, 3])]
        # each address is reported once
        self.gc.collect(2)
        assert len(self.addresses) == 2

    def test_told_when_marking_ends(self):
        self.start(1)
        self.keep(self.alloc())
        self.gc.collect(0)
        self.stackroots.pop()
        assert self.gc.gc_state == STATE_SCANNING
        self.step_to(STATE_MARKING)
        assert self.freed == []
        self.step_to(STATE_SWEEPING)
        assert self.freed == [(1, 0)]
        self.step_to(STATE_SCANNING)
        assert self.freed == [(1, 0)]

    def test_dead_since_the_marking_has_begun(self):
        # an object that was already marked is found dead by the next major collection
        self.start(1)
        p = self.keep(self.alloc())
        self.gc.collect(0)
        self.gc.TEST_VISIT_SINGLE_STEP = True
        self.keep(self.alloc())
        self.step_to(STATE_MARKING)
        self.gc.debug_gc_step(2)
        assert self.gc.gc_state == STATE_MARKING
        del self.stackroots[:]
        self.gc.TEST_VISIT_SINGLE_STEP = False
        self.step_to(STATE_SWEEPING)
        first = len(self.freed)
        self.gc.collect(2)
        assert sorted(self.freed) == [(1, 0), (2, 0)]
        assert first < 2

    def test_promoted_while_it_marks(self):
        self.start(1)
        self.step_to(STATE_MARKING)
        self.keep(self.alloc())
        self.alloc()
        self.step_to(STATE_SWEEPING)
        assert self.outcomes() == [PROMOTED, DIED]
        assert self.freed == []
        self.stackroots.pop()
        self.gc.collect(2)
        assert self.freed == [(1, 0)]

    def test_whether_it_marks(self):
        self.start(1)
        self.gc.collect(0)
        assert self.totals.marking == 0
        self.step_to(STATE_MARKING)
        self.gc.collect(0)
        assert self.totals.marking == 1
        self.step_to(STATE_SWEEPING)
        self.gc.collect(0)
        assert self.totals.marking == 0

    def test_promoted_by_the_collection_before_marking_ends(self):
        # A dead object keeps a young object alive in the minor collection.  The same
        # major collection sweeps both.
        self.start(1)
        old = self.keep(self.alloc())
        self.gc.collect(0)
        old = self.stackroots.pop()
        self.step_to(STATE_MARKING)
        self.write(old, 'next', self.alloc())
        self.step_to(STATE_SWEEPING)
        assert self.outcomes() == [PROMOTED, PROMOTED]
        assert self.freed == [(1, 0), (2, 0)]
        self.gc.collect(2)
        assert len(self.freed) == 2

    def test_promoted_while_it_sweeps(self):
        # the new object is neither marked nor swept until the next major collection
        self.start(1)
        for i in range(20):
            self.keep(self.alloc())
        self.gc.collect(0)
        self.step_to(STATE_SWEEPING)
        kept = self.keep(self.alloc())
        self.gc.debug_gc_step()
        assert len(self.fates) == 21 and self.freed == []
        self.step_to(STATE_SCANNING)
        assert self.freed == []
        self.stackroots.pop()
        self.gc.collect(2)
        assert self.freed == [(21, 0)]

    def test_collect_step(self):
        # dead objects and survivors in each state of the GC, step by step
        self.start(1)
        self.gc.TEST_VISIT_SINGLE_STEP = True
        held = []
        dead = set()
        for i in range(120):
            self.keep(self.alloc(*[(S, 0), (SMALL, 0), (VAR, 3),
                                   (VAR, 20)][i % 4]))
            held.append(i + 1)
            if len(held) > 8:
                self.stackroots.pop(i % 8)
                dead.add(held.pop(i % 8))
            self.gc.debug_gc_step()
            for key, which in self.freed:
                assert which == 0 and key in dead
        self.gc.TEST_VISIT_SINGLE_STEP = False
        self.gc.collect(2)
        assert self.outcomes() == [PROMOTED] * 120
        assert sorted(self.freed) == [(key, 0) for key in sorted(dead)]
        assert self.tracked() == 8

    def test_large_objects(self):
        self.start(1)
        self.keep(self.alloc(VAR, 30))
        self.alloc(VAR, 30)
        self.keep(self.alloc(CHARS, 300))
        self.gc.collect(0)
        assert self.outcomes() == [PROMOTED, DIED, PROMOTED]
        self.stackroots.pop(0)
        self.gc.collect(2)
        assert self.freed == [(1, 0)]

    def test_objects_of_one_piece(self):
        self.start(1)
        objects = self.piece(S, SMALL, S, SMALL)
        for i in [0, 2, 3]:
            self.keep(objects[i])
        self.gc.collect(0)
        assert self.outcomes() == [PROMOTED, DIED, PROMOTED, PROMOTED]
        self.stackroots.pop(1)
        self.gc.collect(2)
        assert self.freed == [(1, 2)]
        del self.stackroots[:]
        self.gc.collect(2)
        assert self.freed == [(1, 2), (1, 0), (1, 3)]

    def test_pinned_objects_are_forgotten(self):
        self.start(1)
        p = self.keep(self.alloc(SMALL))
        assert self.gc.pin(adr(p))
        self.gc.collect(2)
        assert self.outcomes() == [PINNED]
        self.gc.unpin(adr(self.stackroots[0]))
        self.gc.collect(2)
        self.stackroots.pop()
        self.gc.collect(2)
        assert len(self.fates) == 1 and self.freed == []
        assert self.tracked() == 0

    def test_shadow(self):
        # the object is promoted to the address that id() has returned
        self.start(1)
        p = self.keep(self.alloc())
        address = self.gc.id(p)
        self.gc.collect(0)
        assert self.gc.id(self.stackroots[0]) == address
        self.gc.collect(2)
        assert self.freed == []
        self.stackroots.pop()
        self.gc.collect(2)
        assert self.freed == [(1, 0)]

    def test_shadow_of_a_dead_object(self):
        # the shadow of id() is swept later, but the dead object was already reported
        self.start(1)
        self.gc.id(self.alloc())
        self.gc.collect(2)
        assert self.outcomes() == [DIED]
        assert self.freed == []

    def test_the_same_address_again(self):
        # a dead object is reported before another object can get its address
        self.start(1)
        for i in range(10):
            self.keep(self.alloc())
            self.gc.collect(0)
            self.stackroots.pop()
            self.gc.collect(2)
            assert self.freed == [(key + 1, 0) for key in range(i + 1)]
        self.keep(self.alloc())
        self.gc.collect(2)
        assert len(self.freed) == 10
        assert self.tracked() == 1

    def test_finalizer_that_resurrects(self):
        # the object is marked at the end of marking even if the finalizer does not
        # keep it alive
        resurrected = []
        def finalize(obj):
            p = llmemory.cast_adr_to_ptr(obj, lltype.Ptr(FINALIZED))
            resurrected.append(self.keep(p))
        self.gc.call_destructor = finalize
        self.start(1)
        self.alloc_finalizer(FINALIZED, False)
        self.gc.collect(0)
        assert self.outcomes() == [PROMOTED]
        self.gc.collect(2)
        assert len(resurrected) == 1 and self.freed == []
        self.gc.collect(2)
        assert self.freed == []
        self.stackroots.pop()
        self.gc.collect(2)
        assert len(resurrected) == 1 and self.freed == [(1, 0)]

    def test_what_a_resurrected_object_refers_to(self):
        # the queue of finalizers keeps both objects alive until the queue is emptied
        from rpython.memory.gctypelayout import FIN_HANDLER_ARRAY
        queue = self.gc.AddressDeque()
        handlers = lltype.malloc(FIN_HANDLER_ARRAY, 1, immortal=True)
        self.gc._adr2deque = lambda address: queue
        self.gc.finalizer_handlers = lambda: handlers
        handlers[0].trigger = llhelper(
            lltype.typeOf(handlers[0].trigger), lambda: None)
        self.start(1)
        p = self.keep(self.alloc())
        self.write(p, 'next', self.alloc())
        self.gc.register_finalizer(
            0, lltype.cast_opaque_ptr(llmemory.GCREF, p))
        self.gc.collect(0)
        self.stackroots.pop()
        self.gc.collect(2)
        assert self.outcomes() == [PROMOTED, PROMOTED]
        assert self.freed == []
        queue.popleft()
        self.gc.collect(2)
        assert self.freed == [(1, 0), (2, 0)]

    def test_destructor(self):
        called = []
        self.gc.call_destructor = called.append
        self.start(1)
        self.keep(self.alloc_finalizer(DESTROYED, True))
        self.gc.collect(0)
        self.stackroots.pop()
        self.gc.collect(2)
        assert len(called) == 1
        assert self.freed == [(1, 0)]

    def test_weakref(self):
        # a weakref does not keep its target alive, and can die later
        self.start(1)
        target = self.keep(self.alloc())
        self.keep(self.alloc_weakref(target))
        self.gc.collect(0)
        assert self.outcomes() == [PROMOTED, PROMOTED]
        self.stackroots.pop(0)
        self.gc.collect(2)
        assert self.freed == [(1, 0)]
        assert not self.stackroots[0].weakptr
        self.stackroots.pop()
        self.gc.collect(2)
        assert self.freed == [(1, 0), (2, 0)]

    def test_collection_inside_of_a_finalizer(self):
        def finalize(obj):
            self.keep(self.alloc())
            self.gc.collect(2)
            self.stackroots.pop()
            self.alloc()
            self.gc.collect(0)
        self.gc.call_destructor = finalize
        self.start(1)
        self.alloc_finalizer(FINALIZED, False)
        self.keep(self.alloc())
        self.gc.collect(2)
        self.gc.collect(2)
        assert sorted(key for key, _, _ in self.fates) == [1, 2, 3, 4]
        assert dict((key, outcome) for key, _, outcome in self.fates) == {
            1: PROMOTED, 2: PROMOTED, 3: PROMOTED, 4: DIED}
        assert sorted(self.freed) == [(1, 0), (3, 0)]

    def test_rawrefcount(self):
        # an object is alive while C code refers to it by rawrefcount
        self.gc.rawrefcount_init(lambda: None)
        self.start(1)
        p = self.alloc()
        pyobject = lltype.malloc(self.gc.PYOBJ_HDR, flavor='raw')
        pyobject.ob_refcnt = REFCNT_FROM_PYPY + 1
        pyobject.ob_pypy_link = 0
        self.gc.rawrefcount_create_link_pypy(
            lltype.cast_opaque_ptr(llmemory.GCREF, p),
            llmemory.cast_ptr_to_adr(pyobject))
        self.gc.collect(0)
        assert self.outcomes() == [PROMOTED]
        self.gc.collect(2)
        assert self.freed == []
        pyobject.ob_refcnt -= 1
        self.gc.collect(2)
        assert self.freed == [(1, 0)]
        self.gc.rawrefcount_next_dead()
        lltype.free(pyobject, flavor='raw')

    def test_without_major_collections(self):
        # As in a program that has called gc.disable(): minor collections still happen,
        # but no old object is found dead before there is a major collection.
        self.gc.next_major_collection_threshold = 1e9
        self.start(1)
        for i in range(100):
            self.keep(self.alloc())
            self.alloc()
            self.gc.collect(0)
            if i % 2:
                self.stackroots.pop()
        assert self.outcomes() == [PROMOTED, DIED] * 100
        assert self.freed == [] and self.tracked() == 100
        self.gc.collect(2)
        assert self.freed == [(key, 0) for key in range(3, 201, 4)]
        assert self.tracked() == 50

    def test_a_class_that_is_deleted(self):
        # A class dies with its last instance, in any phase of a major collection.  The
        # class is read while it exists: the simulated memory checks this.
        def class_of(address):
            class_ = llmemory.cast_adr_to_ptr(address, lltype.Ptr(S)).prev
            return class_.x if class_ else 0
        self.class_of = class_of
        self.gc.TEST_VISIT_SINGLE_STEP = True
        self.start(1)
        for i in range(150):
            self.keep(self.alloc()).x = i + 1
            if i % 3:
                self.gc.debug_gc_step(i % 3)        # the class is old
            p = self.alloc()
            self.write(p, 'prev', self.stackroots.pop())
            if i % 2:
                self.keep(p)
                self.gc.debug_gc_step()             # its instance is old
                self.stackroots.pop()
            self.gc.debug_gc_step()
        self.gc.TEST_VISIT_SINGLE_STEP = False
        self.gc.collect(2)
        self.gc.collect(2)
        assert [class_ for class_ in self.classes if class_] == range(1, 151)
        assert self.tracked() == 0
        assert len(self.freed) == self.outcomes().count(PROMOTED) > 150

    # ---------- memory

    def test_more_than_are_tracked(self):
        self.start(1)
        objects = self.gc.sample_point.objects
        assert objects.tracked.limit == MAX_TRACKED == 2**20
        objects.tracked.limit = 3
        for i in range(5):
            self.keep(self.alloc())
        self.gc.collect(0)
        assert self.outcomes() == [PROMOTED] * 5
        assert self.lost == [(4, 0), (5, 0)]
        self.stackroots.pop(1)
        self.gc.collect(2)
        assert self.freed == [(2, 0)]
        # the table has room for another object again
        self.keep(self.alloc())
        self.gc.collect(0)
        assert len(self.lost) == 2
        del self.stackroots[:]
        self.gc.collect(2)
        assert self.freed == [(2, 0), (1, 0), (3, 0), (6, 0)]

    def test_not_followed(self):
        # after FACT_PROMOTED has returned 0, no more facts are reported
        self.start(1)
        self.follows = 0
        self.keep(self.alloc())
        self.gc.collect(0)
        assert self.outcomes() == [PROMOTED]
        assert self.tracked() == 0
        self.stackroots.pop()
        self.gc.collect(2)
        assert self.freed == self.lost == []

    def test_nobody_listens(self):
        self.start(1)
        self.keep(self.alloc())
        self.gc.collect(0)
        self.hears = 0
        fates = len(self.fates)
        self.stackroots.pop()
        self.alloc()
        self.gc.collect(2)
        assert len(self.fates) == fates and self.freed == []
        assert self.tracked() == 0

    def test_stop_gives_memory_back(self):
        self.start(1)
        for i in range(300):
            self.keep(self.alloc())
        self.gc.collect(0)
        objects = self.gc.sample_point.objects
        assert objects.tracked.room >= 300
        self.alloc()
        self.gc.collect(0)
        # three words per tracked object
        assert self.totals.memory >= 300 * 3 * WORD
        self.stop()
        for table in [objects.waiting, objects.young, objects.tracked]:
            assert not table.records
            assert table.room == table.length == 0
        del self.stackroots[:]
        self.gc.collect(2)
        assert self.freed == []

    def test_an_end_from_inside_gives_memory_back(self):
        self.start(1)
        for i in range(5):
            self.keep(self.alloc())
        self.answer = lambda n: -1
        self.alloc()
        objects = self.gc.sample_point.objects
        assert objects.waiting.room == objects.tracked.room == 0
