"""A pytest plugin for RPython's own tests: every incminimark samples.

Runs on Python 2.7.  Each GC begins to sample when it was set up, about every
100 bytes, whether it is simulated or will be translated.  What the tests say
of the GC must hold all the same.
"""
from rpython.memory.gc.incminimark import IncrementalMiniMarkGC
from rpython.memory.support import DEFAULT_CHUNK_SIZE
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llmemory

original_setup = IncrementalMiniMarkGC.setup.im_func


class Remembered(object):
    """Of how many objects the GC keeps the addresses.

    As many as the list has room for from the beginning.  A longer one takes
    memory from malloc() in large pieces, and test_limited_memory_linux, which
    ends for lack of memory, then can't even print why.
    """
    most = DEFAULT_CHUNK_SIZE // 2
    count = 0


remembered = Remembered()


def sampled(size, address):
    if remembered.count == remembered.most:
        return 0
    remembered.count += 1
    return 1


def collected(key, type, survived):
    remembered.count -= 1


def setup(self):
    remembered.count = 0
    # the tests of one class set the same GC up again and again
    self.sample_point.interval = 0
    self.sample_point.real_top = llmemory.NULL
    original_setup(self)
    self.start_allocation_sampling(
        100, 1, False, llhelper(rgc.ALLOCATION_SAMPLED, sampled),
        llhelper(rgc.ALLOCATION_COLLECTED, collected))


IncrementalMiniMarkGC.setup = setup
