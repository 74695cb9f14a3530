"""Allocation sampling: what becomes of the sampled objects.

What a sampled object is, is found out at the beginning of a minor collection
(sampled_objects.py).  At its end, each of these *young* objects is dead, old, or
pinned.  The pinned ones wait for the next minor collection.  The old ones are
*tracked* (old objects don't move), until a major collection has marked what is
alive, and before it sweeps: those without a mark are dead.  At that moment this is
true of all old objects, those included that the minor collection just before has
made old.  Nothing is kept alive by this, and an address is forgotten before
somebody else can get it.

fact(what, key, which, note, size, address) is told this, too:

  FACTS_BEGIN     between this and FACTS_END, all that was found out at one
                  moment.  If it returns 0, nobody listens any more.
  FACTS_END
  FACT_ENDED      the end of a minor collection: these were all young objects
  FACT_MARKED     the marking of a major collection has ended; the dead ones follow

  FACT_DIED       of the young objects, in the order of their keys.  'key', 'which'
  FACT_PROMOTED   and 'size' are those of FACT_OBJECT, 'note' is what it has
  FACT_PINNED     returned, 'address' where the object is now and stays, or NULL.  For
  FACT_NOT_KNOWN  FACT_PROMOTED and FACT_PINNED, it returns 1 to hear of this object
                  again.  A FACT_NOT_KNOWN may come alone, for lack of memory.
  FACT_SHRUNK     before FACT_PROMOTED: as 'size' what the object takes now, in
                  bytes, less than when it was allocated: an array that was shrunk,
                  or an object without a field
  FACT_FREED      'key' and 'which', of an object that was promoted
  FACT_LOST       likewise: it will not be heard of again, for lack of memory

At FACT_STARTED and FACT_MARKED, behind each minor collection and behind each large
object, the totals say how large the heap is.
"""
from rpython.memory.gc.sampled_objects import (MAX_WAITING, SampledObjects,
    make_table)
from rpython.rtyper.lltypesystem import lltype, llmemory

# In C: rvmprof_allocation.h, behind those of sampled_objects.py
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

# So many objects are tracked, at most
MAX_TRACKED = 1 << 20

Young = make_table('allocation_young',
    ('object', llmemory.Address),      # NULL: it is not known what it is
    ('key', lltype.Signed), ('which', lltype.Signed), ('note', lltype.Signed),
    ('size', lltype.Signed),           # to be told
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
        SampledObjects.start(self, gc, seed, fixed, fact)
        gc.sample_point.totals.memory = 0
        self.count_heap(gc)

    def clear(self):
        SampledObjects.clear(self)
        self.young.clear()
        self.tracked.clear()

    def count_heap(self, gc):
        gc.count_heap(gc.sample_point.totals)

    def collection_starts(self, gc):
        self.count_heap(gc)
        SampledObjects.collection_starts(self, gc)
        totals = gc.sample_point.totals
        totals.memory = max(totals.memory, self.waiting.memory() +
                            self.young.memory() + self.tracked.memory())

    def found(self, gc, piece, which, size, obj):
        record = self.young.append()
        if not record:
            # nothing is said of objects behind a holder of which it was
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
        note = self.tell_object(gc, key, 0, 0, llmemory.NULL)
        if self.tell_of(FACTS_BEGIN):
            self.fact(FACT_NOT_KNOWN, key, 0, note, 0, llmemory.NULL)
            self.tell_of(FACTS_END)

    def collection_ends(self, gc):
        """All young objects that survive this minor collection are known, and
        the others are still there."""
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
        """Returns True if it is pinned, and to be told of again."""
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
        """All marks are final, nothing is swept yet."""
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
