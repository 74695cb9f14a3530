"""Allocation sampling: the types and sizes of the sampled objects.

A sample is taken when its bytes are reserved, before the object exists.  So
the sample *waits* for the next minor collection, at the beginning of which all
headers in the nursery are valid.  The JIT may have reserved the bytes for
several objects (a batched allocation, called *piece* here).  The piece is
walked from header to header:

    address                         offset: the sampled byte   size
       v                                 v                      v
       +------------+--------------------+---------+------------+
       | object     |       object       | object  | never made |
       +------------+--------------------+---------+------------+
                              ^
                            holder

The *holder* of the sampled byte is sampled.  The Sampler has drawn its next
gap at the end of the piece, not at the end of the holder.  For the bytes
between the two, a second generator draws the gaps now.  So the objects after
the holder may be sampled too, each with the probability of its size.  With
fixed gaps, the positions of the sampled bytes in the piece are known.

wait() clears the memory of a piece, so the program has written all headers in
it since then.  If there is no header at a position, the program has left the
JIT's trace before it made the remaining objects.  The rest of the piece counts
as one object of unknown type.  A shrunk array is sampled with its reserved
size, and survives with its new size: see shrink().

The results are reported to fact(what, key, which, type, size, address), a function
that the profiler has passed to the GC.  It must not call the GC.

  FACT_STARTED    a minor collection begins.  If the function returns 0, the
                  profiler wants no facts of this collection.
  FACT_OBJECT     an object that holds a sampled byte.  'key' is the result of
                  sampled(), 'which' the object's number among the sampled objects
                  of this key, from 0 on.  'type' is the object's index in the list of
                  types from rgc.get_typeids_z(), or -1 if the type is unknown.
                  'size' is the object's size in bytes, or 0 if the object fills the
                  whole sample.  'address' is the object's address before the
                  collection moves it, or NULL if the type is unknown.  The object can
                  be read, but fields of a new object may be NULL.
  FACT_FOUND      all objects of this collection were reported

If there is no memory for a waiting sample, a FACT_OBJECT of unknown type is
reported at once, outside of a collection.
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

# The same numbers in C: rvmprof_allocation.h
FACT_STARTED = 0
FACT_OBJECT = 1
FACT_FOUND = 2

# The maximal number of samples that wait
MAX_WAITING = 1 << 18

WORD = LONG_BIT // 8
NO_TYPE = rffi.cast(llgroup.HALFWORD, 0)


def make_table(name, *fields):
    """Return a class for growing tables of records, in raw memory."""
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
            """Return a new record with undefined fields.  Return NULL if the
            table is full or there is no memory: the sampling must not make
            the program fail."""
            if self.length == self.room and not self.grow():
                return lltype.nullptr(RECORD)
            self.length += 1
            return self.records[self.length - 1]

        def grow(self):
            """Double the table.  Return False if this is impossible."""
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
            """Return the size of the table in bytes."""
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
    """The sampled objects of one GC, until their type is known."""
    _alloc_flavor_ = "raw"

    @not_rpython
    def __init__(self):
        self.fact = lltype.nullptr(rgc.ALLOCATION_FACT.TO)
        self.behind = Sampler()
        self.waiting = Waiting(MAX_WAITING)

    def start(self, gc, seed, fixed, fact):
        """Start to report facts to the function 'fact'."""
        self.fact = fact
        # A separate generator, so that walking a piece does not change the
        # choice of the later samples.
        self.behind.start(1, intmask(seed + 1), fixed)

    def clear(self):
        """Forget all waiting samples, and free their memory."""
        self.waiting.clear()

    # ---------- while the program runs

    def wait(self, gc, address, key, size, offset, interval):
        """Let a new sample wait for the next minor collection.  Its object
        does not exist yet, unless it is a large object."""
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
        """Prepare the young array 'obj' for its reduction to 'totalsize'
        bytes.  It still has its old length.  Write the number of removed
        words into the first word after the new end.  A type ID of 0, which no
        header has, distinguishes this word from a header."""
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
        """Report the objects of all waiting samples.  All headers in the
        nursery are valid, and no object has moved."""
        if self.tell_of(FACT_STARTED):
            i = 0
            while i < self.waiting.length:
                self.find_in(gc, self.waiting.records[i])
                i += 1
            self.tell_of(FACT_FOUND)
        self.waiting.length = 0

    def find_in(self, gc, piece):
        """Report the sampled objects of one sample, which may be a piece."""
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
        """Report the sampled objects of a piece."""
        # the holder is the first object with a sampled byte
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
        """Report the young object at this position of the piece.  If the
        position is negative, report an object of unknown type."""
        obj = llmemory.NULL
        if position >= 0:
            size_gc_header = gc.gcheaderbuilder.size_gc_header
            obj = piece.address + position + size_gc_header
        self.found(gc, piece, which, size, obj)

    def is_whole(self, gc, piece):
        """Return True if the piece consists of objects, except for a rest of
        objects that were never made."""
        position = 0
        while position < piece.size:
            size = self.size_at(gc, piece, position)
            if size == 0:
                return position != 0
            position += size
        return position == piece.size

    def size_at(self, gc, piece, position):
        """Return the size in bytes that was reserved for the object at this
        position of a piece, or 0 if no object was made."""
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
        """Return the size in bytes of an object in the nursery, with its
        header.  There must be room for a forwarding address."""
        return max(self.old_size(gc, obj),
                   raw_malloc_usage(gc.minimal_size_in_nursery))

    def old_size(self, gc, obj):
        """Return the size in bytes of an object outside of the nursery, with
        its header."""
        return raw_malloc_usage(gc.gcheaderbuilder.size_gc_header +
                                gc.get_size(obj))

    def is_object(self, gc, address):
        """Return True if there is a header with a type at 'address'."""
        type_id = llop.extract_ushort(llgroup.HALFWORD,
                                      self.header(gc, address))
        return llop.is_group_member_nonzero(lltype.Bool, type_id)

    def header(self, gc, address):
        return llmemory.cast_adr_to_ptr(address, lltype.Ptr(gc.HDR)).tid

    # ---------- reports

    def found(self, gc, piece, which, size, obj):
        """Report a sampled object.  sampled_outcomes.py overrides this."""
        self.tell_object(gc, piece.key, which, size, obj)

    def tell_not_known(self, gc, key):
        """Report an object of unknown type for the sample of this key."""
        self.tell_object(gc, key, 0, 0, llmemory.NULL)

    def tell_of(self, moment):
        """Report a fact without an object, such as FACT_STARTED."""
        return self.fact(moment, 0, 0, 0, 0, llmemory.NULL)

    def tell_object(self, gc, key, which, size, obj):
        """Report FACT_OBJECT; 'obj' is NULL if its type is unknown."""
        type = -1
        if obj != llmemory.NULL:
            type = gc.get_member_index(gc.get_type_id(obj))
        return self.fact(FACT_OBJECT, key, which, type, size, obj)
