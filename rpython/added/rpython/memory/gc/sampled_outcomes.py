"""Allocation sampling: the outcomes of the sampled objects.

The type of a sampled object is found at the beginning of a minor collection
(sampled_objects.py).  At the end of this collection, each of these *young* objects
is dead, old, or pinned.  The pinned objects wait for the next minor collection.  The
old objects, which don't move, are *tracked*.  When a major collection has marked all
live objects, and before it sweeps, the tracked objects without a mark are dead.  At
that moment, all old objects have valid marks, including the objects that were
promoted by the minor collection just before.  Tracking keeps no object alive, and an
address is forgotten before the GC can use it again.

fact(what, key, which, note, size, address) also receives:

  FACTS_BEGIN     the facts up to FACTS_END were found at the same moment.  If the
                  function returns 0, the profiler wants no more facts.
  FACTS_END
  FACT_ENDED      a minor collection ends: all young objects were reported
  FACT_MARKED     a major collection has finished marking; the dead objects follow

  FACT_DIED       the outcome of a young object, in the order of the keys.  'key',
  FACT_PROMOTED   'which' and 'size' are the same as for FACT_OBJECT, 'note' is the
  FACT_PINNED     result of FACT_OBJECT.  'address' is the object's final address, or
  FACT_NOT_KNOWN  NULL.  For FACT_PROMOTED and FACT_PINNED, the function returns 1 to
                  receive later facts about this object.  If there is no memory, a
                  FACT_NOT_KNOWN is reported at once, between its own FACTS_BEGIN and
                  FACTS_END.
  FACT_SHRUNK     before FACT_PROMOTED: 'size' is the object's present size in bytes,
                  which is smaller than its size in the nursery.  The object is a
                  shrunk array, or an object without fields.
  FACT_FREED      a promoted object is dead, given by 'key' and 'which'
  FACT_LOST       a promoted object is not tracked any more, because there is no
                  memory; given by 'key' and 'which'

The size of the heap in the totals is up to date at FACT_STARTED and FACT_MARKED,
after each minor collection and after each allocation of a large object.
"""
from rpython.memory.gc.sampled_objects import (MAX_WAITING, SampledObjects,
    make_table)
from rpython.rtyper.lltypesystem import lltype, llmemory

# The same numbers in C: rvmprof_allocation.h
FACTS_BEGIN = 3
FACTS_END = 4
FACT_ENDED = 5
FACT_MARKED = 6
FACT_DIED = 7
FACT_PROMOTED = 8
FACT_PINNED = 9
FACT_NOT_KNOWN = 10
FACT_FREED = 11
FACT_LOST = 12
FACT_SHRUNK = 13

# The maximal number of tracked objects
MAX_TRACKED = 1 << 20

Young = make_table('allocation_young',
    ('object', llmemory.Address),      # NULL if the type is unknown
    ('key', lltype.Signed), ('which', lltype.Signed), ('note', lltype.Signed),
    ('size', lltype.Signed),           # as in FACT_OBJECT
    ('size_at_birth', lltype.Signed))
Tracked = make_table('allocation_tracked',
    ('object', llmemory.Address), ('key', lltype.Signed),
    ('which', lltype.Signed))


class SampledOutcomes(SampledObjects):
    """The sampled objects of one GC, followed until they die."""
    _alloc_flavor_ = "raw"

    def __init__(self):
        SampledObjects.__init__(self)
        self.young = Young(MAX_WAITING)
        self.tracked = Tracked(MAX_TRACKED)

    def start(self, gc, seed, fixed, fact):
        """Start to report facts to the function 'fact'."""
        SampledObjects.start(self, gc, seed, fixed, fact)
        gc.sample_point.totals.memory = 0
        self.count_heap(gc)

    def clear(self):
        """Forget all samples and objects, and free the memory."""
        SampledObjects.clear(self)
        self.young.clear()
        self.tracked.clear()

    def count_heap(self, gc):
        """Update the size of the heap in the totals."""
        gc.count_heap(gc.sample_point.totals)

    def collection_starts(self, gc):
        """Report the objects of all waiting samples, which are young objects
        until collection_ends()."""
        self.count_heap(gc)
        SampledObjects.collection_starts(self, gc)
        totals = gc.sample_point.totals
        totals.memory = max(totals.memory, self.waiting.memory() +
                            self.young.memory() + self.tracked.memory())

    def found(self, gc, piece, which, size, obj):
        """Report a sampled object, and add it to the young objects."""
        record = self.young.append()
        if not record:
            # report the key once, also if the piece has several sampled objects
            if which == 0:
                self.tell_not_known(gc, piece.key)
            return
        record.object = obj
        record.key = piece.key
        record.which = which
        record.size = size
        record.size_at_birth = size if size != 0 else piece.size
        record.note = self.tell_object(gc, piece.key, which, size, obj)

    def tell_not_known(self, gc, key):
        """Report an object of unknown type and outcome for this key."""
        note = self.tell_object(gc, key, 0, 0, llmemory.NULL)
        if self.tell_of(FACTS_BEGIN):
            self.fact(FACT_NOT_KNOWN, key, 0, note, 0, llmemory.NULL)
            self.tell_of(FACTS_END)

    def collection_ends(self, gc):
        """Report the outcomes of the young objects.  All survivors of this
        minor collection are known, and the memory of the dead objects is not
        reused yet."""
        if not self.tell_of(FACTS_BEGIN):
            self.clear()
            return
        young = self.young
        kept = 0
        i = 0
        while i < young.length:
            if self.tell_young(gc, young.records[i]):
                if kept != i:
                    young.copy(young.records[i], young.records[kept])
                kept += 1
            i += 1
        young.length = kept
        self.tell_of(FACT_ENDED)
        self.tell_of(FACTS_END)
    collection_ends._dont_inline_ = True

    def tell_young(self, gc, young):
        """Report the outcome of a young object.  Return True if the object is
        pinned, and its outcome must be reported again."""
        what = FACT_NOT_KNOWN
        survivor = llmemory.NULL
        address = llmemory.NULL
        if young.object != llmemory.NULL:
            survivor = gc.get_survivor(young.object)
            if survivor == llmemory.NULL:
                what = FACT_DIED
            elif gc.is_in_nursery(survivor):
                what = FACT_PINNED
            else:
                what = FACT_PROMOTED
                address = survivor
                size = self.old_size(gc, survivor)
                if size < young.size_at_birth:
                    self.fact(FACT_SHRUNK, young.key, young.which, 0, size,
                              llmemory.NULL)
        if not self.fact(what, young.key, young.which, young.note, young.size,
                         address):
            return False
        if what != FACT_PROMOTED:
            return what == FACT_PINNED
        record = self.tracked.append()
        if not record:
            self.fact(FACT_LOST, young.key, young.which, 0, 0, llmemory.NULL)
            return False
        record.object = survivor
        record.key = young.key
        record.which = young.which
        return False

    def marking_ended(self, gc):
        """Report the dead tracked objects.  All marks are final, and no
        object is swept yet."""
        self.count_heap(gc)
        if not self.tell_of(FACTS_BEGIN):
            self.clear()
            return
        self.tell_of(FACT_MARKED)
        tracked = self.tracked
        kept = 0
        i = 0
        while i < tracked.length:
            record = tracked.records[i]
            if gc.is_marked(record.object):
                if kept != i:
                    tracked.copy(record, tracked.records[kept])
                kept += 1
            else:
                self.fact(FACT_FREED, record.key, record.which, 0, 0,
                          llmemory.NULL)
            i += 1
        tracked.length = kept
        self.tell_of(FACTS_END)
