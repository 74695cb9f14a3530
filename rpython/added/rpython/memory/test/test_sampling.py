"""Allocation sampling in RPython programs: the functions in rlib/rgc.py,
with GCs that can sample and with other GCs.
memory/gc/test/test_sampling_*.py test the samples in detail.
"""
import py
from rpython.memory import gcwrapper
from rpython.memory.gc.sampled_objects import FACT_OBJECT
from rpython.memory.gctransform import shadowstack
from rpython.memory.test import test_transformed_gc
from rpython.memory.test.test_transformed_gc import WORD
from rpython.rlib import rgc
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llmemory, lltype
from rpython.rtyper.test.test_llinterp import get_interpreter
from rpython.translator.c import gc


class Node(object):
    def __init__(self, next):
        self.next = next

# Raw memory, because a function in the llinterp and the callbacks of a GC in plain
# Python have no other memory in common.
COUNTERS = lltype.Struct('counters',
    ('samples', lltype.Signed), ('bytes', lltype.Signed),
    ('last_key', lltype.Signed), ('reports', lltype.Signed),
    ('wrong_reports', lltype.Signed), ('answer', lltype.Signed))
counters = lltype.malloc(COUNTERS, flavor='raw', immortal=True, zero=True)

def sampled(size, address):
    counters.samples += 1
    counters.bytes += size
    if counters.answer != 0:
        return counters.answer
    counters.last_key += 10
    return counters.last_key

def fact(what, key, which, type, size, address):
    if what == FACT_OBJECT:
        counters.reports += 1
        # a fact without a type is about the rest of a piece, without objects
        if not (0 < key <= counters.last_key and key % 10 == 0 and which >= 0 and
                (type > 0) == (address != llmemory.NULL)):
            counters.wrong_reports += 1
    return 1

def start(interval, seed, fixed):
    counters.samples = 0
    counters.bytes = 0
    counters.last_key = 0
    counters.reports = 0
    counters.wrong_reports = 0
    counters.answer = 0
    return rgc.start_allocation_sampling(
        interval, seed, fixed, llhelper(rgc.ALLOCATION_SAMPLED, sampled),
        llhelper(rgc.ALLOCATION_FACT, fact))

def make_list(count):
    node = None
    for i in range(count):
        node = Node(node)
    return node


def keep_alive(node):
    count = 0
    while node is not None:
        node = node.next
        count += 1
    return count == 40


def uses_all():
    """Return 0, or the number of the failed check."""
    if rgc.set_allocation_interval(1000):
        return 1
    if start(0, 0, True):
        return 2
    totals = start(1, -12345, True)
    if not totals:
        return 3
    if totals.interval != 1:
        return 4
    keep = make_list(40)
    make_list(60)
    if counters.samples < 100:
        return 5
    if counters.bytes != totals.allocated:
        return 6
    # fewer objects are sampled at a larger interval
    if not rgc.set_allocation_interval(64):
        return 7
    samples = counters.samples
    allocated = totals.allocated
    make_list(100)
    if not samples < counters.samples < samples + 100:
        return 8
    if totals.allocated == allocated:
        return 9
    # an invalid interval changes nothing
    if rgc.set_allocation_interval(-1):
        return 10
    if totals.interval != 64:
        return 11
    samples = counters.samples
    rgc.collect()
    # all sampled objects were reported
    if counters.reports < samples or counters.wrong_reports != 0:
        return 12
    if not keep_alive(keep):
        return 13
    if totals.collections == 0:
        return 14
    # the next sampling has exponential gaps
    totals = start(100, 1, False)
    make_list(100)
    if not 0 < counters.samples < 100:
        return 15
    if not rgc.set_allocation_interval(0):
        return 16
    samples = counters.samples
    reports = counters.reports
    make_list(100)
    rgc.collect()
    if counters.samples != samples or counters.reports != reports:
        return 17
    if rgc.set_allocation_interval(0):
        return 18
    # the result of sampled() ends the sampling
    start(1, 0, True)
    counters.answer = -1
    make_list(10)
    if counters.samples != 1 or rgc.set_allocation_interval(1):
        return 19
    return 0

def cannot_sample():
    if start(1000, 42, False):
        return 1
    if start(1, 0, True):
        return 2
    if rgc.set_allocation_interval(1000):
        return 3
    if rgc.set_allocation_interval(0):
        return 4
    make_list(100)
    rgc.collect()
    if counters.samples != 0 or counters.reports != 0:
        return 5
    return 0


def test_not_translated():
    totals = start(1000, 42, False)
    assert lltype.typeOf(totals) == rgc.ALLOCATION_TOTALS
    assert not totals
    assert rgc.set_allocation_interval(1000) is False
    assert cannot_sample() == 0

def test_llinterp_without_gc():
    interp, graph = get_interpreter(cannot_sample, [])
    assert interp.eval_graph(graph, []) == 0


class TestDirect(object):
    """The llinterp runs the program with a GC in plain Python."""

    def interpret(self, func, GCClass, GC_PARAMS={}):
        interp, graph = get_interpreter(func, [])
        gcwrapper.prepare_graphs_and_create_gc(interp, GCClass, GC_PARAMS)
        return interp.eval_graph(graph, [])

    def test_incminimark(self):
        from rpython.memory.gc.incminimark import IncrementalMiniMarkGC
        assert self.interpret(uses_all, IncrementalMiniMarkGC) == 0

    def test_incminimark_card_marking(self):
        from rpython.memory.gc.incminimark import IncrementalMiniMarkGC
        assert self.interpret(uses_all, IncrementalMiniMarkGC,
                              {'card_page_indices': 4}) == 0

    def test_minimark(self):
        from rpython.memory.gc.minimark import MiniMarkGC
        assert self.interpret(cannot_sample, MiniMarkGC) == 0

    def test_semispace(self):
        from rpython.memory.gc.semispace import SemiSpaceGC
        assert self.interpret(cannot_sample, SemiSpaceGC) == 0

    def test_generation(self):
        from rpython.memory.gc.generation import GenerationGC
        assert self.interpret(cannot_sample, GenerationGC) == 0

    def test_hybrid(self):
        from rpython.memory.gc.hybrid import HybridGC
        assert self.interpret(cannot_sample, HybridGC) == 0


class TransformedTest(test_transformed_gc.GCTest):
    """The llinterp runs the program, the GC and the callbacks."""

    def define_program(cls):
        program = cls.program
        def f():
            return program()
        return f

    def test_program(self):
        run = self.runner("program")
        assert run([]) == 0

class TestTransformedIncrementalMiniMarkGC(TransformedTest):
    gcname = "incminimark"
    program = staticmethod(uses_all)

    class gcpolicy(gc.BasicFrameworkGcPolicy):
        class transformerclass(shadowstack.ShadowStackFrameworkGCTransformer):
            from rpython.memory.gc.incminimark import IncrementalMiniMarkGC \
                                                      as GCClass
            GC_PARAMS = {'nursery_size': 32*WORD,
                         'page_size': 16*WORD,
                         'arena_size': 64*WORD,
                         'small_request_threshold': 5*WORD,
                         'large_object': 8*WORD,
                         'card_page_indices': 4,
                         'translated_to_c': False,
                         }
            root_stack_depth = 200

class TestTransformedSemiSpaceGC(TransformedTest):
    gcname = "semispace"
    program = staticmethod(cannot_sample)

    class gcpolicy(gc.BasicFrameworkGcPolicy):
        class transformerclass(shadowstack.ShadowStackFrameworkGCTransformer):
            from rpython.memory.gc.semispace import SemiSpaceGC as GCClass
            GC_PARAMS = {'space_size': 8192*WORD,
                         'translated_to_c': False}
            root_stack_depth = 200


class TestC(object):
    def run(self, program, gcpolicy):
        from rpython.translator.c.test.test_genc import compile
        return compile(program, [], gcpolicy=gcpolicy)()

    def test_incminimark(self):
        assert self.run(uses_all, "incminimark") == 0

    def test_minimark(self):
        assert self.run(cannot_sample, "minimark") == 0

    def test_reference_counting(self):
        assert self.run(cannot_sample, "ref") == 0

    def test_boehm(self):
        from rpython.rtyper.tool.rffi_platform import configure_boehm
        from rpython.translator.platform import CompilationError
        try:
            configure_boehm()
        except CompilationError:
            py.test.skip("Boehm GC not present")
        assert self.run(cannot_sample, "boehm") == 0
