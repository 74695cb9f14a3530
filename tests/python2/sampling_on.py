"""A pytest plugin for RPython's own tests: every incminimark samples.

Runs on Python 2.7.  Each GC begins to sample when it was set up, about every
100 bytes, whether it is simulated or will be translated.  What the tests say
of the GC must hold all the same.
"""
from rpython.memory.gc.incminimark import IncrementalMiniMarkGC
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llmemory

original_setup = IncrementalMiniMarkGC.setup.im_func


def sampled(size, address):
    return 1


def collected(key, type, survived):
    pass


def setup(self):
    # the tests of one class set the same GC up again and again
    self.sample_point.interval = 0
    self.sample_point.real_top = llmemory.NULL
    original_setup(self)
    self.start_allocation_sampling(
        100, 1, False, llhelper(rgc.ALLOCATION_SAMPLED, sampled),
        llhelper(rgc.ALLOCATION_COLLECTED, collected))


IncrementalMiniMarkGC.setup = setup
