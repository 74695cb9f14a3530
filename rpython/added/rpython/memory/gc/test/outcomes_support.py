"""Base class of test_outcomes_*.py, the tests of sampled_outcomes.py.

The tests use a GC that is not translated.  They check the outcomes of young objects and
of old objects, and the size of the heap.
"""
from rpython.memory.gc.sampled_outcomes import (FACTS_BEGIN, FACTS_END, FACT_ENDED,
    FACT_MARKED, FACT_DIED, FACT_PROMOTED, FACT_PINNED, FACT_NOT_KNOWN, FACT_FREED,
    FACT_LOST, FACT_SHRUNK)
from rpython.memory.gc.test.sampling_support import BaseSamplingTest
from rpython.rtyper.lltypesystem import llmemory

# the outcomes of young objects
DIED, PROMOTED, PINNED, NOT_KNOWN = range(4)
OUTCOMES = {FACT_DIED: DIED, FACT_PROMOTED: PROMOTED, FACT_PINNED: PINNED,
            FACT_NOT_KNOWN: NOT_KNOWN}


class BaseOutcomesTest(BaseSamplingTest):
    """Collects the outcomes that the GC reports."""

    def setup_method(self, meth):
        BaseSamplingTest.setup_method(self, meth)
        self.class_of = None     # returns the class of the object at an address
        self.fates = []          # (key, type index, outcome)
        self.objects = []        # (key, which, size) of the objects in 'fates'
        self.classes = []        # classes of the objects in 'fates'
        self.freed = []          # (key, which)
        self.lost = []           # (key, which)
        self.addresses = []      # (key, which, address)
        self.shrunk = []         # (key, which, size)
        self.telling = None      # between FACTS_BEGIN and FACTS_END: a list with
                                 # FACT_ENDED or FACT_MARKED after it was reported
        self.hears = 1           # result of FACTS_BEGIN
        self.follows = 1         # result of the other facts except FACT_PINNED
        self.asks_again = 0      # result of FACT_PINNED; if 1, the fact is not noted

    def note(self, type, address):
        class_ = 0
        if self.class_of and address != llmemory.NULL:
            class_ = self.class_of(address)
        return 1000 * class_ + type

    def on_outcome(self, what, key, which, note, size, address):
        if what == FACTS_BEGIN:
            assert self.telling is None
            if self.hears:
                self.telling = []
            return self.hears
        assert self.telling is not None
        assert address == llmemory.NULL or what == FACT_PROMOTED
        if what == FACT_PINNED and self.asks_again:
            return 1
        if what == FACTS_END:
            self.telling = None
        elif what in OUTCOMES:
            type = (note + 1) % 1000 - 1
            assert (key, which, type, size) in self.found
            self.fates.append((key, type, OUTCOMES[what]))
            self.objects.append((key, which, size))
            self.classes.append((note - type) // 1000)
            if address != llmemory.NULL:
                self.addresses.append((key, which, address))
        elif what == FACT_FREED:
            assert FACT_MARKED in self.telling
            self.freed.append((key, which))
        elif what == FACT_LOST:
            self.lost.append((key, which))
        elif what == FACT_SHRUNK:
            self.shrunk.append((key, which, size))
        else:
            assert what in (FACT_ENDED, FACT_MARKED) and self.telling == []
            self.telling.append(what)
        return self.follows and what != FACT_PINNED
