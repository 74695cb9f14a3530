"""Test that allocations of real programs are attributed to the right functions."""
from __future__ import annotations

import pytest

from conftest import PyPy
from truth import (
    SIGMAS,
    allowed,
    bytes_by_function,
    innermost,
    objects_of,
    string_size,
    total_bytes,
)


@pytest.mark.parametrize("jit", ["off", ""])
def test_stacks_have_the_depth_of_the_recursion(pypy: PyPy, jit: str) -> None:
    """Each call of a recursive function is one frame, in interpreted, compiled and
    inlined code. The size of the object that a call allocates gives the call's depth.
    """
    profile = pypy.sample("""
        source = [b"x" * (15000 + 32 * n) for n in range(13)]
        kept = [None]
        def down(n):
            kept[0] = source[n].upper()
            if n:
                down(n - 1)
        def top():
            for i in range(20000):
                down(12)
        top()
    """, "150k", jit=jit).profile()
    kinds = set()
    checked = 0
    for stack, size in zip(profile.samples.stack, profile.samples.size):
        frames = profile.stacks[stack]
        names = [profile.function(f.address).name for f in frames]
        n, rest = divmod(size - string_size(15000), 32)
        if rest == 0 and 0 <= n < 13 and names[-1] == "down":
            assert names.count("down") == 13 - n
            assert names.count("top") == 1
            kinds |= {f.kind for f in frames}
            checked += 1
    assert checked > 10000
    assert kinds == ({"interpreted"} if jit else {"interpreted", "jit"})


def test_allocation_in_inlined_function_is_charged_to_it(pypy: PyPy) -> None:
    """The JIT's machine code that calls the GC is after the end of the compiled loop.
    vmprof's own rule would find only the function of the loop there.
    """
    profile = pypy.sample("""
        filler = b"x" * 2000
        kept, order = [None], [2, 1]
        def inlined(i):
            kept[0] = filler[i & 7:1000 + (i & 7)]
            order.sort()        # the string can't be made later than here
        def loop():
            for i in range(100000):
                inlined(i)
        loop()
    """, "16k").profile()
    # Select the allocations of the string, alone or with objects of the same batch.
    large = [stack for stack, size in zip(
        profile.samples.stack, profile.samples.size)
        if string_size(1000) <= size < string_size(1000) + 100]
    names = [innermost(profile, stack)
             for stack in large]
    assert len(large) > 5000
    assert names.count("inlined") >= 0.99 * len(names)


@pytest.mark.parametrize("jit", ["off", ""])
def test_list_that_grows_is_charged_to_the_appending_function(pypy: PyPy,
                                                              jit: str) -> None:
    """When a list grows, compiled code calls the GC through another function of the
    JIT, and more machine code follows the call.
    """
    profile = pypy.sample("""
        def grow(n):
            result = []
            for i in range(n):
                result.append(i)
            return result
        def many():
            for i in range(300):
                grow(20000)
        many()
    """, "16k", jit=jit).profile()
    found = bytes_by_function(profile)
    assert found["grow"] > 50 * 2**20
    assert found["grow"] > 0.98 * total_bytes(profile)


def test_exceptions_and_generators(pypy: PyPy) -> None:
    profile = pypy.sample("""
        filler = b"x" * 2000
        def generate(n):
            for i in range(n):
                yield filler[:1500]
        def thrower(n):
            for i in range(n):
                try:
                    raise ValueError(filler[:1500])
                except ValueError:
                    pass
        def main():
            for i in range(20):
                for x in generate(500):
                    pass
                thrower(500)
        main()
    """, "4k", jit="off").profile()
    size = string_size(1500)
    for name in "generate", "thrower":
        assert abs(objects_of(profile, name, size) - 10000) <= allowed(
            10000, size, 4096)


def test_threads_have_their_own_numbers_and_shares(pypy: PyPy) -> None:
    run = pypy.sample("""
        import threading
        filler = b"x" * 5000
        def one(n):
            for i in range(n): filler[:3000]
        def two(n):
            for i in range(n): filler[:3000]
        ids = {}
        def work(f, n):
            ids[f.__name__] = threading.get_native_id()
            f(n)
        threads = [threading.Thread(target=work, args=a)
                   for a in ((one, 20000), (two, 40000))]
        for t in threads: t.start()
        for t in threads: t.join()
        print(ids["one"], ids["two"], threading.get_native_id())
    """, "8k", jit="off")
    one, two, main = map(int, run.out.split())
    profile = run.profile()
    assert int(profile.settings["pid"]) == main
    size = string_size(3000)
    for name, thread, count in ("one", one, 20000), ("two", two, 40000):
        rows = [i for i, s in enumerate(profile.samples.size)
                if s == size and profile.samples.thread[i] == thread]
        names = {innermost(profile, profile.samples.stack[i]) for i in rows}
        assert names == {name}
        p = 1 - 2.718281828459 ** (-size / 8192)
        assert abs(len(rows) - count * p) <= SIGMAS * (
            count * p * (1 - p)) ** 0.5
