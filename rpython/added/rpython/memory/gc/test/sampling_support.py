"""Base class of test_sampling_*.py, the tests of sampling.py and
sampled_objects.py.

The tests use a GC that is not translated.  They check the arithmetic of
Sampler (arithmetic), all code of incminimark that depends on nursery_top
(nursery, callbacks, large), and the reports about sampled objects (objects,
pieces).  Most of them use fixed gaps, because then the sizes determine which
objects are sampled: see fixed_samples().

The profiler's part (signals, errno, greenlets, forks, output, linking) is not
tested here.
"""
from rpython.memory.gc.incminimark import IncrementalMiniMarkGC
from rpython.memory.gc.sampled_objects import (FACT_STARTED, FACT_OBJECT,
    FACT_FOUND, NO_TYPE)
from rpython.memory.gc.test.test_direct import BaseDirectGCTest, S, VAR, WORD
from rpython.memory.gctypelayout import WEAKREF, zero_gc_pointers_inside
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llarena, llmemory, lltype


# The two-sided quantile of a normal distribution for a probability of 1e-8: with
# another seed, a correct implementation fails a random check so rarely.
SIGMAS = 5.73


def fixed_samples(sizes, interval):
    """Return the indices of the objects that contain a sampled byte.  The bytes of all
    objects are numbered from 0.  The bytes k * interval - 1 are sampled."""
    result = []
    end = 0
    for number, size in enumerate(sizes):
        begin = end
        end += size
        if end // interval > begin // interval:
            result.append(number)
    return result


# The smallest object: two words with the header.  A larger pinned object confuses
# the simulated memory: if nursery_free is right before the pinned object, adding to
# nursery_free gives addresses inside of the object.
SMALL = lltype.GcStruct('SMALL', ('x', lltype.Signed))
CHARS = lltype.GcArray(lltype.Char)
DESTROYED = lltype.GcStruct('DESTROYED', ('x', lltype.Signed),
                            ('y', lltype.Signed))
FINALIZED = lltype.GcStruct('FINALIZED', ('x', lltype.Signed))

WORDS = {S: 4, SMALL: 2, DESTROYED: 3, FINALIZED: 2, WEAKREF: 2}


def total_size(TYPE, n):
    """Return the size of a TYPE with n items in bytes, with the header."""
    if TYPE is VAR:
        return (2 + n) * WORD
    if TYPE is CHARS:
        return 2 * WORD + (n + WORD - 1) // WORD * WORD
    return WORDS[TYPE] * WORD


def memory_pressure(gc, size):
    """Report 'size' bytes of raw memory to the GC, as rgc does."""
    method = gc.raw_malloc_memory_pressure
    # newer versions of this method have a further parameter, an address
    rest = method.im_func.func_code.co_argcount - 2
    method(size, *[llmemory.NULL] * rest)


def make_piece(test, kinds, total):
    """Reserve 'total' bytes and make several objects in them, as the JIT does.
    'kinds' is a list of (TYPE, length, size).  Return the pointers."""
    gc = test.gc
    address = gc.nursery_free
    gc.nursery_free = address + total
    if gc.nursery_free > gc.nursery_top:
        address = gc.collect_and_reserve(total)
    result = []
    end = 0
    for TYPE, n, size in kinds:
        result.append(make_object(test, address + end, TYPE, n))
        end += size
    if end < total:
        # the simulated memory cannot be read before a header is there
        llarena.arena_reserve(address + end, llmemory.sizeof(gc.HDR))
        gc.init_gc_object(address + end, NO_TYPE)
    return result

def make_object(test, address, TYPE, n):
    """Make an object in reserved memory.  Return the object's pointer."""
    gc = test.gc
    type_id = test.get_type_id(TYPE)
    size = gc.gcheaderbuilder.size_gc_header + gc.fixed_size(type_id)
    if gc.is_varsize(type_id):
        size += gc.varsize_item_sizes(type_id) * n
        size = llarena.round_up_for_allocation(size)
    llarena.arena_reserve(address, size)
    gc.init_gc_object(address, type_id)
    obj = address + gc.gcheaderbuilder.size_gc_header
    if gc.is_varsize(type_id):
        (obj + gc.varsize_offset_to_length(type_id)).signed[0] = n
    p = llmemory.cast_adr_to_ptr(obj, lltype.Ptr(TYPE))
    zero_gc_pointers_inside(p, TYPE)
    return p


class BaseSamplingTest(BaseDirectGCTest):
    """The nursery has room for 32 words, that is 8 S; objects of more than
    7 words are large."""
    GCClass = IncrementalMiniMarkGC

    def setup_method(self, meth):
        BaseDirectGCTest.setup_method(self, meth)
        self.gc.DEBUG = 2
        self.gc.max_number_of_pinned_objects = 20
        self.sampled = llhelper(rgc.ALLOCATION_SAMPLED, self.on_sampled)
        self.fact = llhelper(rgc.ALLOCATION_FACT, self.on_fact)
        self.sizes = []          # sizes of all allocated objects
        self.samples = []        # (number, size, address, interval)
        self.found = []          # (key, which, type, size)
        self.is_finding = False
        self.listens = 1         # result of FACT_STARTED
        self.first = 0           # number of the first object since the start
        self.totals = None
        self.count_collections()

    def fresh(self):
        """Replace the GC by a new one."""
        self.setup_method(None)

    def count_collections(self):
        """Count minor collections in self.collections."""
        self.collections = 0
        original = self.gc._minor_collection
        def minor_collection():
            self.collections += 1
            original()
        self.gc._minor_collection = minor_collection

    # ---------- called by the GC

    def on_sampled(self, size, address):
        """Note a sample of the GC.  Return the result of answer()."""
        # objects are noted in the order in which they were reserved
        number = len(self.sizes)
        self.samples.append((number, size, address, self.totals.interval))
        return self.answer(number)

    def answer(self, number):
        """Return the key of a sample: the number of the object, from 1 on."""
        return number + 1

    def on_fact(self, what, key, which, type, size, address):
        """Note and check a fact of the GC."""
        if what == FACT_STARTED:
            assert not self.is_finding
            self.is_finding = self.listens
            return self.listens
        if what == FACT_OBJECT:
            self.found.append((key, which, type, size))
            # no address if nothing is known about the object
            if address != llmemory.NULL:
                assert type == self.gc.get_member_index(
                    self.gc.get_type_id(address))
            else:
                assert type == -1
            return self.note(type, address)
        if what == FACT_FOUND:
            assert self.is_finding
            self.is_finding = False
            return 0
        return self.on_outcome(what, key, which, type, size, address)

    def note(self, type, address):
        """Return the result of FACT_OBJECT for an object."""
        return 0

    def on_outcome(self, *fact):
        """Ignore a fact of sampled_outcomes.py; a subclass notes it."""
        return 1

    # ---------- the program

    def start(self, interval, seed=0, fixed=True):
        """Start the sampling.  The numbers of samples begin again."""
        self.totals = self.gc.start_allocation_sampling(
            interval, seed, fixed, self.sampled, self.fact)
        assert self.totals
        self.first = len(self.sizes)
        del self.samples[:]

    def stop(self):
        assert self.gc.set_allocation_interval(0)

    def alloc(self, TYPE=S, n=0):
        """Allocate an object.  Check its sample if it is sampled."""
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

    def piece(self, *kinds, **options):
        """Allocate several objects in one piece, as the JIT does.  A kind is a
        type, or a type and a length.  With 'made', only that number of objects
        is made, and the rest of the piece is empty."""
        kinds = [kind if isinstance(kind, tuple) else (kind, 0)
                 for kind in kinds]
        sizes = [total_size(TYPE, n) for TYPE, n in kinds]
        made = options.pop('made', len(kinds))
        total = sum(sizes)
        result = make_piece(self, [(TYPE, n, size) for (TYPE, n), size
                                   in zip(kinds, sizes)[:made]], total)
        self.sizes.append(total)
        return result

    def allocated(self, p, size):
        """Note the object 'p', and check the size and address of its sample."""
        number = len(self.sizes)
        self.sizes.append(size)
        mine = [sample for sample in self.samples if sample[0] == number]
        assert len(mine) <= 1
        for _, reported, address, _ in mine:
            assert reported == size
            assert address + self.gc.gcheaderbuilder.size_gc_header == adr(p)
        return p

    def keep(self, p):
        """Keep an object alive."""
        self.stackroots.append(p)
        return p

    def offset(self, p):
        """Return the position of 'p' in words from the beginning of the
        nursery, or None if 'p' is outside of the nursery."""
        address = llarena.getfakearenaaddress(adr(p))
        if address.arena is not self.gc.nursery.arena:
            return None
        bytes = address - self.gc.nursery - WORD
        assert bytes % WORD == 0
        return bytes // WORD

    def free_words(self):
        """Return the position of nursery_free in words."""
        return (self.gc.nursery_free - self.gc.nursery) // WORD

    def real_top_words(self):
        """Return the distance in words from the start of the nursery to
        nursery_top.  Allocations must not be sampled."""
        assert self.gc.sample_point.interval == 0
        bytes = (llarena.getfakearenaaddress(self.gc.nursery_top) -
                 self.gc.nursery)
        assert bytes % WORD == 0
        return bytes // WORD

    def pin_behind(self, *TYPES):
        """Empty the nursery except for a pinned object.  Objects of these types
        fit exactly into the area before it."""
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
        """Return the numbers of the sampled objects since the start."""
        return [sample[0] - self.first for sample in self.samples]

    def type_index(self, TYPE):
        """Return the GC's index of a type, or -1 for an unknown type."""
        if TYPE is None:
            return -1
        return self.gc.get_member_index(self.get_type_id(TYPE))

    def check(self, interval):
        """Check that the right objects were sampled, and that every byte was
        counted.  Ends the sampling."""
        sizes = self.sizes[self.first:]
        assert self.numbers() == fixed_samples(sizes, interval)
        self.stop()
        assert self.totals.allocated == sum(sizes)


def adr(p):
    return llmemory.cast_ptr_to_adr(p)
