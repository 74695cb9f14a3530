"""Test the types and outcomes of sampled objects in real programs."""
from __future__ import annotations

import textwrap

import pytest

from c_extension import build_holder
from conftest import PyPy, not_emulated
from fact_records import PROMOTED, FactRecords
from found import check_conservation, found
from truth import innermost
from vmprof_convert.analysis.summary import Choice, summarize
from vmprof_convert.meaning.lifetimes import STILL_ALIVE, is_alive_exact
from vmprof_convert.profile.model import ALIVE, FREED, Profile

pytestmark = pytest.mark.nurseries("4M", "240M")
JIT = pytest.mark.parametrize("jit", ["off", ""])

#: A program that makes COUNT nodes, keeps each EVERY-th node, and drops half of these
#: again.
KEEP = """
    import gc, sys
    class Node(object):
        def __init__(self, number):
            self.number = number
    every, count = int(sys.argv[1]), 200000
    kept, slot = [], [None]
    def make():
        for i in range(count):
            slot[0] = node = Node(i)
            if every and i % every == 0:
                kept.append(node)
    make()
    slot[0] = None
    gc.collect()
    if len(sys.argv) > 2:
        del kept[len(kept) // 2:]
        gc.collect()
    gc.collect()        # begins with a minor one, which sees the marks
    kept.append(None)
"""


def sampled(pypy: PyPy, source: str, *arguments: str, interval: str = "512",
            jit: str = "") -> Profile:
    profile = pypy.sample(source, interval, jit=jit,
                          arguments=arguments).profile()
    assert profile.has_types and profile.has_lifetimes
    check_conservation(profile)
    return profile


@JIT
@pytest.mark.parametrize("every", [0, 50, 10, 2, 1])
def test_keep_rates(pypy: PyPy, every: int, jit: str) -> None:
    profile = sampled(pypy, KEEP, str(every), jit=jit)
    nodes = found(profile, "__main__.Node")
    kept = 200000 // every if every else 0
    nodes.total().check("all", 200000)
    nodes.check("alive", kept)
    # Each minor collection promotes one of the other nodes, which is freed later.
    gone = {fate: nodes.objects.get(fate, 0.0) for fate in ("died", "freed")}
    assert gone["freed"] < 0.02 * 200000 + 10
    nodes.check("died", 200000 - kept - gone["freed"], also=2000)


@JIT
def test_dropped_objects_are_freed(pypy: PyPy, jit: str) -> None:
    nodes = found(sampled(pypy, KEEP, "2", "drop", jit=jit), "__main__.Node")
    nodes.check("alive", 50000)
    nodes.check("freed", 50000, also=2000)


@JIT
def test_churn(pypy: PyPy, jit: str) -> None:
    """Objects that are replaced after a while are freed, even if new objects get the
    same addresses.
    """
    nodes = found(sampled(pypy, """
        import gc
        class Node(object):
            def __init__(self, number):
                self.number = number
        ring = [None] * 20000
        def churn():
            for i in range(400000):
                ring[i % 20000] = Node(i)
        churn()
        gc.collect()
        gc.collect()
    """, jit=jit), "__main__.Node")
    nodes.total().check("all", 400000)
    nodes.check("alive", 20000)


def test_two_classes_in_one_trace(pypy: PyPy) -> None:
    """The JIT allocates instances of two classes, with different sizes, in one batch.
    """
    profile = sampled(pypy, """
        class Small(object):
            __slots__ = ("a",)
        class Large(object):
            __slots__ = tuple("abcdefghijklmnop")
            def __init__(self, i):
                for name in self.__slots__:
                    setattr(self, name, i)
        slot = [None] * 4
        def make():
            for i in range(100000):
                small = Small(); small.a = None
                large = Large(None)
                slot[i & 1] = small
                slot[2 + (i & 1)] = large
                if i % 4 == 0:
                    slot[0] = Small()
        make()
    """)
    found(profile, "__main__.Small").total().check("all", 125000)
    found(profile, "__main__.Large").total().check("all", 100000)


def test_two_classes_of_equal_size_in_one_trace(pypy: PyPy) -> None:
    profile = sampled(pypy, """
        class A(object):
            pass
        class B(object):
            pass
        slot = [None] * 4
        def make():
            for i in range(200000):
                slot[i & 1] = A()
                if i % 3 == 0:
                    slot[2] = B()
        make()
    """)
    found(profile, "__main__.A").total().check("all", 200000)
    found(profile, "__main__.B").total().check("all", 66667)


@pytest.mark.parametrize("every", [1, 2, 10])
def test_a_guard_within_a_batched_allocation(pypy: PyPy, every: int) -> None:
    """A batched allocation may contain a guard. If the compiled code ends there, the
    batch's other objects are never made. Their memory may contain previous objects,
    which must not count.
    """
    profile = sampled(pypy, """
        class Cell(object):
            __slots__ = ("a",)
        class Narrow(object):
            __slots__ = ("a", "b")
        class Wide(object):
            __slots__ = tuple("abcdefghij")
        slot = [None] * 3
        def make():
            for i in range(200000):
                slot[0] = cell = Cell(); cell.a = None
                slot[1] = narrow = Narrow(); narrow.a = None
                if i %% %d == 0:
                    slot[2] = wide = Wide(); wide.a = None
        make()
    """ % every)
    for name, truth in (("Cell", 200000), ("Narrow", 200000),
                        ("Wide", 200000 / every)):
        found(profile, "__main__." + name).total().check("all", truth)


@JIT
def test_lists_and_their_storage(stock_pypy: PyPy, jit: str) -> None:
    profile = sampled(stock_pypy, """
        kept = []
        def make():
            for i in range(30000):
                kept.append([i, i + 1, i + 2, i + 3, i + 4])
        make()
    """, jit=jit)
    # `also` allows for lists that the program's start allocates
    found(profile, "list").total().check("all", 30000, also=1000)
    # the storage has 56 bytes: a header, a length, and five numbers
    found(profile, "int array (storage)", 56).total().check("all", 30000, also=1000)


@pytest.mark.parametrize("expression, type_", [
    ("{i: None}", "dict"), ("(i, None)", "tuple"), ("float(i)", "float"),
    ("{i}", "set"), ("complex(i)", "complex"), ("range(i)", "range"),
    ("(x for x in ())", "generator"), ("bytearray(3)", "bytearray"),
    ("lambda: i", "function"), ("frozenset((i,))", "frozenset"),
    ("10 ** 30 + i", "int"), ("str(i) + 'x'", "str"), ("b'%d' % i", "bytes"),
    ("slice(i)", "slice"), ("object()", "object"), ("ValueError(i)", "ValueError"),
    ("Sub()", "__main__.Sub"),
])
def test_types_of_builtin_objects(stock_pypy: PyPy, expression: str,
                                  type_: str) -> None:
    profile = sampled(stock_pypy, """
        import gc
        class Sub(dict): pass
        # objects of many types: no strategy keeps them unboxed
        kept = [None, object()]
        def make():
            for i in range(20000):
                kept.append(%s)
        make()
        gc.collect()
        gc.collect()
    """ % expression, jit="off", interval="256")
    found(profile, type_).check("alive", 20000, also=500)


@pytest.mark.nurseries("4M")     # The dead objects have to be old.
def test_large_objects(stock_pypy: PyPy) -> None:
    """The GC gets large objects from malloc, and gives the dead ones back to malloc
    even if they are young.
    """
    profile = sampled(stock_pypy, """
        import gc
        kept, lists = [], []
        def make():
            for i in range(300):
                data = bytearray(400000)
                if i % 3 == 0:
                    kept.append(data)
            for i in range(100):
                lists.append([None] * 50000)        # with card marks
        make()
        del kept[50:]
        gc.collect()
        gc.collect()
    """, jit="off")
    # Each array is sampled.  It has a header, a length and the items.  Newer versions
    # of PyPy have a second array per bytearray, with further room, before or after the
    # first.
    sizes = {size for size, type_ in zip(profile.samples.size, profile.samples.type)
             if profile.types[type_].owner == "byte array" and size >= 400016}
    each = [found(profile, "byte array (storage)", size).samples for size in sizes]
    arrays, = (samples for samples in each if samples.get("alive"))
    assert arrays["alive"] == 50 and arrays["died"] > 0 and arrays["freed"] >= 50
    assert sum(arrays.values()) == 300
    assert found(profile, "object array (storage)", 400016).samples == {
        "alive": 100}


@pytest.mark.nurseries("4M")     # The test needs several major collections.
def test_objects_that_become_old_while_the_gc_marks_may_be_garbage(
        stock_pypy: PyPy) -> None:
    """The program allocates and drops thousands of nodes while the GC marks its heap.
    The nodes that are promoted meanwhile look alive until the next major collection,
    although the program keeps only 1000 nodes.
    """
    profile = sampled(stock_pypy, """
        import collections, gc
        class Node(object):
            pass
        kept = [[number] for number in range(300000)]
        gc.collect()
        gc.collect()
        def serve():
            flight = collections.deque(maxlen=1000)
            for number in range(1000000):
                node = Node()
                node.number = number, str(number) * 20
                flight.append(node)
        serve()
        import os
        os._exit(0)     # without a heap snapshot
    """, jit="off")
    assert sum(one.is_major for one in profile.collections) > 3
    figures = {row.subject.type.name: row.own for row in summarize(
        profile, choice=Choice(by=("type",))).rows
        if row.subject.type is not None}["__main__.Node"]
    assert figures.objects(STILL_ALIVE).low > 2000
    assert not is_alive_exact(profile)


def test_classes_of_one_name_deleted_classes_and_metaclasses(pypy: PyPy) -> None:
    profile = sampled(pypy, """
        import gc
        class Meta(type): pass
        kept = []
        def make(n):
            for i in range(n):
                if i % 10 == 0:
                    cls = Meta("Made", (), {"__module__": "app.models"})
                kept.append(cls())
        make(20000)
        del kept[:]
        gc.collect()
        make(10000)
        gc.collect()
        gc.collect()
    """, jit="off", interval="256")
    found(profile, "app.models.Made").check("alive", 10000)
    found(profile, "app.models.Made").total().check("all", 30000)


def test_a_program_without_lifetimes(pypy: PyPy) -> None:
    profile = pypy.sample(KEEP, "512", "--no-lifetimes",
                          arguments=("10",)).profile()
    assert profile.has_types and not profile.has_lifetimes
    nodes = found(profile, "__main__.Node")
    nodes.total().check("all", 200000)
    assert set(nodes.samples) <= {"unknown", "untold", "young"}


# ____________________________________________________________
# the GC's operations on objects, except collections

HARD = {
    "finalizers_that_resurrect": ("""
        back = []
        class Node(object):
            def __del__(self):
                back.append(self)
        def make():
            for i in range(20000):
                Node()
        make()
        for i in range(5): gc.collect()
        assert len(back) == 20000
    """, "alive", 20000),
    "finalizers_that_run_once": ("""
        class Node(object):
            def __del__(self):
                pass
        def make():
            for i in range(20000):
                Node()
        make()
        for i in range(5): gc.collect()
    """, "alive", 0),
    "weak_references_with_callbacks": ("""
        import weakref
        class Node(object): pass
        gone, references = [], []
        def make():
            for i in range(20000):
                references.append(weakref.ref(Node(), gone.append))
        make()
        for i in range(5): gc.collect()
        assert len(gone) == 20000
    """, "alive", 0),
    "id_of_a_young_object": ("""
        class Node(object): pass
        kept, ids = [], []
        def make():
            for i in range(20000):
                kept.append(Node())
                ids.append(id(kept[-1]))
        make()
        for i in range(3): gc.collect()
        assert [id(node) for node in kept] == ids
    """, "alive", 20000),
    "the_collector_is_disabled": ("""
        gc.disable()
        class Node(object): pass
        kept = []
        def make():
            for i in range(40000):
                kept.append(Node())
                if i % 2: kept.pop()
        make()
        gc.enable()
        for i in range(3): gc.collect()
    """, "alive", 20000),
    "collect_step": ("""
        class Node(object): pass
        kept = []
        def make():
            for i in range(40000):
                kept.append(Node())
                if i % 100 == 0: gc.collect_step()
        make()
        del kept[20000:]
        for i in range(3): gc.collect()
    """, "alive", 20000),
    "collections_inside_finalizers": ("""
        class Node(object): pass
        class Trigger(object):
            def __del__(self):
                gc.collect()
        kept = []
        def make():
            for i in range(20000):
                kept.append(Node())
                if i % 1000 == 0: Trigger()
        make()
        for i in range(3): gc.collect()
    """, "alive", 20000),
    "threads_that_end": ("""
        import threading
        class Node(object): pass
        kept = []
        def make():
            for i in range(2000):
                kept.append(Node())
        for i in range(10):
            threads = [threading.Thread(target=make) for i in range(2)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        del kept[20000:]
        for i in range(3): gc.collect()
    """, "alive", 20000),
    "arrays_that_shrink": ("""
        class Node(object): pass
        kept = []
        def make():
            for i in range(20000):
                kept.append(Node())
                text = "".join(str(j) for j in range(20))
                line = bytearray(200)[:7]
        make()
        for i in range(3): gc.collect()
    """, "alive", 20000),
    "pinned_objects": ("""
        import os
        class Node(object): pass
        kept = []
        read, write = os.pipe()
        def make():
            for i in range(20000):
                kept.append(Node())
                if i % 4 == 0:
                    os.write(write, b"%d" % i)      # pins it
                    os.read(read, 100)
        make()
        for i in range(3): gc.collect()
    """, "alive", 20000),
}


@JIT
@pytest.mark.parametrize("case", HARD)
def test_hard_cases(pypy: PyPy, case: str, jit: str) -> None:
    source, fate, truth = HARD[case]
    profile = sampled(pypy, "import gc\n" + textwrap.dedent(source),
                      interval="256", jit=jit)
    nodes = found(profile, "__main__.Node")
    nodes.check(fate, truth)
    assert not nodes.samples.get("lost")


@JIT
def test_sampled_objects_that_are_pinned(pypy: PyPy, jit: str) -> None:
    """Threads wait in write() with their buffers pinned, while a collection runs.

    The outcomes of the buffers become known when they are no longer pinned.
    """
    run = pypy.sample("""
        import fcntl, gc, os, struct, termios, threading, time
        pipes = [os.pipe() for i in range(3)]
        def write(i):
            young = bytes([65 + i]) * 100000        # more than a pipe holds
            os.write(pipes[i][1], young)
            if i:
                kept.append(young)
        kept = []
        threads = [threading.Thread(target=write, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        def waits(read):
            return struct.unpack("i", fcntl.ioctl(
                read, termios.FIONREAD, b"0000"))[0]
        while not all(waits(read) for read, _ in pipes):
            time.sleep(0.01)        # there is to be no collection yet
        gc.collect()
        for i, (read, _) in enumerate(pipes):
            data = b""
            while len(data) < 100000:
                data += os.read(read, 100000)
            print(data == bytes([65 + i]) * 100000)
        for thread in threads:
            thread.join()
        gc.collect()
    """, "4k", jit=jit, PYPY_GC_NURSERY="16M")
    assert run.out == "True\n" * 3
    profile = run.profile()
    check_conservation(profile)
    samples = profile.samples
    # Select the buffers, whose size is their 100,000 characters and a few words.
    pinned = [row for row, size in enumerate(samples.size) if size // 100 == 1000
              and innermost(profile, samples.stack[row]) == "write"]
    assert sorted(samples.fate[row] for row in pinned) == [FREED, ALIVE, ALIVE]
    type_, = {samples.type[row] for row in pinned}
    assert type_ >= 0
    # The outcome is not determined by the first minor collection after the allocation.
    minors = [c.time + c.duration for c in profile.collections if not c.is_major]
    for row in pinned:
        assert sum(samples.time[row] < time < samples.collected[row]
                   for time in minors) >= 1


def test_messages_that_threads_wait_for(pypy: PyPy) -> None:
    """recv() gets a buffer that is pinned while the thread waits, and then shrunk to
    the size of the message. Other threads allocate meanwhile, as in a service.
    """
    run = pypy.sample("""
        import gc, socket, threading
        kept = []
        def receive(here):
            while True:
                message = here.recv(65536)
                if not message:
                    break
                kept.append(message)
                taken.release()
        taken = threading.Semaphore(0)
        pairs = [socket.socketpair() for i in range(4)]
        threads = [threading.Thread(target=receive, args=(here,)) for here, _ in pairs]
        for thread in threads:
            thread.start()
        for i in range(200):
            for _, there in pairs:
                there.send(b"%099d" % i)
            for k in range(3):
                bytes(100_000)              # a minor collection, now and then
            for _ in pairs:
                taken.acquire()
        for _, there in pairs:
            there.close()
        for thread in threads:
            thread.join()
        gc.collect()
        gc.collect()
        assert sum(map(len, kept)) == 99 * 4 * 200
        print(sum(len(message) + 24 for message in kept))
    """, "1")
    profile = run.profile()
    check_conservation(profile)
    samples = profile.samples
    received = [row for row, size in enumerate(samples.size) if size > 65536
                and innermost(profile, samples.stack[row]) == "receive"]
    assert sum(0 < samples.live_size[row] < 200 for row in received) > 400
    # Select all texts, not only buffers: the message is a copy if the GC could not pin
    # the buffer.
    texts = {samples.type[row] for row in received}
    alive = sum(live_size or size for size, live_size, type_, stack, fate in zip(
        samples.size, samples.live_size, samples.type, samples.stack, samples.fate)
        if fate == ALIVE and type_ in texts and innermost(profile, stack) == "receive")
    # The tolerance is the rounding of each object's size to words.
    assert int(run.out) <= alive <= int(run.out) + 8 * 800


def test_a_forked_child_starts_clean(pypy: PyPy) -> None:
    profile = sampled(pypy, """
        import gc, os
        class Node(object): pass
        kept = []
        def make():
            for i in range(20000):
                kept.append(Node())
        make()
        if os.fork() == 0:
            del kept[:]
            make()
            gc.collect()
            os._exit(0)
        os.wait()
        gc.collect()
        gc.collect()
    """, interval="256", jit="off")
    found(profile, "__main__.Node").check("alive", 20000)


@pytest.mark.parametrize("end, alive", [
    ("", 5000), ("holder.let_go(); gc.collect(); gc.collect()", 0)])
def test_objects_that_c_extensions_hold(pypy: PyPy, end: str, alive: int) -> None:
    """Objects to which only C code refers (by PyPy's rawrefcount) are alive."""
    build_holder(pypy)
    nodes = found(sampled(pypy, """
        import gc, holder
        class Node(object): pass
        def make():
            for i in range(20000):
                node = Node()
                if i %% 4 == 0:
                    holder.hold(node)
        make()
        gc.collect(); gc.collect()
        %s
        gc.collect()
    """ % end, interval="256"), "__main__.Node")
    nodes.total().check("all", 20000)
    nodes.check("alive", alive)
    assert not nodes.samples.get("lost")


def test_conservation_at_every_snapshot(stock_pypy: PyPy) -> None:
    """A profile that is cut off anywhere is consistent. Only its newest samples may
    lack an outcome, and each promoted object is freed or alive, exactly once.
    """
    run = stock_pypy.sample("""
        import gc
        class Node(object): pass
        ring = [None] * 5000
        def churn():
            for i in range(300000):
                ring[i % 5000] = Node()
                if i % 50000 == 0:
                    gc.collect()
        churn()
    """, "512")
    data = run.path.read_bytes()
    snapshots, freed = 0, 0
    path = stock_pypy.folder / "snapshot.vmprof"
    for end in range(len(data) // 12, len(data), len(data) // 12):
        path.write_bytes(data[:end])
        facts = FactRecords(path, was_killed=True)
        told = set(facts.young)
        assert told == set(range(1, len(told) + 1))
        promoted = sum(outcome == PROMOTED for _, _, (outcome, _, _) in facts.objects())
        assert promoted == len(facts.freed) + len(facts.alive()) and not facts.lost
        snapshots += bool(told)
        assert len(facts.freed) >= freed
        freed = len(facts.freed)
    assert snapshots > 5 and freed > 0 and facts.alive()


@pytest.mark.parametrize("kibibytes", [200000, 300000, 400000])
@not_emulated
@pytest.mark.nurseries("4M")     # The address space is too small for a larger nursery.
def test_a_program_that_may_take_little_address_space(
        stock_pypy: PyPy, kibibytes: int) -> None:
    """The program ends as without the sampler, and the profile has no wrong samples."""
    source = """
        import gc
        kept = [[i] for i in range(100000)]
        for i in range(20):
            garbage = [[i] for i in range(100000)]
        gc.collect()
        print(len(kept))
    """
    command = ("ulimit -v %d; exec \"$0\" \"$@\"" % kibibytes)
    script = str(stock_pypy.script(source))
    out = [stock_pypy.shell(command, *flags, script) for flags in (
        (), ("-m", "vmprof", "--allocation-sampling", "4k", "-o", "out.vmprof"))]
    assert out[0] == out[1] == (0, "100000\n")
    profile = stock_pypy.profile()
    check_conservation(profile)
    lists = found(profile, "list")
    lists.total().check("all", 2100000, also=2000)
    lists.check("alive", 200000, also=2000)


def test_a_collector_that_overwrites_the_nursery(stock_pypy: PyPy) -> None:
    profile = stock_pypy.sample(KEEP, "4k", arguments=("10",),
                                PYPY_GC_NURSERY_DEBUG="1").profile()
    assert not profile.has_types and not profile.has_lifetimes
