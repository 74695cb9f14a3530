"""Allocation sampling: the choice of the sampled objects, and the sample
point in the nursery.  incminimark uses the class SamplePoint.

Nouns.  The program allocates a stream of bytes.  Some of these bytes are
*sampled*; an object is sampled if it holds at least one sampled byte.  The
*interval* is the mean number of bytes from one sampled byte to the next.
The *gap* is the number of bytes from the present position in the stream to
the next sampled byte.

Exponential gaps (the default).  The sampled bytes are the arrivals of a
Poisson process of rate 1/interval along the stream: an object of s bytes is
sampled with probability

    p(s) = 1 - exp(-s / interval)

independently of every other object and of the program's allocation pattern.
The distance to the next arrival is distributed exponentially.  For a uniform
u in (0, 1] it is -log(u) * interval.  The gap is the integer part of this
number.  The process is memoryless.  So a gap can be discarded and drawn again
at any moment that does not depend on the position of the next sampled byte:
after a sampled object, or when the interval changes.  This is why a large
object costs one draw and not a loop over all its sampled bytes.  For
estimates of totals, a sampled object represents s / p(s) bytes and 1 / p(s)
objects.

Fixed gaps (for experiments).  The bytes number interval - 1,
2 * interval - 1, ... are sampled.  The choice can alias with loops of the
program.

Sample point.  The nursery check compares nursery_free with nursery_top.  We
lower nursery_top to the next sampled byte, and the very same check also asks
"is a sample due?":

    nursery          nursery_free     nursery_top            real_top
       v                  v               v                      v
       +------------------+---------------+----------------------+
       | used             |      gap      |      empty           |
       +------------------+---------------+----------------------+
                ^                          ^
          counted_from                the sampled byte

Bump-pointer allocations in RPython code and in the JIT's code do not change
by one instruction.  collect_and_reserve() distinguishes the two reasons for a
failing check.  If the sampled byte is beyond this part of the nursery,
nursery_top keeps the GC's own value.  The gap then continues in the next
part, because it is a number of bytes and not an address.

The GC's own code reads nursery_top too: a pinned object may be there, and
memory pressure sets nursery_free to nursery_top.  For this reason the sample
point is *placed* only while the program runs.  All code of the GC that reads
or moves nursery_top or nursery_free *lifts* the sample point first, which
also counts the bytes since it was placed.  Afterwards, the GC places the
sample point again.

Objects larger than 'nonlarge_max', and objects with an old-style finalizer,
don't go through the nursery; external_malloc() reports them.

The GC knows nothing about profilers.  It calls two functions that the
profiler passes to rgc.start_allocation_sampling(); rlib/rgc.py defines their
types.  Neither may call the GC, which is in the middle of its work.

  sampled(size, address)      'size' bytes were reserved at 'address', GC
                              header included, and they are sampled.  The
                              object does not exist yet, so the memory must
                              not be read.  Returns a key > 0 to receive facts
                              about this object, 0 to receive none, or a
                              negative number to end the sampling.  May store
                              another interval > 0 into the totals, which is
                              valid from the end of this object on.
  fact(what, key, which, type, size, address)
                              a fact about an object of this key: see
                              sampled_objects.py.
"""
import sys
from rpython.rlib import rgc
from rpython.rlib.debug import ll_assert
from rpython.rlib.objectmodel import not_rpython
from rpython.rlib.rarithmetic import LONG_BIT, r_longlong, r_ulonglong
from rpython.rtyper.lltypesystem import lltype, llmemory, llarena, rffi
from rpython.rtyper.lltypesystem.llmemory import raw_malloc_usage
from rpython.translator.tool.cbuild import ExternalCompilationInfo

# Bytes.  The sum of an address and a gap must not overflow.
MAX_INTERVAL = 1 << (LONG_BIT - 2)

# ll_math.math_log() without its wrapper, which would release the GIL
c_log = rffi.llexternal('log', [rffi.DOUBLE], rffi.DOUBLE, _nowrapper=True,
                        sandboxsafe=True, random_effects_on_gcobjs=False,
                        compilation_info=ExternalCompilationInfo(
                            includes=['math.h'],
                            libraries=[] if sys.platform == 'win32' else ['m']))


class Sampler(object):
    """The choice of the sampled bytes in a stream of bytes, independent of
    the nursery."""
    _alloc_flavor_ = "raw"

    @not_rpython
    def __init__(self):
        self.interval = 0        # in bytes; 0 if there is no sampling
        self.gap = 0             # in bytes
        self.fixed = False
        self.random = r_ulonglong(0)

    def start(self, interval, seed, fixed):
        """Start a stream of bytes.  Equal seeds choose the same bytes."""
        self.random = r_ulonglong(seed)
        self.fixed = fixed
        self.set_interval(interval)

    def set_interval(self, interval):
        """Change the interval, and draw a new gap."""
        self.interval = interval
        self.draw()

    def next_random(self):
        """Return the next 64 bits of the generator."""
        # splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom
        # number generators", OOPSLA 2014
        self.random += r_ulonglong(0x9e3779b97f4a7c15)
        z = self.random
        z = (z ^ (z >> 30)) * r_ulonglong(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> 27)) * r_ulonglong(0x94d049bb133111eb)
        return z ^ (z >> 31)

    def draw(self):
        """Draw a new gap, which begins at the present position."""
        if self.fixed:
            self.gap = self.interval - 1
            return
        u = float(r_longlong(self.next_random() >> 11) + 1)
        u *= 1.0 / 9007199254740992.0        # 2**-53
        gap = -c_log(u) * float(self.interval)
        if gap < float(MAX_INTERVAL):
            self.gap = int(gap)
        else:
            self.gap = MAX_INTERVAL

    def pass_bytes(self, count):
        """Count 'count' allocated bytes, none of which is sampled."""
        ll_assert(0 <= count and count <= self.gap,
                  "a sampled byte was passed over")
        self.gap -= count

    def pass_object(self, size):
        """Count an object of 'size' bytes.  Return True if it is sampled."""
        if self.gap >= size:
            self.gap -= size
            return False
        if self.fixed:
            # the object may hold several sampled bytes: divide, don't loop
            tail = (size - self.gap) % self.interval
            self.gap = self.interval - tail if tail else 0
        else:
            self.draw()
        return True


class SamplePoint(Sampler):
    """The sample point of one GC.  Without sampling, 'interval' is 0, and the
    GC calls none of the methods below "called by the GC".
    """
    @not_rpython
    def __init__(self, objects):
        Sampler.__init__(self)
        self.counted_from = llmemory.NULL
        self.real_top = llmemory.NULL        # NULL if the point is lifted
        self.sampled = lltype.nullptr(rgc.ALLOCATION_SAMPLED.TO)
        self.totals = lltype.malloc(rgc.ALLOCATION_TOTALS.TO, flavor='raw',
                                    zero=True, immortal=True)
        self.objects = objects               # sampled_objects.SampledObjects

    # ---------- called by the program

    def begin(self, gc, interval, seed, fixed, sampled, fact):
        """Start the sampling.  Return the totals, which the GC updates.
        Return NULL if the interval is out of range."""
        if interval <= 0 or interval > MAX_INTERVAL:
            return lltype.nullptr(rgc.ALLOCATION_TOTALS.TO)
        self.stop(gc)
        self.sampled = sampled
        self.totals.interval = interval
        self.totals.allocated = 0
        self.totals.collections = 0
        self.objects.start(gc, seed, fixed, fact)
        self.start(interval, seed, fixed)
        self.place(gc)
        return self.totals

    def change(self, gc, interval):
        """Change the interval; 0 stops the sampling.  Return False if there
        is no sampling, or if the interval is out of range."""
        if self.interval == 0 or interval < 0 or interval > MAX_INTERVAL:
            return False
        if interval == 0:
            self.stop(gc)
        else:
            self.lift(gc, gc.nursery_free)
            self.set_interval(interval)
            self.totals.interval = interval
            self.place(gc)
        return True

    def stop(self, gc):
        """Stop the sampling, and free the tables of sampled objects."""
        if self.interval != 0:
            self.lift(gc, gc.nursery_free)
            self.interval = 0
        self.objects.clear()

    # ---------- called by the GC

    def place(self, gc):
        """Place the sample point, before the program continues."""
        if self.interval == 0:
            return       # sampled() has ended the sampling
        ll_assert(self.real_top == llmemory.NULL, "sample point placed twice")
        self.counted_from = gc.nursery_free
        self.real_top = gc.nursery_top
        room = llarena.getfakearenaaddress(gc.nursery_top) - gc.nursery_free
        if self.gap < room:
            gc.nursery_top = gc.nursery_free + self.gap

    def lift(self, gc, free):
        """Lift the sample point, before the GC works.  'free' is the end of
        the program's last object.  Does nothing if it is lifted already."""
        if self.real_top == llmemory.NULL:
            return
        gc.nursery_top = self.real_top
        self.real_top = llmemory.NULL
        count = free - self.counted_from
        self.pass_bytes(count)
        self.totals.allocated += count

    def reached(self, gc, totalsize):
        """Handle a failed check of a bump-pointer allocation of 'totalsize'
        bytes.  If the sample point was the reason, return the address of the
        bytes.  Otherwise lift the sample point, and return NULL."""
        ll_assert(self.real_top != llmemory.NULL, "sample point not placed")
        result = gc.nursery_free - totalsize
        self.lift(gc, result)
        if gc.nursery_free > gc.nursery_top:
            return llmemory.NULL
        self.allocated(gc, result, totalsize)
        return result
    reached._dont_inline_ = True

    def allocated(self, gc, address, totalsize):
        """Count, and perhaps sample, an object that was allocated while the
        sample point was lifted.  Then place the sample point again."""
        size = raw_malloc_usage(totalsize)
        self.totals.allocated += size
        offset = self.gap
        if self.pass_object(size):
            key = self.sampled(size, address)
            if key > 0:
                self.objects.wait(gc, address, key, size, offset,
                                  self.interval)
            elif key < 0:
                self.interval = 0
                self.objects.clear()
                return
            if self.totals.interval != self.interval:
                ll_assert(0 < self.totals.interval <= MAX_INTERVAL,
                          "sampled() stored an interval that can't be")
                self.set_interval(self.totals.interval)
        self.place(gc)
    allocated._dont_inline_ = True

    def collection_starts(self, gc):
        """Begin a minor collection.  All headers in the nursery are valid,
        and no object has moved."""
        self.totals.collections += 1
        self.objects.collection_starts(gc)
    collection_starts._dont_inline_ = True
