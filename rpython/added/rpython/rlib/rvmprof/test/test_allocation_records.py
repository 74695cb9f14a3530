"""The statistics of allocation samples in a translated program, and its profile."""
import os

import py

from rpython.rlib import rvmprof
from rpython.rlib.rvmprof import cintf
from rpython.tool.udir import udir
from rpython.translator.c.test.test_genc import compile

INTERVAL = 2000                     # bytes
NODE = 16                           # size of a Node in bytes, with the GC's header


class Code(object):
    pass

class Node(object):
    def __init__(self, next):
        self.next = next


def make_program(path, counted):
    def get_name(code):
        return 'py:work:1:x.py'

    try:
        rvmprof.register_code_object_class(Code, get_name)
    except rvmprof.VMProfPlatformUnsupported as e:
        py.test.skip(str(e))
    if not cintf.has_allocations:
        py.test.skip("no allocation samples on this platform")

    @rvmprof.vmprof_execute_code("allocations", lambda code, count: code)
    def work(code, count):
        node = None
        for i in range(count):
            node = Node(node)
        return node

    def length(node):
        result = 0
        while node is not None:
            node = node.next
            result += 1
        return result

    def program():
        code = Code()
        rvmprof.register_code(code, get_name)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0666)
        rvmprof.enable(fd, 0.0, allocations="interval=%d;seed=1" % INTERVAL)
        kept = work(code, 100000)
        work(code, 300000)
        alive, peak = rvmprof.alive_allocation_bytes()
        counts = rvmprof.allocation_statistics()
        rvmprof.disable()
        os.close(fd)
        fd = os.open(counted, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0666)
        os.write(fd, "%d %d %d %d" % (counts[0], counts[2], int(alive), int(peak)))
        os.close(fd)
        return length(kept)

    return program


def test_what_is_counted():
    path = str(udir.join("test_allocation_records"))
    counted = str(udir.join("test_allocation_records.counted"))
    program = make_program(path, counted)
    assert compile(program, [], gcpolicy="incminimark")() == 100000
    with open(counted) as f:
        allocated, samples, alive, peak = map(int, f.read().split())
    assert allocated >= 400000 * NODE
    # the number of samples has a Poisson distribution with a fixed seed
    expected = allocated / float(INTERVAL)
    assert abs(samples - expected) < 5 * expected ** 0.5
    # live samples: objects that are kept, and promoted objects not freed yet
    expected = 100000 * NODE / float(INTERVAL)
    assert alive > (expected - 5 * expected ** 0.5) * INTERVAL
    assert alive <= peak < allocated * 1.1
    with open(path, "rb") as f:
        data = f.read()
    assert data[5 * 8] == "\x05"        # vmprof's header and trailer
    assert data[-25] == "\x03"
