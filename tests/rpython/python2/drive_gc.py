"""Perform operations on RPython's real incminimark, untranslated.

test_rpython_gc.py runs this script on Python 2.7, with a patched RPython tree on
its path.  The script reads JSON from stdin: a list of traces, each with the GC's
parameters and a list of operations.  For each trace, it writes JSON to stdout:
the events in the form of oracle.py, the samples that the GC reported, the
reported and the true outcomes of the sampled objects, and the GC's counts.

An operation is a list of a name and arguments, as follows.  A number I is an
index of an object in a list, modulo the length of the list.

    start INTERVAL SEED FIXED FOLLOWS   stop            rate INTERVAL
    node        an object with two pointers (and unused words)
    small       an object of the minimal size
    chars N     an array of N characters; large ones don't go to the nursery
    fixed N     an array of N characters that can never move
    weakref     a weakref to the newest held object; ignored if nothing is held
    destructor  an object with a light finalizer
    finalizer   an object with an old-style finalizer, which allocates N characters
    collect GENERATION              pressure BYTES
    keep I      hold the I-th object of the last allocation
    drop I      forget the I-th object that is held
    pin I       unpin I             shrink I
"""
from __future__ import print_function

import json
import sys

from rpython.memory.gc.incminimark import IncrementalMiniMarkGC
from rpython.memory.gc.test.test_direct import BaseDirectGCTest, S
from rpython.memory.gc.sampled_objects import (FACT_STARTED, FACT_OBJECT,
    FACT_FOUND)
from rpython.memory.gc.sampled_outcomes import (FACTS_BEGIN, FACTS_END,
    FACT_ENDED, FACT_MARKED, FACT_FREED, FACT_SHRUNK)
from rpython.memory.gc.test.outcomes_support import (OUTCOMES, DIED, PROMOTED,
    PINNED, NOT_KNOWN)
from rpython.memory.gc.test.sampling_support import make_piece, memory_pressure
from rpython.memory.gctypelayout import WEAKREF
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llarena, llmemory, lltype

SMALL = lltype.GcStruct('SMALL', ('x', lltype.Signed))
DESTROYED = lltype.GcStruct('DESTROYED', ('x', lltype.Signed),
                            ('y', lltype.Signed))
FINALIZED = lltype.GcStruct('FINALIZED', ('x', lltype.Signed))
CHARS = lltype.GcArray(lltype.Char)

HEADER = WORD = 8


def is_total_size(offset):
    while isinstance(offset, llarena.RoundedUpForAllocation):
        offset = offset.basesize
    return (isinstance(offset, llmemory.CompositeOffset)
            and isinstance(offset.offsets[0], llmemory.GCHeaderOffset))


def add(address, other, original=llarena.fakearenaaddress.__add__.im_func):
    """Add a size to an address of the simulated memory.

    If another object begins at the result, the simulated memory returns a guess.
    The GC adds to nursery_free, which may be directly before a pinned object.
    """
    if is_total_size(other):
        other = llmemory.raw_malloc_usage(other)
    return original(address, other)


llarena.fakearenaaddress.__add__ = add


def rounded(size):
    return (size + WORD - 1) // WORD * WORD


class Run(object):
    def __init__(self, parameters):
        test = self.test = BaseDirectGCTest()
        test.GCClass = IncrementalMiniMarkGC
        test.GC_PARAMS = dict(parameters)
        tiny = test.GC_PARAMS.pop('tiny', -1)
        debug = test.GC_PARAMS.pop('debug', False)
        test.setup_method(None)
        self.gc = test.gc
        self.gc.DEBUG = 2
        self.gc.max_number_of_pinned_objects = 20
        self.gc.debug_tiny_nursery = tiny
        self.gc.gc_nursery_debug = debug
        self.gc.call_destructor = self.destructor
        self.finalizer_chars = 0
        self.total_before = 0
        self.totals = None
        self.events = []
        self.samples = []
        self.facts = []
        self.counted = []
        self.pending = []
        self.allocations = 0
        # An object is a pair: the number of its allocation, and its index in a batch.
        self.last = []                  # (object, pointer)
        self.held = []                  # objects, in the order of the roots
        self.pinned = []                # objects
        self.ever_pinned = set()
        self.shrunk_to = []             # sizes in FACT_SHRUNK before the next outcome
        self.live_sizes = {}            # object -> bytes, if it was shrunk
        self.types = {}                 # number -> types of the parts
        self.immortal = set()           # old from the beginning
        self.sampled = llhelper(rgc.ALLOCATION_SAMPLED, self.on_sampled)
        self.fact = llhelper(rgc.ALLOCATION_FACT, self.on_fact)
        self.types_found = {}           # result of FACT_OBJECT -> (key, which, type)

    # ________________________________________
    # the functions that the GC calls

    def on_sampled(self, size, address):
        assert address
        interval = self.totals.interval
        self.pending.append([size, interval])
        if self.follows:
            # the same formula as oracle.next_interval()
            self.totals.interval = (interval * 5 + size) % 10007 + 1
        # Allocations return in the order in which their memory was reserved.
        return self.allocations + 1

    def on_fact(self, what, key, which, value, size, address):
        if what == FACT_OBJECT:
            assert value == (-1 if address == llmemory.NULL else
                             self.type_index(self.gc.get_type_id(address)))
            # The GC passes the result back with the outcome of the object.
            self.types_found[len(self.types_found) + 1] = key, which, value
            return len(self.types_found)
        if what in OUTCOMES:
            outcome = OUTCOMES[what]
            found = self.types_found[value]
            assert found[:2] == (key, which)
            type = found[2]
            if outcome == PINNED:
                # Like the profiler, let the GC report a pinned object again, except
                # if it is a part of a batch.
                if size == 0:
                    return 1
                outcome = NOT_KNOWN
            # Add the true outcomes of all parts of the batch.
            parts = range(len(self.types[key]))
            shrunk_to, self.shrunk_to = self.shrunk_to, []
            self.facts.append(['young', key, which, outcome, type, size,
                               self.types[key],
                               [self.truth((key, part)) for part in parts],
                               [self.live_sizes.get((key, part), 0)
                                for part in parts], shrunk_to])
            return outcome == PROMOTED
        elif what == FACT_SHRUNK:
            assert not self.shrunk_to
            self.shrunk_to = [key, which, size]
        elif what == FACT_FREED:
            self.facts.append(['freed', key, which,
                               [part for number, part in self.held
                                if number == key]])
        else:
            assert what in (FACT_STARTED, FACT_FOUND, FACTS_BEGIN, FACTS_END,
                            FACT_ENDED, FACT_MARKED)
        return 1

    def truth(self, obj):
        if obj in self.pinned:
            return PINNED
        if obj in self.held or obj in self.immortal:
            return PROMOTED
        return DIED

    def destructor(self, obj):
        if (self.finalizer_chars and
                self.type_index(self.gc.get_type_id(obj)) ==
                self.type_index(self.test.get_type_id(FINALIZED))):
            self.op_chars(self.finalizer_chars)

    # ________________________________________

    def type_index(self, type_id):
        return self.gc.get_member_index(type_id)

    def allocated(self, TYPE, size, pointer):
        self.piece_allocated([(TYPE, size)], [pointer])

    def piece_allocated(self, parts, pointers):
        self.allocations += 1
        number = self.allocations
        size = sum(size for _, size in parts)
        self.types[number] = [
            -1 if TYPE is None else
            self.type_index(self.test.get_type_id(TYPE)) for TYPE, _ in parts]
        self.events.append(['allocation', number, size,
                            [size for _, size in parts]])
        assert len(self.pending) <= 1, "sampled more than once"
        if self.pending:
            self.samples.append([number] + self.pending.pop())
        self.last = [((number, part), pointer)
                     for part, pointer in enumerate(pointers)]

    def fixedsize(self, TYPE, finalizer=False, light=False):
        type_id = self.test.get_type_id(TYPE)
        size = self.gc.fixed_size(type_id)
        ref = self.gc.malloc_fixedsize(type_id, size, finalizer, light, False)
        return lltype.cast_opaque_ptr(lltype.Ptr(TYPE), ref)

    def op_node(self):
        self.allocated(S, HEADER + 3 * WORD, self.test.malloc(S))

    def op_small(self):
        self.allocated(SMALL, HEADER + WORD, self.test.malloc(SMALL))

    def op_chars(self, n):
        p = self.test.malloc(CHARS, n)
        self.allocated(CHARS, rounded(HEADER + WORD + n), p)

    def op_fixed(self, n):
        ref = self.gc.malloc_fixed_or_varsize_nonmovable(
            self.test.get_type_id(CHARS), n)
        p = lltype.cast_opaque_ptr(lltype.Ptr(CHARS), ref)
        self.allocated(CHARS, rounded(HEADER + WORD + n), p)

    def op_weakref(self):
        if not self.held:
            return
        p = self.test.malloc(WEAKREF)
        p.weakptr = llmemory.cast_ptr_to_adr(self.test.stackroots[-1])
        self.allocated(WEAKREF, HEADER + WORD, p)

    def op_destructor(self):
        p = self.fixedsize(DESTROYED, finalizer=True, light=True)
        self.allocated(DESTROYED, HEADER + 2 * WORD, p)

    def op_finalizer(self, n):
        self.finalizer_chars = n
        p = self.fixedsize(FINALIZED, finalizer=True)
        self.allocated(FINALIZED, HEADER + WORD, p)
        self.immortal.add((self.allocations, 0))

    def op_piece(self, operations, made):
        kinds = []
        total = 0
        for operation in operations:
            kind = self.kind(*operation)
            # the JIT's limit for a batch
            if total + kind[2] > self.gc.nonlarge_max:
                break
            total += kind[2]
            kinds.append(kind)
        pointers = make_piece(self.test, kinds[:made], total)
        parts = [(TYPE, size) for TYPE, _, size in kinds[:made]]
        if made < len(kinds):
            parts.append((None, sum(size for _, _, size in kinds[made:])))
        self.piece_allocated(parts, pointers)

    def kind(self, name, n=0):
        if name == 'node':
            return S, 0, HEADER + 3 * WORD
        if name == 'small':
            return SMALL, 0, HEADER + WORD
        return CHARS, n, rounded(HEADER + WORD + n)

    # ________________________________________

    def op_start(self, interval, seed, fixed, follows):
        self.follows = follows
        self.totals = self.gc.start_allocation_sampling(
            interval, seed, fixed, self.sampled, self.fact)
        assert self.totals
        self.total_before = len(self.events)
        self.events.append(['start', interval, seed, fixed, follows])
        self.facts.append(['start'])

    def op_stop(self):
        running = self.gc.sample_point.interval != 0
        assert self.gc.set_allocation_interval(0) == running
        if running:
            self.count()
        self.events.append(['stop'])

    def op_rate(self, interval):
        if self.gc.set_allocation_interval(interval):
            self.events.append(['rate', interval])

    def count(self):
        """Store the bytes that the GC counted since the start, and the true bytes."""
        truth = sum(event[2] for event in self.events[self.total_before:]
                    if event[0] == 'allocation')
        self.counted.append([self.totals.allocated, truth])

    def op_collect(self, generation):
        self.gc.collect(generation)
        self.last = []          # A finalizer may have allocated the last object.
        self.events.append(['collection'])

    def op_pressure(self, size):
        memory_pressure(self.gc, size)

    def op_keep(self, i):
        if self.last:
            obj, pointer = self.last.pop(i % len(self.last))
            self.held.append(obj)
            self.test.stackroots.append(pointer)

    def op_drop(self, i):
        if self.held:
            i %= len(self.held)
            obj = self.held[i]
            if obj in self.pinned:
                self.op_unpin(self.pinned.index(obj))
            del self.held[i], self.test.stackroots[i]

    def op_pin(self, i):
        if self.held:
            i %= len(self.held)
            obj = llmemory.cast_ptr_to_adr(self.test.stackroots[i])
            if self.held[i] not in self.live_sizes and self.gc.pin(obj):
                self.pinned.append(self.held[i])
                self.ever_pinned.add(self.held[i])

    def op_unpin(self, i):
        if self.pinned:
            obj = self.pinned.pop(i % len(self.pinned))
            root = self.test.stackroots[self.held.index(obj)]
            self.gc.unpin(llmemory.cast_ptr_to_adr(root))

    def op_shrink(self, i):
        if self.held:
            i %= len(self.held)
            root = self.test.stackroots[i]
            # The simulated memory cannot shrink objects that are or were pinned.
            if (lltype.typeOf(root) == lltype.Ptr(CHARS) and len(root) > 8
                    and self.held[i] not in self.ever_pinned):
                n = len(root) // 2
                if self.gc.shrink_array(llmemory.cast_ptr_to_adr(root), n):
                    self.live_sizes[self.held[i]] = rounded(HEADER + WORD + n)

    def run(self, operations):
        for operation in operations:
            getattr(self, 'op_' + operation[0])(*operation[1:])
        # The GC frees a dead object with a finalizer in the second collection.
        for i in range(3):
            self.op_collect(2)
        if self.gc.sample_point.interval != 0:
            self.facts.append(['end', self.held, self.pinned])
        self.op_stop()
        assert self.gc.nursery_top == self.gc.nursery + self.gc.nursery_size \
            or self.gc.nursery_barriers.non_empty(), "a sample point was left"
        return {'events': self.events, 'samples': self.samples,
                'facts': self.facts, 'counted': self.counted}


if __name__ == '__main__':
    json.dump([Run(trace['parameters']).run(trace['operations'])
               for trace in json.load(sys.stdin)], sys.stdout)
