"""What the tests of what becomes of sampled objects share: see test_outcomes_*.py.

They are of sampled_outcomes.py in a GC that is not translated: of young objects, of
old ones, and of the size of the heap.
"""
from rpython.memory.gc.sampled_outcomes import (FACTS_BEGIN, FACTS_END, FACT_ENDED,
    FACT_MARKED, FACT_DIED, FACT_PROMOTED, FACT_PINNED, FACT_NOT_KNOWN, FACT_FREED,
    FACT_LOST, FACT_SHRUNK)
from rpython.memory.gc.test.sampling_support import BaseSamplingTest
from rpython.rtyper.lltypesystem import llmemory

# what became of a young object
DIED, PROMOTED, PINNED, NOT_KNOWN = range(4)
OUTCOMES = {FACT_DIED: DIED, FACT_PROMOTED: PROMOTED, FACT_PINNED: PINNED,
            FACT_NOT_KNOWN: NOT_KNOWN}


class BaseOutcomesTest(BaseSamplingTest):

    def setup_method(self, meth):
        BaseSamplingTest.setup_method(self, meth)
        self.class_of = None     # a function of an address, for the profiler to ask
        self.fates = []          # (key, type, outcome)
        self.objects = []        # (key, which, size), beside 'fates'
        self.classes = []        # likewise
        self.freed = []          # (key, which)
        self.lost = []           # (key, which)
        self.addresses = []      # (key, which, address)
        self.shrunk = []         # (key, which, size)
        self.telling = None      # FACT_ENDED or FACT_MARKED, in between
        self.hears = 1           # what FACTS_BEGIN answers
        self.follows = 1         # what the others answer,
        self.asks_again = 0      # and FACT_PINNED, which is not noted if it is 1

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
