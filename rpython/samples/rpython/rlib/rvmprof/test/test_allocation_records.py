"""The records of allocation samples in the profile of a translated program."""
import os
import struct

import py

from rpython.rlib import rvmprof
from rpython.rlib.rvmprof import cintf
from rpython.tool.udir import udir
from rpython.translator.c.test.test_genc import compile

INTERVAL = 2000                     # bytes
WORD = struct.calcsize("l")

# The marker of each record, and its fields: w is a word, s a length and the bytes of a
# string, k a stack, whose number of words is in the word before.
RECORDS = {"\x02": "ws", "\x03": "www", "\x06": "www", "\x07": "ss",
           "\x0b": "wwwwwk", "\x0c": "www", "\x0d": "www"}


def read(data):
    """Return (marker, fields) of each record of a profile without CPU samples."""
    position = 5 * WORD + 5 + ord(data[5 * WORD + 4])
    result = []
    while position < len(data):
        marker = data[position]
        position += 1
        fields = []
        for kind in RECORDS[marker]:
            count = fields[-1] if kind == "k" else 1
            words = struct.unpack_from("%dl" % count, data, position)
            position += count * WORD
            if kind == "s":
                fields.append(data[position:position + words[0]])
                position += words[0]
            elif kind == "k":
                fields.append(words)
            else:
                fields.append(words[0])
        result.append((marker, fields))
    return result


class Code(object):
    def __init__(self, name):
        self.name = name

class Node(object):
    def __init__(self, next):
        self.next = next


def make_program(path):
    def get_name(code):
        return 'py:%s:1:x.py' % code.name

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

    def program():
        codes = [Code("once"), Code("three_times")]
        for code in codes:
            rvmprof.register_code(code, get_name)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0666)
        rvmprof.enable(fd, 0.0, allocations="interval=%d;seed=1" % INTERVAL)
        work(codes[0], 100000)
        work(codes[1], 300000)
        rvmprof.disable()
        os.close(fd)
        return 0

    return program


def test_samples():
    path = str(udir.join("test_allocation_records"))
    assert compile(make_program(path), [], gcpolicy="incminimark")() == 0
    with open(path, "rb") as f:
        records = read(f.read())
    names = dict((fields[0], fields[1]) for marker, fields in records
                 if marker == "\x02")
    meta = dict(fields for marker, fields in records if marker == "\x07")
    samples = [fields for marker, fields in records if marker == "\x0b"]
    types = dict((fields[0], fields[1]) for marker, fields in records
                 if marker == "\x0c")
    [(_, allocated, lost)] = [fields for marker, fields in records
                              if marker == "\x0d"]
    assert meta["allocations"].startswith("interval=%d;seed=1;" % INTERVAL)
    # keys are consecutive, and each sample has an object
    assert [sample[0] for sample in samples] == range(1, len(samples) + 1)
    assert sorted(types) == range(1, len(samples) + 1)
    assert lost == 0
    # the number of samples has a Poisson distribution; the seed is fixed
    expected = allocated / float(INTERVAL)
    assert abs(len(samples) - expected) < 5 * expected ** 0.5
    of_node = [number for number, line in
               enumerate(meta["allocation types"].splitlines()) if "Node" in line]
    found = {}
    for key, size, _, _, _, stack in samples:
        if types[key] in of_node:
            assert size == 2 * WORD
            name = names[stack[1]]
            found[name] = found.get(name, 0) + 1
    assert set(found) == set(["py:once:1:x.py", "py:three_times:1:x.py"])
    for name, count in [("once", 100000), ("three_times", 300000)]:
        expected = count * 2 * WORD / float(INTERVAL)
        assert abs(found["py:%s:1:x.py" % name] - expected) < 5 * expected ** 0.5
