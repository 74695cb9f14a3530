"""Test that a profile's live bytes equal the growth of the GC's heap.

The program makes its objects in several ways. Often PyPy reserves more memory than an
object finally needs, and shrinks the object.
"""
from __future__ import annotations

import itertools

import pytest

from conftest import PyPy
from found import check_conservation
from vmprof_convert.analysis import heap_check
from vmprof_convert.meaning.estimator import weight_live_bytes
from vmprof_convert.meaning.lifetimes import STILL_ALIVE, state
from vmprof_convert.profile.model import ALIVE, FREED, Profile

#: A program that makes and keeps COUNT times the objects of `make(i)`, and prints the
#: growth of the heap.
PROGRAM = """
    import gc, sys, vmprof_allocation
    {setup}
    def make(i):
        return {make}
    def heap():
        for _ in range(3):
            gc.collect()
        stats = gc.get_stats()._s
        return stats.total_arena_memory + stats.total_rawmalloced_memory
    for i in range(300):        # what it needs once
        make(i)
    kept = [None] * {count}
    vmprof_allocation.mark("what is needed to mark is loaded")
    before = heap()
    vmprof_allocation.mark("begin")
    for i in range({count}):
        kept[i] = make(i)
    vmprof_allocation.mark("end")
    print(heap() - before)
"""

SOCKETS = """
    import os, socket, threading
    here, there = socket.socketpair()
    read, write = os.pipe()
    def sent(size, to=here.send):
        to(b"x" * size)
        return True
"""

WAYS = {
    "recv": (SOCKETS, "sent(100) and there.recv(65536)"),
    "recv of much": (SOCKETS, "sent(5000) and there.recv(65536)"),
    "recv_into": (SOCKETS + "    room = bytearray(65536)\n",
                  "sent(100) and bytes(room[:there.recv_into(room)])"),
    "os.read": (SOCKETS, "sent(100, lambda data: os.write(write, data)) "
                         "and os.read(read, 4096)"),
    "file": ("import io; buffer = io.BytesIO(b'line of a file\\n' * 10)",
             "(buffer.seek(0), buffer.read())"),
    "lines of a file": ("""
    import tempfile
    file = tempfile.TemporaryFile("w+"); file.write("x" * 50 + chr(10)); file.flush()
    """, "(file.seek(0), file.readlines())"),
    "StringBuilder": ("from __pypy__.builders import StringBuilder", "built(i)"),
    "join": ("", "', '.join(['word'] * (i % 50))"),
    "format": ("", "'%s and %r and %d' % ('text' * 5, 'more', i)"),
    "f-string": ("", "f'{i:>40} of {i / 3:.3f} {chr(228)}'"),
    "csv": ("import csv", "next(csv.reader(['a,%d,some text,\"quoted\"' % i]))"),
    "csv of dicts": ("import csv, io", "list(csv.DictReader(io.StringIO("
                                       "'name,size\\nfoo,%d\\n' % i)))"),
    "json.loads": ("import json", "json.loads('{\"a\": [1, \"text\", null], "
                                  "\"b\": \"x\\\\u00e4y\"}')"),
    "json.dumps": ("import json", "json.dumps({'a': [i, 'text'], 'b': None})"),
    "re.sub": ("import re", "re.sub('[aeiou]', '', 'sentence with vowels %d' % i)"),
    "re.findall": ("import re", "re.findall('[a-z]+', 'sentence with words %d' % i)"),
    "decode": ("", "(b'caf\\xc3\\xa9 ' * 10).decode()"),
    "encode": ("", "('caf' + chr(233) * (i % 90)).encode('utf-16')"),
    "surrogates": ("", "(b'ab\\xff' * 10).decode('utf-8', 'surrogateescape')"),
    "translate": ("", "('text %d ' % i * 5).translate({ord('t'): None})"),
    "bytes of a bytearray": ("", "bytes(resized(i))"),
    "bytearray": ("", "resized(i)"),
    "zlib": ("import zlib; data = zlib.compress(b'text' * 100)",
             "zlib.decompress(data)"),
    "base64": ("import base64", "base64.b64decode(base64.b64encode(b'%d' % i * 20))"),
    "struct": ("import struct", "struct.pack('>qd', i, 0.5)"),
    "array.tobytes": ("import array", "array.array('l', [i] * 20).tobytes()"),
    "list that grew": ("", "grown(i)"),
    "list that shrank": ("", "shrunk(i)"),
    "list of a generator": ("", "[str(k) for k in range(i % 20)]"),
    "dict that grew": ("", "{k: None for k in range(i % 40)}"),
    "dict that shrank": ("", "emptied(i)"),
    "set": ("", "set(range(i % 40))"),
    "tuple of a generator": ("", "tuple(k * 1000.5 for k in range(i % 20))"),
    "a large one": ("", "b'x' * (200_000 + i)"),
    # After its promotion, an object() has half of the bytes that it has in the nursery.
    "object()": ("", "[object() for _ in range(20)]"),
    "slices": ("", "('text' * 1000)[i % 7:i % 7 + 50]"),
}

HELPERS = """
    def resized(i):
        result = bytearray(b"0123456789" * 30)
        del result[i % 100:]
        return result
    def grown(i):
        result = []
        for k in range(i % 50):
            result.append(k)
        return result
    def shrunk(i):
        result = [None] * 200
        del result[i % 10:]
        return result
    def emptied(i):
        result = dict.fromkeys(range(100))
        for k in range(95):
            del result[k]
        return result
    def built(i):
        builder = StringBuilder(1000)
        builder.append("abc" * 10)
        return builder.build()
"""


def alive(profile: Profile) -> int:
    """Return the live bytes that were allocated between the program's last two marks.

    No estimate is needed, because each object was sampled.
    """
    _, begin, end = (mark.time for mark in profile.marks)
    samples = profile.samples
    return sum(
        live_size or size for time, size, live_size, fate, collected, ended in zip(
            samples.time, samples.size, samples.live_size, samples.fate,
            samples.collected, samples.ended)
        if begin <= time <= end and state(fate, collected, ended) == STILL_ALIVE)


#: The size of the nursery alternates from test to test.  With both sizes for each of
#: WAYS, this module would take twice as long.
NURSERIES = itertools.cycle(("4M", "240M"))


@pytest.mark.parametrize("way, nursery", zip(WAYS, NURSERIES))
def test_live_bytes_equal_the_growth_of_the_heap(pypy: PyPy, way: str) -> None:
    setup, make = WAYS[way]
    count = 200 if way == "a large one" else 1000
    source = PROGRAM.format(setup=setup + HELPERS, make=make, count=count)
    run = pypy.sample(source, "1")
    profile = run.profile()
    check_conservation(profile)
    grown = int(run.out)
    # The tolerance covers the JIT's memory, and objects of the loop and of mark().
    assert grown > 20 * count
    assert abs(alive(profile) - grown) <= 0.02 * grown + 20_000, (
        alive(profile), grown)


@pytest.mark.nurseries("4M", "240M")
def test_the_gc_agrees_after_each_major_collection(pypy: PyPy) -> None:
    """After each major collection, the estimated live bytes agree with the GC's count.
    Few objects are sampled, and most of them are shrunk.
    """
    profile = pypy.sample("""
        import gc
        import json
        import os
        read, write = os.pipe()
        class Node(object):
            pass
        kept = []
        for i in range(30):
            for k in range(1000):
                os.write(write, b"%099d" % k)
                kept.append(os.read(read, 65536))
                node = Node()
                node.text = json.dumps([k] * 20)
                kept.append(node)
            if i % 3 == 2:
                del kept[:len(kept) // 2]
            gc.collect()
    """, "16k").profile()
    assert len(profile.swept) >= 20
    assert max(swept.heap for swept in profile.swept) > 4 * 10**6
    for swept in profile.swept:
        least, most = heap_check.bounds(swept)
        assert least <= swept.alive <= most, swept
    assert max(swept.alive for swept in profile.swept) > 10**6
    # The sampler's estimate in the profile equals an estimate from the samples.
    at = profile.swept[-1].time
    samples = profile.samples
    alive = sum(weight_live_bytes(size, live_size, interval, profile.gaps)
                for size, live_size, interval, fate, collected, ended in zip(
                    samples.size, samples.live_size, samples.interval, samples.fate,
                    samples.collected, samples.ended)
                if 0 <= collected < at and (
                    fate == ALIVE or (fate == FREED and ended > at)))
    assert profile.swept[-1].alive == pytest.approx(alive, rel=1e-6)
