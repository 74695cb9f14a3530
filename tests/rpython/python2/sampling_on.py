"""A pytest plugin for RPython's own tests: every incminimark samples.

Runs on Python 2.7.  After its setup, each GC begins to sample about every 100
bytes, whether the GC is simulated or will be translated.  RPython's tests of the GC
have to pass nevertheless.
"""
from rpython.memory.gc.incminimark import IncrementalMiniMarkGC
from rpython.memory.gc.sampled_outcomes import (FACT_DIED, FACT_PROMOTED,
    FACT_NOT_KNOWN, FACT_FREED)
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llmemory, lltype

original_setup = IncrementalMiniMarkGC.setup.im_func


class Remembered(object):
    """A count of the sampled objects whose addresses the GC stores, with a limit.

    The limit is the first size of the GC's tables.  Larger tables need large blocks
    from malloc().  With them, test_limited_memory_linux, which runs out of memory,
    could not print the reason.
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
    # The tests of a class set the same GC up several times.
    self.sample_point.interval = 0
    self.sample_point.real_top = llmemory.NULL
    self.sample_point.objects.waiting.length = 0
    self.sample_point.objects.tracked.length = 0
    original_setup(self)
    self.start_allocation_sampling(
        100, 1, False, llhelper(rgc.ALLOCATION_SAMPLED, sampled),
        llhelper(rgc.ALLOCATION_FACT, fact))


IncrementalMiniMarkGC.setup = setup
