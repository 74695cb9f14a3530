"""Test that --retainers names the planted retainers exactly, and does not change the
program.
"""
from __future__ import annotations

import collections
import json
import re
from pathlib import Path

import pytest

from conftest import PYPY, PyPy
from controlled import control
from running import running
from vmprof_allocation.engines.hook.discovery import cache
from vmprof_allocation.engines.hook.discovery.layout import Layout
from vmprof_convert import readers
from vmprof_convert.analysis.holder_tree import OTHERWISE, reached
from vmprof_convert.analysis.holders import text_of
from vmprof_convert.profile.held import INTERPRETER, NO_PATH, Held

pytestmark = pytest.mark.nurseries("4M", "240M")

#: The module `shop`, which FILL fills with objects.
SHOP = """
    import collections, functools, logging.handlers, threading
    seen = {}
    class Visit:
        def __init__(self, number):
            self.number = number
            self.items = ["item%d.%d" % (number, i) for i in range(3)]
    class Registry:
        TABLE = {}
    class Prices:
        @functools.lru_cache(maxsize=None)
        def price(self, number):
            return ["price", str(number)]
    class Slotted:
        __slots__ = "first", "second"
    prices, slotted, local = Prices(), Slotted(), threading.local()
    handler = logging.handlers.MemoryHandler(10**9, logging.CRITICAL + 1)
    log = logging.getLogger("shop")
    log.addHandler(handler)
    log.propagate = False
    callbacks, errors, first, second = [], [], [], []
    def on(number):
        data = [str(number)] * 20
        callbacks.append(lambda: data)
    def fail(number):
        big = [str(i) for i in range(500)]
        try:
            raise ValueError(number)
        except ValueError as e:
            errors.append(e)
    def defaults(numbers=[str(i) for i in range(12000)]):
        pass
    by_key = {"eu": {}, 5: [], b"\\0\\"": []}
    by_number = {7: [], 8: None, None: []}
    recent = collections.deque([[], *[None] * 199, []])
    recent.appendleft(None)
"""
FILL = """
    import gc, sys, threading
    import shop
    n = 10000
    def waiter(ready, end):
        local_big = [str(i) for i in range(n)]
        shop.local.mine = [str(i) for i in range(n)]
        ready.set()
        end.wait()
    def make():
        of_closure = [str(i) for i in range(n)]
        return lambda: of_closure
    def generate():
        in_generator = [str(i) for i in range(n)]
        yield 1
        yield in_generator
    class Chained:
        def __init__(self, to):
            self.to = to
    for i in range(n):
        shop.seen[i] = shop.Visit(i)
        shop.Registry.TABLE["key%d" % i] = [str(i)]
        shop.prices.price(i)
        shop.log.warning("hello %d", i)
        shop.on(i)
        both = "both%d of these" % i
        shop.first.append(both)
        shop.second.append(both)
        shop.by_key["eu"]["key%d" % i] = str(i)
        shop.by_key[5].append(str(i))
        shop.by_number[7].append(str(i))
        shop.by_number[None].append(str(i))
        shop.recent[1].append(str(i))
        shop.recent[201].append(str(i))
        shop.by_key[b'\\0"'].append(str(i))
    for i in range(20):
        shop.fail(i)
    shop.slotted.second = [str(i) for i in range(n)]
    closure, generator, chain = make(), generate(), None
    next(generator)
    for i in range(2 * n):
        chain = Chained(chain)
    ready, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=waiter, args=(ready, end), daemon=True)
    thread.start()
    ready.wait()
    gc.collect()
    gc.collect()
"""
LOOK = """
    from vmprof_allocation.session.session import current
    current().retainers()
"""
#: Evaluates each reference path that is a Python expression, and compares the address
#: of the result with the retainer's.
EVALUATE = """
    import builtins, sys
    from vmprof_convert import readers
    counts = [0, 0]
    known = {**vars(builtins), **sys.modules}
    for holder in readers.read_events(current().where).held[-1].holders:
        if not holder.path or " -> " in holder.path or holder.path.startswith("in "):
            continue
        if holder.is_class:
            continue
        # a.b.c may be c of the module a.b, or b of a
        found = []
        for name in list(sys.modules):
            if holder.path.startswith(name + "."):
                try:
                    found.append(eval("m" + holder.path[len(name):],
                                      {**known, "m": sys.modules[name]}))
                except AttributeError:
                    pass
        if found and isinstance(found[0], (str, bytes, int)):
            continue
        is_right = holder.address in map(id, found)
        counts[is_right] += 1
        if not is_right:
            print("wrong:", holder.path, holder.type)
    print("%d wrong, %d right" % tuple(counts))
"""


def planted(pypy: PyPy, *more: str) -> str:
    pypy.script(SHOP, "shop.py")
    return FILL + "".join(more)


def held_of(path: Path) -> Held:
    return readers.read_events(path).held[-1]


def test_planted_holders_are_named(stock_pypy: PyPy) -> None:
    """Each retainer has its reference path. If the path is a Python expression, it must
    evaluate to the retainer.
    """
    run = stock_pypy.sample(planted(stock_pypy, LOOK, EVALUATE), "4k")
    wrong, right = map(int, re.findall(r"(\d+) wrong, (\d+) right", run.out)[0])
    assert (wrong, run.out.count("wrong:")) == (0, 0) and right >= 12
    held = held_of(run.path)
    assert held.problem == 0
    named = {holder.path: holder for holder in held.holders if holder.path}
    for path, type_, objects in [
            ("shop.seen", "dict", 80000),
            ("shop.Registry.TABLE", "dict", 50000),
            ("shop.Prices.price -> variable cache", "dict", 50000),
            ("shop.handler.buffer", "list", 20000),
            ("shop.callbacks", "list", 50000),
            ("shop.errors", "list", 10000),
            ("shop.slotted.second", "list", 10000),
            ('shop.local -> of a thread["mine"]', "list", 10000),
            ("shop.by_number[None]", "list", 10000),
            ("shop.recent[1]", "list", 10000), ("shop.recent[201]", "list", 10000),
            ("shop.defaults.__defaults__[0]", "list", 12000),
            ("shop.by_key[5]", "list", 10000),
            ("shop.by_number[7]", "list", 10000),
            ('shop.by_key[b"\\x00\\""]', "list", 10000),
            ("in waiter() app.py:5 -> local local_big", "list", 10000),
            ("__main__.closure -> variable of_closure", "list", 10000),
            ("__main__.generator.gi_frame -> local in_generator", "list", 10000)]:
        assert path in named, (path, sorted(named))
        assert named[path].type == type_
        assert named[path].objects >= objects, path
    assert any(path.startswith("__main__.chain") and holder.objects >= 15000
               for path, holder in named.items())
    together = {named["shop.first"].set | named["shop.second"].set}
    assert together & {holder.set for holder in held.holders
                       if not holder.path and holder.objects >= 9000}


#: A program with rare kinds of references.
RARE = """
    def many():
        return [str(i) for i in range(10000)]
    async def generate():
        in_async = many()
        yield 1
        yield in_async
    class Owner:
        def get(self, default=many()):
            return default
        described = property(get)
        del get
        @staticmethod
        def static(default=many()):
            return default
    def cell_of(big):
        return (lambda: big).__closure__[0]
    generator, cell, cells = generate(), cell_of(many()), [cell_of(many())]
    try:
        generator.asend(None).send(None)
    except StopIteration:
        pass
    other = generate()
    pending = other.asend(None)
    try:
        pending.send(None)
    except StopIteration:
        pass
    del other
    def function():
        pass
    function.kept = many()
    named = type("odd\x1fname", (), {})()
    named.kept = many()
    by_pair, by_truth = {(1, 2): many()}, {True: many()}
    class Base:
        __slots__ = "of_base", "more"
    class Derived(Base):
        __slots__ = "own",
    slotted = Derived()
    slotted.more, slotted.own = many(), many()
    class Listener:
        def __init__(self):
            self.rows = many()
        def hear(self):
            pass
    callbacks = [Listener().hear]
"""


def test_rare_references_have_names(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(RARE + LOOK + EVALUATE, "4k")
    held = held_of(run.path)
    named = [holder.path for holder in held.holders]
    missing = {
        "__main__.generator.ag_frame -> local in_async",
        "__main__.pending -> a part.ag_frame -> local in_async",
        "__main__.Owner.described.fget.__defaults__[0]",
        "__main__.Owner.static -> function.__defaults__[0]",
        "__main__.cell.cell_contents", "__main__.cells[0].cell_contents",
        '__main__.function.__dict__["kept"]', "__main__.named.kept",
        "__main__.by_pair[(1, 2)]", "__main__.by_truth[True]",
        "__main__.slotted.more", "__main__.slotted.own",
        "__main__.callbacks[0].__self__.rows"} - set(named)
    assert not missing, (missing, sorted(named))
    assert re.fullmatch(r"0 wrong, (?:[6-9]|\d\d) right\n", run.out)
    assert "__main__.odd?name" in {step.type for step in held.steps}


#: A program with tuples, named fields, and dict keys other than strings.
TUPLES = """
    import collections, enum, os, time, typing
    def many():
        return [str(i) for i in range(10000)]
    class Point(typing.NamedTuple):
        x: object
        y: object
    class Derived(Point):
        @property
        def y(self):
            return "another"
    Three = collections.namedtuple("Three", "first second third")
    class Plain(tuple):
        pass
    class Odd(tuple):
        _fields = 5
    class Color(enum.Enum):
        RED = 1
        BLUE = 2
    class Outer:
        class Number(enum.IntEnum):
            ONE = 1
    def local():
        class Hidden(enum.Enum):
            ONE = 1
        return Hidden.ONE
    Renamed = Color
    point, three = Point(1, many()), Three(1, 2, many())
    derived = Derived(many(), many())
    plain, odd, pair = Plain([many()]), Odd([many()]), (many(), 1)
    moment = time.struct_time((0, 1, many(), *range(6)))
    files = [os.stat_result((0, 1, 2, many(), *range(6)))]
    by = {key: many() for key in (
        (1, 2), (1, "a"), (), ("x",), (1, (2, b"y")), (0.5, 1.5), (1, (2, (3, 4))),
        (None, True, 2, 3, 4, 5, 6, 7, 8), Color.RED, (Color.BLUE, int),
        Outer.Number.ONE, local(), Point, dict, Point(3, 4), 0.5, ("k" * 500,))}
"""


def test_tuples_and_their_fields(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(TUPLES + LOOK + EVALUATE, "4k")
    held = held_of(run.path)
    named = [held.path(step) for step in range(len(held.steps))]
    missing = {"__main__." + path for path in (
        "point.y", "derived.x", "derived[1]", "three.third", "plain[0]", "odd[0]",
        "pair[0]", "moment[2]", "files[0][3]", "by[(1, 2)]", 'by[(1, "a")]', "by[()]",
        'by[("x",)]',
        'by[(1, (2, b"y"))]', "by[__main__.Color.RED]",
        "by[(__main__.Color.BLUE, int)]", "by[__main__.Outer.Number.ONE]",
        "by[__main__.Point]", "by[dict]")} - set(named)
    assert not missing, (missing, sorted(named))
    # Seven items have no name: their keys have no literal, or are too deep or too long.
    assert named.count("__main__.by -> an item") == 7
    assert re.fullmatch(r"0 wrong, (?:1[7-9]|\d\d) right\n", run.out), run.out


#: A program with callbacks at the death of objects, and with context variables.
CALLED = """
    import contextvars, weakref
    class Thing:
        pass
    class OwnReference(weakref.ref):
        pass
    def many():
        return [str(i) for i in range(10000)]
    def called():
        big = many()
        return lambda reference: big
    thing = Thing()
    reference, own = weakref.ref(thing, called()), OwnReference(thing, called())
    own.kept = many()
    weakref.finalize(thing, print, many()).atexit = False
    request = contextvars.ContextVar("the request")
    user = contextvars.ContextVar("user")
    request.set(many())
    user.set({"rows": many()})
    context = contextvars.copy_context()
    request.set(many())
    # like it, and none
    looks_so = [request, many()]
"""


def test_callbacks_and_context_variables(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(CALLED + LOOK + EVALUATE, "4k")
    held = held_of(run.path)
    named = [held.path(step) for step in range(len(held.steps))]
    missing = {
        "__main__.reference.__callback__ -> variable big",
        "__main__.own.__callback__ -> variable big", "__main__.own.kept",
        "__main__.looks_so[1]",
        "__main__.context._data._Map__root.array -> context variable the request",
        '__main__.context._data._Map__root.array -> context variable user["rows"]',
        "weakref.finalize._registry -> an item.args[0]",
        "a thread -> contextvar_context._data._Map__root.array -> "
        "context variable the request"} - set(named)
    assert not missing, (missing, sorted(named))
    assert run.out.startswith("0 wrong, ")


def test_a_deep_stack(stock_pypy: PyPy) -> None:
    """The walk visits each of 40,000 frames once; otherwise it would take too long."""
    run = stock_pypy.sample("""
    import sys, threading
    from vmprof_allocation.session.session import current
    sys.setrecursionlimit(60000)
    threading.stack_size(512 << 20)
    def down(left):
        local = [left] * 3
        return down(left - 1) if left else current().retainers()
    thread = threading.Thread(target=down, args=(40000,))
    thread.start()
    thread.join()
    """, "64k")
    assert held_of(run.path).problem == 0


@pytest.mark.parametrize("end, said", [
    ("sys.modules.clear()",
     "no heap snapshot at the program's end: sampling has ended before"),
    ("resource.setrlimit(resource.RLIMIT_AS, (now + 1000000, now + 1000000))",
     "no heap snapshot is taken: the limit of the program's address space (RLIMIT_AS) "
     "leaves 0 MiB, but this needs up to 32 MiB")])
def test_a_program_at_its_memory_limit_has_no_answer(stock_pypy: PyPy, end: str,
                                                     said: str) -> None:
    """The program ends as without the sampler, and stderr has the reason."""
    run = stock_pypy.sample("""
    import resource, sys
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * 4096
    """ + end, "64k", "--retainers")
    first, *others = run.err.splitlines()
    assert first == "vmprof: " + said
    # The profile's last records may fail for lack of memory, too.
    assert all("the profile lacks names" in line for line in others)


@pytest.mark.parametrize("what", [
    "os.close(fd)", "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))"])
def test_an_answer_that_could_not_be_written(stock_pypy: PyPy, what: str) -> None:
    """If a snapshot cannot be written to the profile, retainers() gives the reason."""
    run = stock_pypy.command("-c", """
import os, resource, vmprof_allocation
kept = [str(i) for i in range(50000)]
session = vmprof_allocation.start("out.vmprof", "1k")
kept += [str(i) for i in range(50000)]
(fd,) = [int(fd) for fd in os.listdir("/proc/self/fd")
         if os.path.realpath("/proc/self/fd/" + fd).endswith("/out.vmprof")]
size = os.path.getsize("out.vmprof")
%s
for do in session.retainers, session.stop:
    try:
        do()
    except vmprof_allocation.AllocationSamplingError as e:
        print(e)
""" % what)
    assert run.out.splitlines()[0].startswith(
        "the heap snapshot failed: cannot write the profile: "), run


def test_the_retained_size_is_exact(stock_pypy: PyPy) -> None:
    """The retained size is the difference between the heap with the retainer's objects
    and the heap without them.
    """
    source = """
        import gc
        from vmprof_allocation.session.session import current
        kept = {}
        def fill():
            for i in range(20000):
                kept[i] = ["a%d" % i, 0.5]
        current().retainers()        # imports what it needs
        fill()
        gc.collect()
        current().retainers()
        kept.clear()
        gc.collect()
        current().retainers()
    """
    run = stock_pypy.sample(source, "64k", jit="off")
    _, with_it, without = readers.read_events(run.path).held
    (holder,) = [holder for holder in with_it.holders
                 if holder.path == "__main__.kept"]
    # Each item is a list with its items, a string with its characters, and a float.
    assert abs(holder.objects - (with_it.objects - without.objects)) < 1000
    assert abs(holder.bytes - (with_it.bytes - without.bytes)) < 100_000


def test_values_shared_by_two_parts_of_an_object(stock_pypy: PyPy) -> None:
    """A functools.lru_cache with a limit has its values in a dict and in a linked list.
    So the function, which has both, retains the values. In a cache without a limit, the
    dict alone retains them, and the report names only the dict.
    """
    run = stock_pypy.sample("""
        import functools, gc
        from vmprof_allocation.session.session import current
        class Index:
            def __init__(self):
                self.by_name, self.by_number = {}, {}
            def add(self, number):
                entry = ["entry %d" % number, 0.5]
                self.by_name[entry[0]] = self.by_number[number] = entry
        def limited(number):
            return ["limited %d" % number, 0.5]
        def unlimited(number):
            return ["unlimited %d" % number, 0.5]
        limited = functools.lru_cache(maxsize=20000)(limited)
        unlimited = functools.lru_cache(maxsize=None)(unlimited)
        index = Index()
        for i in range(20000):
            limited(i), unlimited(i), index.add(i)
        gc.collect()
        current().retainers()
        limited.cache_clear()
        gc.collect()
        current().retainers()
        del index
        gc.collect()
        current().retainers()
    """, "16k", jit="off")
    all_there, no_values, no_index = readers.read(run.path).held
    held = {holder.path: holder.bytes for holder in all_there.holders}
    for path, freed in (("__main__.limited", all_there.bytes - no_values.bytes),
                        ("__main__.index", no_values.bytes - no_index.bytes)):
        assert freed > 2_000_000
        assert abs(held[path] - freed) < 200_000
    assert held["__main__.unlimited -> variable cache"] > 2_000_000
    assert "__main__.unlimited" not in held


def test_all_instances_of_a_class(stock_pypy: PyPy) -> None:
    """The retained size of all instances is the difference between the heap with the
    instances and without them. If one path retains the instances, the report names the
    path instead.
    """
    source = """
        import gc
        from vmprof_allocation.session.session import current
        class Session:
            def __init__(self, number):
                self.name, self.cart, self.peer = "s%d" % number, [number, 0.5], None
        class Told:
            def __init__(self, number):
                self.rows = [number, str(number), 0.5]
        current().retainers()        # imports what it needs
        told = [Told(i) for i in range(20000)]
        def fill():
            sessions = [Session(i) for i in range(40000)]
            for i, session in enumerate(sessions):
                session.peer = sessions[i * 31 % 40000]
            for i in range(100):
                # each is in two of them
                globals()["some%d" % i] = sessions[i::100]
                globals()["other%d" % i] = sessions[i * 400:i * 400 + 400]
        fill()
        gc.collect()
        current().retainers()
        for name in list(globals()):
            if name[:4] == "some" or name[:5] == "other":
                globals()[name].clear()
        gc.collect()
        current().retainers()
    """
    run = stock_pypy.sample(source, "64k", jit="off")
    _, with_it, without = readers.read_events(run.path).held
    (holder,) = [holder for holder in with_it.holders if holder.is_class]
    assert (holder.path, holder.type) == (
        "all instances of __main__.Session", "__main__.Session")
    assert abs(holder.objects - (with_it.objects - without.objects)) < 1500
    lists = 2 * 8 * 40000       # bytes of the references in the cleared lists
    assert abs(holder.bytes + lists - (with_it.bytes - without.bytes)) < 100_000
    assert not any(holder.is_class for holder in without.holders)
    done = stock_pypy.command("-m", "vmprof_allocation", "retainers", "--json",
                              str(run.path))
    answer = json.loads(done.out)["processes"][0]["answers"][1]
    of, = [row["from_samples"] for row in answer["holders"]
           if row["holders"][0]["path"] == holder.path]
    # The tolerance is five standard deviations.
    assert abs(of["value"] - holder.bytes) < 2.6 * (of["high"] - of["low"])


#: A program whose live objects are smaller than at their allocation.
SMALLER = """
    import os
    from vmprof_allocation.session.session import current
    read, write = os.pipe()
    empty, messages = [object() for _ in range(200_000)], []
    for _ in range(10_000):
        os.write(write, b"x" * 99)
        messages.append(os.read(read, 16384))
"""


@pytest.mark.parametrize("is_smaller", [False, True])
def test_estimates_agree_with_the_exact_sums(stock_pypy: PyPy,
                                             is_smaller: bool) -> None:
    run = stock_pypy.sample((SMALLER if is_smaller else planted(stock_pypy)) + LOOK,
                            "4k")
    done = stock_pypy.command("-m", "vmprof_allocation", "retainers", "--json",
                              str(run.path))
    (answer,) = json.loads(done.out)["processes"][0]["answers"]
    largest = [row for row in answer["holders"] if row["bytes"] > 500_000]
    assert len(largest) >= (2 if is_smaller else 5)
    for row in largest:
        of = row["from_samples"]
        # The tolerance is five standard deviations.
        assert abs(of["value"] - row["bytes"]) < 2.6 * (of["high"] - of["low"]), row


def test_the_tree_of_paths_adds_up(stock_pypy: PyPy) -> None:
    """The sum over all paths is the size of all reachable objects, at any interval.

    A retainer's path has at least the bytes of its retained size.
    """
    for interval in "4k", "1G":
        run = stock_pypy.sample(planted(stock_pypy, LOOK), interval)
        held = held_of(run.path)
        stacks = reached(readers.read_events(run.path), held).stacks
        assert sum(stack.bytes for stack in stacks) == held.bytes
        through: dict[str, int] = collections.Counter()
        for stack in stacks:
            for name in set(stack.holders):
                through[name] += stack.bytes
        of_steps: dict[str, int] = collections.Counter()
        for number, step in enumerate(held.steps):
            of_steps[text_of(held.path(number), step.type)] += step.bytes
        assert {name: size for name, size in through.items()
                if name != OTHERWISE} == of_steps
        single = [holder for holder in held.holders if holder.path]
        assert len(single) >= 15
        for holder in single:
            assert through[text_of(holder.path, holder.type)] >= holder.bytes
        # objects without a path from a module, and objects too small to have a name
        assert through[OTHERWISE] < held.bytes / 20


@pytest.mark.nurseries("1M")     # Small, so that minor collections free young objects.
def test_garbage_has_no_path(stock_pypy: PyPy) -> None:
    source = """
        import gc
        from vmprof_allocation.session.session import current
        class Node:
            pass
        def garbage():
            first = None
            for i in range(50000):
                one = Node()
                one.next, one.self = first, one
                first = one
        garbage()
        gc.collect()
        garbage()
        current().retainers()
    """
    held = held_of(stock_pypy.sample(source, "4k").path)
    no_path = sum(size for size, how in zip(held.sizes, held.hows) if how == NO_PATH)
    assert no_path > 0.5 * sum(
        size for size, how in zip(held.sizes, held.hows) if how != INTERPRETER)


def test_frames_that_have_returned_hold_nothing(stock_pypy: PyPy) -> None:
    """A stack may still contain a reference to a frame that has returned."""
    source = """
        from vmprof_allocation.session.session import current
        def inner():
            gone = [str(i) for i in range(30000)]
            return len(gone)
        def outer():
            kept = [str(i) for i in range(30000)]
            inner()
            current().retainers()
            return kept
        outer()
    """
    held = held_of(stock_pypy.sample(source, "64k").path)
    names = [holder.path for holder in held.holders]
    assert "in outer() app.py:6 -> local kept" in names
    assert not any("gone" in name or "inner" in name for name in names)


def test_values_of_compiled_code(stock_pypy: PyPy) -> None:
    """A compiled loop takes the snapshot. Objects to which only the loop's variables
    refer are found.
    """
    source = """
        from vmprof_allocation.session.session import current
        def key(value):
            if value == 4999:
                current().retainers()
            return value
        def outer():
            grown = []
            for i in range(5000):
                grown.append([str(i), "x%d" % i])
                sorted([i], key=key)
            return grown
        outer()
    """
    held = held_of(stock_pypy.sample(source, "64k").path)
    (holder,) = [holder for holder in held.holders
                 if holder.path.startswith("in outer")]
    assert holder.objects > 15000


def test_values_of_compiled_code_belong_to_the_right_frame(stock_pypy: PyPy) -> None:
    """Values of compiled code belong to the frame that the code runs, and not to a
    called frame, to which the code also refers.
    """
    source = """
        import threading, time
        from vmprof_allocation.session.session import current
        ready, lock = [], threading.Lock()
        def wait(turn):
            if turn == 4000:
                ready.append(1)
                lock.acquire()
        def recursive(depth, turn):
            for i in range(200):
                if depth == 0:
                    wait(turn if i == 199 else 0)
            if depth:
                recursive(depth - 1, turn)
        prepared = [[str(i) for i in range(4000)]] + [["small"] for _ in range(4000)]
        def calls():
            for turn in range(4001):
                only_here = prepared.pop()
                recursive(2, turn)
        with lock:
            thread = threading.Thread(target=calls)
            thread.start()
            while not ready:
                time.sleep(0.1)
            current().retainers()
        thread.join()
    """
    held = held_of(stock_pypy.sample(source, "64k").path)
    (path,) = [held.path(number) for number, step in enumerate(held.steps)
               if step.label == " -> a value of compiled code" and step.type == "list"]
    assert path == "in calls() app.py:16 -> a value of compiled code"


def test_the_walk_reads_compiled_code_like_the_gc(stock_pypy: PyPy) -> None:
    """The probe compares our walk with the GC's in a process without compiled code.
    This test compares them with compiled code on the stack.
    """
    stock_pypy.command("-m", "vmprof_allocation", "doctor")
    source = """
        import os, sys
        from vmprof_allocation.engines.hook.discovery import cache
        from vmprof_allocation.engines.hook.discovery.layout import Layout
        from vmprof_allocation.engines.hook.probe import references
        from vmprof_allocation.engines.hook.probe.memory import Memory, Types
        folder = os.path.join(os.environ["XDG_CACHE_HOME"], "vmprof-allocation")
        name, = [name for name in os.listdir(folder)
                 if name.endswith("-%d" % cache.VERSION)]
        known = os.path.join(folder, name)
        memory = Memory(Layout.parse(cache.load(known)))
        types = Types(memory)
        with open(known + ".types", encoding="utf-8") as file:
            text = file.read()
        def key(value):
            if value == 2999:
                print(references.check(memory, types, text))
            return value
        def outer():
            for i in range(3000):
                only = [i, "only in compiled code"]
                sorted([i], key=key)
                if len(only) > 2:
                    break
        outer()
    """
    run = stock_pypy.run(source)
    assert re.fullmatch(r"\d+ objects agree with the GC's dump; \d+ changed "
                        r"meanwhile\n",
                        run.out), run.err


def test_a_stack_of_a_greenlet(stock_pypy: PyPy) -> None:
    source = """
        import greenlet
        from vmprof_allocation.session.session import current
        def other():
            only_here = [str(i) for i in range(30000)]
            greenlet.getcurrent().parent.switch()
            return only_here
        switched = greenlet.greenlet(other)
        switched.switch()
        current().retainers()
    """
    held = held_of(stock_pypy.sample(source, "64k").path)
    assert any("only_here" in holder.path and holder.objects >= 30000
               for holder in held.holders), held.holders


def test_the_program_does_not_change(stock_pypy: PyPy) -> None:
    """After a heap snapshot, the children, descriptors, signals and mappings are as
    before. No wait() of the program returns the forked process.
    """
    source = """
        import os, signal, sys, threading
        from vmprof_allocation.session.session import current
        heard, seen, done = [], [], []
        signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
        def reap():
            while not done:
                try:
                    seen.append(os.waitpid(-1, os.WNOHANG))
                except ChildProcessError:
                    pass
        def state():
            with open("/proc/self/maps") as file:
                maps = [line for line in file if "/dev/zero" in line]
            with open("/proc/self/task/%d/children" % os.getpid()) as file:
                children = file.read()
            return (sorted(os.listdir("/proc/self/fd")), maps,
                    [signal.getsignal(n) for n in range(1, signal.NSIG)],
                    signal.pthread_sigmask(signal.SIG_BLOCK, []),
                    children)
        kept = [str(i) for i in range(100000)]
        current().retainers()
        before = state()
        thread = threading.Thread(target=reap)
        thread.start()
        for _ in range(8):
            current().retainers()
        done.append(1)
        thread.join()
        after = state()
        print(before == after, heard, seen)
        for one, other in zip(before, after):
            if one != other:
                print(one, other)
    """
    run = stock_pypy.sample(source, "64k")
    assert run.out == "True [] []\n"
    assert len(readers.read_events(run.path).held) == 9


def test_a_process_that_is_killed_is_reported(stock_pypy: PyPy) -> None:
    """If the forked process is killed, the profile contains the failure, and the
    program continues.
    """
    source = """
        import os, signal, threading
        from vmprof_allocation import AllocationSamplingError
        from vmprof_allocation.session.session import current
        done = []
        def kill():
            while not done:
                for name in os.listdir("/proc"):
                    try:
                        words = open("/proc/%s/stat" % name).read().split()
                    except (OSError, ValueError):
                        continue
                    if words[1:2] == ["(who-holds)"] and words[3] == str(os.getpid()):
                        os.kill(int(name), signal.SIGKILL)
        kept = [[str(i)] for i in range(1000000)]
        thread = threading.Thread(target=kill)
        thread.start()
        for _ in range(20):
            try:
                current().retainers()
            except AllocationSamplingError as e:
                print(e)
                break
        done.append(1)
        thread.join()
        current().retainers()
        print("ended")
    """
    run = stock_pypy.sample(source, "64k")
    assert run.out == ("the heap snapshot failed: a signal (SIGKILL) ended the process "
                       "that walks the heap\n"
                       "ended\n")
    *_, killed, last = readers.read_events(run.path).held
    assert (killed.problem, last.problem) == (2009, 0)
    assert "__main__.kept" in [holder.path for holder in last.holders]


def test_retainers_while_threads_run_and_fork(stock_pypy: PyPy) -> None:
    """Each call of retainers() gets a snapshot."""
    source = """
        import gc, os, threading
        from vmprof_allocation.session.session import current
        done = []
        def work():
            while not done:
                def generate():
                    yield [str(i) for i in range(100)]
                generator = generate()
                kept = {i: [next(generator, None)] for i in range(100)}
        def fork():
            while not done:
                pid = os.fork()
                if not pid:
                    os._exit(0)
                os.waitpid(pid, 0)
        threads = [threading.Thread(target=run) for run in (work, work, work, fork)]
        for thread in threads: thread.start()
        for i in range(10):
            current().retainers()
            if i % 2 == 0: gc.collect_step()
        done.append(1)
        for thread in threads: thread.join()
    """
    run = stock_pypy.sample(source, "64k")
    asked = readers.read_events(run.path).held
    assert [held.problem for held in asked] == [0] * 10


def test_at_the_end_of_the_program(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(
        planted(stock_pypy, "    end.set()\n    thread.join()\n"), "16k", "--retainers")
    assert run.err == ""
    assert "shop.seen" in [holder.path for holder in held_of(run.path).holders]


def test_without_a_file_both_reports_are_shown(stock_pypy: PyPy) -> None:
    script = stock_pypy.script("kept = [str(i) for i in range(100000)]\n")
    run = stock_pypy.command("-m", "vmprof", "--allocation-sampling", "64k",
                             "--retainers", str(script))
    assert run.code == 0
    assert run.err.index("estimated total") < run.err.index("by retainer")
    assert "__main__.kept (list)" in run.err


@pytest.mark.parametrize("flags, said", [
    (("--retainers",), "need --allocation-sampling"),
    (("--allocation-sampling", "64k", "--retainers", "--push", "otlp+http://localhost"),
     "but --push cannot send them")])
def test_flags_that_are_refused(stock_pypy: PyPy, flags: tuple[str, ...], said: str
                                ) -> None:
    run = stock_pypy.command("-m", "vmprof", *flags, str(stock_pypy.script("")))
    assert run.code == 2 and said in run.err


def test_control_takes_a_snapshot(stock_pypy: PyPy) -> None:
    source = """
        import sys
        kept = [str(i) for i in range(100000)]
        print("ready")
        sys.stdin.readline()
        print("ended")
    """
    with running(stock_pypy, source, interpreter=PYPY) as program:
        refused = control(stock_pypy, program, "snapshot")
        assert refused.code == 2 and "not on" in refused.err
        assert control(stock_pypy, program, "start", "--allocation-sampling", "16k",
                       "-o", "app.vmprof").code == 0
        done = control(stock_pypy, program, "snapshot")
        assert (done.code, done.err) == (0, "")
        path = stock_pypy.folder / "app.vmprof"
        assert done.out == ("the retainers in process %d are in %s: pypy-alloc "
                            "retainers shows them\n" % (program.pid, path))
        # the retainer of objects from before the sampling is found, too
        (holder, *_) = sorted(held_of(path).holders, key=lambda holder: -holder.bytes)
        assert (holder.path, holder.type) == ("__main__.kept", "list")
        assert control(stock_pypy, program, "stop").code == 0


def test_no_answer_without_the_capability(stock_pypy: PyPy, tmp_path: Path) -> None:
    """No snapshot is taken if the probe found that our walk differs from the GC's."""
    stock_pypy.command("-m", "vmprof_allocation", "doctor")
    folder = Path(stock_pypy.environment["XDG_CACHE_HOME"]) / "vmprof-allocation"
    (known,) = [path for path in folder.iterdir()
                if path.name.endswith("-%d" % cache.VERSION)]
    layout = Layout.parse(cache.load(str(known)) or "")
    layout.references = 0
    other = tmp_path / "cache" / "vmprof-allocation" / known.name
    assert not cache.save(str(other), layout.text(),
                          Path(cache.types_path(str(known))).read_bytes())
    stock_pypy.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    script = stock_pypy.script("")
    run = stock_pypy.command("-m", "vmprof", "--allocation-sampling", "64k",
                             "--retainers", "-o", "x.vmprof", str(script))
    assert run.code == 2 and "doctor" in run.err and "references" in run.err


@pytest.mark.parametrize("left, objects, message", [
    (20, 300000, "no heap snapshot is taken: it needs up to 32 MiB, but the limit of "
                 "the program's address space (RLIMIT_AS) leaves 20 MiB\n"),
    (40, 2000000, "the heap snapshot failed: there is not enough memory for the "
     "process that walks the heap\n")])
def test_limit_of_the_address_space(stock_pypy: PyPy, left: int, objects: int,
                                    message: str) -> None:
    source = """
        import resource
        from vmprof_allocation import AllocationSamplingError
        from vmprof_allocation.session.session import current
        kept = [[str(i)] for i in range(OBJECTS)]
        current().retainers()
        size = int(open("/proc/self/statm").read().split()[0]) * 4096
        limit = size + (LEFT << 20) + 2**16
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            current().retainers()
        except AllocationSamplingError as e:
            print(e)
    """
    source = source.replace("OBJECTS", str(objects)).replace("LEFT", str(left))
    run = stock_pypy.sample(source, "64k")
    assert run.out == message


def test_a_leak_is_reported_with_its_retainer(stock_pypy: PyPy) -> None:
    source = """
        import gc, vmprof_allocation
        from vmprof_allocation.session.session import current
        kept = []
        def remember():
            for i in range(20000):
                kept.append(["a%d" % i])
        for mark in "warm", "once", "twice":
            remember()
            gc.collect()
            vmprof_allocation.mark(mark)
            gc.collect()
        current().retainers()
    """
    run = stock_pypy.sample(source, "4k")
    done = stock_pypy.command("-m", "vmprof_allocation", "leaks", str(run.path))
    first, *more = done.out.splitlines()
    assert first.startswith("leak: ") and "remember" in first
    (held,) = [line for line in more if "held by" in line]
    assert re.fullmatch(r" *held by __main__\.kept \((100|9\d) %\)", held)
