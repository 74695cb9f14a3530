"""Allocation sampling: what the sampled objects are, and what becomes of them.

A sample is taken when its bytes are reserved, before there is an object.  So
it *waits* for the next minor collection, at the beginning of which all headers
in the nursery are valid.  The JIT may have reserved the bytes for several
objects; this *piece* is walked from header to header:

    address                         offset: the sampled byte   size
       v                                 v                      v
       +------------+--------------------+---------+------------+
       | object     |       object       | object  | never made |
       +------------+--------------------+---------+------------+
                              ^
                            holder

The *holder* of the sampled byte is sampled.  The Sampler has drawn a new gap
at the end of the piece; what it would have drawn at the end of the holder is
drawn now, by a second generator, so that objects behind the holder may be
sampled, too: each with the probability of its own size.  With fixed gaps they
are where they are.

What stands in a piece, the program has written there since it was reserved:
wait() clears the memory.  Where there is no header, the program has left the
JIT's trace before it made what comes there; that remainder is an object of
which nothing is known.  An array that was shrunk was allocated with the size
that was reserved for it, and lives on with the size that it has then: see
shrink().

At the end of the minor collection, each of the *young* objects is dead, old, or
pinned.  The pinned ones wait for the next minor collection.  The old ones are
*tracked* (old objects don't move), until a major collection has marked what is
alive, and before it sweeps: those without a mark
are dead.  At that moment this is true of all old objects, those included that
the minor collection just before has made old.  Nothing is kept alive by this,
and an address is forgotten before somebody else can get it.

All of it is told to fact(what, key, which, type, size, class), a function that
was given to the GC.  It must not call back into the GC.

  FACTS_BEGIN     between this and FACTS_END, all that was found out at one
                  moment.  If it returns 0, nobody listens any more.
  FACTS_END
  FACT_STARTED    a minor collection begins (not between the two above); 'key' is 1
                  while a major collection is marking
  FACT_ENDED      it knows which objects survive: these were all it found out
  FACT_MARKED     the marking of a major collection has ended

  FACT_DIED       of the young objects, in the order of their keys.  'key' is
  FACT_PROMOTED   what sampled() has returned, 'which' counts the sampled objects
  FACT_PINNED     of this key, 'type' is an index into what
  FACT_NOT_KNOWN  rgc.get_typeids_z() describes, or -1, 'size' the object's in
                  bytes, or 0: all of the sample's.  'class' is what
                  class_of() has said of it, at the beginning of the minor
                  collection; or 0.  For FACT_PROMOTED and FACT_PINNED, it
                  returns 1 to hear of this object again.
  FACT_SHRUNK     before FACT_PROMOTED: 'key', 'which', and as 'size' what the
                  object takes now, in bytes, less than when it was allocated: an
                  array that was shrunk, or an object without a field
  FACT_ADDRESS    'key' and 'which', of an object that was just promoted; 'type' is
                  where it is now, and stays
  FACT_FREED      'key' and 'which', of an object that was promoted
  FACT_LOST       likewise: it will not be heard of again, for lack of memory
"""
from rpython.memory.gc.sampling import Sampler
from rpython.rlib import rgc
from rpython.rlib.objectmodel import not_rpython
from rpython.rlib.rarithmetic import LONG_BIT, intmask
from rpython.rlib.unroll import unrolling_iterable
from rpython.rtyper.lltypesystem import (lltype, llmemory, llarena, llgroup,
    rffi)
from rpython.rtyper.lltypesystem.lloperation import llop
from rpython.rtyper.lltypesystem.llmemory import raw_malloc_usage

# In C: rvmprof_allocation.h
FACTS_BEGIN = 0
FACTS_END = 1
FACT_STARTED = 2
FACT_ENDED = 3
FACT_MARKED = 4
FACT_DIED = 5
FACT_PROMOTED = 6
FACT_PINNED = 7
FACT_NOT_KNOWN = 8
FACT_FREED = 9
FACT_LOST = 10
FACT_ADDRESS = 11
FACT_SHRUNK = 12

# So many samples wait, and so many objects are tracked, at most
MAX_WAITING = 1 << 18
MAX_TRACKED = 1 << 20

WORD = LONG_BIT // 8
NO_TYPE = rffi.cast(llgroup.HALFWORD, 0)


def make_table(name, *fields):
    """A class: a table that grows, in memory that is not the GC's."""
    RECORD = lltype.Struct(name, *fields)
    RECORDS = lltype.Array(RECORD, hints={'nolength': True})
    names = unrolling_iterable([field for field, _ in fields])

    class Table(object):
        _alloc_flavor_ = "raw"

        @not_rpython
        def __init__(self, limit):
            self.records = lltype.nullptr(RECORDS)
            self.room = 0
            self.length = 0
            self.limit = limit

        def append(self):
            """A new record, to be filled in.  NULL if there is no memory: a
            program that is out of it must not fail on our account."""
            if self.length == self.room and not self.grow():
                return lltype.nullptr(RECORD)
            self.length += 1
            return self.records[self.length - 1]

        def grow(self):
            room = min(max(self.room * 2, 64), self.limit)
            if room == self.room:
                return False
            try:
                records = lltype.malloc(RECORDS, room, flavor='raw',
                                        track_allocation=False)
            except MemoryError:
                return False
            i = 0
            while i < self.length:
                self.copy(self.records[i], records[i])
                i += 1
            self.give_back()
            self.records = records
            self.room = room
            return True
        grow._dont_inline_ = True

        def copy(self, source, target):
            for name in names:
                setattr(target, name, getattr(source, name))

        def give_back(self):
            if self.room != 0:
                lltype.free(self.records, flavor='raw', track_allocation=False)

        def memory(self):
            return self.room * len(fields) * WORD

        def clear(self):
            self.give_back()
            self.records = lltype.nullptr(RECORDS)
            self.room = 0
            self.length = 0

    return Table


Waiting = make_table('allocation_waiting',
    ('address', llmemory.Address), ('key', lltype.Signed),
    ('size', lltype.Signed), ('offset', lltype.Signed),
    ('interval', lltype.Signed))
Young = make_table('allocation_young',
    ('object', llmemory.Address),      # NULL: it is not known what it is
    ('key', lltype.Signed), ('which', lltype.Signed), ('type', lltype.Signed),
    ('size', lltype.Signed),           # to be told
    ('size_at_birth', lltype.Signed), ('class_', lltype.Signed))
Tracked = make_table('allocation_tracked',
    ('object', llmemory.Address), ('key', lltype.Signed),
    ('which', lltype.Signed))


class SampledObjects(object):
    """The sampled objects of one GC."""
    _alloc_flavor_ = "raw"

    @not_rpython
    def __init__(self):
        self.fact = lltype.nullptr(rgc.ALLOCATION_FACT.TO)
        self.class_of = lltype.nullptr(rgc.ALLOCATION_CLASS.TO)
        self.behind = Sampler()
        self.waiting = Waiting(MAX_WAITING)
        self.young = Young(MAX_WAITING)
        self.tracked = Tracked(MAX_TRACKED)

    def start(self, seed, fixed, fact, class_of):
        self.fact = fact
        self.class_of = class_of
        # not the sample point's own: the samples are the same without this
        self.behind.start(1, intmask(seed + 1), fixed)

    def memory(self):
        return (self.waiting.memory() + self.young.memory() +
                self.tracked.memory())

    def clear(self):
        self.waiting.clear()
        self.young.clear()
        self.tracked.clear()

    # ---------- while the program runs

    def wait(self, gc, address, key, size, offset, interval):
        """A sample was taken; no object is there yet, or it is a large one."""
        record = self.waiting.append()
        if not record:
            self.tell_not_known(key)
            return
        record.address = address
        record.key = key
        record.size = size
        record.offset = offset
        record.interval = interval
        if gc.is_in_nursery(address):
            llarena.arena_reset(address, size, 2)

    def tell_not_known(self, key):
        if self.tell_of(FACTS_BEGIN):
            self.fact(FACT_NOT_KNOWN, key, 0, -1, 0, 0)
            self.tell_of(FACTS_END)

    def tell_of(self, moment):
        return self.fact(moment, 0, 0, 0, 0, 0)

    def shrink(self, gc, obj, totalsize):
        """The young array 'obj', which still has its length, is going to take
        'totalsize' bytes.  Leave in the first word behind it how much was
        taken off, in a form that no header has: whose type would be 0."""
        size_gc_header = gc.gcheaderbuilder.size_gc_header
        before = raw_malloc_usage(size_gc_header + gc.get_size(obj))
        after = raw_malloc_usage(llarena.round_up_for_allocation(totalsize))
        if before > after:
            address = llarena.getfakearenaaddress(obj - size_gc_header) + after
            llarena.arena_reserve(address, llmemory.sizeof(gc.HDR))
            words = (before - after) // WORD
            gc.init_gc_object(address, NO_TYPE, words << llgroup.HALFSHIFT)

    # ---------- at the beginning of a minor collection

    def find(self, gc):
        self.fact(FACT_STARTED, int(gc.is_marking()), 0, 0, 0, 0)
        i = 0
        while i < self.waiting.length:
            self.find_in(gc, self.waiting.records[i])
            i += 1
        self.waiting.length = 0

    def find_in(self, gc, piece):
        size = piece.size
        if gc.is_in_nursery(piece.address):
            size = self.size_at(gc, piece, 0)
        if size == piece.size:
            self.add(gc, piece, 0, 0, 0)
        elif self.is_whole(gc, piece):
            self.walk(gc, piece)
        else:
            self.add(gc, piece, -1, 0, 0)

    def walk(self, gc, piece):
        # the holder is the first one in which there is a sampled byte
        self.behind.interval = piece.interval
        self.behind.gap = piece.offset
        which = 0
        position = 0
        while position < piece.size:
            size = self.size_at(gc, piece, position)
            if size != 0:
                found = position
            else:
                size = piece.size - position
                found = -1
            if self.behind.gap < size:
                self.add(gc, piece, found, which, size)
                which += 1
            position += size
            if position < piece.size:
                self.behind.pass_object(size)

    def add(self, gc, piece, position, which, size):
        """Add the young object at this position, or, if that is negative, one
        of which nothing is known."""
        record = self.young.append()
        if not record:
            # nothing is said of objects behind a holder of which it was
            if which == 0:
                self.tell_not_known(piece.key)
            return
        record.key = piece.key
        record.which = which
        record.size = size
        record.size_at_birth = size if size != 0 else piece.size
        record.object = llmemory.NULL
        record.type = -1
        record.class_ = 0
        if position >= 0:
            size_gc_header = gc.gcheaderbuilder.size_gc_header
            record.object = piece.address + position + size_gc_header
            record.type = gc.get_member_index(gc.get_type_id(record.object))
            if self.class_of:
                record.class_ = self.class_of(record.object)

    def is_whole(self, gc, piece):
        """Is the piece filled by objects, but for what was never made?"""
        position = 0
        while position < piece.size:
            size = self.size_at(gc, piece, position)
            if size == 0:
                return position != 0
            position += size
        return position == piece.size

    def size_at(self, gc, piece, position):
        """How many bytes of a piece the object at this position takes; 0: none
        was made."""
        start = piece.address + position
        if not self.is_object(gc, start):
            return 0
        size = self.object_size(gc, start +
                                gc.gcheaderbuilder.size_gc_header)
        while position + size < piece.size:
            if self.is_object(gc, start + size):
                break
            words = self.header(gc, start + size) >> llgroup.HALFSHIFT
            if words == 0:
                break
            size += words * WORD        # see shrink()
        return size

    def object_size(self, gc, obj):
        """How many bytes an object takes in the nursery, with its header."""
        return max(self.old_size(gc, obj),
                   raw_malloc_usage(gc.minimal_size_in_nursery))

    def old_size(self, gc, obj):
        """And elsewhere, where nothing leaves a forwarding address."""
        return raw_malloc_usage(gc.gcheaderbuilder.size_gc_header +
                                gc.get_size(obj))

    def is_object(self, gc, address):
        type_id = llop.extract_ushort(llgroup.HALFWORD,
                                      self.header(gc, address))
        return llop.is_group_member_nonzero(lltype.Bool, type_id)

    def header(self, gc, address):
        return llmemory.cast_adr_to_ptr(address, lltype.Ptr(gc.HDR)).tid

    # ---------- at its end, and later

    def tell(self, gc):
        """It is known which objects survive."""
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

    def tell_young(self, gc, young):
        """Returns True if it is pinned, and to be told of again."""
        what = FACT_NOT_KNOWN
        survivor = llmemory.NULL
        if young.object != llmemory.NULL:
            survivor = gc.get_survivor(young.object)
            if survivor == llmemory.NULL:
                what = FACT_DIED
            elif gc.is_in_nursery(survivor):
                what = FACT_PINNED
            else:
                what = FACT_PROMOTED
                size = self.old_size(gc, survivor)
                if size < young.size_at_birth:
                    self.fact(FACT_SHRUNK, young.key, young.which, -1, size, 0)
        if not self.fact(what, young.key, young.which, young.type, young.size,
                         young.class_):
            return False
        if what != FACT_PROMOTED:
            return what == FACT_PINNED
        record = self.tracked.append()
        if not record:
            self.fact(FACT_LOST, young.key, young.which, -1, 0, 0)
            return False
        record.object = survivor
        record.key = young.key
        record.which = young.which
        self.fact(FACT_ADDRESS, young.key, young.which,
                  llmemory.cast_adr_to_int(survivor), 0, 0)
        return False

    def marking_ended(self, gc):
        """All marks are final, nothing is swept yet."""
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
                self.fact(FACT_FREED, record.key, record.which, -1, 0, 0)
            i += 1
        tracked.length = kept
        self.tell_of(FACTS_END)
