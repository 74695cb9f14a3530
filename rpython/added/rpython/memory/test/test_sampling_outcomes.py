"""The outcomes of sampled objects in RPython programs.
memory/gc/test/test_outcomes_*.py test the reports in detail.
"""
from rpython.memory.gc.incminimark import IncrementalMiniMarkGC
from rpython.memory.gc.sampled_objects import FACT_OBJECT
from rpython.memory.gc.sampled_outcomes import (FACT_DIED, FACT_PROMOTED,
    FACT_NOT_KNOWN, FACT_FREED)
from rpython.memory.test.test_sampling import (TestC as BaseC,
    TestDirect as BaseDirect,
    TestTransformedIncrementalMiniMarkGC as BaseTransformed, keep_alive, make_list)
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import lltype

# raw memory: see test_sampling.py
COUNTERS = lltype.Struct('outcomes',
    ('samples', lltype.Signed), ('notes', lltype.Signed),
    ('outcomes', lltype.Signed), ('wrong', lltype.Signed),
    ('survivors', lltype.Signed), ('freed', lltype.Signed))
counters = lltype.malloc(COUNTERS, flavor='raw', immortal=True, zero=True)

def sampled(size, address):
    counters.samples += 1
    return counters.samples

def fact(what, key, which, value, size, address):
    if what == FACT_OBJECT:
        counters.notes += 1
        return counters.notes
    if what == FACT_FREED:
        counters.freed += 1
    elif FACT_DIED <= what <= FACT_NOT_KNOWN:
        counters.outcomes += 1
        if not 0 < key <= counters.samples or not 0 < value <= counters.notes:
            counters.wrong += 1
        if what == FACT_PROMOTED:
            counters.survivors += 1
    return 1

def follows_all():
    """Return 0, or the number of the failed check."""
    counters.samples = counters.notes = counters.outcomes = counters.wrong = 0
    counters.survivors = counters.freed = 0
    totals = rgc.start_allocation_sampling(
        1, 1, True, llhelper(rgc.ALLOCATION_SAMPLED, sampled),
        llhelper(rgc.ALLOCATION_FACT, fact))
    if not totals or totals.heap <= 0:
        return 1
    keep = make_list(40)
    make_list(60)
    rgc.collect()
    if counters.outcomes < 100 or counters.wrong != 0:
        return 2
    if not 40 <= counters.survivors < counters.outcomes:
        return 3
    rgc.collect()
    # the list that is kept alive was not freed
    if counters.survivors - counters.freed < 40:
        return 4
    if not keep_alive(keep):
        return 5
    keep = None
    rgc.collect()
    if counters.survivors != counters.freed:
        return 6
    if totals.collections == 0 or totals.memory == 0:
        return 7
    return 0 if rgc.set_allocation_interval(0) else 8


class TestDirect(object):
    def test_incminimark(self):
        assert BaseDirect().interpret(follows_all, IncrementalMiniMarkGC) == 0

class TestTransformed(BaseTransformed):
    program = staticmethod(follows_all)

class TestC(object):
    def test_incminimark(self):
        assert BaseC().run(follows_all, "incminimark") == 0
