"""Allocation sampling in a program with a JIT.  Its machine code uses the same
nursery_top as the program, and may reserve memory for several objects at once.
"""
from rpython.jit.backend.llsupport.test.zrpy_gc_test import compile
from rpython.memory.test.test_sampling import counters, start
from rpython.rlib import rgc
from rpython.rlib.jit import JitDriver


class Node(object):
    def __init__(self, next, value):
        self.next = next
        self.value = value

driver = JitDriver(greens=[], reds=['n', 'total', 'keep'])

def loop(n):
    # single and consecutive objects, arrays of constant and variable length,
    # strings
    keep = None
    total = 0
    while n > 0:
        driver.jit_merge_point(n=n, total=total, keep=keep)
        if n % 100 == 0:
            keep = None
        keep = Node(Node(keep, n), n + 1)
        array = [n] * (n & 15)
        fixed = [n, n + 1]
        keep.value += len(array) + fixed[n & 1]
        total += keep.next.value + keep.value + len("x" * (n & 7))
        n -= 1
    return total

def entry_point(argv):
    """Print 'ok', or the number of the failed check."""
    count = 20000
    expected = loop(count)      # compiles the loop
    #
    totals = start(1, 42, True)
    if loop(count) != expected:
        print 1
        return 0
    if totals.allocated < count * 64 or totals.collections == 0:
        print 2
        return 0
    # each byte is a sample point, so each reserved piece of memory is a sample
    if counters.bytes > totals.allocated:
        print 3
        return 0
    # all bytes are counted, because no allocation follows the last sample
    if counters.bytes != totals.allocated:
        print 4
        return 0
    rgc.collect()
    if counters.reports < count or counters.wrong_reports != 0:
        print 5
        return 0
    #
    for interval in [64, 1000, 4096, 100000]:
        for fixed in [True, False]:
            totals = start(interval, 42, fixed)
            if loop(count) != expected:
                print 6
                return 0
            samples = counters.samples
            # a point that moves on by itself ends the sampling here
            rgc.set_allocation_interval(0)
            due = totals.allocated // interval
            if samples > due + due // 8 + 40 or samples == 0:
                print 7, interval, samples, due
                return 0
            if interval >= 4096 and fixed and not due - 1 <= samples <= due:
                print 8, interval, samples, due
                return 0
    #
    samples = counters.samples
    if loop(count) != expected or counters.samples != samples:
        print 9
        return 0
    print "ok"
    return 0


def test_sampling_with_jit():
    built = compile(entry_point, "incminimark", gcrootfinder="shadowstack",
                    jit=True)
    assert built.cmdexec("", env=None) == "ok\n"
