"""Allocation sampling: what the sampled objects are.

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

What is found is told to fact(what, key, which, type, size, address), a function that
was given to the GC.  It must not call back into the GC.

  FACT_STARTED    a minor collection begins.  If it returns 0, nobody listens any more.
  FACT_OBJECT     an object that holds a sampled byte.  'key' is what sampled() has
                  returned, 'which' counts the sampled objects of this key, 'type' is an
                  index into what rgc.get_typeids_z() describes, or -1, 'size' the
                  object's in bytes, or 0: all of the sample's.  'address' is where it is
                  before the collection moves it: all of it can be read, but fields may be
                  NULL, of objects that were just born.  NULL: it is not known what
                  it is
  FACT_FOUND      these were all

A FACT_OBJECT of which nothing is known may come alone, for lack of memory.
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
FACT_STARTED = 0
FACT_OBJECT = 1
FACT_FOUND = 2

# So many samples wait, at most
MAX_WAITING = 1 << 18

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


class SampledObjects(object):
    """The sampled objects of one GC."""
    _alloc_flavor_ = "raw"

    @not_rpython
    def __init__(self):
        self.fact = lltype.nullptr(rgc.ALLOCATION_FACT.TO)
        self.behind = Sampler()
        self.waiting = Waiting(MAX_WAITING)

    def start(self, gc, seed, fixed, fact):
        self.fact = fact
        # not the sample point's own: the samples are the same without this
        self.behind.start(1, intmask(seed + 1), fixed)

    def clear(self):
        self.waiting.clear()

    # ---------- while the program runs

    def wait(self, gc, address, key, size, offset, interval):
        """A sample was taken; no object is there yet, or it is a large one."""
        record = self.waiting.append()
        if not record:
            self.tell_not_known(gc, key)
            return
        record.address = address
        record.key = key
        record.size = size
        record.offset = offset
        record.interval = interval
        if gc.is_in_nursery(address):
            llarena.arena_reset(address, size, 2)

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

    def collection_starts(self, gc):
        """All headers in the nursery are valid, and nothing has moved."""
        if self.tell_of(FACT_STARTED):
            i = 0
            while i < self.waiting.length:
                self.find_in(gc, self.waiting.records[i])
                i += 1
            self.tell_of(FACT_FOUND)
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
        """The young object at this position, or, if that is negative, one of
        which nothing is known."""
        obj = llmemory.NULL
        if position >= 0:
            size_gc_header = gc.gcheaderbuilder.size_gc_header
            obj = piece.address + position + size_gc_header
        self.found(gc, piece, which, size, obj)

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

    # ---------- what is told

    def found(self, gc, piece, which, size, obj):
        self.tell_object(gc, piece.key, which, size, obj)

    def tell_not_known(self, gc, key):
        self.tell_object(gc, key, 0, 0, llmemory.NULL)

    def tell_of(self, moment):
        return self.fact(moment, 0, 0, 0, 0, llmemory.NULL)

    def tell_object(self, gc, key, which, size, obj):
        """'obj' may be NULL."""
        type = -1
        if obj != llmemory.NULL:
            type = gc.get_member_index(gc.get_type_id(obj))
        return self.fact(FACT_OBJECT, key, which, type, size, obj)
