"""A pytest plugin for RPython's own tests: every incminimark samples.

Runs on Python 2.7.  Each GC begins to sample when it was set up, about every
100 bytes, whether it is simulated or will be translated.  What the tests say
of the GC must hold all the same.
"""
from rpython.memory.gc.incminimark import IncrementalMiniMarkGC
from rpython.memory.gc.sampled_outcomes import (FACT_DIED, FACT_PROMOTED,
    FACT_NOT_KNOWN, FACT_FREED)
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llmemory, lltype

original_setup = IncrementalMiniMarkGC.setup.im_func


class Remembered(object):
    """Of how many objects the GC knows the addresses.

    As many as its tables have room for when they have some.  Larger ones take
    memory from malloc() in large pieces, and test_limited_memory_linux, which
    ends for lack of memory, then can't even print why.
    """
    most = 64
    waiting = 0
    tracked = 0


remembered = Remembered()


def sampled(size, address):
    if remembered.waiting == remembered.most:
        return 0
    remembered.waiting += 1
    return 1


def fact(what, key, which, note, size, address):
    if which == 0 and FACT_DIED <= what <= FACT_NOT_KNOWN:
        remembered.waiting -= 1
    if what == FACT_PROMOTED:
        if remembered.tracked == remembered.most:
            return 0
        remembered.tracked += 1
    elif what == FACT_FREED:
        remembered.tracked -= 1
    return 1


def setup(self):
    remembered.waiting = remembered.tracked = 0
    # the tests of one class set the same GC up again and again
    self.sample_point.interval = 0
    self.sample_point.real_top = llmemory.NULL
    self.sample_point.objects.waiting.length = 0
    self.sample_point.objects.tracked.length = 0
    original_setup(self)
    self.start_allocation_sampling(
        100, 1, False, llhelper(rgc.ALLOCATION_SAMPLED, sampled),
        llhelper(rgc.ALLOCATION_FACT, fact))


IncrementalMiniMarkGC.setup = setup
