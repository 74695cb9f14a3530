"""Print the machine code that the JIT's backend makes for allocations.

test_rpython_unchanged.py runs this script on Python 2.7, with an RPython tree on
its path.  It assembles each kind of allocation operation into a loop, like the
backend's own tests.  It prints JSON: the bytes in hexadecimal and the address of
each piece of machine code, helpers included, and the address of nursery_free.
"""
from __future__ import print_function

import ctypes
import json
import sys

from rpython.jit.backend.detect_cpu import getcpuclass
from rpython.jit.backend.llsupport import asmmemmgr
from rpython.jit.backend.llsupport.test.test_gc_integration import (
    GCDescrFastpathMalloc)
from rpython.jit.backend.llsupport.test.test_regalloc_integration import (
    BaseTestRegalloc)
from rpython.jit.metainterp.history import JitCellToken
from rpython.rtyper.lltypesystem import lltype

LOOPS = ["""
    [i0]
    p0 = call_malloc_nursery(16)
    p1 = call_malloc_nursery(32)
    p2 = call_malloc_nursery(160)
    guard_true(i0) [p0, p1, p2]
    """, """
    [i0, i1, i2]
    p0 = call_malloc_nursery_varsize_frame(i0)
    p1 = call_malloc_nursery_varsize_frame(i1)
    guard_false(i0) [p0, p1]
    """, """
    [i0, i1, i2]
    p0 = call_malloc_nursery_varsize(0, 8, i0, descr=arraydescr)
    p1 = call_malloc_nursery_varsize(0, 5, i1, descr=arraydescr)
    p2 = call_malloc_nursery_varsize(1, 1, i2, descr=strdescr)
    guard_false(i0) [p0, p1, p2]
    """]

pieces = []


def materialize(self, *args):
    start = original(self, *args)
    pieces.append([ctypes.string_at(start, self.get_relative_pos())
                   .encode('hex'), start])
    return start


original = asmmemmgr.BlockBuilderMixin.materialize.im_func
asmmemmgr.BlockBuilderMixin.materialize = materialize


class GCDescr(GCDescrFastpathMalloc):
    # The instructions that load an address depend on its distance from the code.
    # These two addresses are far from all code, in every process.
    def get_nursery_free_addr(self):
        return 0x123400000000

    def get_nursery_top_addr(self):
        return 0x123400000008


test = BaseTestRegalloc()
test.cpu = getcpuclass()(None, None)
test.cpu.gc_ll_descr = GCDescr(None)
test.cpu.setup_once()
arraydescr = test.cpu.arraydescrof(lltype.GcArray(lltype.Signed))
arraydescr.tid = 1515
strdescr = test.cpu.arraydescrof(lltype.GcArray(lltype.Char))
strdescr.tid = 1516
namespace = {'arraydescr': arraydescr, 'strdescr': strdescr}
for text in LOOPS:
    loop = test.parse(text, namespace=namespace)
    test.cpu.compile_loop(loop.inputargs, loop.operations, JitCellToken())
json.dump({'pieces': pieces,
           'nursery_free': test.cpu.gc_ll_descr.get_nursery_free_addr()},
          sys.stdout)
